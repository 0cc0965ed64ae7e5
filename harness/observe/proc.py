"""What /proc says of a process and its threads. A process that vanishes midway is not an error: it gives None."""

from __future__ import annotations

import os
import re
import signal
import time
from functools import cache
from typing import TYPE_CHECKING

from harness.core.evidence import ProcessState, ThreadState
from harness.observe.ends import TRANSFERS, End
from harness.observe.job import is_interpreter, read_member
from harness.observe.procfs import Files
from harness.observe.syscalls import Call, blocked_call
from harness.reading.stillness import is_of_a_gpu
from harness.reading.waits import ALARM, CPU_LIMIT, OF_PROGRAMS, OF_TIMERS, OURS, SHELLS, TIMER, sleeps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from harness.observe.ends import Ends
    from harness.observe.job import Member

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

BLOCKS_DUMPERS = frozenset("DTtZX")
"""States in which a dumper that stops the process would fail or hang: disk sleep, stopped, traced, dead."""


_TELLING = (
    signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGTERM,
    signal.SIGCHLD, signal.SIGIO, *sorted({*range(signal.SIGRTMIN, signal.SIGRTMAX + 1)}.difference(OURS)),
)  # fmt: skip
"""Signals that a timer of the process's own, a child that ends, or another program may send to let it go on."""


_AT_ANY_END = frozenset(
    {signal.SIGALRM, signal.SIGHUP, signal.SIGTERM, signal.SIGVTALRM, signal.SIGXCPU, signal.SIGXFSZ}
)
"""Who handles all of these tidies up at whatever ends it: bash with a trap for EXIT, sort for its files."""

_EXIT_CODE = 49
"""Where the exit code of a process that has ended stands, counted from its state."""

_INTERPRETERS = re.compile(r"pypy|perl|ruby|php|node|lua|java|busybox")
"""Programs that can all set an alarm, or end others: what they run does, or does not."""

_CARDS = ("/dev/nv", "/dev/dxg")
"""Beginnings of the devices by which CUDA works: on a server, on a small board, and below Windows."""

_ALARM = re.compile(r"\b(alarm|setitimer)\b")
_KILL = re.compile(r"kill|terminate", re.IGNORECASE)
_LINKED = re.compile(rb"\0(?:(alarm|setitimer)|(kill|killpg|tgkill|sigqueue|pidfd_send_signal))(?=\0)")

_WAITS_FOR_A_CHILD = frozenset({"wait4", "waitid"})
_TRAPS = re.compile(
    r"\btrap\b[^\n]*\b((SIG)?(ALRM|USR1|USR2|HUP|IO|POLL|VTALRM|PROF|RTM\w+)|1|10|12|14|26|27|29|3[4-9])\b"
)
_READS_ANOTHER = re.compile(r"^\s*(source|\.)\s", re.MULTILINE)


@cache
def _linked_to(path: str, _: tuple[int, int, int]) -> tuple[bool, bool]:
    """Whether a program calls what sets an alarm, and what sends others a signal, by the names that it is linked to."""
    sets_alarms = sends_signals = False
    last = b""
    with open(path, "rb") as file:  # noqa: PTH123 - a link into another root
        while piece := file.read(1 << 20):
            for alarm, kill in _LINKED.findall(last + piece):
                sets_alarms |= bool(alarm)
                sends_signals |= bool(kill)
            last = piece[-20:]
    return sets_alarms, sends_signals


def script_of(words: Sequence[str], read: Callable[[str], str]) -> str:
    """What a shell or perl runs, by the words of its command line: a text (``-c``, ``-e``), or what ``read`` gives.

    ``-e`` of a shell is no text, as in ``bash -e run.sh``, and some options of one have a word of their own.
    """
    is_shell = bool(words) and words[0].rpartition("/")[2].lstrip("-") in SHELLS
    rest = iter(words[1:])
    for word in rest:
        if not word.startswith(("-", "+")):
            return read(word)
        letters = "" if word.startswith("--") else word[1:]
        if "c" in letters or ("e" in letters and not is_shell):
            return next(rest, "")
        if is_shell and letters[-1:] in ("o", "O"):
            next(rest, "")
    return ""


def listed_as(number: int) -> str:
    """``SIGUSR1``; a real-time signal without a name by its distance from the first."""
    if signal.SIGRTMIN < number < signal.SIGRTMAX:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"
    return signal.Signals(number).name


