"""A limit ran out that a healthy trial would have needed: it decides nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.classify.facts import conclude, silence, silent_too_long, stopped_by_limit
from harness.classify.rules.hung_waiting import hung_waiting
from harness.classify.rules.slow import progressed
from harness.classify.rules.stopped import stopped
from harness.core.outcome import StopReason
from harness.core.verdict import Confidence, Kind

if TYPE_CHECKING:
    from harness.core.verdict import Case, Verdict


def limit_too_short(case: Case) -> Verdict | None:
    """The prediction says more than what was waited for, and neither progress nor a standstill was seen."""
    prediction, outcome = case.trial.prediction, case.outcome
    if prediction is None or not stopped_by_limit(case) or progressed(case):
        return None
    if stopped(case) is not None or hung_waiting(case) is not None:
        return None
    if silent_too_long(case) and case.evidence.silence_s < prediction.silence_high_s:
        needed = f"a healthy trial may be silent for {prediction.silence_high_s:.1f} s"
    elif outcome.stopped_by is StopReason.TOTAL and outcome.duration_s < prediction.total_high_s:
        needed = (
            f"the total limit ran out after {outcome.duration_s:.1f} s, "
            f"a healthy trial may take {prediction.total_high_s:.1f} s"
        )
    else:
        return None
    return conclude(
        case,
        Kind.UNRESOLVED,
        rule="limit_too_short",
        cause="limit-too-short",
        because=f"{silence(case)}, but {needed} (upper limit from {prediction.source}), and nothing shows a standstill",
        cites=("progress", "prediction", "exit"),
        confidence=Confidence.PROOF,
    )
