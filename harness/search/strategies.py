"""The search that answers a question, and what it is told of what happened; that of a list is here as a whole."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from harness.core.boundary import PlanEstimate
from harness.core.campaign import CellStatus, Override, Task
from harness.core.errors import SpecError
from harness.core.ports import CellRequest
from harness.core.verdict import LIMIT_TOO_SHORT, Answer, Kind
from harness.search.afterwards import TRIES
from harness.search.costs import FIRST_FAIL_S, FIRST_PASS_S, NOT_MEASURED
from harness.search.explore import Explore
from harness.search.minimise import Minimise
from harness.search.tally import counted
from harness.search.threshold import ThresholdSearch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.core.campaign import CampaignAnswer, CampaignSpec
    from harness.core.cause import CellCount
    from harness.core.point import Point
    from harness.core.record import TrialRecord


class Listed:
    """Asks for each cell ``passes`` times; with ``until_bad`` no more once it failed."""

    def __init__(self, cells: Sequence[Point], *, passes: int, until_bad: bool = False) -> None:
        self.passes = passes
        self.until_bad = until_bad
        self.stopped = ""
        self._answers: dict[Point, list[Answer]] = {}
        for cell in cells:
            self._answers.setdefault(cell, [])
        self.cells = tuple(self._answers)
        self._pass_s: list[float] = []
        self._fail_s: list[float] = []
        self._expected_s: float | None = None

    def _open(self) -> Iterator[CellRequest]:
        """Every question that is still open, in order."""
        for number in range(self.passes):
            for cell in self.cells:
                answers = self._answers[cell]
                if len(answers) <= number and not (self.until_bad and Answer.BAD in answers):
                    yield CellRequest(cell=cell, role="search", reason=f"run {number + 1} of {self.passes}")

    def ask(self) -> CellRequest | None:
        """The next question, or None when every cell was run."""
        return next(self._open(), None)

    def ready(self, most: int) -> tuple[CellRequest, ...]:
        """The first ``most`` open questions: no cell of a list rests on another's answer."""
        return tuple(islice(self._open(), most))

    def tell(self, *, cell: Point, answer: Answer, seconds: float, slow: bool = False, soft: bool = False) -> None:
        """The answer for one trial of ``cell``; of a cell that is not in the list it is ignored.

        No trial of a list has a soft limit, and a slow one is what its answer says.
        """
        if cell in self._answers:
            self._answers[cell].append(answer)
            (self._fail_s if answer is Answer.BAD else self._pass_s).append(seconds)

    def expect_pass(self, seconds: float) -> None:
        """Earlier runs say what a pass takes; what is seen here says it better."""
        self._expected_s = seconds

    def estimate(self) -> PlanEstimate:
        """What is left if all pass, and if each fails as slowly as the slowest so far.

        Failures that were over sooner than a pass say little of what a hang costs, which has to be watched.
        """
        remaining, is_measured = sum(1 for _ in self._open()), bool(self._pass_s or self._expected_s)
        past_s = self._pass_s or [self._expected_s or FIRST_PASS_S]
        pass_s = sum(past_s) / len(past_s)
        slowest_s = max(self._fail_s, default=0.0)
        is_slow = slowest_s > pass_s
        low = remaining * pass_s
        high = remaining * (slowest_s if is_slow else max(pass_s, FIRST_FAIL_S))
        text = f"{_count(remaining, 'trial')} of {_count(len(self.cells), 'cell')}"
        text += f", {low:.0f} s if the rest pass" if is_measured else f"; {NOT_MEASURED}"
        if is_measured and is_slow:
            text += f", {high:.0f} s if each fails like the slowest so far"
        elif is_measured and self._fail_s:
            text += f"; failures so far took {slowest_s:.1f} s at most, less than a pass"
        return PlanEstimate(
            trials=remaining, hangs=0, seconds_low=low, seconds_high=high, text=text, is_measured=is_measured
        )

    def conclude(self, answer: CampaignAnswer) -> CampaignAnswer:
        """``answer`` with how many cells came out in which way."""
        counts: Counter[CellStatus] = Counter()
        for result in answer.cells:
            counts[result.met] += 1
        parts = [f"{counts[status]} {status}" for status in CellStatus if counts[status]]
        because = f"{len(answer.cells)} cells: {', '.join(parts)}" if parts else "no cell was selected"
        return replace(answer, because=because)

    def result(self) -> tuple[CellCount, ...]:
        """What was seen of each cell."""
        return tuple(counted(cell, answers) for cell, answers in self._answers.items())


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


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
