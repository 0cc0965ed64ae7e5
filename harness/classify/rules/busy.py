"""It burns CPU and goes nowhere, as far as patience can tell: one place, no compiled work in it, nothing moves.

A loop that can never end by its own source is told at once (``harness.classify.rules.stalled``). Here is what only
lasts too long: a hundred of the longest gaps of its phase and a minute of CPU time at least, or four times its limit
(``harness.reading.pace``). A counter that grows in any frame on the stack excludes it: that loop gets on.

Where no healthy silence is known there is no verdict, but for whoever guards tests: ``one_call``.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.classify.facts import (
    PATIENCE,
    busy_patience_s,
    conclude,
    job_of_case,
    silence,
    silence_limit,
    stopped_by_limit,
    watched_out,
)
from harness.classify.signature import stack_names, stack_path
from harness.classify.views import (
    absent_and_waiting,
    alike,
    cited,
    has_failed,
    still_there,
    views_of,
    waiting,
)
from harness.core.verdict import Confidence, Kind
from harness.reading.frames import is_compiled_work, is_stdlib, native_leaf, python_frames, spell
from harness.reading.loops import changes, progress
from harness.reading.pace import LEAST_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.core.evidence import ThreadStack
    from harness.core.verdict import Case, Verdict
    from harness.reading.standing import Standing

LONGER = 10.0
"""Times the longest healthy silence that a busy silence must last."""
LEAST_UNDISTURBED_S = 5.0
"""Of it, what must have passed without a dumper stopping the process: on a busy machine that takes seconds."""
SAMPLES = 3


def busy(case: Case) -> Verdict | None:
    """Of one process; of several ranks the one that the others wait for."""
    if not stopped_by_limit(case) or has_failed(case):
        return None
    job = job_of_case(case)
    if not job.several:
        return _busy(case, job.leader) if job.leader is not None else None
    if case.evidence.silence_s < busy_patience_s(case):
        return None  # another rank still makes marks: this one may have something of its own to do
    absent, waiters = absent_and_waiting(still_there(views_of(case)))
    for view in absent:
        verdict = _busy(view.case, view.standing) if view.standing is not None else None
        if verdict is not None:
            because = f"rank {view.rank} does not come: it runs without an end"
            because = "; ".join([because, *map(waiting, alike(waiters)), verdict.because])
            cites = tuple(dict.fromkeys((view.facts.id, *verdict.cites, *cited(waiters))))
            return replace(verdict, because=because, cites=cites, rank=view.rank, phase=view.phase)
    return None


def _busy(case: Case, one: Standing) -> Verdict | None:
    """Needs a yardstick for healthy silence (a prediction, or the same phase earlier): without one, no verdict."""
    yardstick, silence_s = healthy_silence_s(case), case.evidence.silence_s
    if yardstick is None or silence_s < busy_patience_s(case):
        return None
    if one.may_be_interrupted and not watched_out(case):
        return None
    if undisturbed_s(case, one) < max(LEAST_UNDISTURBED_S, LONGER * yardstick[0]):
        return None
    threads = _goes_nowhere(one)
    if not threads or computed_s(case, one) < min(LEAST_S, silence_limit(case).seconds):
        return None
    healthy_s, basis, cite = yardstick
    because = (
        f"{silence(case)}, {silence_s / max(healthy_s, 0.01):.0f} times the longest healthy silence "
        f"({healthy_s:.2f} s, {basis}); {_place(one, threads)}"
    )
    return _hang(case, one, threads, because=because, cite=cite)


def one_call(case: Case) -> Verdict | None:
    """One call into C that goes nowhere for four times the longest standstill that whoever asks holds to be healthy.

    The samples show it in the same C function of the same line; that it is one call and not many is for the asker to
    make sure of. No rule of a run: a call of an hour may come back.
    """
    job, limit = job_of_case(case), silence_limit(case)
    one = job.leader if len(job.leaders) == 1 else None
    if one is None or not stopped_by_limit(case) or not watched_out(case):
        return None
    threads = _goes_nowhere(one)
    if not threads or not _stays_in_c(threads) or len({python_frames(t)[0].line for t in threads}) != 1:
        return None
    because = (
        f"{silence(case)}, more than {PATIENCE:g} times the {limit.seconds:g} s that a healthy one may stand still "
        f"({limit.source}); {_place(one, threads)}: it is one call that does not come back, or takes very long"
    )
    return _hang(case, one, threads, because=because, cite="progress")


def _goes_nowhere(one: Standing) -> tuple[ThreadStack, ...]:
    """The stacks of a process that burns CPU in one place, with nothing to show for it; empty otherwise."""
    moved = one.motion
    if moved is None or not moved.busy or not moved.counters_still:
        return ()
    return () if progress(one.samples) or changes(one.samples) is not None else confined(one)


def _place(one: Standing, threads: tuple[ThreadStack, ...]) -> str:
    moved = one.motion
    assert moved is not None, "what goes nowhere was seen to compute"
    return (
        f"{moved.cpu_s:.1f} s CPU in {moved.seconds:.1f} s, and in {len(threads)} of {len(threads)} samples it is in "
        f"{spell(python_frames(threads[-1])[0])} called from the same place, with no compiled work inside it; memory, "
        "page faults and I/O do not move"
    )


def _hang(case: Case, one: Standing, threads: tuple[ThreadStack, ...], *, because: str, cite: str) -> Verdict:
    """Never of high confidence: what computes may be doing something that it never did before."""
    cause = _cause(threads)
    return conclude(
        case,
        Kind.HANG,
        rule="busy",
        cause=cause,
        because=because,
        cites=(*one.ids, cite, "progress"),
        confidence=Confidence.MEDIUM,
        names=stack_names(threads[-1]),
        path=stack_path(threads[-1]),
    )


def computed_s(case: Case, one: Standing) -> float:
    """The CPU time that it used in the silence, by its share of a core at the end: others may have used the rest."""
    moved = one.motion
    return case.evidence.silence_s * min(1.0, moved.cpu_s / moved.seconds) if moved is not None else 0.0


def undisturbed_s(case: Case, one: Standing) -> float:
    """The silence without the time in which our own dumps of native frames kept the process stopped."""
    paused_s = 0.0
    for sample in one.native:
        after_s = min((look.t_s for look in one.looks if look.t_s > sample.t_s), default=sample.t_s)
        paused_s += after_s - sample.t_s
    return case.evidence.silence_s - paused_s


def healthy_silence_s(case: Case) -> tuple[float, str, str] | None:
    """The longest silence of a healthy trial here: seconds, where that comes from, and what to cite.

    It comes from the prediction, or else from earlier steps of this very trial: any silence in them, because what comes
    after an optimizer's step may be anything.
    """
    prediction = case.trial.prediction
    if prediction is not None:
        return prediction.silence_high_s, f"predicted from {prediction.source}", "prediction"
    last = case.evidence.last
    if last is None or last.step is None:
        return None
    longest_s = max(_gaps_before(case, last.step), default=None)
    return None if longest_s is None else (longest_s, "of earlier steps", "progress")


def _gaps_before(case: Case, step: int) -> Iterator[float]:
    """Seconds between marks of one rank in the steps before this one."""
    for before, after in itertools.pairwise(case.evidence.heartbeats):
        if before.rank == after.rank and before.step is not None and before.step < step:
            yield after.t_s - before.t_s


def confined(one: Standing) -> tuple[ThreadStack, ...]:
    """The stacks of the thread that burns the CPU, one a sample, if they show one place and no compiled work.

    Empty otherwise, and always without native frames: a Python stack alone cannot tell a loop from a long operator.
    Inside that place, nothing but the interpreter and the C library runs: stricter than a low entropy of the native
    leaf, which a long matrix product has too.
    """
    samples = one.native
    if len(samples) < SAMPLES or one.motion is None:
        return ()
    threads = tuple(t for s in samples for t in s.threads if t.tid == one.motion.busiest)
    if len(threads) != len(samples) or not all(map(python_frames, threads)):
        return ()
    if len(set(map(_where, threads))) != 1:
        return ()
    innermost = python_frames(threads[0])[0]
    if "/site-packages/torch/" in innermost.file:
        return ()
    for thread in threads:
        if not unwound(thread) or any(map(is_compiled_work, native_leaf(thread))):
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
    innermost = {python_frames(t)[0] for t in threads}
    in_library = len(innermost) == 1 and all(map(is_stdlib, innermost))
    holds_gil = (_stays_in_c(threads) or in_library) and all(t.owns_gil for t in threads)
    return "gil-held" if holds_gil else "infinite-loop"


def _stays_in_c(threads: tuple[ThreadStack, ...]) -> bool:
    """Whether all samples show the same C function inside the innermost Python one."""
    return bool(frozenset[str].intersection(*map(_c_functions, threads)))


def _c_functions(thread: ThreadStack) -> frozenset[str]:
    """What runs inside its innermost Python frame, the interpreter's own functions aside."""
    return frozenset(frame.function for frame in native_leaf(thread) if not _is_interpreter(frame.function))


def _is_interpreter(function: str) -> bool:
    return function.startswith(("0x", "_Py", "Py")) or "Eval" in function
