"""A limit ran out while it progressed: it would have got there, and here is when.

Progress is shown by marks that still came as they had come before, or from inside the silence: by the counter of a loop
that only grows. Of several ranks the progress of any excludes a hang of the job, and a rank that all others mostly wait
for is named.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.classify.facts import begun, beyond_limit, conclude, job_of_case, stopped_by_limit
from harness.classify.views import (
    absent_and_waiting,
    alike,
    cited,
    has_failed,
    others_than,
    still_there,
    views_of,
    waiting,
)
from harness.core.evidence import latest_rate_s
from harness.core.outcome import USER_ASKED, Ending, StopReason
from harness.core.verdict import Confidence, Kind
from harness.reading.frames import deciding_thread, same_frames, short_path, spell, telling_frame
from harness.reading.loops import Progress, progress, remainder
from harness.reading.waits import Ender

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.classify.views import RankView
    from harness.core.evidence import StackSample, ThreadStack
    from harness.core.verdict import Case, Verdict

LONGER = 3.0
"""Times its longest earlier silence that a trial may have been silent when it was ended, to count as progressing."""
BRIEF_S = 1.0
"""A silence that says nothing, however short the earlier ones were."""

PRINTED = 4
"""Marks of a program without steps below which it merely printed something, once or twice."""

ARRANGES = 2
"""Steps at the beginning in which DDP puts its buckets together, and waits for the other ranks inside forward."""

WAITS = "reduce"
"""The phase in which our trainer waits for the other ranks."""

HARDLY, MOSTLY = 0.3, 0.6
"""Share of its time that a straggler waits for the others at most, and the others for it at least."""


def slow(case: Case) -> Verdict | None:
    """Marks kept coming at their usual distance until we ended it, or a loop got on in the silence."""
    if not stopped_by_limit(case) or has_failed(case):
        return None
    views = still_there(views_of(case))
    if not views:
        return _of_one(case)
    moving = [view for view in views if progressed(view.case) or _loops(view.case)]
    return _of_ranks(views, moving) if moving else _sleeper(case, views)


def _of_one(case: Case) -> Verdict | None:
    loops = _loops(case)
    if not progressed(case) and not loops:
        return None
    evidence, steps = case.evidence, _steps(case)
    if loops:
        state = "; ".join(filter(None, (steps, *map(str, loops), _needs(case))))
    else:
        marks = f"the last of {evidence.heartbeats_total} marks {evidence.silence_s:.1f} s before"
        state = f"{', '.join(filter(None, (steps, marks)))}; {would_have_needed(case)}"
    cites = ["progress", "exit", *cited(loops)]
    if case.trial.prediction is not None:
        cites.append("prediction")
    return conclude(
        case,
        Kind.SLOW,
        because=f"{_until(case)}: {state}{predicted(case)}",
        cites=cites,
        confidence=_confidence(case, len(loops)),
    )


def _steps(case: Case) -> str:
    """How many steps were done; empty of a job that was only watched, where nobody counts them."""
    done, wanted = case.evidence.steps_done, case.evidence.steps_wanted
    if case.outcome.ending is Ending.STILL_RUNNING and not (done or wanted):
        return ""
    return f"{done} of {wanted} steps done" if wanted else f"{done} step{'' if done == 1 else 's'} done"


def _until(case: Case) -> str:
    """What ended it while it progressed; or that nothing did, of a job that was only watched."""
    outcome = case.outcome
    if outcome.ending is Ending.STILL_RUNNING:
        return f"it progressed in the {outcome.duration_s:.1f} s that it was watched"
    if outcome.stopped_by is StopReason.EXAMINED:
        return f"{outcome.why or USER_ASKED}: after {outcome.duration_s:.1f} s a last look found that it progressed"
    limit = outcome.stopped_by.value if outcome.stopped_by else "limit"
    if outcome.stopped_by is StopReason.TOTAL:
        limit += f" ({case.trial.budget.total.seconds:.1f} s)"
    return f"the {limit} ended it after {outcome.duration_s:.1f} s while it progressed"


def _confidence(case: Case, loops: int) -> Confidence:
    """By the signals that agree that it was on its way: marks, finished steps, stacks that moved, a prediction.

    A loop whose counter was seen to grow towards the end that its source names is enough by itself.
    """
    signals = 3 * bool(loops) + progressed(case) + (case.evidence.steps_done > 0) + _moved(case) + _was_predicted(case)
    return Confidence.HIGH if signals >= 3 else Confidence.MEDIUM if signals == 2 else Confidence.LOW


def _moved(case: Case) -> bool:
    """Whether a process of it was seen in two different places, in samples of the same kind."""
    first_threads: dict[tuple[int, str, bool], ThreadStack | None] = {}
    for sample in case.evidence.stacks:
        key, thread = (sample.pid, sample.source, sample.native), deciding_thread(sample)
        if key in first_threads and not same_frames(first_threads[key], thread):
            return True
        first_threads.setdefault(key, thread)
    return False


def _was_predicted(case: Case) -> bool:
    """Whether a healthy trial was expected to take longer than this one was given."""
    prediction = case.trial.prediction
    return prediction is not None and prediction.total_s > case.outcome.duration_s


def predicted(case: Case) -> str:
    """What passed trials say of this one's whole time, in parentheses; empty when they say nothing."""
    prediction = case.trial.prediction
    if prediction is None:
        return ""
    basis = f", from {prediction.source}" if prediction.least else ""
    return f" (predicted for a healthy trial: {prediction.least}{prediction.total_s:.1f} s{basis})"


