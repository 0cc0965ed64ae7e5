"""The search that answers a question."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from harness.core.campaign import Task
from harness.core.errors import SpecError
from harness.search.along import Along
from harness.search.explore import Explore
from harness.search.listed import Listed
from harness.search.minimise import Minimise
from harness.search.own_command import TRIES

if TYPE_CHECKING:
    from harness.core.campaign import CampaignSpec

Search: TypeAlias = "Along | Explore | Listed | Minimise"
"""What a campaign asks (``ask``, or ``ready`` for what may be asked at once), tells, and has conclude an answer."""


def strategy_of(spec: CampaignSpec) -> Search:
    """A fresh strategy for this question.

    Raises:
        SpecError: its corners are the same cell or break a rule, or it lacks an axis.
    """
    space, effort = spec.matrix.space, spec.matrix.effort
    match spec.task:
        case Task.CELLS:
            return Listed(spec.cells, passes=spec.passes, until_bad=spec.until_bad)
        case Task.BISECT:
            if spec.axis is None:
                raise SpecError("a threshold search needs an axis")
            return Along(space.factor(spec.axis).axis, effort, base=spec.good or space.good)
        case Task.MINIMISE:
            return Minimise(
                space,
                effort,
                good=spec.good,
                bad=spec.bad,
                causes=spec.causes,
                explain=spec.explain,
                seed=spec.seed,
                again=TRIES if spec.matrix.command else 0,
            )
        case Task.EXPLORE:
            return Explore(space, effort, strength=spec.strength, first_only=spec.fail_fast, seed=spec.seed)
