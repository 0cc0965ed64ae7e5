"""Movement: what a process did between two looks at /proc; one definition for the watch and for the rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.core.evidence import EvidenceId, ProcessState, ThreadState

STILL_CPU_S = 0.002
"""A window with no more CPU time than this counts as still; a sleeping process measures 0 exactly."""

STILL_SWITCHES = 2
"""A window with no more context switches than this counts as still; a poll every 5 s is told by `timed` instead."""

POLL_SHARE = 0.1
"""CPU seconds per second of a process that only asks again and again whether something has come; a rank that waits in a
rendezvous for another measured 0.02."""

STILL_FAULTS = 2
"""A window with no more page faults than this counts as still."""

SERVICE = "(service)"
"""What the name of a thread begins with that was found to be a library's own (``harness.core.services``)."""

TICKERS = (
    "gloo_tcp_loop",
    "pt_tcpstore",
    "pt_workerserver",
    "pt_nccl_watchdg",
    "pt_nccl_heartbt",
    "cuda-EvtHandlr",
    "cuda0",
)
"""Beginnings of the names of threads that keep connections and drivers alive: they wake by a timer whether or not the
program moves (gloo's transport 100 times a second, measured), and carry it on only when another process sends."""

TICKER_SHARE = 0.05
"""CPU seconds per second that such a thread may use without meaning anything; 0.004 measured when idle."""

STOPPED_S = 5.0
"""A process that was seen stopped (state T) for so long is not merely between Ctrl-Z and fg."""

OUTSIDE_WAITS = ("sk_wait", "skb_wait", "wait_woken", "inet_", "tcp_", "rpc_", "nfs")
"""Parts of the names of kernel functions in which a thread waits for another machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement:
    """The change between two looks at one process: ``switches`` are context switches of both kinds.

    ``others_cpu_s`` is what the trial's other processes burned, None when nobody looked. ``threads_changed`` counts
    threads that started or ended, ``running`` those in state R at either look.
    """

    first: EvidenceId
    last: EvidenceId
    seconds: float
    cpu_s: float
    switches: int
    minor_faults: int
    io_bytes: int
    threads_changed: int
    running: int
    others_cpu_s: float | None = None

    @property
    def cpu_share(self) -> float:
        """CPU seconds per second; 1.0 is one core kept busy."""
        return self.cpu_s / self.seconds if self.seconds > 0 else 0.0

    @property
    def still(self) -> bool:
        """Whether nothing at all moved: no CPU, switches, faults or I/O beyond noise, in no process of the trial."""
        return (
            self.cpu_s <= STILL_CPU_S
            and (self.others_cpu_s or 0.0) <= STILL_CPU_S
            and self.switches <= STILL_SWITCHES
            and self.minor_faults <= STILL_FAULTS
            and self.io_bytes == 0
            and self.threads_changed == 0
            and self.running == 0
        )

    @property
    def polls(self) -> bool:
        """Whether it slept at both looks and hardly computed in between: it waits, if only by asking again."""
        return self.running == 0 and self.cpu_share <= POLL_SHARE

    def __str__(self) -> str:
        others = "" if self.others_cpu_s is None else f", other processes {self.others_cpu_s:.3f} s"
        return (
            f"in {self.seconds:.1f} s: CPU {self.cpu_s:.3f} s{others}, {self.switches} context switches, "
            f"{self.minor_faults} page faults, {self.io_bytes} bytes of I/O"
        )


def movement(first: ProcessState, last: ProcessState) -> Movement:
    """What happened between two looks at the same process; ``last`` is the later one."""
    before = {thread.tid: thread for thread in first.threads}
    after = {thread.tid: thread for thread in last.threads}
    cpu_s, switches = 0.0, 0
    for tid, thread in after.items():
        old = before.get(tid)
        used_s = thread.cpu_s - (old.cpu_s if old else 0.0)
        if is_ticker(thread):
            cpu_s += used_s if used_s > TICKER_SHARE * (last.t_s - first.t_s) else 0.0
            continue
        cpu_s += used_s
        switches += thread.voluntary_switches + thread.involuntary_switches
        switches -= old.voluntary_switches + old.involuntary_switches if old else 0
    running = sum(t.state == "R" and not is_ticker(t) for look in (first, last) for t in look.threads)
    # A thread that was not switched once did not run: with all others so, faults and bytes are the service threads'.
    only_services = not switches and not running and any(map(is_ticker, last.threads))
    others_cpu_s = None
    if first.others_cpu_s is not None and last.others_cpu_s is not None:
        # A child that ended takes its CPU time with it: that is a change too, hence the absolute value.
        others_cpu_s = abs(last.others_cpu_s - first.others_cpu_s)
    return Movement(
        first=first.id,
        last=last.id,
        seconds=last.t_s - first.t_s,
        cpu_s=cpu_s,
        switches=switches,
        minor_faults=0 if only_services else last.minor_faults - first.minor_faults,
        io_bytes=0 if only_services else last.read_bytes - first.read_bytes + last.written_bytes - first.written_bytes,
        threads_changed=len(before.keys() ^ after.keys()) + abs(last.children - first.children),
        running=running,
        others_cpu_s=others_cpu_s,
    )


def is_ticker(thread: ThreadState) -> bool:
    """Whether this thread's waking says nothing about the program."""
    return thread.name.startswith((*TICKERS, SERVICE))


def stopped_s(looks: Sequence[ProcessState]) -> float:
    """How long one process has been in state T by now, as far as it was seen, seconds; 0 when it is not stopped.

    A tracer's stop is the lower-case t, and does not count.
    """
    if not looks or looks[-1].state != "T":
        return 0.0
    since = next((i for i in range(len(looks) - 1, 0, -1) if looks[i - 1].state != "T"), 0)
    return looks[-1].t_s - looks[since].t_s


def may_move(thread: ThreadState) -> str:
    """How ``thread`` may come to move though no other thread of the trial does; empty when it cannot."""
    if is_ticker(thread):
        return ""
    if thread.state == "R":
        return "runs"
    if thread.state == "D":
        return f"waits for a device (state D, {thread.wchan})"
    if thread.timed:
        return f"waits with a time limit ({thread.wchan})"
    if any(part in thread.wchan for part in OUTSIDE_WAITS):
        return f"waits for another machine ({thread.wchan})"
    return ""


def quiet_windows(looks: Iterable[ProcessState]) -> tuple[Movement, ...]:
    """The movement of every window in which no stack dumper ran; a dumper itself causes switches and faults."""
    by_id: dict[EvidenceId, ProcessState] = {}
    windows: dict[EvidenceId, Movement] = {}
    for look in looks:
        by_id[look.id] = look
        if look.undisturbed_since in by_id:
            opening = by_id[look.undisturbed_since]
            windows[opening.id] = movement(opening, look)  # the longest window from this opening
    return tuple(windows.values())
