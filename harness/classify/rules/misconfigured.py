"""The worker's own echo contradicts the request: what ran is not what was asked about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.classify.facts import conclude
from harness.core.verdict import Confidence, Kind

if TYPE_CHECKING:
    from harness.core.verdict import Case, Verdict

NAMED = 5


def misconfigured(case: Case) -> Verdict | None:
    """Requested settings that the effective configuration does not have."""
    differences = case.evidence.config_differences
    if not differences:
        return None
    more = f" and {len(differences) - NAMED} more" if len(differences) > NAMED else ""
    return conclude(
        case,
        Kind.UNRESOLVED,
        cause="misconfigured",
        because=f"the trial did not run what was asked: {'; '.join(differences[:NAMED])}{more}",
        cites=("config",) if case.evidence.config_seen else ("progress",),
        confidence=Confidence.PROOF,
    )
