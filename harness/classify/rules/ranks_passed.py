"""Several ranks, and all of them did all their steps."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.classify.rules.passed import passed

if TYPE_CHECKING:
    from harness.core.verdict import Case, Verdict


def ranks_passed(case: Case) -> Verdict | None:
    """The trial's exit status is 0, and no rank says or shows that it did not finish."""
    verdict, wanted = passed(case), case.evidence.steps_wanted
    if verdict is None:
        return None
    for rank in case.evidence.ranks:
        if rank.result is not None and (rank.result.status != "finished" or rank.result.steps_done != wanted):
            return None
        if rank.exit is not None and (rank.exit.code != 0 or (rank.result is None and rank.steps_done < wanted)):
            return None
    because = f"all {len(case.evidence.ranks)} ranks: {verdict.because}"
    return replace(verdict, because=because, rank=None)
