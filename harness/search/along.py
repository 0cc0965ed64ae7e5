"""Along: a threshold search on one ordered axis of a matrix, everything else of the cell held."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.core.ports import CellRequest
from harness.search.threshold import ThresholdSearch

if TYPE_CHECKING:
    from harness.core.boundary import Boundary, PlanEstimate
    from harness.core.campaign import CampaignAnswer
    from harness.core.point import Axis, Point
    from harness.core.spec import Effort
    from harness.core.verdict import Answer


class Along:
    """:class:`ThresholdSearch` for cells: ``base`` with the value of ``axis`` replaced."""

    def __init__(self, axis: Axis, effort: Effort, *, base: Point) -> None:
        self.axis = axis
        self.base = base
        self.search = ThresholdSearch(axis, effort)

    @property
    def stopped(self) -> str:
        """Why the search was ended early; empty when it was not."""
        return str(self.search.stopped or "")

    def ask(self) -> CellRequest | None:
        """The next question, or None when the search is over."""
        return next(iter(self.ready(1)), None)

    def ready(self, most: int) -> tuple[CellRequest, ...]:
        """Questions that do not depend on each other's answers, at most ``most``."""
        requests: list[CellRequest] = []
        for request in self.search.ask_many(most):
            cell = self.base.with_value(self.axis.name, request.value)
            requests.append(CellRequest(cell=cell, role=request.role, reason=request.reason, soft=request.soft))
        return tuple(requests)

    def tell(self, *, cell: Point, answer: Answer, seconds: float, slow: bool = False, soft: bool = False) -> None:
        """The answer for one trial, ``slow`` or cut off by a ``soft`` limit; of a cell off this line it is ignored."""
        if self.covers(cell):
            self.search.tell(value=cell.get(self.axis.name), answer=answer, seconds=seconds, slow=slow, soft=soft)

    def covers(self, cell: Point) -> bool:
        """Whether ``cell`` is on the line that is searched."""
        value = cell.get(self.axis.name)
        return value in self.axis.values and self.base.with_value(self.axis.name, value) == cell

    def estimate(self) -> PlanEstimate:
        """What is left to spend, as expected now."""
        return self.search.estimate()

    def result(self) -> Boundary:
        """What is known so far; final once ``ask`` returns None."""
        return self.search.result()

    def conclude(self, answer: CampaignAnswer) -> CampaignAnswer:
        """``answer`` with the boundary, and its sentence for both."""
        boundary = self.result()
        return replace(answer, boundary=boundary, because=boundary.because)
