"""Explore: nothing is known to fail yet. A covering array detects, a search for the cause identifies."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.core.boundary import PlanEstimate
from harness.core.cause import Explored
from harness.core.point import AxisType
from harness.core.space import Rule, Selector, Space
from harness.search.blame import about, rareness
from harness.search.cells import Combination, Covering, combinations_in, covering_array, suspects
from harness.search.certificate import stated
from harness.search.costs import NOT_MEASURED
from harness.search.minimise import Minimise
from harness.search.script import Observation, Script, Steps

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from harness.core.campaign import CampaignAnswer
    from harness.core.cause import Cause, Need
    from harness.core.point import Point, Value
    from harness.core.ports import CellRequest
    from harness.core.spec import Effort

WITHOUT_END = 10**9
"""Trials of a search for a cause, which has no limit of its own."""


class Explore(Script):
    """Runs a covering array, rows with the fewest bad settings first; a row that fails is minimised.

    What was found to be a cause is then left out of all further rows, which are made anew for the combinations that
    are still missing: a known failure neither costs a second hang nor hides another one.
    """

    def __init__(
        self,
        space: Space,
        effort: Effort,
        *,
        strength: int = 2,
        first_only: bool = False,
        seed: int = 0,
        prior: Sequence[Observation] = (),
    ) -> None:
        self.space = space
        self.strength = strength
        self.first_only = first_only
        self.seed = seed
        self.causes: list[Cause] = []
        self.excluded: list[Rule] = []
        self.notes: list[str] = []
        self.whole = covering_array(space, strength=strength, seed=seed)
        self.covering: Covering = self.whole
        self._prior = tuple(prior)
        super().__init__(effort, prior=prior)

    def estimate(self) -> PlanEstimate:
        """What the rows that are left cost if they all pass, and if they all fail; without the searches for causes."""
        rows = 0 if self.ask() is None else len(set(self.covering.rows) - self.tallies.keys())
        low, high = rows * self.pass_s, rows * self.fail_s
        text = f"{rows} rows; a search more for each that fails; {NOT_MEASURED}"
        if self.is_measured:
            text = f"{rows} rows, {low:.0f} s if all pass; a failing one costs {self.fail_s:.0f} s and a search"
        return PlanEstimate(
            trials=rows, hangs=0, seconds_low=low, seconds_high=high, text=text, is_measured=self.is_measured
        )

    def conclude(self, answer: CampaignAnswer) -> CampaignAnswer:
        """``answer`` with the causes, and one sentence for both."""
        explored = self.result()
        return replace(answer, explored=explored, because=explored.because)

    def result(self) -> Explored:
        """What is known so far; final once ``ask`` returns None."""
        every, possible = self.whole.combinations, self.covering.combinations
        passed = combinations_in(self.space, self._passed(), strength=self.strength) & every
        explained = (every - possible) - passed
        covered = len(passed) + len(explained)
        notes = list(self.notes)
        if self.stopped:
            notes.append(f"The search was ended early by {self.stopped}.")
        uncertified = [*self.notes, *self._uncertified()]
        if covered < len(every):
            text = f"{len(every) - covered} combinations of {self.strength} axes are in no cell that passed"
            notes.append(f"{text}.")
            uncertified.append(f"{text}; {self._what_would_pass()}.")
        return Explored(
            strength=self.strength,
            combinations=len(every),
            passed=len(passed),
            explained=len(explained),
            impossible=self.whole.impossible,
            causes=tuple(replace(cause, seen=self.count(cause.seen.cell)) for cause in self.causes),
            suspects=suspects(self.space, list(map(self.count, self.tallies)), strength=self.strength),
            counts=tuple(map(self.count, self.tallies)),
            because=self._because(len(every), len(passed)),
            uncertified=tuple(uncertified),
            notes=tuple(notes),
            trials=self.trials,
            failures=self.failures,
            seconds=self.seconds,
        )

    def _uncertified(self) -> Iterator[str]:
        """Which causes are not certified, and what would certify them; failures that none was looked for."""
        for cause in self.causes:
            if not cause.certified:
                yield from rareness(cause)
                for need in cause.needs:
                    if not need.certified:
                        yield from about(need)
        if self.failures and not self.causes and not self.notes:
            yield "What failed did not come again, so no cause is named; more runs of those cells would tell."

    def _what_would_pass(self) -> str:
        if self.first_only and self.causes:
            return "they are tried where the search does not end with the first cause"
        return "a cell with each must pass: without another failure there, with more trials or a longer limit"

    def _script(self) -> Steps:
        good = self.space.good
        yield from self._until(good, passes=1, role="search", reason="the baseline, with which all is compared")
        yield from self._confirm(good, reason="the baseline once more")
        if not self.good(good) or self.fails(good):
            self.notes.append("The baseline did not pass, so there is nothing to compare with.")
            return
        while True:
            space = Space(factors=self.space.factors, rules=(*self.space.rules, *self.excluded))
            self.covering = covering_array(space, strength=self.strength, included=self._passed(), seed=self.seed)
            failing = yield from self._rows(self.covering.rows)
            if failing is None:
                return
            yield from self._identify(failing)
            if self.first_only:
                return

    def _rows(self, rows: Sequence[Point]) -> Generator[CellRequest, None, Point | None]:
        """The first row that fails, fewest bad settings first, or None."""
        good = set(self.space.good)
        for row in sorted(rows, key=lambda cell: len(set(cell) - good)):
            reason = f"a row of the covering array of {len(rows)}"
            yield from self._until(row, passes=1, role="search", reason=reason)
            if self.fails(row):
                return row
        return None

    def _identify(self, row: Point) -> Steps:
        """Minimise towards the good corner, with everything that was seen so far."""
        search = Minimise(
            self.space,
            replace(self.effort, max_trials=WITHOUT_END, max_seconds=None),
            bad=row,
            prior=(*self._prior, *self.observations),
        )
        at = len(self.causes)
        while True:
            self.causes[at:] = search.result().causes
            if (request := search.ask()) is None:
                break
            yield request
            last = self.observations[-1]
            search.tell(cell=last.cell, answer=last.answer, seconds=last.seconds, soft=last.soft)
        if len(self.causes) == at and self.fails(row):
            self.notes.append(f"{self.space.name_of(row)} failed, but no cause was found: {search.result().because}")
            self.excluded.append(Rule(when=Selector(terms=tuple((name, (value,)) for name, value in row))))
        for cause in self.causes[at:]:
            terms = tuple((need.axis, self._failing_values(need)) for need in cause.needs)
            self.excluded.append(Rule(when=Selector(terms=terms), because="a known cause"))

    def _failing_values(self, need: Need) -> tuple[Value, ...]:
        axis = self.space.factor(need.axis).axis
        if axis.type is not AxisType.ORDERED:
            return (need.value, *(other.value for other in need.others if other.bad))
        at, good = axis.index(need.value), axis.index(need.good)
        return axis.values[at:] if at > good else axis.values[: at + 1]

    def _passed(self) -> list[Point]:
        return [cell for cell in self.tallies if self.good(cell) and not self.fails(cell)]

    def _because(self, every: int, passed: int) -> str:
        axes = "pairs of values" if self.strength == 2 else f"combinations of {self.strength} values"
        head = f"{passed} of {every} possible {axes} occur in a cell that passed{self._detectable_rate(axes)}"
        if not self.causes:
            return f"{head}; nothing failed." if not self.failures else f"{head}; no cause was found."
        many = "1 cause was" if len(self.causes) == 1 else f"{len(self.causes)} causes were"
        return f"{head}; {many} found: " + "; ".join(f"{{{cause}}}" for cause in self.causes) + "."

    def _detectable_rate(self, axes: str) -> str:
        """What the passes can show of a combination that fails only sometimes: mostly little."""
        passes = Counter[Combination]()
        for cell in self._passed():
            for combination in combinations_in(self.space, [cell], strength=self.strength):
                passes[combination] += self.good(cell)
        if not passes:
            return ""
        fewest = min(passes.values())
        rate = 1 - (1 - self.effort.confidence) ** (1 / fewest)
        return (
            f", in {fewest} pass{'' if fewest == 1 else 'es'} at least: of such {axes}, one that fails in fewer than "
            f"{100 * stated(rate):.0f} % of its trials may have been missed"
        )
