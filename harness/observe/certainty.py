"""Whether a silent process can be known to make no progress without watching it any longer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.core.collective import INCOMPARABLE, SAMPLES, agreed_wait
from harness.core.movement import OUTSIDE_WAITS, STOPPED_S, is_ticker, quiet_windows, stopped_s
from harness.core.stacks import bare, deciding_thread, python_frames, telling_frame

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.core.evidence import ProcessState, StackSample, ThreadState

WAITS_FOR_OTHERS = (
    *OUTSIDE_WAITS,
    *("unix_", "poll", "pipe_read", "wait_for_partner"),
    *("sys_pause", "sigtimedwait", "sigsuspend"),  # signals
    *("lock_inode_wait", "semtimedop", "msgrcv"),  # locks on files, semaphores and messages between programs
    *("request_wait_answer", "p9_client"),  # file systems that a program serves
)
"""Parts of the names of kernel functions in which a thread waits for something that another program may send."""

LOADER_FILE, WORKER_FILE = "/torch/utils/data/dataloader.py", "/torch/utils/data/_utils/worker.py"
"""Where a batch is asked for, and where a worker without work waits for some."""

SHARED_LOCK_FILE = "/multiprocessing/synchronize.py"
"""Locks, events and barriers between processes; to the kernel they look like those of one."""

WAITS_FOR_A_CHILD = frozenset({"do_wait", "kernel_wait4"})
"""Kernel functions in which a thread waits for a child to end. (futex_do_wait is another thing.)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certainty:
    """Whether waiting longer is pointless, and why or why not, in one sentence."""

    certain: bool
    because: str


def nothing_moves(
    *, pid: int, looks: Sequence[ProcessState], stacks: Sequence[StackSample], alone: bool = False
) -> Certainty:
    """Certain when counters, thread states and the last three stacks say that all threads wait without a limit.

    Not certain, however still: another process of the trial that may move, a thread in a timed wait (it will wake by
    itself), in state D (a device may answer), a main thread that waits for a socket, a pipe or a child (the other end
    may answer), or stacks without native frames (a Python stack does not change while C++ works). With ``alone``, for
    a decision before any limit, neither is a process that is stopped (somebody may continue it) nor one in which any
    thread waits for something outside.
    """
    since_s = stacks[-SAMPLES - 1].t_s if len(stacks) > SAMPLES else 0.0
    stood_s = stopped_s([look for look in looks if look.pid == pid])
    looks = [look for look in looks if look.pid == pid and look.t_s >= since_s]
    windows = quiet_windows(looks)
    if len(windows) < 2:
        return _not("fewer than two undisturbed looks at /proc")
    if moved := [window for window in windows if not window.still]:
        return _not(f"it moved {moved[-1]}")
    threads = [thread for look in looks for thread in look.threads if not is_ticker(thread)]
    if all(thread.state == "T" for thread in looks[-1].threads):
        if alone:
            return _not("the process is stopped (state T), and somebody may continue it")
        if stood_s < STOPPED_S:
            return _not(f"the process is stopped (state T), but was seen so for {stood_s:.1f} s only")
        return Certainty(certain=True, because=f"the process is stopped (state T) and nothing moved {windows[-1]}")
    if others := next((look.others_may_move for look in looks if look.others_may_move), None):
        return _not(f"another process of the trial may move: {others}")
    if any(thread.state == "D" for thread in threads):
        return _not("a thread is in uninterruptible sleep (state D), which a device may end")
    if timed := [thread for thread in threads if thread.timed]:
        return _not(f"thread {timed[0].tid} waits with a time limit ({timed[0].wchan}) and will wake by itself")
    mains = [thread for look in looks for thread in look.threads if thread.tid == pid]
    # At any look, not at the last: the answer may come while stacks are taken.
    if main := next((thread for thread in mains if waits_for_others(thread)), None):
        return _not(f"the main thread waits for another program ({main.wchan})")
    if mains and mains[-1].state == "R":
        return _not("the main thread runs again")
    outside = [thread for thread in looks[-1].threads if waits_for_others(thread) and not is_ticker(thread)]
    if alone and outside:
        return _not(f"thread {outside[0].tid} waits for another program ({outside[0].wchan})")
    return _stacks_agree(stacks, moved_not=str(windows[-1]))


