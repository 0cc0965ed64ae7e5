"""From one PID to the job it belongs to: its ranks, their helpers, the launcher above. Nothing is disturbed.

A process is known by its PID, its start time and the PID that it has in a namespace of its own: a container's rank
calls itself 7 and is 4711 here. Only processes of the job are looked at: what lies below the process that was named,
and above it what has started the ranks. A process that shares a number with one of them is somebody else's. Process 1,
below which everything is that lost its parent, is looked at where it was named itself, and is a job. Whoever asks is no
part of the job, nor is what it has started.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from harness.core.errors import HarnessError
from harness.observe.procfs import Files
from harness.shim.nsa_harness_shim import RANKS, WORLDS, number_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_PYTHON = re.compile(r"^(python|pypy)[\d.]*(t|d)?$")
_MAIN_OF_PYTHON = re.compile(r"\0(Py_BytesMain|Py_Main|pypy_main_startup)\0")
"""What a program calls, or has, that begins as Python's interpreter, whatever its name."""

_PYTHON_LIBRARY = re.compile(r"/lib(python|pypy)\d[\w.-]*\.so[\d.]*$", re.MULTILINE)
_TOOL = re.compile(r"^(gdb|lldb|perf|g?vim)\b")
"""Programs that have Python in them for their own scripts, and stand beside a job."""

_PYTHON_THREAD = re.compile(r"^(python|pypy|pt_main_thread)")
_VARIABLES = (*RANKS, *WORLDS, "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")
_HELPERS = (
    (re.compile(r"^pt_data_worker|^pt_data_pin"), "DataLoader worker"),
    (re.compile(r"multiprocessing\.resource_tracker|multiprocessing/resource_tracker"), "resource tracker"),
    (re.compile(r"multiprocessing\.forkserver"), "fork server"),
    (re.compile(r"torch[/.]_inductor[/.]compile_worker|triton.*compile"), "compile worker"),
    (re.compile(r"torch_shm_manager"), "shared-memory manager"),
)
_INIT = re.compile(r"^(systemd|init|runit|runit-init|openrc-init|upstart|launchd)$")
"""The names of what a machine begins with, and all of its processes are below."""

_STARTER = re.compile(r"^-?(ba|da|z|k|mk|a|fi|c|tc)?sh$|^busybox$|^(tini|dumb-init|docker-init|catatonit)")
"""The names of what a container begins with where that only starts the job: a shell, or what waits for its children."""

_OURS = re.compile(
    r"^(\S+( -[WX] \S+| -\S+)* )?((\S*/)?(nsa-harness(\.pyz)?|nsa_harness(/start\.py)?)|-m (nsa_)?harness)( |$)"
)
"""The command line of one of our commands, by the program or by the script that an interpreter runs."""

_SPAWNED = re.compile(r"multiprocessing\.spawn")
_INSTRUMENT = frozenset({"nsa-guard", "nsa-supervisor", "nsa-forkserver"})
"""The kernel's names of what runs between a command of ours and the program that it runs."""

_FORKED = 0x40
"""The kernel's flag (``PF_FORKNOEXEC``) of a process that was forked and has begun no program of its own."""

_FILES = Files()


class NoJobError(HarnessError):
    """There is no such process, or none of its family runs Python."""

    help = "Give the PID of a rank, of torchrun, or of the shell that started it: ps -ef --forest | grep python"