def progressed(case: Case) -> bool:
    """Whether a limit ended the trial although its marks still came as they had come before.

    The silence must be within its own limit, not much longer than the longest one that had ended in a mark, and
    not a standstill.
    """
    evidence = case.evidence
    if not stopped_by_limit(case) or beyond_limit(case) or evidence.heartbeats_total < 2:
        return False
    if not begun(case) and not evidence.measurement.step_s and evidence.heartbeats_total < PRINTED:
        return False
    job = job_of_case(case)
    for pid in job.leaders:
        if not job.stand[pid].chances and job.stand[pid].motion is not None:
            return False
    return evidence.silence_s <= max(BRIEF_S, LONGER * longest_gap_s(case))


def longest_gap_s(case: Case) -> float:
    """The longest silence between two marks of one rank, seconds; of steps, where there were any; 0 without two."""
    return max((*_gaps_s(case), *case.evidence.measurement.step_s), default=0.0)


def _gaps_s(case: Case) -> Iterator[float]:
    in_steps = begun(case)
    for before, after in itertools.pairwise(case.evidence.heartbeats):
        if before.rank == after.rank and (before.step is not None or not in_steps):
            yield after.t_s - before.t_s


def would_have_needed(case: Case) -> str:
    """The time to the end at the rate of the latest steps, or a lower bound when no step was done."""
    evidence, measured, whole = case.evidence, case.evidence.measurement.step_s, case.evidence.whole_steps_s
    elapsed_s = case.outcome.duration_s
    if measured and not whole:
        return "it was first seen in a backward pass, so how long a whole step takes is not known"
    if measured:
        rate_s = latest_rate_s(whole)
        total_s = evidence.needed_s(elapsed_s=elapsed_s)
        if total_s is None:
            return f"it took {rate_s:.2f} s a step; how many there are to be is not known"
        return f"at {rate_s:.2f} s a step it would have needed about {total_s:.1f} s"
    in_step_s = elapsed_s - _steps_began_s(case)
    if evidence.steps_wanted <= 0:
        return f"no step was done in {in_step_s:.1f} s"
    if evidence.steps_wanted == 1:  # it had its whole time for this one: nothing follows that is not said
        return f"its only step was not done in {in_step_s:.1f} s"
    bound_s = elapsed_s - in_step_s + evidence.steps_wanted * in_step_s
    return f"no step was done in {in_step_s:.1f} s, so it would have needed more than {bound_s:.1f} s"


def _steps_began_s(case: Case) -> float:
    """When the first mark of a step was made, seconds since the trial's start; 0 without any."""
    for mark in case.evidence.heartbeats:
        if mark.step is not None:
            return mark.t_s
    return 0.0


# -- inside the silence


def _loops(case: Case) -> tuple[Progress, ...]:
    """The loops that get on in the present silence, of the process that trains; the outermost first."""
    leader = job_of_case(case).leader
    return progress(leader.samples) if leader is not None else ()


