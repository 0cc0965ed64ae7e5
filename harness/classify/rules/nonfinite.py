"""The loss became NaN or infinite."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.classify.facts import conclude
from harness.classify.signature import signature, traceback_names
from harness.core.verdict import Confidence, Kind

if TYPE_CHECKING:
    from harness.core.verdict import Case, Verdict


def nonfinite(case: Case) -> Verdict | None:
    """The trainer's own check of the loss raised."""
    result = case.evidence.result
    if result is None or result.status != "raised" or result.bare != "NonFiniteLoss":
        return None
    return conclude(
        case,
        Kind.NONFINITE,
        because=f"{result.message} (after {result.steps_done} of {case.evidence.steps_wanted} steps)",
        cites=(result.id, "exit"),
        confidence=Confidence.PROOF,
        phase=result.phase,
        signature=signature(Kind.NONFINITE, None, traceback_names(result.traceback or "")),
    )