def rank_in(env: Mapping[str, str]) -> int | None:
    """The rank that a launcher set in an environment; None without."""
    return number_in(env, (*RANKS, "LOCAL_RANK"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One process: ``started`` (clock ticks since boot) tells it from a later one with its PID.

    ``inner`` is its PID in its own namespace. ``command`` is the kernel's short name, ``argv`` the command line,
    ``env`` what a launcher set at its start. ``forked``: it runs the program of the process that forked it.
    """

    pid: int
    started: int
    parent: int
    state: str
    command: str
    inner: int = 0
    argv: str = ""
    python: bool = False
    forked: bool = False
    env: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def rank(self) -> int | None:
        """The rank that its launcher gave it (LOCAL_RANK where that is all there is), None without."""
        return rank_in(self.env)

    @property
    def world(self) -> int:
        """How many ranks there are by what its launcher told it; 0 without."""
        return number_in(self.env, WORLDS) or 0

    @property
    def run(self) -> tuple[str | None, ...]:
        """What ranks of one job have in common."""
        shared = (*WORLDS, "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")
        return tuple(map(self.env.get, shared))

    @property
    def ended(self) -> bool:
        """Whether only its exit status is left."""
        return self.state in "ZX"

    @property
    def is_harness(self) -> bool:
        """Whether its command line is that of a harness, which may name other programs: another guard has a pattern."""
        return bool(_OURS.search(self.argv.split(" -- ")[0]))

    @property
    def is_instrument(self) -> bool:
        """Whether it is a command of ours, or runs between one and the program below it."""
        return self.command in _INSTRUMENT or self.is_harness

    @property
    def helper(self) -> str:
        """What kind of helper it is by its name or command line; empty for none that is known."""
        for pattern, kind in _HELPERS:
            if pattern.search(self.command) or pattern.search(self.argv):
                return kind
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One rank, or one Python process of a job without ranks, with its helper processes (PID, kind)."""

    member: Member
    helpers: tuple[tuple[Member, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTree:
    """``launcher`` is the process below which the job was found.

    ``absent`` are ranks that WORLD_SIZE promises and that are not below the launcher: (rank, why, whether it should
    be here); ``gone`` are those of them that have ended for certain. ``ended`` are Python children whose exit status
    nobody collected.
    """

    launcher: Member
    workers: tuple[Worker, ...]
    absent: tuple[tuple[int, str, bool], ...] = ()
    gone: frozenset[int] = frozenset()
    ended: tuple[Member, ...] = ()

    @property
    def members(self) -> tuple[Member, ...]:
        """The workers' own processes."""
        return tuple(worker.member for worker in self.workers)

    @property
    def beside_the_first(self) -> tuple[Member, ...]:
        """Programs without ranks that were started by something else than a program of the job."""
        inside = {member.pid for member in self.members}
        for worker in self.workers:
            inside.update(helper.pid for helper, _ in worker.helpers)
        return tuple(m for m in self.members[1:] if m.rank is None and m.parent not in inside)


class Tree(Protocol):
    """Processes by PID and who started whom, looked up one by one."""

    def get(self, pid: int) -> Member | None:
        """The process ``pid``; None when there is none, or it is not to be looked at."""
        ...

    def process_of(self, number: int) -> int:
        """The process of which this is a thread; the number itself where it is a process, or nothing."""
        ...

    def children(self, pid: int) -> Iterable[int]:
        """The PIDs of the processes that ``pid`` started and that are still there."""
        ...


class ProcTree:
    """The processes of this machine, of which only those are opened that are asked for.

    ``named`` is the process that the user named: no other one leads to process 1. This process is not in the tree,
    nor is a guard that has started it to look.
    """

    def __init__(self, *, named: int = 0, files: Files = _FILES, own: int | None = None) -> None:
        self._lowest, self._files = 1 if named == 1 else 2, files
        self._own = _with_harnesses_above(os.getpid() if own is None else own, files)

    def get(self, pid: int) -> Member | None:
        """The process ``pid`` now."""
        if pid < self._lowest or pid in self._own:
            return None
        return read_member(pid, files=self._files, is_of_job=True)

    def process_of(self, number: int) -> int:
        """By the thread's own status."""
        return int(self._files.fields(f"{number}/status").get("Tgid", number)) if number >= self._lowest else number

    def children(self, pid: int) -> Iterable[int]:
        """Its children now, whichever of its threads started them."""
        pids: list[int] = []
        for tid in sorted(self._files.names(f"{pid}/task")):
            pids += map(int, (self._files.text(f"{pid}/task/{tid}/children") or "").split())
        return [child for child in pids if child not in self._own]


def _with_harnesses_above(pid: int, files: Files) -> frozenset[int]:
    """``pid`` and whoever has started it, as far as that is a harness too."""
    own, at = {pid}, read_member(pid, files=files)
    while at is not None and (above := read_member(at.parent, files=files)) is not None and above.is_harness:
        own.add(above.pid)
        at = above
    return frozenset(own)


class ProcessTable:
    """A table of processes as a tree: those of a trial, or a recorded one."""

    def __init__(self, members: Mapping[int, Member]) -> None:
        self._members = members

    def process_of(self, number: int) -> int:
        """A table has processes alone."""
        return number

    def get(self, pid: int) -> Member | None:
        """The process ``pid``, if it is in the table."""
        return self._members.get(pid)

    def children(self, pid: int) -> Iterable[int]:
        """Those in the table that name it as their parent."""
        return [member.pid for member in self._members.values() if member.parent == pid]


def find_job(pid: int, *, tree: Tree) -> JobTree:
    """The job of ``pid``: the tree below it; for a rank or a helper, the ranks of the same run below its launcher.

    A command of ours is no part of it: of ``nsa-harness run`` the job is the program that it runs.

    Raises:
        NoJobError: no such process, no Python process in its tree, or it is process 1 and no job.
    """
    if (whose := tree.process_of(pid)) != pid:
        raise NoJobError(f"{pid} is a thread of process {whose}: name that one")
    member = tree.get(pid)
    if member is None:
        raise NoJobError(f"there is no process {pid}")
    if member.ended:
        why = "has ended; its exit status was not collected yet"
        raise NoJobError(f"process {pid} ({member.command}) {why}")
    if why := _no_job(member):
        raise NoJobError(f"process {pid} ({member.command}) is {why}: name the job itself")
    start = _owner(member, tree)
    launcher = _launcher(start, tree)
    below = _below(launcher, tree)
    programs = [m for m in below if not m.is_instrument]
    ranks = ranks_among(programs, tree)
    if start.rank is not None:
        ranks = [m for m in ranks if m.run == start.run]
    chosen = ranks or programs_among(programs)
    if not chosen and member.is_instrument:
        raise NoJobError(f"process {pid} is nsa-harness itself, and no Python program of its runs at this moment")
    if not chosen:
        raise NoJobError(f"process {pid} ({member.command}) has no Python process in its tree")
    chosen.sort(key=lambda m: (m.rank if m.rank is not None else -1, m.started, m.pid))
    worker_pids = {m.pid for m in chosen}
    workers = tuple(Worker(member=m, helpers=_helpers(m, tree, worker_pids=worker_pids)) for m in chosen)
    ended = _uncollected(launcher, below)
    absent, gone = _absent(ranks, launcher, died=bool(ended))
    return JobTree(launcher=launcher, workers=workers, absent=absent, gone=gone, ended=ended)


def _no_job(member: Member) -> str:
    """Why process 1 is no job; empty where it is one, as in many a container, and for every other process."""
    if member.pid != 1 or member.python or _STARTER.match(member.command):
        return ""
    if _INIT.match(member.command):
        return "the machine's init, and every process is below it"
    return "neither Python nor a shell, and every process is below it that lost its parent"


def ranks_among(members: Iterable[Member], tree: Tree) -> list[Member]:
    """Those of a job's processes that are a rank themselves, and not something that a rank has started."""
    return [m for m in members if m.python and m.rank is not None and _nearest_rank(m, tree) is None]


def programs_among(members: Iterable[Member]) -> list[Member]:
    """The Python processes among these that are no helpers."""
    return [m for m in members if m.python and not m.helper]


def _uncollected(launcher: Member, below: Iterable[Member]) -> tuple[Member, ...]:
    """The Python children of ``launcher`` of which only the exit status is left."""
    ended: list[Member] = []
    for member in below:
        # Orphans fall to process 1, and so do everybody else's.
        is_its_own = member.parent == launcher.pid != 1
        if is_its_own and member.ended and _PYTHON_THREAD.match(member.command):
            ended.append(member)
    return tuple(ended)


def _owner(member: Member, tree: Tree) -> Member:
    """The process that a helper works for, or that forked it and may have its locks; any other process itself."""
    at = member
    while (at.helper or at.forked) and (above := tree.get(at.parent)) is not None:
        if not at.helper and above.argv != at.argv:  # who forked it is gone, and another one has taken it over
            break
        at = above
    return at


def _launcher(member: Member, tree: Tree) -> Member:
    """The nearest process above that is not itself of the rank; for a process that was spawned, its spawner."""
    at = member
    while (
        (at.rank is not None and at.env == member.env) or _SPAWNED.search(at.argv) or (at.helper and at is not member)
    ):
        above = tree.get(at.parent)
        if above is None:
            break
        at = above
    return at


def _below(top: Member, tree: Tree, *, but: Callable[[Member], bool] = lambda _: False) -> list[Member]:
    """``top`` and every process below it, parents first, ``but`` some and what is below those."""
    members, frontier, pids = [top], [top], {top.pid}
    while frontier:
        children: list[int] = []
        for member in frontier:
            children += tree.children(member.pid)
        frontier = list[Member]()
        for pid in children:
            child = None if pid in pids else tree.get(pid)
            if child is not None and not but(child):
                frontier.append(child)
        pids.update(children)
        members += frontier
    return members


def _nearest_rank(member: Member, tree: Tree) -> Member | None:
    """The Python process above ``member`` that has the same rank of the same run: ``member`` is its child then."""
    if member.rank is None:
        return None
    at = tree.get(member.parent)
    while at is not None and at.rank == member.rank and at.run == member.run:
        if at.python and not at.is_instrument:
            return at
        at = tree.get(at.parent)
    return None


def _helpers(member: Member, tree: Tree, *, worker_pids: set[int]) -> tuple[tuple[Member, str], ...]:
    """The live processes below ``member`` that are no worker themselves nor below another one."""
    below = _below(member, tree, but=lambda child: child.ended or child.pid in worker_pids)[1:]
    return tuple((m, m.helper or f"child {m.command}") for m in below)


def _absent(
    ranks: Iterable[Member], launcher: Member, *, died: bool
) -> tuple[tuple[tuple[int, str, bool], ...], frozenset[int]]:
    """The ranks that WORLD_SIZE promises and nobody here has, with what is known of them; and which have ended.

    ``died``: something below ``launcher`` has ended that it has not collected, which may have been one of them. Where
    what started the ranks is gone, or they were started by hand, nothing says where the others are: each may run
    below a shell of its own.
    """
    runs: dict[tuple[str | None, ...], list[Member]] = {}
    for member in ranks:
        runs.setdefault(member.run, []).append(member)
    if len(runs) != 1:
        return (), frozenset()
    members = next(iter(runs.values()))
    world, local = members[0].world, number_in(members[0].env, ("LOCAL_WORLD_SIZE",)) or 0
    missing = set(range(world)) - {m.rank for m in members}
    here: set[int] = set()
    for m in members if launcher.rank is None else ():
        base = (m.rank or 0) - (number_in(m.env, ("LOCAL_RANK",)) or 0)
        here.update(range(base, base + local))
    gone = missing & here if here or not died else missing
    return tuple(_absence(rank, here) for rank in sorted(missing)), frozenset(gone)


def _absence(rank: int, here: set[int]) -> tuple[int, str, bool]:
    """Why a rank is absent, by the ranks that launchers of this machine have started; whether it should be here."""
    if not here:
        return rank, "is not here: it has ended, or runs below another launcher", True
    if rank in here:
        return rank, "has ended", True
    return rank, "is not here: it belongs to another launcher", False


def read_member(pid: int, *, files: Files = _FILES, is_of_job: bool = False) -> Member | None:
    """One process; what this user may not read of it is left empty, None when it is gone.

    One that ``is_of_job`` is Python under any name; another one is not looked into for that.
    """
    fields = files.stat(f"{pid}")
    if fields is None:
        return None
    argv = files.parts(f"{pid}/cmdline")
    env: dict[str, str] = {}
    for entry in files.parts(f"{pid}/environ"):
        name, _, value = entry.partition("=")
        if name in _VARIABLES:
            env[name] = value
    program = Path(files.link(f"{pid}/exe") or (argv[0] if argv else "")).name.removesuffix(" (deleted)")
    command = (files.text(f"{pid}/comm") or "").strip()
    is_python = bool(_PYTHON.match(program))
    if is_of_job and not is_python:
        is_python = is_interpreter(pid, files) or _maps_python(pid, command, files)
    return Member(
        pid=pid,
        started=int(fields[19]),
        parent=int(fields[1]),
        state=fields[0],
        inner=files.inner(f"{pid}") or pid,
        command=command,
        argv=" ".join(argv),
        python=is_python,
        forked=bool(int(fields[6]) & _FORKED),
        env=env,
    )


def is_interpreter(pid: int, files: Files) -> bool:
    """Whether the executable of a process is Python's interpreter, by its name or by what it begins with."""
    if _PYTHON.match(Path(files.link(f"{pid}/exe")).name.removesuffix(" (deleted)")):
        return True
    try:
        stat = os.stat(f"{files.root}/{pid}/exe")  # noqa: PTH116 - a link into another root
    except (OSError, ValueError):
        return False
    return _begins_as_python(files, f"{pid}/exe", (stat.st_dev, stat.st_ino, stat.st_mtime_ns))


@lru_cache(maxsize=256)
def _begins_as_python(files: Files, program: str, _: tuple[int, int, int]) -> bool:
    return bool(_MAIN_OF_PYTHON.search(files.script(program)))


def _maps_python(pid: int, command: str, files: Files) -> bool:
    return not _TOOL.match(command) and bool(_PYTHON_LIBRARY.search(files.text(f"{pid}/maps") or ""))


def ancestors(pid: int) -> frozenset[int]:
    """``pid`` and those that it was started by."""
    above: set[int] = set()
    while pid > 0 and pid not in above:
        above.add(pid)
        member = read_member(pid)
        pid = member.parent if member is not None else 0
    return frozenset(above)


def is_same(member: Member) -> bool:
    """Whether the PID still belongs to that very process, and it lives."""
    fields = _FILES.stat(f"{member.pid}")
    return fields is not None and int(fields[19]) == member.started and fields[0] not in "ZX"
