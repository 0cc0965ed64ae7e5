"""It burns CPU and goes nowhere: one Python function, no compiled work inside it, no counter that moves."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from harness.classify.facts import (
    PATIENCE,
    conclude,
    main_pid,
    own_busy_patience_s,
    silence,
    silence_limit,
    silent_too_long,
)
from harness.classify.frames import native_samples, silent_samples, spell
from harness.classify.motion import motion
from harness.classify.signature import signature, stack_names
from harness.core.pace import HUNDREDFOLD
from harness.core.stacks import is_compiled_work, is_stdlib, native_leaf, python_frames
from harness.core.verdict import Confidence, Kind

if TYPE_CHECKING:
    from harness.classify.motion import Motion
    from harness.core.evidence import Frame, ThreadStack
    from harness.core.verdict import Case, Verdict

LONGER = 10.0
"""Times the longest healthy silence that a busy silence must last."""
LEAST_S = 8.0
"""A busy silence shorter than this is no hang, however quick the healthy trials were."""
LEAST_UNDISTURBED_S = 5.0
"""Of it, what must have passed without a dumper stopping the process: on a busy machine that takes seconds."""
SAMPLES = 3
BUSY_SHARE = 0.02
"""CPU seconds per second of a thread that is never seen waiting: what is left to it on a machine with 50 rivals."""


def hung_busy(case: Case) -> Verdict | None:
    """Needs a yardstick for healthy silence (a prediction, or the same phase earlier): without one, no verdict."""
    yardstick = healthy_silence_s(case)
    moved = motion(case)
    silence_s = case.evidence.silence_s
    if not silent_too_long(case) or yardstick is None or moved is None:
        return None
    if silence_s < patience_s(case) or undisturbed_s(case) < LEAST_UNDISTURBED_S:
        return None
    if undisturbed_s(case) <= LONGER * yardstick[0]:
        return None
    threads = confined(case, moved)
    if not threads or not is_busy(moved) or not moved.counters_still or not moved.others_still:
        return None
    cause = _cause(threads)
    healthy_s, basis, cited = yardstick
    because = (
        f"{silence(case)}, {silence_s / max(healthy_s, 0.01):.0f} times the longest healthy silence "
        f"({healthy_s:.2f} s, {basis}); {moved.cpu_s:.1f} s CPU in {moved.seconds:.1f} s, and in {len(threads)} of "
        f"{len(threads)} samples it is in {spell(python_frames(threads[-1])[0])} called from the same place, "
        "with no compiled work inside it; memory, page faults and I/O do not move"
    )
    return conclude(
        case,
        Kind.HANG,
        rule="hung_busy",
        cause=cause,
        because=because,
        cites=(*(s.id for s in native_samples(silent_samples(case))), *moved.ids, cited, "progress"),
        confidence=Confidence.HIGH if cited == "prediction" else Confidence.MEDIUM,
        signature=signature(Kind.HANG, cause, stack_names(threads[-1])),
    )


def patience_s(case: Case) -> float:
    """How long a busy silence must last: a hundred times what is predicted, or what it took in this phase before.

    The lesser of the two, if both are known: the same phase of the same trial tells more than the longest of others.
    Four times its limit where neither is.
    """
    prediction = case.trial.prediction
    predicted_s = None if prediction is None else max(LEAST_S, HUNDREDFOLD * prediction.silence_s)
    known = [seconds for seconds in (own_busy_patience_s(case), predicted_s) if seconds is not None]
    return min(known, default=PATIENCE * silence_limit(case).seconds)


def undisturbed_s(case: Case) -> float:
    """The silence without the time in which our own dumps of native frames kept the process stopped."""
    pid, looks = main_pid(case), case.evidence.processes
    paused_s = 0.0
    for sample in native_samples(silent_samples(case)):
        after_s = min((p.t_s for p in looks if p.pid == pid and p.t_s > sample.t_s), default=sample.t_s)
        paused_s += after_s - sample.t_s
    return case.evidence.silence_s - paused_s


def is_busy(moved: Motion) -> bool:
    """Whether one thread computes, or would if it were its turn, at every look."""
    return moved.busiest_runs and moved.cpu_share >= BUSY_SHARE


def healthy_silence_s(case: Case) -> tuple[float, str, str] | None:
    """The longest silence of a healthy trial here: seconds, where that comes from, and what to cite.

    It comes from the prediction, or else from the same phase in earlier steps of this very trial.
    """
    prediction = case.trial.prediction
    if prediction is not None:
        return prediction.silence_high_s, f"predicted from {prediction.source}", "prediction"
    marks, last = case.evidence.heartbeats, case.evidence.last
    if last is None or last.step is None:
        return None
    gaps = [
        after.t_s - before.t_s
        for before, after in itertools.pairwise(marks)
        if after.seq == before.seq + 1
        and before.phase == last.phase
        and before.step is not None
        and before.step < last.step
    ]
    return (max(gaps), f"{last.phase} of earlier steps", "progress") if gaps else None


def confined(case: Case, moved: Motion) -> tuple[ThreadStack, ...]:
    """The stacks of the thread that burns the CPU, one a sample, if they show one place and no compiled work.

    Empty otherwise, and always without native frames: a Python stack alone cannot tell a loop from a long operator.
    Inside that place, nothing but the interpreter and the C library runs: stricter than a low entropy of the native
    leaf, which a long matrix product has too.
    """
    samples = native_samples(silent_samples(case))
    if len(samples) < SAMPLES:
        return ()
    threads = tuple(t for s in samples for t in s.threads if t.tid == moved.busiest_tid)
    if len(threads) != len(samples) or not all(python_frames(t) for t in threads):
        return ()
    if len({_where(t) for t in threads}) != 1:
        return ()
    innermost = python_frames(threads[0])[0]
    if "/site-packages/torch/" in innermost.file:
        return ()
    if not all(unwound(t) for t in threads) or any(is_compiled_work(f) for t in threads for f in native_leaf(t)):
        return ()
    return threads


def unwound(thread: ThreadStack) -> bool:
    """Whether native frames were followed beyond the innermost Python one: only then is their absence inside it told.

    Hand-written assembly (matrix products) can stop an unwinder at the very first frame.
    """
    return any(frame.native for frame in thread.frames[len(native_leaf(thread)) :])


def _where(thread: ThreadStack) -> tuple[tuple[str, str, int], ...]:
    innermost, *callers = python_frames(thread)
    return ((innermost.function, innermost.file, 0), *((f.function, f.file, f.line) for f in callers))


def _cause(threads: tuple[ThreadStack, ...]) -> str:
    """Whether a C function keeps the GIL: by its name, or because the standard library stands still in one line."""
    inside = [frozenset(_c_functions(native_leaf(t))) for t in threads]
    stays = bool(frozenset.intersection(*inside))
    innermost = {python_frames(t)[0] for t in threads}
    in_library = len(innermost) == 1 and all(map(is_stdlib, innermost))
    return "gil-held" if (stays or in_library) and all(t.owns_gil for t in threads) else "infinite-loop"


def _c_functions(leaf: tuple[Frame, ...]) -> list[str]:
    return [f.function for f in leaf if not f.function.startswith(("0x", "_Py", "Py")) and "Eval" not in f.function]
