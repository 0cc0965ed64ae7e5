"""Exit status 0, a result, and every step done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.classify.facts import conclude, seen_to_do_its_steps
from harness.core.outcome import Ending
from harness.core.verdict import Confidence, Kind

if TYPE_CHECKING:
    from harness.core.verdict import Case, Verdict


def passed(case: Case) -> Verdict | None:
    """All three say so: exit status, the worker's result, the number of steps. A process left behind is no failure.

    Of a target that counts no steps, the exit status is all there is; of a stranger's program, that and the steps that
    were seen.
    """
    outcome, result, wanted = case.outcome, case.evidence.result, case.evidence.steps_wanted
    if outcome.ending is not Ending.EXITED or outcome.exit is None or outcome.exit.code != 0:
        return None
    if result is None:
        if wanted and not seen_to_do_its_steps(case):
            return None
    elif result.status != "finished" or result.steps_done != wanted:
        return None
    steps = f"after {wanted} of {wanted} steps " if wanted else ""
    because = f"exit status 0 {steps}in {outcome.duration_s:.1f} s"
    cites = ["exit", "progress", *([result.id] if result is not None else [])]
    if outcome.cleanup.ended:
        because += f"; it left {outcome.cleanup.ended} process(es) behind, which were ended"
        cites.append("cleanup")
    return conclude(case, Kind.PASS, because=because, cites=cites, confidence=Confidence.PROOF)
