"""The search that answers a question, and what it is told of what happened."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

from harness.core.campaign import Override, Task
from harness.core.errors import SpecError
from harness.core.verdict import LIMIT_TOO_SHORT, Kind
from harness.search.explore import Explore
from harness.search.listed import Listed
from harness.search.minimise import Minimise
from harness.search.own_command import TRIES
from harness.search.threshold import ThresholdSearch

if TYPE_CHECKING:
    from harness.core.campaign import CampaignSpec
    from harness.core.point import Point
    from harness.core.record import TrialRecord

Search: TypeAlias = "Explore | Listed | Minimise | ThresholdSearch"
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
            return ThresholdSearch(space.factor(spec.axis).axis, effort, base=spec.good or space.good)
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


class Hearing:
    """Tells a fresh search for ``question`` each fact once, but for controls.

    A trial that the machine spoiled is asked again; after ``infra_retries`` in a row its cell counts as unresolved.
    """

    def __init__(self, question: CampaignSpec) -> None:
        self.search = strategy_of(question)
        self.infra_retries = question.matrix.infra_retries
        self._spoiled: Counter[Point] = Counter()

    def hear(self, fact: TrialRecord | Override) -> bool:
        """Take in one fact; whether the search was told."""
        if isinstance(fact, Override):
            self.search.tell(cell=fact.cell, answer=fact.answer, seconds=0.0)
            return True
        if fact.trial.is_control:
            return False
        cell = fact.trial.point
        self._spoiled[cell] = self._spoiled[cell] + 1 if fact.verdict.kind is Kind.INFRA else 0
        if 0 < self._spoiled[cell] <= self.infra_retries:
            return False
        self._spoiled[cell] = 0
        slow = fact.verdict.kind is Kind.SLOW or fact.verdict.cause == LIMIT_TOO_SHORT
        seconds = fact.outcome.duration_s
        self.search.tell(cell=cell, answer=fact.answer, seconds=seconds, slow=slow, soft=fact.is_cut)
        return True
