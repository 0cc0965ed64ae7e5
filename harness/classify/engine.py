"""The rules in order, and the verdict of the first that fires."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.registry import Registry

if TYPE_CHECKING:
    from harness.core.verdict import Case, Verdict

RULES = Registry(
    "rule",
    {
        # Trials that say nothing about the program come first: nothing seen in them may be held against it.
        "interrupted": "harness.classify.rules.infra:interrupted",
        "infra": "harness.classify.rules.infra:infra",
        # What ran must be what was asked before it can answer the question, also when it passed.
        "misconfigured": "harness.classify.rules.misconfigured:misconfigured",
        # A pass must also meet what the matrix asks of it.
        "nonfinite_loss": "harness.classify.rules.below_target:nonfinite_loss",
        "below_target": "harness.classify.rules.below_target:below_target",
        # Then what the process itself said and how it ended: facts, no inference.
        "passed": "harness.classify.rules.passed:passed",
        "early_exit": "harness.classify.rules.early_exit:early_exit",
        # The special exceptions before the general one.
        "nonfinite": "harness.classify.rules.nonfinite:nonfinite",
        "oom": "harness.classify.rules.oom:oom",
        "crashed": "harness.classify.rules.crashed:crashed",
        # Only now the trials that we ended. A standstill is decisive whatever any limit or prediction says ...
        "stopped": "harness.classify.rules.stopped:stopped",
        "hung_waiting": "harness.classify.rules.hung_waiting:hung_waiting",
        # ... but a silence that a healthy trial may have is not, so this comes before any hang that burns CPU.
        "limit_too_short": "harness.classify.rules.limit_too_short:limit_too_short",
        "hung_busy": "harness.classify.rules.hung_busy:hung_busy",
        # Progress excludes every hang (silence within its limit), so SLOW cannot hide one.
        "slow": "harness.classify.rules.slow:slow",
        # Always fires.
        "unresolved": "harness.classify.rules.unresolved:unresolved",
    },
)


def classify(case: Case) -> Verdict:
    """What we conclude about one trial. Pure: the same case gives the same verdict, on any machine, at any time.

    ``also`` of the verdict names the later rules that would have fired too (``unresolved`` aside, which always does).
    """
    fired = [(name, verdict) for name in RULES if (verdict := RULES.load(name)(case)) is not None]
    (_, first), *rest = fired
    return replace(first, also=tuple(name for name, _ in rest if name != "unresolved"))
