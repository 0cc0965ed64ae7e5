"""Implicate: what minimal pairs of cells say about each axis, and nothing beyond that."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from harness.core.cause import AxisFinding, AxisVerdict, CellCount
from harness.core.point import Point, assignment
from harness.core.rates import at_most, failures_by_chance, p_value
from harness.search.tally import MOST_FALSE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.core.point import Value
    from harness.core.space import Factor, Space

LEVEL = 0.05
"""How likely each word may be said wrongly anywhere in a table; every chance to say it has its share."""


def axis_verdicts(
    space: Space,
    counts: Sequence[CellCount],
    *,
    ran: Mapping[Point, str] | None = None,
    programs: Mapping[Point, str] | None = None,
) -> tuple[AxisVerdict, ...]:
    """Every finding about every axis, in the order of the space; an axis about which nothing can be said is untested.

    An axis is implicated where its values fail differently often in cells that differ in nothing else, by more than
    chance: false alarms and failures that show only sometimes are alike on both sides of an axis that does nothing.
    The exact test holds for cells that were run as often as planned; where a search chose the cells it is a guide.

    Args:
        space: the axes.
        counts: the trials of each cell, by answer; a cell named twice counts together.
        ran: what each cell really ran (its effective configuration and kernels, as a fingerprint), where known.
            A pair that ran the same thing cannot implicate anything.
        programs: the commit that each cell is of, where there are several. A pair of two commits differs in that, too.
    """
    merged = _answered(counts)
    comparisons = [_compared(factor, merged, ran or {}, programs or {}) for factor in space.factors]
    least: list[float] = []
    for contrasts, _ in comparisons:
        least += [contrast.least_p for contrast in contrasts]
    chances = _chances(least)
    verdicts: list[AxisVerdict] = []
    for factor, (contrasts, same) in zip(space.factors, comparisons, strict=True):
        about = (
            _implicated(factor, contrasts, chances=chances),
            _not_necessary(factor, merged, chances=len(space.factors)),
            None if programs else _not_sufficient(factor, merged, chances=len(space.factors)),
            _inert(factor, same),
        )
        because = _untested(contrasts, chances=chances)
        untested = AxisVerdict(axis=factor.name, finding=AxisFinding.UNTESTED, because=because)
        verdicts += list(filter(None, about)) or [untested]
    return tuple(verdicts)


@dataclass(frozen=True, slots=True)
class _Contrast:
    """Two values of an axis: the ``pairs`` of cells that have one each and differ in nothing else.

    The first cell of each pair has the value that is suspected to fail more often.
    """

    pairs: tuple[tuple[CellCount, CellCount], ...]

    @property
    def widest(self) -> tuple[CellCount, CellCount]:
        """The pair that shows most by itself."""
        return min(self.pairs, key=lambda pair: (p_value([pair]), -pair[0].bad, -pair[1].good))

    @property
    def least_p(self) -> float:
        """The smallest p that these numbers of trials and failures can give at all."""
        sums = failures_by_chance(self.pairs)
        return sums[max(sums)]

    @property
    def p(self) -> float:
        """The probability of so many failures on the first side if both values fail equally often in every pair."""
        return p_value(self.pairs)


def _chances(least: Sequence[float]) -> int:
    """By how many a p is multiplied: the chances to say something wrong, those left out that no answer could take.

    Tarone's method: with so few trials or failures that even the most telling answer is no surprise, nothing is said.
    """
    ascending = sorted(least)
    for number in range(1, len(least) + 1):
        if bisect_right(ascending, LEVEL / number) <= number:
            return number
    return 1


def _answered(counts: Sequence[CellCount]) -> list[CellCount]:
    """The cells that passed or failed, each once."""
    whole: dict[Point, CellCount] = {}
    for count in counts:
        before = whole.get(count.cell, CellCount(cell=count.cell))
        whole[count.cell] = CellCount(
            cell=count.cell,
            good=before.good + count.good,
            bad=before.bad + count.bad,
            unresolved=before.unresolved + count.unresolved,
        )
    return [count for count in whole.values() if count.good or count.bad]


def _compared(
    factor: Factor, counts: Sequence[CellCount], ran: Mapping[Point, str], programs: Mapping[Point, str]
) -> tuple[list[_Contrast], tuple[CellCount, CellCount] | None]:
    """Every two values of the axis, in both directions, and the first pair that ran the same thing."""
    by_values: dict[tuple[Value, Value], list[tuple[CellCount, CellCount]]] = {}
    same: tuple[CellCount, CellCount] | None = None
    for pair in _pairs(factor, counts, programs):
        fingerprint = ran.get(pair[0].cell)
        if fingerprint is not None and fingerprint == ran.get(pair[1].cell):
            same = same or pair
            continue
        for one, other in (pair, pair[::-1]):
            by_values.setdefault((one.cell.get(factor.name), other.cell.get(factor.name)), []).append((one, other))
    return [_Contrast(tuple(pairs)) for pairs in by_values.values()], same


def _pairs(
    factor: Factor, counts: Sequence[CellCount], programs: Mapping[Point, str]
) -> list[tuple[CellCount, CellCount]]:
    """Every two cells that differ in this axis only, and ran the same program."""
    groups: dict[tuple[Point, str], list[CellCount]] = {}
    for count in counts:
        groups.setdefault((without(count.cell, factor.name), programs.get(count.cell, "")), []).append(count)
    pairs: list[tuple[CellCount, CellCount]] = []
    for group in groups.values():
        pairs += combinations(group, 2)
    return pairs


def without(cell: Point, name: str) -> Point:
    """``cell`` with the axis ``name`` left open."""
    return Point(tuple(setting for setting in cell.settings if setting[0] != name))


def _implicated(factor: Factor, contrasts: Sequence[_Contrast], *, chances: int) -> AxisVerdict | None:
    """The two values that differ most surely, if they do."""
    best = _clearest(contrasts)
    if best is None or best.p * chances > LEVEL:
        return None
    fails, passes = best.widest
    because = f"{_at(factor, fails)} {fails}, {_at(factor, passes)} {passes}, and nothing else differs"
    if len(best.pairs) > 1:
        one_side, other_side = zip(*best.pairs, strict=True)
        because += f"; in all {len(best.pairs)} such pairs {_sum(one_side)}, {_sum(other_side)}"
    because += f" (p {_p(best.p * chances)})"
    return AxisVerdict(axis=factor.name, finding=AxisFinding.IMPLICATED, because=because, cells=(fails, passes))


def _clearest(contrasts: Sequence[_Contrast]) -> _Contrast | None:
    """The contrast that shows most, of those in which anything failed: else there is nothing to say wrongly."""
    failed = [contrast for contrast in contrasts if any(one.bad + other.bad for one, other in contrast.pairs)]
    return min(failed, key=lambda contrast: contrast.p, default=None)


def _not_necessary(factor: Factor, counts: Sequence[CellCount], *, chances: int) -> AxisVerdict | None:
    """Cells with the good value that fail more often than by false alarms, one of them or all together."""
    good = _with_value(factor, factor.good, counts)
    worst = min(good, key=lambda c: (_p_false(c.bad, c.good), -c.bad), default=None)
    if worst is None or not worst.bad:
        return None
    one = _p_false(worst.bad, worst.good) * len(good)
    whole = _p_false(*_all_of(good))
    if 2 * min(one, whole) * chances > LEVEL:
        return None
    because = f"with the good value, {_at(factor, worst)}, a cell {worst}"
    return AxisVerdict(axis=factor.name, finding=AxisFinding.NOT_NECESSARY, because=because, cells=(worst,))


def _with_value(factor: Factor, value: Value, counts: Sequence[CellCount]) -> list[CellCount]:
    return [count for count in counts if count.cell.get(factor.name) == value]


def _all_of(counts: Sequence[CellCount]) -> tuple[int, int]:
    """Failures and passes of all these cells."""
    failures = passes = 0
    for count in counts:
        failures += count.bad
        passes += count.good
    return failures, passes


def _p_false(bad: int, good: int) -> float:
    """The probability of so many failures if none is more than a false alarm."""
    return 1 - at_most(bad - 1, runs=good + bad, rate=MOST_FALSE) if bad else 1.0


def _not_sufficient(factor: Factor, counts: Sequence[CellCount], *, chances: int) -> AxisVerdict | None:
    """A cell with the bad value that never failed, and would have if it failed as often as the others that have it."""
    bad = _with_value(factor, factor.bad, counts)
    count = max(bad, key=lambda c: (not c.bad, c.good), default=None)
    if factor.good == factor.bad or count is None or count.bad:
        return None
    failures, passes = _all_of(bad)
    others = CellCount(cell=count.cell, good=passes - count.good, bad=failures)
    if p_value([(others, count)]) * len(bad) * chances > LEVEL:
        return None
    because = f"with the bad value, {_at(factor, count)}, a cell {count}; the others with it {others}"
    return AxisVerdict(axis=factor.name, finding=AxisFinding.NOT_SUFFICIENT, because=because, cells=(count,))


def _inert(factor: Factor, same: tuple[CellCount, CellCount] | None) -> AxisVerdict | None:
    if same is None:
        return None
    one, other = same
    because = f"{_at(factor, one)} and {_at(factor, other)} ran the same configuration and kernels"
    return AxisVerdict(axis=factor.name, finding=AxisFinding.INERT, because=because, cells=(one, other))


def _untested(contrasts: Sequence[_Contrast], *, chances: int) -> str:
    """What keeps the axis from being judged."""
    if not contrasts:
        return "no two cells that differ only here both gave an answer"
    best = _clearest(contrasts)
    if best is None:
        return "no such pair fails on one side"
    one, other = best.widest
    more = f"; chance alone does as much with p {_p(min(best.p * chances, 1.0))}, at most {LEVEL:g} is asked for"
    return f"two cells that differ only here {one} and {other}{more}"


def _sum(counts: Sequence[CellCount]) -> str:
    bad, good = _all_of(counts)
    return f"{bad} of {good + bad} failed"


def _p(p: float) -> str:
    return f"= {p:.2g}" if p >= 0.0001 else "< 0.0001"


def _at(factor: Factor, count: CellCount) -> str:
    return assignment(factor.name, count.cell.get(factor.name))
