"""Processes as /proc shows them: who descends from whom, who carries a token; and signals that hit no stranger.

Standard library only and quick to import: the supervisor of every trial uses it too.
"""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

TOKEN = "NSA_HARNESS_TRIAL"
"""The environment variable that every process of a trial inherits, with a value of its own per trial."""

NO_TOKEN = "0" * 32
"""The same in a fork server: a place for the token, which every fork writes over with its own."""

_KILL_ROUNDS = 100
_ROUND_S = 0.02


class Process(NamedTuple):
    """One process at one moment. ``pid`` and ``started`` (clock ticks since boot) name it for ever."""

    pid: int
    started: int
    parent: int
    state: str
    threads: int
    command: str

    @property
    def dead(self) -> bool:
        """Whether only its exit status is left. A zombie with further threads is a main thread that ended early."""
        return self.state in "ZXx" and self.threads <= 1


def read(pid: int) -> Process | None:
    """The process ``pid`` now, or None when there is none."""
    text = _content(pid, "stat").decode(errors="replace")
    if not text:
        return None
    # The command is in parentheses and may itself hold spaces and parentheses: split at the last one.
    head, _, tail = text.rpartition(")")
    field = tail.split()
    return Process(
        pid=pid,
        started=int(field[19]),
        parent=int(field[1]),
        state=field[0],
        threads=int(field[17]),
        command=head.partition("(")[2],
    )


def _content(pid: int, name: str) -> bytes:
    """What a file of a process in /proc holds; nothing where the process is gone, or may not be looked at.

    A process that goes while we look shows on opening or on reading: there is no file then, or no process.
    """
    try:
        fd = os.open(f"/proc/{pid}/{name}", os.O_RDONLY)
        try:
            chunks: list[bytes] = []
            while chunk := os.read(fd, 1 << 16):
                chunks.append(chunk)
        finally:
            os.close(fd)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""
    return b"".join(chunks)


def waiting(process: Process) -> tuple[str, str]:
    """The state of the thread by which ``process`` is still there, and in which function of the kernel that waits.

    A main thread that has ended is a zombie for as long as another one cannot. Empty where the kernel hides it.
    """
    with suppress(OSError):
        for tid in os.listdir(f"/proc/{process.pid}/task"):  # noqa: PTH208
            thread = read(int(tid))
            if thread is not None and thread.state not in "ZXx":
                where = _content(int(tid), "wchan").decode()
                return thread.state, "" if where == "0" else where
    return process.state, ""


def everything() -> dict[int, Process]:
    """All processes of this PID namespace by PID. Not atomic: one may appear or go while we look."""
    table: dict[int, Process] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib is slow to import
        process = read(int(name)) if name.isdecimal() else None
        if process is not None:
            table[process.pid] = process
    return table


def descendants(root: int, table: dict[int, Process]) -> list[Process]:
    """All live processes below ``root`` in ``table``, parents before children, ``root`` itself left out."""
    children: dict[int, list[Process]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process)
    processes = children.pop(root, [])
    for process in processes:  # which grows by its children
        processes += children.pop(process.pid, ())
    return [process for process in processes if not process.dead]


def carrying(token: str, candidates: Iterable[Process]) -> list[Process]:
    """The live ones among ``candidates`` whose environment at exec held the trial's ``token``.

    It finds what has left the tree when its guard and its supervisor are both gone. It does not see processes that
    were given another environment, nor those of other users.
    """
    entry = f"{TOKEN}={token}".encode()
    return [p for p in candidates if not p.dead and entry in _content(p.pid, "environ").split(b"\0")]


def end_carrying(token: str) -> None:
    """Kill what carries ``token``, and all below it: a trial that has begun, but whose supervisor never said so."""
    for _ in range(_KILL_ROUNDS):
        carriers = carrying(token, everything().values())
        if not carriers:
            return
        doomed = set(carriers)
        for carrier in carriers:
            doomed.update(below(carrier.pid))
        for process in doomed:
            send(process, signal.SIGKILL)
        select.select([], [], [], _ROUND_S)


def below(root: int) -> list[Process]:
    """All live processes below ``root`` now, parents before children, ``root`` itself left out.

    No other process is looked at, where the kernel lists the children of each (nearly all do); else all of /proc is
    read. Not atomic: a process whose sibling ends while we look may be missing, and is there at the next look.
    """
    if not os.path.exists(f"/proc/{root}/task/{root}/children"):  # noqa: PTH110 - pathlib is slow to import
        return descendants(root, everything()) if read(root) is not None else []
    processes: list[Process] = []
    frontier = [root]
    while frontier:
        frontier = list(chain.from_iterable(map(children, frontier)))
        for pid in frontier:
            process = read(pid)
            if process is not None and not process.dead:
                processes.append(process)
    return processes


def children(pid: int) -> list[int]:
    """The PIDs of the children of a process, whichever of its threads started them."""
    pids: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208
    except OSError:
        return pids
    for thread in threads:
        with suppress(OSError), open(f"/proc/{pid}/task/{thread}/children") as file:  # noqa: PTH123
            pids += list(map(int, file.read().split()))
    return pids


def same(process: Process) -> bool:
    """Whether exactly this process is still there, and not dead."""
    now = read(process.pid)
    return now is not None and now.started == process.started and not now.dead


def send(process: Process, number: int) -> bool:
    """Send a signal to exactly this process; False when it is gone or not ours to signal."""
    try:
        fd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        # The descriptor is of whoever has the PID now; only the start time says that it is still the same one.
        now = read(process.pid)
        if now is None or now.started != process.started:
            return False
        signal.pidfd_send_signal(fd, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(fd)
    return True
