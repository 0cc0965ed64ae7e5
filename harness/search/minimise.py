"""Minimise: of everything that differs between a passing and a failing cell, what does the failure need?

Delta debugging (Zeller and Hildebrandt's ddmin) halves the failing set, and each half that still fails is a hang that
somebody waits for. Here settings are added to the passing side, in prefixes: the shortest prefix that fails ends in a
setting of the cause, that one is kept, and the search goes on before it: for each setting to blame some passes, which
are cheap, and hardly more than one failure. What is then left is taken back one setting at a time, a step on an ordered
axis, until no single step back fails; each of these cells earns a certificate. A further cause must do without a step
of every cause that is known (Reiter's hitting sets), so that is where it is looked for.

What does not work:

- Leaving out one setting at a time from the failing side: with 1 to 3 of 24 flags to blame it waited for some
  twenty hangs, 3.6 to 7 times the seconds (bench/results/search-2026-11-21.md).
- Taking back a setting that rules tie to others by itself: the cell is forbidden. What a rule then asks for is taken
  back, too, in every way that is not below another; one such way alone was exact in half of the searches with rules.
- Ending at the first false alarm or at the first trial that told nothing: with one of ten unresolved hardly a search
  was certified. A cell is given up only when it told nothing more often than it told something.
- Asking k questions at once without keeping the order of the answers: a late one cleared a cell that others rested on.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from harness.core.boundary import Count, PlanEstimate
from harness.core.cause import Freedom, Minimised, MinimiseFinding, Need
from harness.core.errors import SpecError
from harness.core.point import AxisType, Point, assignment
from harness.core.ports import CellRequest
from harness.search.blame import conclude
from harness.search.constraints import Ladder, Levels, completed, is_within, members
from harness.search.costs import next_probe
from harness.search.forecast import forecast
from harness.search.script import Script, Steps
from harness.search.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.core.campaign import CampaignAnswer
    from harness.core.cause import CellCount
    from harness.core.point import Value
    from harness.core.space import Space
    from harness.core.spec import Effort
    from harness.search.script import Observation


OTHERS_WHEN_STEADY = 3
"""Passes asked of another categorical value while nothing flaky was seen; the whole certificate otherwise."""


class Minimise(Script):
    """Builds the failing cell up from the passing one, since a pass is cheap and a hang is not.

    1. Both corners: the good one passes, the bad one fails.
    2. Prefixes, with the settings in order of suspicion and after what they require, until what is kept fails.
    3. Every kept setting takes steps back as far as the failure lasts.
    4. The set is run until its failures are sure to be its own. False alarms send the search back to 2.
    5. Certificate: each single further step back passes :attr:`required` times. A failure there sends the search
       back to 3, until nothing moves. Then other values of categorical axes are tried.
    6. With ``explain``: so many cells with the cause and everything else at random.
    7. With ``causes`` above one: does the rest still fail with every cause broken, in every possible way?

    ``again`` is how often whoever conducts it runs each cause once more when it is over, which its estimate counts.

    Raises:
        SpecError: the two cells are the same, or one of them breaks a rule.
    """

    def __init__(
        self,
        space: Space,
        effort: Effort,
        *,
        good: Point | None = None,
        bad: Point | None = None,
        causes: int = 1,
        explain: int = 0,
        seed: int = 0,
        again: int = 0,
        prior: Sequence[Observation] = (),
    ) -> None:
        self.space = space
        self.good_cell, self.bad_cell = good or space.good, bad or space.bad
        self.most_causes = causes
        self.explain, self.seed, self.again = explain, seed, again
        self._check_corners()
        self.ladder = Ladder(space, good=self.good_cell, bad=self.bad_cell)
        self.finding = MinimiseFinding.INCONCLUSIVE
        self.failing_sets: list[Levels] = []
        self.sure: set[Levels] = set()
        self.others: dict[Levels, dict[int, list[Point]]] = {}
        self.random_cells: dict[Levels, tuple[Point, ...]] = {}
        self.holes: list[str] = []
        self.is_complete = False
        self._rounds = 0
        self._anew = partial(
            Minimise, space, effort, good=good, bad=bad, causes=causes, explain=explain, seed=seed, again=again,
            prior=tuple(prior),
        )  # fmt: skip
        super().__init__(effort, prior=prior)

    def result(self) -> Minimised:
        """What is known so far; final once ``ask`` returns None."""
        return conclude(self)

    def conclude(self, answer: CampaignAnswer) -> CampaignAnswer:
        """``answer`` with the cause, and its sentence for both."""
        minimised = self.result()
        return replace(answer, minimised=minimised, because=minimised.because)

    def estimate(self) -> PlanEstimate:
        """What is left to spend if one setting, or two together, are the cause and always fail."""
        return forecast(self)

    def replayed(self) -> Minimise:
        """The same search in the same state, to be played on its own."""
        other = self._anew()
        other.costs.expected_s = self.costs.expected_s
        for row in self.observations:
            other.tell(cell=row.cell, answer=row.answer, seconds=row.seconds, soft=row.soft)
        return other

    def freedom(self, levels: Levels) -> Freedom | None:
        """What was seen of a cause with everything else at random."""
        counts = list(map(self.count, self.random_cells.get(levels, ())))
        return freedom(counts, cause=self.ladder.cell(levels), fixed_axes=self._axes_of(levels))

    def need(self, levels: Levels, position: int) -> Need:
        """What was seen for one setting of a cause."""
        ladder, level = self.ladder, levels[position]
        factor = ladder.factors[position]
        rule = ladder.broken(ladder.at(levels, position, level - 1))
        others: list[Count] = []
        for cell in self.others.get(levels, {}).get(position, []):
            count = self.count(cell)
            value = cell.get(factor.name)
            others.append(Count(value=value, good=count.good, bad=count.bad, unresolved=count.unresolved))
        need = Need(
            axis=factor.name,
            value=ladder.value(position, level),
            good=ladder.value(position, 0),
            last_good=ladder.value(position, level - 1),
            is_threshold=factor.axis.type is AxisType.ORDERED,
            kept_by=str(rule) if rule else "",
            others=tuple(others),
        )
        backs = self._steps_back(levels, position)
        back = min(backs, key=lambda way: (self.certified(ladder.cell(way)), self.good(ladder.cell(way))), default=None)
        if back is None:
            return need
        cell = ladder.cell(back)
        return replace(
            need,
            last_good=ladder.value(position, back[position]),
            back=self.count(cell),
            required=self._passes_required(cell),
            cleared=self.bad(cell) > 0 and not self.fails(cell),
        )

    def _passes_required(self, cell: Point) -> int:
        """The passes that ``cell`` has to show, with those before its certificate was begun; 0: it was not begun."""
        certificate = self.certificates.get(cell)
        return self.good(cell) - certificate.good + certificate.needed if certificate else 0

    def excluded_rate(self, levels: Levels) -> float | None:
        """The smallest failure rate that is ruled out for every step back that was certified; None without one."""
        rates: list[float] = []
        for _, way in self._single_steps_back(levels):
            cell = self.ladder.cell(way)
            rate = self.certificates[cell].excluded_rate if self.certified(cell) else None
            if rate is not None:
                rates.append(rate)
        return max(rates, default=None)

    def _check_corners(self) -> None:
        for name, cell in (("good", self.good_cell), ("bad", self.bad_cell)):
            rule = self.space.broken(cell)
            if rule is not None:
                mended = self.space.mended(cell) if name == "bad" else None
                instead = f"; this one does not: --bad-cell {self.space.name_of(mended[1])}" if mended else ""
                raise SpecError(f"the {name} corner ({self.space.name_of(cell)}) breaks a rule: {rule}{instead}")
        if self.good_cell == self.bad_cell:
            raise SpecError("the good and the bad corner are the same cell, so there is nothing to leave out")

    def _script(self) -> Steps:
        good, bad = self.good_cell, self.bad_cell
        yield from self._until(good, passes=1, role="search", reason="the baseline, with which all is compared")
        yield from self._confirm(good, reason="the baseline once more")
        if self.fails(good):
            self.finding = MinimiseFinding.GOOD_FAILS
            return
        if not self.good(good):
            return
        passes = self.required
        yield from self._until(bad, passes=passes, role="search", reason="the bad corner: it has to fail")
        if self.fails(bad):
            yield from self._causes()
        if not self.failing_sets and self.passed(bad, passes):
            self.finding = MinimiseFinding.BAD_PASSES

    def _causes(self) -> Steps:
        """Reiter's hitting sets: a further cause must do without a step of every cause known so far."""
        closed: list[Levels] = []
        queue = deque([self.ladder.top])
        while queue:
            caps = queue.popleft()
            if any(is_within(caps, other) for other in closed):
                continue
            cause = self._cause_within(caps)
            if cause is None:
                if len(self.failing_sets) >= self.most_causes:
                    return
                cell = self.ladder.cell(caps)
                reason = "does anything else fail, with every known cause broken?"
                before = len(self.failing_sets)
                while len(self.failing_sets) == before and (self.fails(cell) or not self._answered(cell)):
                    yield from self._until(cell, passes=self.required, role="certify", reason=reason)
                    if self.fails(cell):
                        yield from self._minimal(caps)
                if len(self.failing_sets) == before:
                    if not self.passed(cell, self.required):
                        self.holes.append(f"{self.space.name_of(cell)} gave no answer")
                    closed.append(caps)
                    continue
                cause = self.failing_sets[-1]
            for position in members(cause):
                queue.extend(self._ways_back(caps, position, cause[position] - 1))
        self.is_complete = not self.holes

    def _cause_within(self, caps: Levels) -> Levels | None:
        for cause in self.failing_sets:
            if is_within(cause, caps):
                return cause
        return None

    def _minimal(self, top: Levels) -> Steps:
        """Append a minimal failing set within ``top``, which fails; none where that was a false alarm."""
        at, self.finding = len(self.failing_sets), MinimiseFinding.CAUSE
        is_settled = False
        while not is_settled:
            if not self._fails(top):
                del self.failing_sets[at:]
                self.finding = MinimiseFinding.CAUSE if self.failing_sets else MinimiseFinding.INCONCLUSIVE
                return
            if len(self.failing_sets) == at or not self._fails(self.failing_sets[-1]):
                yield from self._prefixes(top, at=at)
            yield from self._step_down()
            levels = self.failing_sets[-1]
            yield from self._confirm(self.ladder.cell(levels), reason="the whole cause once more")
            if not self._fails(levels):
                continue
            yield from self._certify_steps()
            if self._settled(levels):
                # What turned out to be a false alarm meanwhile asks for more before these failures are no such thing.
                yield from self._confirm(self.ladder.cell(levels), reason="the whole cause once more")
                is_settled = self._fails(levels)
        levels = self.failing_sets[-1]
        if self.is_sure(self.ladder.cell(levels)):
            self.sure.add(levels)
        yield from self._other_values(levels)
        cell, fixed_axes = self.ladder.cell(levels), self._axes_of(levels)
        cells = other_cells(self.space, cell, fixed_axes=fixed_axes, number=self.explain, seed=self.seed)
        self.random_cells[levels] = cells
        yield from ask_each(self, cells)

    def _prefixes(self, top: Levels, *, at: int) -> Steps:
        """Keep the last setting of the shortest failing prefix, then of those before it, until what is kept fails."""
        base = self.ladder.bottom
        rest: list[int] = members(top)
        self.failing_sets[at:] = [top]
        while not self._fails(base) and rest:
            chain = [self.ladder.raised(base, rest[:n], top=top) for n in range(len(rest) + 1)]
            yield from self._search_chain(chain, what="settings")
            low, high = self._bracket(chain)
            self.failing_sets[-1] = chain[high]
            if not high:
                break
            group = rest[max(low, 0) : high]
            base = self.ladder.with_requirements(self.ladder.raised(base, group, top=top), top=chain[high])
            rest = [i for i in rest[: max(low, 0)] if not base[i]]

    def _step_down(self) -> Steps:
        """Leave out or lower each setting, with what rules tie to it, as far as a single pass does not stop it."""
        moved = True
        while moved:
            before = self.failing_sets[-1]
            for position in reversed(members(before)):
                levels = self.failing_sets[-1]
                chain = self._chain_back(levels, position)
                yield from self._search_chain(chain, what=f"steps of {self.ladder.names[position]}")
                self.failing_sets[-1] = chain[self._bracket(chain)[1]]
                yield from self._other_ways(self.failing_sets[-1], position)
            moved = self.failing_sets[-1] != before

    def _chain_back(self, levels: Levels, position: int) -> list[Levels]:
        """``levels`` and the cells with one position ever further back, each within the next."""
        chain = [levels]
        for level in range(levels[position] - 1, -1, -1):
            for way in self.ladder.lowered(levels, position, level):
                if is_within(way, chain[0]):
                    chain = chain if way == chain[0] else [way, *chain]
                    break
        return chain

    def _other_ways(self, levels: Levels, position: int) -> Steps:
        """Where rules leave a choice of what to take back with a setting, the first other way that fails as well."""
        for way in self.ladder.lowered(levels, position, levels[position] - 1)[1:] if levels[position] else ():
            reason = f"{self.ladder.names[position]} taken back in another way that the rules leave"
            yield from self._until(self.ladder.cell(way), passes=1, role="search", reason=reason)
            if self._fails(way):
                self.failing_sets[-1] = way
                return

    def _certify_steps(self) -> Steps:
        """Ask each single step back for its passes; stops at the first that fails.

        A set is wrong only if a step back that fails passes all the same. So a round has one share of the error
        however many steps it asks for, as long as it asks for them one after the other.
        """
        levels = self.failing_sets[-1]
        self._rounds += 1
        for position, back in self._single_steps_back(levels):
            cell, name = self.ladder.cell(back), self.ladder.names[position]
            yield from self._certify(cell, attempt=self._rounds, reason=f"it must pass with {name} taken back")
            if self.fails(cell):
                return

    def _settled(self, levels: Levels) -> bool:
        """Whether no single step back from ``levels`` is known to fail."""
        return not any(self._fails(way) for _, way in self._single_steps_back(levels))

    def _single_steps_back(self, levels: Levels) -> Iterator[tuple[int, Levels]]:
        """Each cell a single step back from ``levels`` (:meth:`_steps_back`), with the position that is taken back."""
        for position in members(levels):
            for way in self._steps_back(levels, position):
                yield position, way

    def _other_values(self, levels: Levels) -> Steps:
        """On categorical axes: does any value that is neither the good nor the bad one fail as well?"""
        for position in members(levels):
            factor = self.ladder.factors[position]
            if factor.axis.type is not AxisType.CATEGORICAL:
                continue
            endpoints = (self.ladder.value(position, 0), self.ladder.value(position, levels[position]))
            for value in factor.axis.values:
                cell = self.ladder.cell(levels).with_value(factor.name, value)
                if value in endpoints or self.space.broken(cell) is not None:
                    continue
                passes = self.required if self.is_flaky() else min(OTHERS_WHEN_STEADY, self.required)
                self.others.setdefault(levels, {}).setdefault(position, []).append(cell)
                reason = f"{assignment(factor.name, value)} instead"
                yield from self._until(cell, passes=passes, role="alternative", reason=reason)

    def _search_chain(self, chain: Sequence[Levels], *, what: str) -> Steps:
        """Ask until the smallest failing cell of ``chain`` is bracketed; its last cell fails."""
        while True:
            low, high = self._bracket(chain)
            probes = [i for i in range(low + 1, high) if self._can_ask(chain[i])]
            if not probes:
                return
            pick = next_probe(
                probes,
                unknown_below=low,
                unknown_above=high,
                pass_s=[self.pass_s] * len(probes),
                fail_s=self.costs.of_failure_on_the_way(),
                failures=len(probes),
            )
            cell = self.ladder.cell(chain[pick])
            yield CellRequest(cell=cell, role="search", reason=f"{pick} of {len(chain) - 1} {what} tried together")

    def _can_ask(self, levels: Levels) -> bool:
        return self.ladder.broken(levels) is None and not self.is_exhausted(self.ladder.cell(levels))

    def _bracket(self, chain: Sequence[Levels]) -> tuple[int, int]:
        """The last cell of ``chain`` that passes (-1: none) below the first that fails, and that one."""
        high = 0
        while not self._fails(chain[high]):
            high += 1
        low = high - 1
        while low >= 0 and not self.good(self.ladder.cell(chain[low])):
            low -= 1
        return low, high

    def _ways_back(self, levels: Levels, position: int, level: int) -> tuple[Levels, ...]:
        """The largest allowed cells with ``position`` at ``level``; a hole where there is none."""
        ways = self.ladder.lowered(levels, position, level)
        if not ways:
            self.holes.append(f"no allowed cell has {self.ladder.names[position]} taken back")
        return ways

    def _steps_back(self, levels: Levels, position: int) -> tuple[Levels, ...]:
        """The nearest cells with ``position`` further back that rules allow and that gave an answer, or may yet."""
        for level in range(levels[position] - 1, -1, -1):
            ways = [way for way in self.ladder.lowered(levels, position, level) if not self._no_answer(way)]
            if ways:
                return tuple(ways)
        return ()

    def _no_answer(self, levels: Levels) -> bool:
        cell = self.ladder.cell(levels)
        return self.is_exhausted(cell) and not self.good(cell) and not self.fails(cell)

    def _axes_of(self, levels: Levels) -> frozenset[str]:
        return frozenset(self.ladder.names[i] for i in members(levels))

    def _fails(self, levels: Levels) -> bool:
        return self.fails(self.ladder.cell(levels))

    def _answered(self, cell: Point) -> bool:
        return self.is_exhausted(cell) or self.passed(cell, self.required)


