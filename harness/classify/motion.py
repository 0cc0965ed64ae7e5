"""Motion: what the kernel's own counters say moved while a process was silent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness.classify.facts import main_pid, silence_began_s
from harness.core.movement import STILL_CPU_S, Movement, is_ticker, quiet_windows

if TYPE_CHECKING:
    from harness.core.evidence import EvidenceId, ProcessState
    from harness.core.verdict import Case

ASLEEP = frozenset("SDI")
"""States in which a thread waits: S for an event, D for a device, I an idle kernel thread."""

WINDOWS = 2
"""Undisturbed windows that it takes to say that nothing moves."""

RSS_FLOOR_BYTES = 1 << 20
FAULTS_FLOOR_PER_S = 20.0
"""Page faults a second below which memory does not move; healthy but slow steps measured 2,700 to 9,500."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Motion:
    """A process within its silence: ``windows`` are the stretches between two looks in which no dumper ran.

    ``main_timed`` says whether the main thread waits with a time limit, ``any_timed`` whether any thread does;
    ``busiest_tid`` used most CPU time, and ``busiest_runs`` says whether it was running or ready at every look.
    ``others_may_move`` names another process of the trial that will wake by itself, or is empty, and
    ``movers`` are the PIDs of all that may. ``dead_children`` of this process had ended at every look, unasked.
    ``rss_bytes`` grew within the windows: a dump moves it too (py-spy --native measured +1.3 MB without a page fault).
    """

    ids: tuple[EvidenceId, ...]
    windows: tuple[Movement, ...]
    looks: int
    threads: int
    states: frozenset[str]
    main_wchan: str
    main_timed: bool
    any_timed: bool
    busiest_tid: int
    busiest_runs: bool
    rss_bytes: int
    children: int
    others_may_move: str
    movers: frozenset[int] = frozenset()
    dead_children: int = 0

    @property
    def seconds(self) -> float:
        """Undisturbed time that was looked at."""
        return sum(window.seconds for window in self.windows)

    @property
    def cpu_s(self) -> float:
        """CPU time of the process in that time."""
        return sum(window.cpu_s for window in self.windows)

    @property
    def cpu_share(self) -> float:
        """CPU seconds per second; 0 when nothing was seen undisturbed."""
        return self.cpu_s / self.seconds if self.seconds > 0 else 0.0

    @property
    def switches(self) -> int:
        """Context switches of all threads in that time."""
        return sum(window.switches for window in self.windows)

    @property
    def faults(self) -> int:
        """Page faults in that time."""
        return sum(window.minor_faults for window in self.windows)

    @property
    def io_bytes(self) -> int:
        """Bytes read and written in that time."""
        return sum(window.io_bytes for window in self.windows)

    @property
    def others_cpu_s(self) -> float | None:
        """CPU time of the trial's other processes in that time; None when there are some and nobody looked."""
        seen = [w.others_cpu_s for w in self.windows if w.others_cpu_s is not None]
        return None if self.children and len(seen) < len(self.windows) else sum(seen)

    @property
    def others_still(self) -> bool:
        """Whether the trial's other processes are known to rest too."""
        used_s = self.others_cpu_s
        return used_s is not None and used_s <= STILL_CPU_S * max(len(self.windows), 1)

    @property
    def asleep(self) -> bool:
        """Whether every thread was asleep at every look, and nothing of the process moved in any window."""
        own = (replace(window, others_cpu_s=None) for window in self.windows)
        return len(self.windows) >= WINDOWS and self.states <= ASLEEP and all(window.still for window in own)

    @property
    def counters_still(self) -> bool:
        """Whether neither memory nor page faults nor I/O moved."""
        return (
            abs(self.rss_bytes) < RSS_FLOOR_BYTES
            and self.faults <= FAULTS_FLOOR_PER_S * self.seconds
            and self.io_bytes == 0
        )


def motion(case: Case) -> Motion | None:
    """What moved in the training process since its last mark; None without an undisturbed stretch between two looks."""
    pid, since_s = main_pid(case), silence_began_s(case)
    looks = [p for p in case.evidence.processes if p.pid == pid and p.t_s > since_s]
    windows = tuple(window for window in quiet_windows(looks) if window.seconds > 0)
    if not windows:
        return None
    by_id = {look.id: look for look in looks}
    busiest = _busiest(looks[0], looks[-1])
    mains = [thread for look in looks for thread in look.threads if thread.tid == pid]
    return Motion(
        ids=tuple(look.id for look in looks),
        windows=windows,
        looks=len(looks),
        threads=max(len(look.threads) for look in looks),
        states=frozenset(thread.state for look in looks for thread in look.threads if not is_ticker(thread)),
        main_wchan=mains[-1].wchan if mains else "",
        main_timed=any(thread.timed for thread in mains),
        any_timed=any(thread.timed for look in looks for thread in look.threads if not is_ticker(thread)),
        busiest_tid=busiest,
        busiest_runs=all(t.state == "R" for look in looks for t in look.threads if t.tid == busiest),
        rss_bytes=sum(by_id[w.last].rss_bytes - by_id[w.first].rss_bytes for w in windows),
        children=max(look.children for look in looks),
        others_may_move=next((look.others_may_move for look in looks if look.others_may_move), ""),
        movers=frozenset(pid for look in looks for pid in look.movers),
        dead_children=min(look.dead_children for look in looks),
    )


def _busiest(first: ProcessState, last: ProcessState) -> int:
    before = {thread.tid: thread.cpu_s for thread in first.threads}
    used = {thread.tid: thread.cpu_s - before.get(thread.tid, 0.0) for thread in last.threads}
    return max(used, key=lambda tid: used[tid], default=0)