def _needs(case: Case) -> str:
    """How long the work of this silence takes in all, by the loops that tell their end, and what lies around them."""
    job = job_of_case(case)
    samples = job.stand[job.leaders[0]].samples
    rest = remainder(samples)
    if rest is None and any(loop.remaining_s is not None for loop in _loops(case)):
        return "how much there is to do around it, the samples do not tell"
    if rest is None:
        return "where they end, their source does not tell"
    around = [f"{p.name} {p.place + 1} of {p.of} in {p.function} ({short_path(p.file)}:{p.line})" for p in rest.around]
    within = f"within {', '.join(around)}; " if around else ""
    least = "at least " if rest.at_least else ""
    remaining_s = max(rest.remaining_s, 0.0)  # a `while` is past its bound before it is left
    total_s = case.evidence.silence_s + remaining_s
    needs = f"{within}this needs {least}{remaining_s:.0f} s more"
    if case.outcome.ending is not Ending.STILL_RUNNING:
        needs += f", {least}{total_s:.0f} s in all"
    elif not within and any(f"{loop.remaining_s or 0.0:.0f}" == f"{remaining_s:.0f}" for loop in _loops(case)):
        needs = ""  # its only loop says so already
    outer = _uncounted(samples)
    passes = f"that is for one pass of {outer}; how many more come is not known" if outer else ""
    return "; ".join(filter(None, (needs, passes)))


def _uncounted(samples: Sequence[StackSample]) -> str:
    """The innermost loop around those whose end is known, if its own is not: how far it is could not be read."""
    for sample in reversed(samples):
        loops = [loop for loop in sample.loops if loop.tid == sample.pid]
        counted = [(loop.outer, loop.header_line) for loop in loops if loop.bound is not None]
        counted += [(position.outer, 0) for position in sample.positions]
        if sample.native or not counted:
            continue
        around = [loop for loop in loops if (loop.outer, loop.header_line) < min(counted)]
        if not around:
            return ""
        loop = max(around, key=lambda loop: (loop.outer, loop.header_line))
        return f"`{loop.header}` in {loop.function} ({short_path(loop.file)}:{loop.header_line})"
    return ""


# -- several ranks


def _of_ranks(views: Sequence[RankView], moving: Sequence[RankView]) -> Verdict | None:
    late = straggler(views)
    view = late or moving[0]
    verdict = _of_one(view.case) or _of_one(moving[0].case)
    if verdict is None:
        return None
    cites = tuple(dict.fromkeys((view.facts.id, *verdict.cites)))
    if late is None:
        return replace(verdict, rank=None, cites=cites)
    others = ", ".join(f"rank {v.rank} {100 * waited(v):.0f} %" for v in others_than(late, views))
    return replace(
        verdict,
        cause="straggler",
        because=f"rank {late.rank} is late in every step and waits {100 * waited(late):.0f} % of its time for the "
        f"others, who wait for it ({others}); {verdict.because}",
        rank=late.rank,
        cites=cites,
    )


def _sleeper(case: Case, views: Sequence[RankView]) -> Verdict | None:
    """A rank that sleeps on a timer while the others wait for it will come by itself."""
    absent, others = absent_and_waiting(views)
    if len(absent) != 1 or not others or not beyond_limit(case):
        return None
    view, one = absent[0], absent[0].standing
    if one is None or one.thread is None or not any(chance.ender is Ender.TIMER for chance in one.chances):
        return None
    if one.ticks:
        return None  # it wakes, asks for something, and sleeps anew: nobody knows whether that comes
    return conclude(
        view.case,
        Kind.SLOW,
        cause="straggler",
        because=f"{'; '.join(map(waiting, alike(others)))}; rank {view.rank} sleeps on a timer in "
        f"{spell(telling_frame(one.thread))} since {view.facts.silence_s:.1f} s and will go on when it wakes; the "
        f"others wait for it; {view.silence}",
        cites=(*cited(views), "progress"),
        confidence=Confidence.MEDIUM,
    )


def straggler(views: Sequence[RankView]) -> RankView | None:
    """The one rank that hardly waits while all others mostly do; None when there is no such rank."""
    if len(views) < 2:
        return None
    first, *others = sorted(views, key=waited)
    return first if waited(first) <= HARDLY and all(waited(view) >= MOSTLY for view in others) else None


def waited(view: RankView) -> float:
    """The share of a rank's time in steps that it spent waiting for the others, by its own marks."""
    marks = [mark for mark in view.facts.heartbeats if mark.step is not None]
    later = [mark for mark in marks if (mark.step or 0) >= ARRANGES]
    if later and later[-1].t_s - later[0].t_s >= BRIEF_S:
        marks = later
    gaps_s: list[float] = []
    waits_s: list[float] = []
    for before, after in itertools.pairwise(marks):
        if after.seq != before.seq + 1:
            continue
        gaps_s.append(after.t_s - before.t_s)
        if before.phase == WAITS and before.edge == "begin":
            waits_s.append(after.t_s - before.t_s)
    all_s = sum(gaps_s)
    return sum(waits_s) / all_s if all_s > 0 else 0.0