DRAWS = 200
"""Random cells that are drawn for each that is wanted; rules may forbid most of them."""


def other_cells(space: Space, cause: Point, *, fixed_axes: frozenset[str], number: int, seed: int) -> tuple[Point, ...]:
    """Up to ``number`` different allowed cells with the axes ``fixed_axes`` as in ``cause`` and every other at random.

    Where rules leave little choice, fewer are found. The same arguments give the same cells.
    """
    draw = random.Random(f"{seed}|{cause}")
    settings = {name: value for name, value in cause if name in fixed_axes}
    cells: dict[Point, None] = {}
    for _ in range(DRAWS * number):
        if len(cells) >= number:
            break
        cell = _drawn(space, settings, draw)
        if cell is not None and cell != cause:
            cells[cell] = None
    return tuple(cells)


def _drawn(space: Space, settings: dict[str, Value], draw: random.Random) -> Point | None:
    """A cell with the values ``settings`` and others at random; None where rules forbid it and its half."""
    cell: dict[str, Value] = {}
    for factor in space.factors:
        cell[factor.name] = settings[factor.name] if factor.name in settings else draw.choice(factor.axis.values)
    if space.broken(Point.of(cell).settings) is None:
        return Point.of(cell)
    some = draw.sample(sorted(cell.keys() - settings.keys()), k=(len(cell) - len(settings)) // 2)
    completion = completed(space, settings | {name: cell[name] for name in some})
    return None if completion is None else Point.of(completion)


def ask_each(search: Script, cells: Sequence[Point]) -> Steps:
    """One trial of each of ``cells`` that was not tried yet."""
    for cell in cells:
        tally = search.tallies.get(cell, Tally())
        if not (tally.good or tally.bad or tally.unresolved):
            reason = "the cause, with everything else at random"
            yield CellRequest(cell=cell, role="alternative", reason=reason)


def freedom(counts: Sequence[CellCount], *, cause: Point, fixed_axes: frozenset[str]) -> Freedom | None:
    """What the trials of such cells show; None when none gave an answer."""
    failed, varied = 0, set[str]()
    passed: list[tuple[tuple[str, Value], ...]] = []
    for count in counts:
        different = _different(count.cell, cause)
        if count.bad:
            failed += 1
            varied.update(dict(different))
        elif count.good:
            passed.append(different)
    if not failed and not passed:
        return None
    varied -= fixed_axes
    free = () if passed else tuple(name for name, _ in cause if name in varied)
    against = min(passed, key=len, default=())
    return Freedom(tried=failed + len(passed), failed=failed, free=free, against=against)


def _different(cell: Point, cause: Point) -> tuple[tuple[str, Value], ...]:
    settings = dict(cause)
    return tuple((name, value) for name, value in cell if settings[name] != value)
