"""Training waits for its DataLoader, whose workers do not move: it looks for them every few seconds, for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.classify.facts import PATIENCE, conclude, silence, silence_limit, silent_too_long
from harness.classify.frames import identical, native_samples, plain, silent_samples, spell
from harness.classify.motion import ASLEEP, motion
from harness.classify.signature import signature, stack_names
from harness.core.stacks import deciding_thread, is_stdlib, python_frames
from harness.core.verdict import Confidence, Kind

if TYPE_CHECKING:
    from harness.core.evidence import Frame, ThreadStack
    from harness.core.verdict import Case, Verdict

LOADER_FILE = "/torch/utils/data/dataloader.py"
FETCHING = frozenset({"_try_get_data", "_get_data"})
IDLE_SHARE = 0.01
"""CPU seconds per second that a look for the workers' answer every five seconds stays far below."""


def starved(case: Case) -> Verdict | None:
    """All threads sleep but for the loader's own poll, and no other process of the trial moves or may move.

    A worker that reads, computes, sleeps on a timer or waits for another machine may still deliver.
    """
    moved, samples = motion(case), silent_samples(case)
    if not silent_too_long(case) or moved is None or len(samples) < 2 or not identical(samples):
        return None
    if case.evidence.silence_s < PATIENCE * silence_limit(case).seconds:
        return None
    thread = deciding_thread((native_samples(samples) or samples)[-1])
    if thread is None or fetching(thread) is None:
        return None
    if not moved.states <= ASLEEP or moved.cpu_share > IDLE_SHARE or moved.io_bytes:
        return None
    if not moved.children or not moved.others_still or moved.others_may_move:
        return None
    called = next((f for f in python_frames(thread) if LOADER_FILE not in f.file and not is_stdlib(f)), None)
    because = (
        f"{silence(case)}; in {len(samples)} of {len(samples)} samples the main thread asks the DataLoader for a batch, "
        f"in {spell(called)}; its {moved.children} worker process(es) used {moved.others_cpu_s or 0.0:.2f} s CPU in "
        f"{moved.seconds:.1f} s, and none sleeps on a timer or waits for another machine"
    )
    return conclude(
        case,
        Kind.HANG,
        rule="starved",
        cause="data-starvation",
        because=because,
        cites=(*(s.id for s in samples), *moved.ids, "progress"),
        confidence=Confidence.MEDIUM,
        signature=signature(Kind.HANG, "data-starvation", stack_names(thread)),
    )


def fetching(thread: ThreadStack) -> Frame | None:
    """The frame in which ``thread`` waits for a DataLoader's workers, or None."""
    frames = python_frames(thread)
    return next((f for f in frames if LOADER_FILE in f.file and plain(f.function) in FETCHING), None)
