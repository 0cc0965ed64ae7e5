"""Nothing moves: every thread sleeps, no CPU time, nobody is woken, the stacks stay as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.classify.facts import PATIENCE, conclude, silence, silence_limit, silent_too_long
from harness.classify.frames import identical, native_samples, silent_samples, spell
from harness.classify.motion import motion
from harness.classify.signature import signature, stack_names
from harness.core.stacks import deciding_thread, native_leaf, python_frames, telling_frame
from harness.core.verdict import Confidence, Kind

if TYPE_CHECKING:
    from harness.classify.motion import Motion
    from harness.core.evidence import StackSample, ThreadStack
    from harness.core.verdict import Case, Verdict

PIPE_WRITE = ("pipe_write", "anon_pipe_write")
CHILD_WAIT = ("do_wait", "kernel_wait4")
PIPE_READ = ("pipe_read", "anon_pipe_read")
IO_WAIT = ("poll", "epoll", "select", "sk_wait", "unix_stream", "nfs", "rpc_wait", "wait_for_partner", "io_schedule")
OUTSIDE = frozenset({"blocked-io", "waiting-for-child"})
"""Causes that something outside the process may end."""
LOCK_FUNCTIONS = ("PyThread_acquire_lock", "lock_PyThread", "rlock_acquire")
LOCK_FILES = ("threading.py", "queue.py", "synchronize.py", "queues.py")


def hung_waiting(case: Case) -> Verdict | None:
    """Every thread sleeps, none is woken, no other process of the trial works, and the stacks stay.

    Certain at the limit when the wait is for something inside the process. A wait that something outside may end (a
    device, a pipe, a socket, a child), a side thread or process that will wake by itself, or stacks without native
    frames: only after four times the limit. A main thread that sleeps on a timer never: it wakes by itself; nor one
    that waits for the outside while another process of the trial does.
    """
    moved, samples = motion(case), silent_samples(case)
    if not silent_too_long(case) or moved is None or not moved.asleep or not moved.others_still or moved.main_timed:
        return None
    if len(samples) < 2 or not identical(samples):
        return None
    native = native_samples(samples)
    sample = (native or samples)[-1]
    thread = deciding_thread(sample)
    if thread is None:
        return None
    cause = waiting_cause(moved, thread, samples)
    if cause in OUTSIDE and moved.others_may_move:
        return None
    certain = len(native) >= 2 and cause not in OUTSIDE and not moved.any_timed and not moved.others_may_move
    if not certain and case.evidence.silence_s < PATIENCE * silence_limit(case).seconds:
        return None
    which = "the main thread" if thread.name == "MainThread" or thread.tid == sample.pid else f"thread {thread.name}"
    weaker = "" if native else f", as {sample.source} says without native frames"
    because = (
        f"{silence(case)}; at {moved.looks} of {moved.looks} looks {_all(moved.threads)}, and in "
        f"{len(samples)} of {len(samples)} samples {which} waits in {spell(telling_frame(thread))}{weaker}"
        f"{_kernel_wait(moved)}; {moved.cpu_s:.2f} s CPU in {moved.seconds:.1f} s"
    )
    return conclude(
        case,
        Kind.HANG,
        rule="hung_waiting",
        cause=cause,
        because=because,
        cites=(*(s.id for s in samples), *moved.ids, "progress"),
        confidence=Confidence.HIGH if certain else Confidence.MEDIUM,
        signature=signature(Kind.HANG, cause, stack_names(thread)),
    )


def waiting_cause(moved: Motion, thread: ThreadStack, samples: tuple[StackSample, ...]) -> str:
    """What a process in which nothing moves waits for; the most specific evidence first."""
    wchan = moved.main_wchan
    leaf = " ".join(frame.function for frame in native_leaf(thread))
    innermost = next(iter(python_frames(thread)), None)
    if wchan in PIPE_WRITE:
        return "blocked-pipe"
    if all(any(t.owns_gil for t in sample.threads) for sample in samples if _tells_gil(sample)) and any(
        map(_tells_gil, samples)
    ):
        return "gil-held"
    if wchan in CHILD_WAIT or (wchan in PIPE_READ and moved.children):
        return "waiting-for-child"
    if any(name in leaf for name in LOCK_FUNCTIONS):
        return "deadlock"
    if "D" in moved.states or any(part in wchan for part in (*IO_WAIT, *PIPE_READ)):
        return "blocked-io"
    if innermost is not None and innermost.file.endswith(LOCK_FILES):
        return "deadlock"
    # A lock taken by the program's own function looks, without native frames, like a wait in C.
    return "native-wait" if any(sample.native for sample in samples) else "unseen-wait"


def _tells_gil(sample: StackSample) -> bool:
    return any(thread.owns_gil is not None for thread in sample.threads)


def _all(threads: int) -> str:
    return "its only thread sleeps" if threads == 1 else f"all {threads} threads sleep"


def _kernel_wait(moved: Motion) -> str:
    return f" (kernel: {moved.main_wchan})" if moved.main_wchan not in ("", "0") else ""
