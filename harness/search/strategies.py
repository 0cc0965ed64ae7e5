"""The strategy that answers a campaign's question, and its result beside the cells and tables."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from harness.core.campaign import CellStatus, Task
from harness.core.errors import SpecError
from harness.core.verdict import Kind
from harness.search.along import Along
from harness.search.explore import Explore
from harness.search.listed import Listed
from harness.search.minimise import Minimise
from harness.search.script import Script

if TYPE_CHECKING:
    from harness.core.boundary import PlanEstimate
    from harness.core.campaign import CampaignAnswer, CampaignSpec
    from harness.core.point import Point
    from harness.core.ports import CellRequest
    from harness.core.record import TrialRecord
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

    def tell(self, *, cell: Point, answer: Answer, seconds: float, soft: bool = False) -> None:
        """The answer for one trial of ``cell`` and what it cost; ``soft``: a soft limit cut it off."""
        ...

    def estimate(self) -> PlanEstimate:
        """What is left to spend, as expected now."""
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
            )
        case Task.EXPLORE:
            return Explore(space, effort, strength=spec.strength, first_only=spec.fail_fast, seed=spec.seed)


def tell(search: Search, record: TrialRecord) -> None:
    """What one trial showed. Only a threshold search can make something of a trial that was slow."""
    cell, seconds = record.trial.point, record.outcome.duration_s
    if isinstance(search, Along):
        slow = record.verdict.kind is Kind.SLOW or record.verdict.cause == "limit-too-short"
        search.tell(cell=cell, answer=record.answer, seconds=seconds, slow=slow, soft=record.is_cut)
    else:
        search.tell(cell=cell, answer=record.answer, seconds=seconds, soft=record.is_cut)


def ready(search: Search, *, most: int) -> tuple[CellRequest, ...]:
    """The questions that may be asked at once, at most ``most``: a search rests on answers, a list does not."""
    if isinstance(search, Listed):
        return tuple(islice(search.ready(), most))
    if isinstance(search, Along):
        return search.ask_many(most)
    request = search.ask()
    if request is None:
        return ()
    return (request,) * min(search.copies if isinstance(search, Script) else 1, most)


def conclude(search: Search, answer: CampaignAnswer) -> CampaignAnswer:
    """``answer`` with what the search itself found, and one sentence for both."""
    if isinstance(search, Along):
        boundary = search.result()
        return replace(answer, boundary=boundary, because=boundary.because)
    if isinstance(search, Minimise):
        minimised = search.result()
        return replace(answer, minimised=minimised, because=minimised.because)
    if isinstance(search, Explore):
        explored = search.result()
        return replace(answer, explored=explored, because=explored.because)
    return replace(answer, because=_tally(answer))


def _tally(answer: CampaignAnswer) -> str:
    numbers = [(status, sum(result.met is status for result in answer.cells)) for status in CellStatus]
    parts = [f"{n} {status}" for status, n in numbers if n]
    return f"{len(answer.cells)} cells: {', '.join(parts)}" if parts else "no cell was selected"