class Proc(Files):
    """The kernel's view of processes."""

    def look(
        self,
        pid: int,
        *,
        id: str,
        t_s: float,
        rank: int = 0,
        children: int = 0,
        since: str | None = None,
        ends: Ends | None = None,
    ) -> ProcessState | None:
        """The process with all its threads; None when it is gone.

        ``ends`` says of blocked threads who can end their wait; ``children`` counts the trial's processes that work for
        this one. Counters that this user may not read are 0, a wait channel that is hidden is empty.
        """
        stat = self.stat(f"{pid}")
        if stat is None:
            return None
        threads: list[ThreadState] = []
        for tid in self._tids(pid):
            thread = self._thread(pid, tid, ends)
            if thread is not None:
                threads.append(thread)
        counters = self.fields(f"{pid}/io")
        handled = self.signals(f"{pid}", "SigCgt")
        sets_alarms, sends_signals = self._calls_of_its_program(pid)
        if handled >= _AT_ANY_END and len(threads) == 1 and self._only_tidies_up(pid):
            handled -= OF_TIMERS | OF_PROGRAMS
        return ProcessState(
            id=id,
            t_s=t_s,
            rank=rank,
            pid=pid,
            state=stat[0],
            threads=tuple(threads),
            rss_bytes=int(stat[21]) * _PAGE_BYTES,
            minor_faults=int(stat[7]),
            read_bytes=int(counters.get("rchar", 0)),
            written_bytes=int(counters.get("wchar", 0)),
            children=children,
            parent=int(stat[1]),
            command=(self.text(f"{pid}/comm") or "").strip(),
            handles=(*(listed_as(n) for n in _TELLING if n in handled), *self._timers(pid, sets_alarms=sets_alarms)),
            sends_signals=sends_signals,
            dead_children=self._dead_children(pid),
            cpu_limit_s=self._cpu_limit_s(pid),
            has_a_card=not any(map(is_of_a_gpu, threads)) or self._has_a_card(pid),
            age_s=time.clock_gettime(time.CLOCK_BOOTTIME) - int(stat[19]) / _TICKS_PER_S,
            undisturbed_since=since,
        )

    def _has_a_card(self, pid: int) -> bool:
        """Whether it has a GPU open; True where its descriptors cannot be read.

        CUDA has threads also where it sees no card (``CUDA_VISIBLE_DEVICES=``): measured with torch 2.11 on an H200, it
        has no file of the driver open then, and ``/dev/nvidia0`` from the first count of cards on.
        """
        links = [self.link(f"{pid}/fd/{fd}") for fd in self.names(f"{pid}/fd")]
        return not links or any(link.startswith(_CARDS) for link in links)

    def _only_tidies_up(self, pid: int) -> bool:
        """Whether a program that handles whatever would end it does so to tidy up, and not to be let on.

        A shell that waits for a child, and whose script has no trap for a message; any other but Python, whose programs
        handle what they like. A shell that reads may have set itself an alarm for that.
        """
        program = self.link(f"{pid}/exe").rpartition("/")[2]
        if program not in SHELLS:
            return not is_interpreter(pid, self)
        if not _WAITS_FOR_A_CHILD.issuperset(self.calls(pid) or ("unseen",)):
            return False
        script = self._script(pid)
        return bool(script) and not _TRAPS.search(script) and not _READS_ANOTHER.search(script)

    def speaks_of_alarms(self, pid: int) -> bool:
        """Whether it is a shell whose script has a word for an alarm: ``perl -e 'alarm shift; exec @ARGV' 30 make``."""
        program = self.link(f"{pid}/exe").rpartition("/")[2]
        return program in SHELLS and _ALARM.search(self._script(pid)) is not None

    def _script(self, pid: int) -> str:
        """What a shell or perl runs, by its command line; empty where that cannot be read."""

        def read(file: str) -> str:
            return self.script(f"{pid}/root{file}" if file.startswith("/") else f"{pid}/cwd/{file}")

        return script_of(self.parts(f"{pid}/cmdline"), read)

    def _timers(self, pid: int, *, sets_alarms: bool) -> tuple[str, ...]:
        """``TIMER`` where the process has made a POSIX timer that sends a signal, ``CPU_LIMIT`` where it has one.

        ``ALARM`` where its program may have set one, which the kernel tells nobody else: without a handler it ends it.
        Only of who has no child: launchers call it, too, and time what they wait for otherwise.
        """
        has_a_timer = "notify: signal" in (self.text(f"{pid}/timers") or "")
        may_be_armed = sets_alarms and not self.children(pid)
        names = {TIMER: has_a_timer, CPU_LIMIT: self._cpu_limit_s(pid) is not None, ALARM: may_be_armed}
        return tuple(name for name, applies in names.items() if applies)

    def _cpu_limit_s(self, pid: int) -> float | None:
        """The CPU time at which the kernel ends it, or sends it SIGXCPU; None without one."""
        limit = re.search(r"^Max cpu time +(\d+)", self.text(f"{pid}/limits") or "", re.MULTILINE)
        return float(limit[1]) if limit is not None else None

    def _calls_of_its_program(self, pid: int) -> tuple[bool, bool]:
        """Whether its program may set an alarm, and send others a signal: by what it is linked to, or by its script.

        Neither of Python, whose sources are read where stacks name them; a shell sets no alarm.
        """
        program = self.link(f"{pid}/exe").rpartition("/")[2]
        if is_interpreter(pid, self):
            return False, False
        if program in SHELLS or _INTERPRETERS.match(program):
            script = self._script(pid)
            return program not in SHELLS and bool(_ALARM.search(script)), bool(_KILL.search(script))
        try:
            path = f"{self.root}/{pid}/exe"
            stat = os.stat(path)  # noqa: PTH116 - a link into another root
            return _linked_to(path, (stat.st_dev, stat.st_ino, stat.st_mtime_ns))
        except (OSError, ValueError):
            return False, False

    def peak_rss_bytes(self, pid: int) -> int:
        """The most memory the process ever held (VmHWM); 0 when it is gone."""
        return 1024 * int(self.fields(f"{pid}/status").get("VmHWM", 0))

    def member(self, pid: int) -> Member | None:
        """What it is: who started it and when, its command, what a launcher told it; None when it is gone."""
        return read_member(pid, files=self, is_of_job=True)

    def state(self, pid: int) -> str:
        """The main thread's letter; empty when the process is gone."""
        stat = self.stat(f"{pid}")
        return "" if stat is None else stat[0]

    def states(self, pid: int) -> str:
        """One letter per thread, the main thread's first; empty when the process is gone."""
        letters = {tid: stat[0] for tid, stat in self._stats(pid)}
        return letters.pop(pid, "") + "".join(letters.values())

    def kernel_functions(self, pid: int) -> tuple[str, ...]:
        """Where in the kernel its threads sleep, one of each thread that does and may be seen."""
        texts = filter(None, self._texts(pid, "wchan"))
        return tuple(text for text in map(str.strip, texts) if text != "0")

    def calls(self, pid: int) -> tuple[str, ...]:
        """The system calls that its threads are blocked in, one of each thread that is and may be seen."""
        return tuple(call.name for call in self.blocked(pid))

    def blocked(self, pid: int) -> tuple[Call, ...]:
        """The same with their arguments."""
        return tuple(filter(None, map(blocked_call, self._texts(pid, "syscall"))))

    def is_terminal(self, pid: int, fd: int) -> bool:
        """Whether a descriptor of a process is a terminal."""
        return self.link(f"{pid}/fd/{fd}").startswith(("/dev/pts/", "/dev/tty"))

    def has_open(self, pid: int, name: str) -> bool:
        """Whether a process has a file of this name open. Its path may be another in the process's own mounts."""
        return any(self.link(f"{pid}/fd/{fd}").endswith(f"/{name}") for fd in self.names(f"{pid}/fd"))

    def waits_for_a_lock(self, pid: int) -> bool:
        """Whether its main thread waits for a lock, without a time limit."""
        call = blocked_call(self.text(f"{pid}/task/{pid}/syscall") or "")
        return call is not None and call.name == "futex" and not call.timed

    def children(self, pid: int) -> list[str]:
        """The PIDs of its own children, those that have ended and were not waited for included."""
        return " ".join(self._texts(pid, "children")).split()

    def cpu_s(self, pid: int) -> float:
        """CPU time of all its threads that are alive, seconds; 0 when the process is gone."""
        return sum(self._cpu_s(f"{pid}/task/{tid}", stat) for tid, stat in self._stats(pid))

    def all_cpu_s(self, pid: int) -> float | None:
        """CPU time of all its threads, ended ones included, in ticks of 10 ms: one read; None when it is gone."""
        stat = self.stat(f"{pid}")
        return None if stat is None else (int(stat[11]) + int(stat[12])) / _TICKS_PER_S

    def main_thread(self, pid: int) -> str:
        """How long and how often its main thread ran, as the kernel writes it down; empty where it does not."""
        return self.text(f"{pid}/task/{pid}/schedstat") or ""

    def turns(self, pid: int) -> int:
        """How often its threads have given up a CPU so far, of their own accord or not; 0 when it is gone."""
        turns = 0
        for tid in self._tids(pid):
            status = self.fields(f"{pid}/task/{tid}/status")
            turns += int(status.get("voluntary_ctxt_switches", 0)) + int(status.get("nonvoluntary_ctxt_switches", 0))
        return turns

    def tracer(self, pid: int) -> int:
        """The PID that traces this process; 0 for none."""
        return int(self.fields(f"{pid}/status").get("TracerPid", 0))

    def ptrace_scope(self) -> int | None:
        """Who may look into processes (``kernel.yama.ptrace_scope``); None when the kernel has no such setting."""
        text = self.text("sys/kernel/yama/ptrace_scope")
        return None if text is None else int(text)

    def pending_signals(self, pid: int) -> frozenset[int]:
        """The signals that are on their way to the process or one of its threads."""
        pending = self.signals(f"{pid}", "ShdPnd")
        for tid in self._tids(pid):
            pending |= self.signals(f"{pid}/task/{tid}", "SigPnd")
        return pending

    def is_deaf_to_the_end(self, pid: int) -> bool:
        """Whether SIGTERM does not end it by itself: it is ignored, put off, or handled by the program that hangs."""
        return any(signal.SIGTERM in self.signals(f"{pid}", kind) for kind in ("SigIgn", "SigBlk", "SigCgt"))

    def _dead_children(self, pid: int) -> int:
        """Children of this process that did not end well, and that it has not waited for (state Z)."""
        dead = 0
        for child in self.children(pid):
            stat = self.stat(child)
            if stat is not None and stat[0] == "Z" and stat[_EXIT_CODE] != "0":
                dead += 1
        return dead

    def _thread(self, pid: int, tid: int, ends: Ends | None) -> ThreadState | None:
        at = f"{pid}/task/{tid}"
        stat, name = self.stat(at), self.text(f"{at}/comm")
        if stat is None or name is None:
            return None
        status = self.fields(f"{at}/status")
        wchan = (self.text(f"{at}/wchan") or "").strip()
        call = blocked_call(self.text(f"{at}/syscall") or "", wchan=wchan)
        asleep = stat[0] in "SD"
        end = End(call.name if call is not None and asleep else "")
        timed = call.timed if call is not None else None
        library = ""
        if call is not None and ends is not None and asleep:
            # An event loop's own limit may be that of tasks which mean nothing to the program (reading.awaits).
            if not timed or (tid == pid and call.name.startswith("epoll")):
                end = ends.of(pid, call)
            if (tid != pid and end.outside is not False) or call.name in TRANSFERS:
                library = ends.library(pid, call)
        return ThreadState(
            tid=tid,
            name=name.strip(),
            state=stat[0],
            wchan="" if wchan == "0" else wchan,
            cpu_s=self._cpu_s(at, stat),
            voluntary_switches=int(status.get("voluntary_ctxt_switches", 0)),
            involuntary_switches=int(status.get("nonvoluntary_ctxt_switches", 0)),
            timed=True if sleeps(wchan) or end.has_a_timer else timed,
            call=end.call,
            on=end.on,
            holders=end.holders,
            outside=end.outside,
            library=library,
            limit_s=call.limit_s if call is not None else None,
            has_guests=end.has_guests,
        )

    def _cpu_s(self, at: str, stat: list[str]) -> float:
        # schedstat counts nanoseconds where the kernel has it; utime and stime come in ticks of 10 ms.
        schedstat = (self.text(f"{at}/schedstat") or "").split()
        if schedstat and int(schedstat[0]) > 0:
            return int(schedstat[0]) / 1e9
        return (int(stat[11]) + int(stat[12])) / _TICKS_PER_S

    def _stats(self, pid: int) -> Iterator[tuple[int, list[str]]]:
        """Each thread that is there with its ``stat``."""
        for tid in self._tids(pid):
            stat = self.stat(f"{pid}/task/{tid}")
            if stat is not None:
                yield tid, stat

    def _texts(self, pid: int, name: str) -> list[str]:
        """The file of each thread that is called so, empty where it cannot be read."""
        return [self.text(f"{pid}/task/{tid}/{name}") or "" for tid in self._tids(pid)]

    def _tids(self, pid: int) -> list[int]:
        return sorted(map(int, self.names(f"{pid}/task")))
