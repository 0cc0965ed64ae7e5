"""A limit ran out while it progressed: it would have got there, and here is when."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from harness.classify.facts import begun, conclude, silent_too_long, stopped_by_limit
from harness.classify.motion import motion
from harness.core.outcome import StopReason
from harness.core.verdict import Confidence, Kind

if TYPE_CHECKING:
    from harness.core.verdict import Case, Verdict

LONGER = 3.0
"""Times its longest earlier silence that a trial may have been silent when it was ended, to count as progressing."""
BRIEF_S = 1.0
"""A silence that says nothing, however short the earlier ones were."""
RECENT_STEPS = 3


def slow(case: Case) -> Verdict | None:
    """Marks kept coming, at their usual distance, until we ended it."""
    if not progressed(case):
        return None
    evidence, outcome, prediction = case.evidence, case.outcome, case.trial.prediction
    limit_s = case.trial.budget.total.seconds
    limit = outcome.stopped_by.value if outcome.stopped_by else "limit"
    if outcome.stopped_by is StopReason.TOTAL:
        limit += f" ({limit_s:.1f} s)"
    because = (
        f"the {limit} ended it after {outcome.duration_s:.1f} s while it progressed: {evidence.steps_done} of "
        f"{evidence.steps_wanted} steps done, the last of {evidence.heartbeats_total} marks "
        f"{evidence.silence_s:.1f} s before; {would_have_needed(case)}{predicted(case)}"
    )
    cites = ["progress", "exit"]
    if prediction is not None:
        cites.append("prediction")
    return conclude(case, Kind.SLOW, rule="slow", because=because, cites=cites, confidence=Confidence.HIGH)


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
    if not stopped_by_limit(case) or silent_too_long(case) or not begun(case):
        return False
    if evidence.heartbeats_total < 2:
        return False
    moved = motion(case)
    if moved is not None and moved.asleep and not moved.main_timed and moved.others_still:
        return False
    return evidence.silence_s <= max(BRIEF_S, LONGER * longest_gap_s(case))


def longest_gap_s(case: Case) -> float:
    """The longest silence between two marks of steps that followed each other, seconds; 0 with fewer than two."""
    marks = case.evidence.heartbeats
    pairs = itertools.pairwise(marks)
    return max((b.t_s - a.t_s for a, b in pairs if b.seq == a.seq + 1 and a.step is not None), default=0.0)


def would_have_needed(case: Case) -> str:
    """The time to the end at the rate of the latest steps, or a lower bound when no step was done."""
    evidence, measured = case.evidence, case.evidence.measurement.step_s
    left = evidence.steps_wanted - evidence.steps_done
    elapsed_s = case.outcome.duration_s
    first = next((mark for mark in evidence.heartbeats if mark.step is not None), None)
    if measured:
        recent = measured[-RECENT_STEPS:]
        rate_s = sum(recent) / len(recent)
        done_s = (evidence.measurement.startup_s or 0.0) + sum(measured)
        total_s = max(done_s + left * rate_s, elapsed_s)
        return f"at {rate_s:.2f} s a step it would have needed about {total_s:.1f} s"
    in_step_s = elapsed_s - (first.t_s if first else 0.0)
    bound_s = elapsed_s - in_step_s + evidence.steps_wanted * in_step_s
    return f"no step was done in {in_step_s:.1f} s, so it would have needed more than {bound_s:.1f} s"