def nobody_moves(
    *, ranks: Mapping[int, int], looks: Sequence[ProcessState], stacks: Sequence[StackSample], alone: bool = False
) -> Certainty:
    """The same for a whole job, rank by rank: those that wait in a collective move only when the others come.

    Certain when every rank that is not in a collective is known to make no progress, or when all are in one, but not
    in the same, and none moves. Not certain when all wait in the same one: it may be slow. Nor when all that is known
    of a wait is that it is for a GPU, or for one other rank, which may be in another call and still answer. With
    ``alone``, neither when a rank waits for a lock that processes share: only ranks and their helpers were looked at.
    """
    mine = {rank: [sample for sample in stacks if sample.pid == pid] for rank, pid in ranks.items()}
    helpers = [sample for sample in stacks if sample.pid not in ranks.values()]

    def stuck(rank: int) -> Certainty:
        verdict = nothing_moves(pid=ranks[rank], looks=looks, stacks=mine[rank], alone=alone)
        if verdict.certain and alone and len(ranks) > 1 and _shares_lock(mine[rank][-1]):
            return _not("it waits for a lock between processes, and whoever started the ranks may give it back")
        if verdict.certain:
            return verdict
        theirs = [sample for sample in helpers if sample.rank == rank]
        return starves(pid=ranks[rank], looks=looks, stacks=mine[rank], helpers=theirs) or verdict

    if len(ranks) == 1:
        return stuck(next(iter(ranks)))
    waits = {rank: wait for rank in ranks if (wait := agreed_wait(mine[rank])) is not None}
    absent = [rank for rank in ranks if rank not in waits]
    for rank in absent:
        verdict = stuck(rank)
        if not verdict.certain:
            return _not(f"rank {rank} may go on: {verdict.because}")
    if absent:
        names = ", ".join(map(str, absent))
        return Certainty(certain=True, because=f"rank {names} makes no progress, and {len(waits)} wait for it")
    if any(wait.kind in INCOMPARABLE for wait in waits.values()):
        return _not("every rank waits, and some of them for a GPU or for one other rank")
    if len({(wait.kind, wait.name, wait.frame) for wait in waits.values()}) == 1:
        return _not(f"every rank waits in {next(iter(waits.values())).name}, which may only be slow")
    for rank, pid in ranks.items():
        windows = quiet_windows(look for look in looks if look.pid == pid)
        if not windows or not all(window.still for window in windows):
            return _not(f"rank {rank} waits in a collective and moves, so a transfer may be going on")
    return Certainty(certain=True, because="the ranks wait in different collectives, which can never meet")


def starves(
    *, pid: int, looks: Sequence[ProcessState], stacks: Sequence[StackSample], helpers: Sequence[StackSample]
) -> Certainty | None:
    """Certain when it asks its DataLoader for a batch, and a worker that has work sleeps for good; else None.

    That it looks for the answer every five seconds is no progress. A worker that another program may wake may deliver.
    """
    looks, last = [look for look in looks if look.pid == pid], stacks[-SAMPLES:]
    windows = quiet_windows(looks)
    if len(windows) < 2 or not all(window.still for window in windows) or looks[-1].others_may_move:
        return None
    if len(last) < SAMPLES or not all(_asks_loader(sample) for sample in last):
        return None
    by_pid: dict[int, list[StackSample]] = {}
    for sample in helpers:
        by_pid.setdefault(sample.pid, []).append(sample)
    at_work = [
        worker
        for worker, taken in by_pid.items()
        if len(taken) > 1 and len({_shape(s, native=False) for s in taken}) == 1 and _has_work(taken[-1])
    ]
    waits = {dict(look.others_waits).get(worker, "") for look in looks for worker in at_work}
    if not at_work or any(not wait or _others_end(wait) for wait in waits):
        return None
    because = f"it waits for its DataLoader, whose worker {at_work[0]} sleeps without a time limit ({min(waits)})"
    return Certainty(certain=True, because=f"{because}; nothing moved {windows[-1]}")


def stays(*, ranks: Mapping[int, int], stacks: Sequence[StackSample]) -> bool:
    """Whether the last two samples of every rank show the same Python stacks: what trains would have moved on."""
    mine = ([sample for sample in stacks if sample.pid == pid][-2:] for pid in ranks.values())
    return all(len(pair) == 2 and len({_shape(sample, native=False) for sample in pair}) == 1 for pair in mine)


def _asks_loader(sample: StackSample) -> bool:
    thread = deciding_thread(sample)
    frames = python_frames(thread) if thread is not None else ()
    asking = ("_try_get_data", "_get_data")
    return any(f.file.endswith(LOADER_FILE) and bare(f) in asking for f in frames)


def _shares_lock(sample: StackSample) -> bool:
    thread = deciding_thread(sample)
    return thread is not None and any(f.file.endswith(SHARED_LOCK_FILE) for f in python_frames(thread))


def _has_work(sample: StackSample) -> bool:
    thread = deciding_thread(sample)
    place = telling_frame(thread) if thread is not None else None
    return place is not None and not place.file.endswith(WORKER_FILE)


def waits_for_others(thread: ThreadState) -> bool:
    """Whether another program may wake this thread."""
    return _others_end(thread.wchan)


def _others_end(wchan: str) -> bool:
    return wchan in WAITS_FOR_A_CHILD or any(part in wchan for part in WAITS_FOR_OTHERS)


def _stacks_agree(stacks: Sequence[StackSample], *, moved_not: str) -> Certainty:
    last = stacks[-SAMPLES:]
    native = [sample for sample in last if sample.native]
    if len(last) < SAMPLES or len(native) < 2:
        return _not(f"only {len(last)} stack samples, {len(native)} with native frames")
    if len({_shape(sample, native=True) for sample in native}) > 1:
        return _not("the native stacks differ")
    if len({_shape(sample, native=False) for sample in last}) > 1:
        return _not("the Python stacks differ")
    return Certainty(
        certain=True, because=f"{len(last)} identical stacks, {len(native)} of them native; nothing moved {moved_not}"
    )


def _shape(sample: StackSample, *, native: bool) -> frozenset[tuple[int, tuple[object, ...]]]:
    """The stacks by thread, Python frames only unless ``native``; comparable between samples of one process."""
    return frozenset(
        (thread.tid, tuple((bare(f), f.file, f.line) for f in thread.frames if native or not f.native))
        for thread in sample.threads
        if native or any(not frame.native for frame in thread.frames)
    )


def _not(because: str) -> Certainty:
    return Certainty(certain=False, because=because)
