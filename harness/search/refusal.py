"""A search for a cause one of whose two corners the program refuses: it says so, and nothing of a cause."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.core.cause import MinimiseFinding
from harness.core.verdict import REFUSED
from harness.search.tables import of_cell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.campaign import CampaignAnswer, CampaignSpec
    from harness.core.record import TrialRecord


def with_refusal(answer: CampaignAnswer, spec: CampaignSpec, records: Sequence[TrialRecord]) -> CampaignAnswer:
    """``answer`` as the trials say it where every one of a corner ended with its command line refused."""
    minimised = answer.minimised
    if minimised is None or minimised.finding is not MinimiseFinding.INCONCLUSIVE or minimised.causes:
        return answer
    space = spec.matrix.space
    corners = (("the baseline", spec.good or space.good), ("the cell that was to fail", spec.bad or space.bad))
    for name, cell in corners:
        here = of_cell(cell, records)
        if here and all(record.verdict.cause == REFUSED for record in here):
            because = f"{name} never ran, {len(here)} of {len(here)} times: {here[0].verdict.because}."
            refused = replace(minimised, finding=MinimiseFinding.REFUSED, because=because)
            return replace(answer, minimised=refused, because=because)
    return answer
