"""What a campaign asks of a search, and the search that answers its question."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from harness.core.campaign import Task
from harness.core.errors import SpecError
from harness.search.along import Along
from harness.search.explore import Explore
from harness.search.listed import Listed
from harness.search.minimise import Minimise
from harness.search.own_command import TRIES

if TYPE_CHECKING:
    from harness.core.boundary import PlanEstimate
    from harness.core.campaign import CampaignAnswer, CampaignSpec
    from harness.core.point import Point
    from harness.core.ports import CellRequest
    from harness.core.verdict import Answer


class Search(Protocol):
    """A search over cells; ``stopped`` says which limit of its own ended it."""

    @property
    def stopped(self) -> str:
        """Why it was ended early; empty when it was not."""
        ...

    def ask(self) -> CellRequest | None:
        """The next question, or None when the search is over."""
        ...

    def ready(self, most: int) -> tuple[CellRequest, ...]:
        """The questions that may be asked at once, at most ``most``: a search rests on answers, a list does not."""
        ...

    def tell(self, *, cell: Point, answer: Answer, seconds: float, slow: bool = False, soft: bool = False) -> None:
        """The answer for one trial of ``cell`` and what it cost.

        ``slow``: it was slower than its limit allowed; ``soft``: a soft limit cut it off.
        """
        ...

    def estimate(self) -> PlanEstimate:
        """What is left to spend, as expected now."""
        ...

    def conclude(self, answer: CampaignAnswer) -> CampaignAnswer:
        """``answer`` with what the search itself knows, and one sentence for both."""
        ...


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
