"""Nothing moves: every thread sleeps, no CPU time, nobody is woken, the stacks stay as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.classify.facts import (
    before_limit,
    beyond_pace,
    conclude,
    ended,
    pace_told,
    silence,
    silent_too_long,
    watched_out,
)
from harness.classify.frames import identical, native_samples, silent_samples, spell
from harness.classify.motion import motion
from harness.classify.signature import signature, stack_names
from harness.classify.unusual import unusual
from harness.classify.waits import OUTSIDE, waiting_cause
from harness.core.stacks import deciding_thread, python_frames, telling_frame
from harness.core.verdict import Confidence, Kind

if TYPE_CHECKING:
    from harness.classify.motion import Motion
    from harness.core.evidence import StackSample, ThreadStack
    from harness.core.verdict import Case, Verdict

LATE_EXIT = "late-exit"
"""All steps are done, but the process does not end."""

ENDS = {"blocked-io": "whoever is at the other end", "waiting-for-child": "the process that it waits for"}
"""Waits that a silence out of proportion to the trial's pace decides, and what could still end them. Not the wait for
a device: a flush of minutes, or a disk that tries again after 30 s, looks like one that never ends, and is common."""

UNNAMED = frozenset({"native-wait", "unseen-wait", "uninterruptible-io"})
"""Waits of which nobody knows what they are for, or that a device may end: the pace says nothing about them."""


def hung_waiting(case: Case) -> Verdict | None:
    """Every thread sleeps, none is woken, no other process of the trial works, and the stacks stay.

    Certain at the limit when the wait is for something inside the process. A wait that something outside may end (a
    device, a pipe, a socket, a child), a side thread or process that will wake by itself, or stacks without native
    frames: only after four times the limit, or where nothing of the trial will wake by itself, once the silence is out
    of proportion to its own pace. A main thread that sleeps on a timer never: it wakes by itself; nor one that waits
    for the outside while another process of the trial does.
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
    last = case.evidence.last
    cause = waiting_cause(moved, thread, samples, phase=last.phase if last else None)
    if cause in OUTSIDE and moved.others_may_move:
        return None
    certain = len(native) >= 2 and cause not in OUTSIDE and not moved.any_timed and not moved.others_may_move
    if certain and before_limit(case) and cause in UNNAMED:
        return None
    paced = not certain and not watched_out(case)
    if paced and not (cause in ENDS and _beyond_pace(case, moved, thread, samples)):
        return None
    late = ended(case) and last is not None and last.edge == "end"
    cause = LATE_EXIT if late else cause
    is_main = thread.name == "MainThread" or thread.tid == sample.pid
    which = "the main thread" if is_main else f"thread {thread.name or thread.tid}"
    weaker = "" if native else f", as {sample.source} says without native frames"
    because = (
        f"{silence(case)}; at {moved.looks} of {moved.looks} looks {_all(moved.threads)}, and in "
        f"{len(samples)} of {len(samples)} samples {which} waits in {spell(telling_frame(thread))}{weaker}"
        f"{_kernel_wait(moved)}; {moved.cpu_s:.2f} s CPU in {moved.seconds:.1f} s{_kept_by(sample) if late else ''}"
        f"{f'; that is {pace_told(case)}, and only {ENDS[cause]} could end it' if paced else ''}"
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
        phase="exit" if late else None,
    )


def _beyond_pace(case: Case, moved: Motion, thread: ThreadStack, samples: tuple[StackSample, ...]) -> bool:
    """Whether it has stood still for so long, in work that it did before, that only the outside could be late."""
    wakes = moved.any_timed or "D" in moved.states
    return beyond_pace(case) and not wakes and not unusual(thread, samples)


def _kept_by(sample: StackSample) -> str:
    """The threads beside the main one that a process which is done still has, and where they are."""
    others = [t for t in sample.threads if t.tid != sample.pid and t.name != "MainThread" and python_frames(t)]
    named = ", ".join(f"{thread.name} in {spell(telling_frame(thread))}" for thread in others[:3])
    return f"; all steps are done, and these threads are left: {named}" if named else "; all steps are done"


def _all(threads: int) -> str:
    return "its only thread sleeps" if threads == 1 else f"all {threads} threads sleep"


def _kernel_wait(moved: Motion) -> str:
    return f" (kernel: {moved.main_wchan})" if moved.main_wchan not in ("", "0") else ""
