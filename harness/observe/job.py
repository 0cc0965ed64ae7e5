"""From one PID to the job it belongs to: its ranks, their helpers, the launcher above. Nothing is disturbed."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from harness.core.errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_PYTHON = re.compile(r"^(python|pypy)[\d.]*(t|d)?$")
_PYTHON_THREAD = re.compile(r"^(python|pypy|pt_main_thread)")
_KEPT = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")
_HELPERS = (
    (re.compile(r"^pt_data_worker|^pt_data_pin"), "DataLoader worker"),
    (re.compile(r"multiprocessing\.resource_tracker|multiprocessing/resource_tracker"), "resource tracker"),
    (re.compile(r"multiprocessing\.forkserver"), "fork server"),
    (re.compile(r"torch[/.]_inductor[/.]compile_worker|triton.*compile"), "compile worker"),
    (re.compile(r"torch_shm_manager"), "shared-memory manager"),
)
_SPAWNED = re.compile(r"multiprocessing\.spawn")


class NoJobError(HarnessError):
    """There is no such process, or none of its family runs Python."""

    help = "Give the PID of a rank, of torchrun, or of the shell that started it: ps -ef --forest | grep python"


class Listed(Protocol):
    """One process of a process table, as ``harness.launch.procs`` reads it."""

    @property
    def pid(self) -> int:
        """Its number."""
        ...

    @property
    def started(self) -> int:
        """When it started, clock ticks since boot."""
        ...

    @property
    def parent(self) -> int:
        """Its parent's number."""
        ...

    @property
    def state(self) -> str:
        """The kernel's letter."""
        ...

    @property
    def command(self) -> str:
        """The kernel's short name."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One process: ``started`` (clock ticks since boot) tells it from a later one with its PID.

    ``command`` is the kernel's short name, ``argv`` the command line, ``env`` what a launcher set at its start.
    """

    pid: int
    started: int
    parent: int
    state: str
    command: str
    argv: str = ""
    python: bool = False
    env: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def rank(self) -> int | None:
        """Its RANK (LOCAL_RANK where that is all there is), None without."""
        text = self.env.get("RANK") or self.env.get("LOCAL_RANK") or ""
        return int(text) if text.isdecimal() else None

    @property
    def run(self) -> tuple[str | None, ...]:
        """What ranks of one job have in common."""
        return tuple(self.env.get(name) for name in ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"))

    @property
    def ended(self) -> bool:
        """Whether only its exit status is left."""
        return self.state in "ZX"

    @property
    def helper(self) -> str:
        """What kind of helper it is by its name or command line; empty for none that is known."""
        texts = (self.command, self.argv)
        return next((kind for pattern, kind in _HELPERS if any(pattern.search(text) for text in texts)), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One rank, or one Python process of a job without ranks, with its helper processes (PID, kind)."""

    member: Member
    helpers: tuple[tuple[Member, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """``launcher`` is the process below which the job was found.

    ``absent`` are ranks that WORLD_SIZE promises and that are not below the launcher: (rank, why, whether it should
    be here); ``ended`` are Python children whose exit status nobody collected.
    """

    launcher: Member
    workers: tuple[Worker, ...]
    absent: tuple[tuple[int, str, bool], ...] = ()
    ended: tuple[Member, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A process as ``listed`` reads it."""

    pid: int
    started: int
    parent: int
    state: str
    command: str


def listed(*, root: Path = Path("/proc")) -> dict[int, Row]:
    """All processes that can be seen now, by PID."""
    rows: dict[int, Row] = {}
    for stat in root.glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it ended while we looked
            head, _, tail = stat.read_text(errors="replace").rpartition(")")
            field_ = tail.split()
            pid, _, command = head.partition(" (")
            rows[int(pid)] = Row(
                pid=int(pid), started=int(field_[19]), parent=int(field_[1]), state=field_[0], command=command
            )
    return rows


def members(table: Mapping[int, Listed], *, root: Path = Path("/proc")) -> dict[int, Member]:
    """What /proc tells of every process in ``table``; what this user may not read is left empty."""
    return {pid: _member(listed, folder=root / str(pid)) for pid, listed in table.items()}


def find_job(pid: int, *, table: Mapping[int, Member]) -> Job:
    """The job of ``pid``: the tree below it; for a rank or a helper, the ranks of the same run below its launcher.

    Raises:
        NoJobError: no such process, or no Python process in its tree.
    """
    if pid not in table:
        raise NoJobError(f"there is no process {pid}")
    start = _owner(table[pid], table)
    launcher = _launcher(start, table)
    below = _below(launcher, table)
    ranks = [m for m in below if m.python and m.rank is not None and _nearest_rank(m, table) is None]
    if start.rank is not None:
        ranks = [m for m in ranks if m.run == start.run]
    chosen = ranks or [m for m in below if m.python and not m.helper]
    if not chosen:
        raise NoJobError(f"process {pid} ({table[pid].command}) has no Python process in its tree")
    chosen.sort(key=lambda m: (m.rank if m.rank is not None else -1, m.started, m.pid))
    known = {m.pid for m in chosen}
    workers = tuple(Worker(member=m, helpers=_helpers(m, table, known=known)) for m in chosen)
    # Orphans fall to process 1, and so do everybody else's.
    ended = tuple(m for m in below if m.parent == launcher.pid != 1 and m.ended and _PYTHON_THREAD.match(m.command))
    return Job(launcher=launcher, workers=workers, absent=_absent(ranks), ended=ended)


def _owner(member: Member, table: Mapping[int, Member]) -> Member:
    """The process that a helper works for; any other process itself."""
    at = member
    while at.helper and at.parent in table:
        at = table[at.parent]
    return at


def _launcher(member: Member, table: Mapping[int, Member]) -> Member:
    """The nearest process above that is not itself of the rank; for a process that was spawned, its spawner."""
    at = member
    while at.parent in table and (
        (at.rank is not None and at.env == member.env) or _SPAWNED.search(at.argv) or (at.helper and at is not member)
    ):
        at = table[at.parent]
    return at


def _below(top: Member, table: Mapping[int, Member]) -> list[Member]:
    """``top`` and every process below it, parents first."""
    children: dict[int, list[Member]] = {}
    for member in table.values():
        children.setdefault(member.parent, []).append(member)
    found, frontier = [top], [top]
    while frontier:
        frontier = [child for member in frontier for child in children.pop(member.pid, ()) if child is not top]
        found += frontier
    return found


def _nearest_rank(member: Member, table: Mapping[int, Member]) -> Member | None:
    """The Python process above ``member`` that has the same rank of the same run: ``member`` is its child then."""
    at = table.get(member.parent)
    while at is not None and at.rank == member.rank and at.run == member.run:
        if at.python:
            return at
        at = table.get(at.parent)
    return None


def _helpers(member: Member, table: Mapping[int, Member], *, known: set[int]) -> tuple[tuple[Member, str], ...]:
    """The live processes below ``member`` that are no worker themselves nor below another one."""
    rest = {pid: m for pid, m in table.items() if pid == member.pid or (pid not in known and not m.ended)}
    return tuple((m, m.helper or f"child {m.command}") for m in _below(member, rest)[1:])


def _absent(ranks: Iterable[Member]) -> tuple[tuple[int, str, bool], ...]:
    """The ranks that WORLD_SIZE promises and nobody here has, with what is known of them."""
    runs: dict[tuple[str | None, ...], list[Member]] = {}
    for member in ranks:
        runs.setdefault(member.run, []).append(member)
    if len(runs) != 1:
        return ()
    found = next(iter(runs.values()))
    world, local = (_number(found[0].env.get(name)) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    missing = sorted(set(range(world)) - {m.rank for m in found if m.rank is not None})
    here: set[int] = set()
    for m in found:
        base = (m.rank or 0) - _number(m.env.get("LOCAL_RANK"))
        here.update(range(base, base + local))
    if not here:
        return tuple((rank, "is not here: it has ended, or runs below another launcher", True) for rank in missing)
    return tuple(
        (rank, "has ended", True) if rank in here else (rank, "is not here: it belongs to another launcher", False)
        for rank in missing
    )


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0


def _member(listed: Listed, *, folder: Path) -> Member:
    argv = _read(folder / "cmdline")
    entries = (entry.partition("=") for entry in _read(folder / "environ"))
    program = Path(_target(folder / "exe") or (argv[0] if argv else "")).name.removesuffix(" (deleted)")
    return Member(
        pid=listed.pid,
        started=listed.started,
        parent=listed.parent,
        state=listed.state,
        command=listed.command,
        argv=" ".join(argv),
        python=bool(_PYTHON.match(program)),
        env={name: value for name, _, value in entries if name in _KEPT},
    )


def _read(path: Path) -> list[str]:
    try:
        return [part for part in path.read_bytes().decode(errors="replace").split("\0") if part]
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []


def _target(path: Path) -> str:
    try:
        return str(path.readlink())
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""
