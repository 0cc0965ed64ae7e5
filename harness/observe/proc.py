"""What /proc says of a process and its threads. A process that vanishes midway is not an error: it gives None."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from harness.core.evidence import ProcessState, ThreadState
from harness.core.movement import may_move
from harness.observe.syscalls import listens, timed_wait

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

PROC = "/proc"
"""Where the kernel of this machine tells of its processes."""

LISTENS = "unix_accept"
"""What we call a wait for a connection from this machine."""

BLOCKS_DUMPERS = frozenset("DTtZX")
"""States in which a dumper that stops the process would fail or hang: disk sleep, stopped, traced, dead."""


class Proc:
    """The kernel's view of processes, read from ``root``."""

    def __init__(self, root: str = PROC) -> None:
        self.root = root

    def look(
        self, pid: int, *, id: str, t_s: float, rank: int = 0, others: Iterable[int] = (), since: str | None = None
    ) -> ProcessState | None:
        """The process with all its threads and the CPU time of ``others``; None when it is gone.

        Counters that this user may not read are 0, a wait channel that is hidden is empty.
        """
        stat = self._stat(f"{pid}")
        if stat is None:
            return None
        threads = self._threads(pid)
        counters = self._fields(f"{pid}/io")
        others = tuple(others)
        theirs = {other: self._threads(other) for other in others}
        movers = self._movers(theirs)
        return ProcessState(
            id=id,
            t_s=t_s,
            rank=rank,
            pid=pid,
            state=stat[0],
            threads=threads,
            rss_bytes=int(stat[21]) * _PAGE_BYTES,
            minor_faults=int(stat[7]),
            read_bytes=counters.get("rchar", 0),
            written_bytes=counters.get("wchar", 0),
            children=len(others),
            others_cpu_s=sum(self._process_cpu_s(other) for other in others),
            others_may_move=next(iter(movers.values()), ""),
            movers=tuple(movers),
            others_waits=tuple((other, wchan) for other, rows in theirs.items() if (wchan := _waits(other, rows))),
            dead_children=self._dead_children(pid),
            undisturbed_since=since,
        )

    def peak_rss_bytes(self, pid: int) -> int:
        """The most memory the process ever held (VmHWM); 0 when it is gone."""
        return 1024 * self._fields(f"{pid}/status").get("VmHWM", 0)

    def parent(self, pid: int) -> int | None:
        """The parent's PID; None when the process is gone."""
        stat = self._stat(f"{pid}")
        return None if stat is None else int(stat[1])

    def states(self, pid: int) -> str:
        """One letter per thread, the main thread's first; empty when the process is gone."""
        letters = {tid: stat[0] for tid in self._tids(pid) if (stat := self._stat(f"{pid}/task/{tid}")) is not None}
        return letters.pop(pid, "") + "".join(letters.values())

    def cpu_s(self, pid: int) -> float:
        """CPU time of all its threads that are alive, seconds; 0 when the process is gone."""
        return sum(thread.cpu_s for thread in self._threads(pid))

    def tracer(self, pid: int) -> int:
        """The PID that traces this process; 0 for none."""
        return self._fields(f"{pid}/status").get("TracerPid", 0)

    def ptrace_scope(self) -> int | None:
        """Who may look into processes (``kernel.yama.ptrace_scope``); None when the kernel has no such setting."""
        text = self._text("sys/kernel/yama/ptrace_scope")
        return None if text is None else int(text)

    def signal_mask(self, pid: int, kind: str) -> int:
        """``SigCgt``, ``SigBlk`` or ``SigIgn`` as a bit mask; 0 when the process is gone."""
        for line in (self._text(f"{pid}/status") or "").splitlines():
            if line.startswith(f"{kind}:"):
                return int(line.split()[1], 16)
        return 0

    def _threads(self, pid: int) -> tuple[ThreadState, ...]:
        return tuple(t for tid in self._tids(pid) if (t := self._thread(pid, tid)) is not None)

    def _movers(self, processes: Mapping[int, tuple[ThreadState, ...]]) -> dict[int, str]:
        """Those of these processes in which some thread may move by itself, each with its first such thread and how."""
        found: dict[int, str] = {}
        for pid, threads in processes.items():
            moves = ((thread.name, may_move(thread)) for thread in threads)
            name, how = next((pair for pair in moves if pair[1]), ("", ""))
            if how:
                found[pid] = f"{name} (process {pid}) {how}"
        return found

    def _dead_children(self, pid: int) -> int:
        """Children of this process that have ended and that it has not waited for (state Z)."""
        children = [
            child for tid in self._tids(pid) for child in (self._text(f"{pid}/task/{tid}/children") or "").split()
        ]
        return sum((self._stat(child) or "?")[0] == "Z" for child in children)

    def _thread(self, pid: int, tid: int) -> ThreadState | None:
        at = f"{pid}/task/{tid}"
        stat, name = self._stat(at), self._text(f"{at}/comm")
        if stat is None or name is None:
            return None
        status = self._fields(f"{at}/status")
        wchan = (self._text(f"{at}/wchan") or "").strip()
        call = self._text(f"{at}/syscall") or ""
        if "skb_wait" in wchan and listens(call):
            wchan = LISTENS  # for a process of this machine; the kernel's name is that of a wait for a datagram
        return ThreadState(
            tid=tid,
            name=name.strip(),
            state=stat[0],
            wchan="" if wchan == "0" else wchan,
            cpu_s=self._cpu_s(at, stat),
            voluntary_switches=status.get("voluntary_ctxt_switches", 0),
            involuntary_switches=status.get("nonvoluntary_ctxt_switches", 0),
            timed=True if "nanosleep" in wchan else timed_wait(call),
        )

    def _cpu_s(self, at: str, stat: list[str]) -> float:
        # schedstat counts nanoseconds where the kernel has it; utime and stime come in ticks of 10 ms.
        schedstat = (self._text(f"{at}/schedstat") or "").split()
        if schedstat and int(schedstat[0]) > 0:
            return int(schedstat[0]) / 1e9
        return (int(stat[11]) + int(stat[12])) / _TICKS_PER_S

    def _process_cpu_s(self, pid: int) -> float:
        # /proc counts a whole process in ticks: one that wakes for 0.1 ms may be charged 10. Its CPU clock has both the
        # nanoseconds and the threads that have ended.
        if self.root == PROC:
            with suppress(OSError):  # it is gone, or the kernel does not tell
                return time.clock_gettime(_cpu_clock(pid))
        stat = self._stat(f"{pid}")
        return 0.0 if stat is None else (int(stat[11]) + int(stat[12])) / _TICKS_PER_S

    def _tids(self, pid: int) -> list[int]:
        try:
            with os.scandir(f"{self.root}/{pid}/task") as entries:
                return sorted(int(entry.name) for entry in entries)
        except (FileNotFoundError, ProcessLookupError, NotADirectoryError):
            return []

    def _stat(self, at: str) -> list[str] | None:
        """The fields of ``stat`` after the name: [0] state, [1] parent, [7] faults, [11] [12] CPU, [21] pages."""
        # The name is in parentheses and may hold spaces and parentheses itself.
        fields = (self._text(f"{at}/stat") or "").rpartition(")")[2].split()
        return fields if len(fields) > 21 else None

    def _fields(self, at: str) -> dict[str, int]:
        pairs = (line.split(":", 1) for line in (self._text(at) or "").splitlines() if ":" in line)
        words = ((name, value.split()) for name, value in pairs)
        return {name: int(value[0]) for name, value in words if value and value[0].isdecimal()}

    def _text(self, at: str) -> str | None:
        try:
            fd = os.open(f"{self.root}/{at}", os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return None
        try:
            return b"".join(iter(lambda: os.read(fd, 1 << 16), b"")).decode(errors="replace")
        except (ProcessLookupError, PermissionError):
            return None
        finally:
            os.close(fd)


def _cpu_clock(pid: int) -> int:
    """What ``clock_getcpuclockid(3)`` gives: the clock of all CPU time that a process, whosever, has used."""
    return ~pid << 3 | 2


def _waits(pid: int, threads: tuple[ThreadState, ...]) -> str:
    """The kernel function in which the main thread sleeps for good; empty when it runs or wakes by itself."""
    main = next((thread for thread in threads if thread.tid == pid), None)
    sleeps = main is not None and main.state == "S" and main.timed is False and not may_move(main)
    return main.wchan if main is not None and sleeps else ""
