"""It trained to the end without a word, and its gradients were not those of its loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.classify.facts import conclude
from harness.classify.rules.passed import passed
from harness.classify.signature import signature
from harness.core.verdict import Confidence, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.verdict import Case, Verdict

CAUSE = "gradients-wrong"
NAMED = 3


def gradients_wrong(case: Case) -> Verdict | None:
    """A trial that would pass, where the true gradients were asked for, and the step's own differ or were not compared.

    Gradients that were not compared miss the target too: an unmeasured one would otherwise always be met.
    """
    success, truth = case.trial.success, case.evidence.gradients
    if success is None or not success.gradients or passed(case) is None:
        return None
    if truth is None or truth.why_not:
        why = truth.why_not if truth else "the program left no comparison"
        because, cause = f"the true gradients were asked for, and not compared: {why}", "gradients-unknown"
    elif truth.wrong or truth.missing:
        because, cause = _said(case), CAUSE
    else:
        return None
    return conclude(
        case,
        Kind.BELOW_TARGET,
        cause=cause,
        because=because,
        cites=("exit", *((truth.id,) if truth else ())),
        confidence=Confidence.PROOF,
        phase="backward",
        signature=signature(Kind.BELOW_TARGET, cause, ()),
    )


def _said(case: Case) -> str:
    truth = case.evidence.gradients
    assert truth is not None, "only called with a comparison"
    parts = [f"it ended well, but of {truth.compared} gradients of step {truth.step}"]
    if truth.wrong:
        parts.append(
            f"{len(truth.wrong)} are wrong ({_names(truth.wrong)}; worst {truth.parameter}, relative error "
            f"{truth.worst:.2g} against a plain pass over the same batch)"
        )
    if truth.missing:
        parts.append(f"{len(truth.missing)} are missing ({_names(truth.missing)})")
    return f"{parts[0]} {' and '.join(parts[1:])}"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"
