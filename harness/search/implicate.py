"""Implicate: what minimal pairs of cells say about each axis, and nothing beyond that."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from harness.core.cause import AxisFinding, AxisVerdict, CellCount

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.core.point import Point, Value
    from harness.core.space import Factor, Space

FAILURES = 2
"""Failures that a cell must show on the failing side of a pair: it failed, and it did so again."""


def axis_verdicts(
    space: Space, counts: Sequence[CellCount], *, required: int, ran: Mapping[Point, str] | None = None
) -> tuple[AxisVerdict, ...]:
    """Every finding about every axis, in the order of the space; an axis about which nothing can be said is untested.

    Args:
        space: the axes.
        counts: the trials of each cell, by answer; a cell named twice counts together.
        required: passes without a failure that make a cell count as passing.
        ran: what each cell really ran (its effective configuration and kernels, as a fingerprint), where known.
            A pair that ran the same thing cannot implicate anything.
    """
    merged = _merged(counts)
    return tuple(v for factor in space.factors for v in _about(factor, merged, required=required, ran=ran or {}))


def _merged(counts: Sequence[CellCount]) -> list[CellCount]:
    whole: dict[Point, CellCount] = {}
    for count in counts:
        before = whole.get(count.cell, CellCount(cell=count.cell))
        whole[count.cell] = CellCount(
            cell=count.cell,
            good=before.good + count.good,
            bad=before.bad + count.bad,
            unresolved=before.unresolved + count.unresolved,
        )
    return list(whole.values())


def _about(
    factor: Factor, counts: Sequence[CellCount], *, required: int, ran: Mapping[Point, str]
) -> list[AxisVerdict]:
    pairs = list(_pairs(factor, counts))
    same = [pair for pair in pairs if _ran_the_same(pair, ran)]
    other = [pair for pair in pairs if not _ran_the_same(pair, ran)]
    found = [
        _implicated(factor, other, required),
        _not_necessary(factor, counts),
        _not_sufficient(factor, counts, required),
        _inert(factor, same),
    ]
    verdicts = [verdict for verdict in found if verdict is not None]
    return verdicts or [AxisVerdict(axis=factor.name, finding=AxisFinding.UNTESTED, because=_untested(pairs, required))]


def _pairs(factor: Factor, counts: Sequence[CellCount]) -> list[tuple[CellCount, CellCount]]:
    """Every two cells that differ in this axis only."""
    groups: dict[tuple[tuple[str, Value], ...], list[CellCount]] = {}
    for count in counts:
        rest = tuple(setting for setting in count.cell if setting[0] != factor.name)
        groups.setdefault(rest, []).append(count)
    return [pair for group in groups.values() for pair in combinations(group, 2)]


def _ran_the_same(pair: tuple[CellCount, CellCount], ran: Mapping[Point, str]) -> bool:
    one, other = (ran.get(count.cell) for count in pair)
    return one is not None and one == other


def _implicated(factor: Factor, pairs: Sequence[tuple[CellCount, CellCount]], required: int) -> AxisVerdict | None:
    """The pair with the most passes whose other side failed again and again."""
    carrying = [
        (fails, passes)
        for pair in pairs
        for fails, passes in (pair, pair[::-1])
        if fails.bad >= FAILURES and _passes(passes, required)
    ]
    if not carrying:
        return None
    fails, passes = max(carrying, key=lambda pair: (pair[1].good, pair[0].bad))
    because = f"{_at(factor, fails)} {fails}, {_at(factor, passes)} {passes}, and nothing else differs"
    return AxisVerdict(axis=factor.name, finding=AxisFinding.IMPLICATED, because=because, cells=(fails, passes))


def _not_necessary(factor: Factor, counts: Sequence[CellCount]) -> AxisVerdict | None:
    failing = [count for count in counts if count.bad and count.cell.get(factor.name) == factor.good]
    if not failing:
        return None
    count = max(failing, key=lambda c: c.bad)
    because = f"with the good value, {_at(factor, count)}, a cell {count}"
    return AxisVerdict(axis=factor.name, finding=AxisFinding.NOT_NECESSARY, because=because, cells=(count,))


def _not_sufficient(factor: Factor, counts: Sequence[CellCount], required: int) -> AxisVerdict | None:
    if factor.good == factor.bad:
        return None
    passing = [c for c in counts if _passes(c, required) and c.cell.get(factor.name) == factor.bad]
    if not passing:
        return None
    count = max(passing, key=lambda c: c.good)
    because = f"with the bad value, {_at(factor, count)}, a cell {count}"
    return AxisVerdict(axis=factor.name, finding=AxisFinding.NOT_SUFFICIENT, because=because, cells=(count,))


def _inert(factor: Factor, same: Sequence[tuple[CellCount, CellCount]]) -> AxisVerdict | None:
    if not same:
        return None
    one, other = same[0]
    because = f"{_at(factor, one)} and {_at(factor, other)} ran the same configuration and kernels"
    return AxisVerdict(axis=factor.name, finding=AxisFinding.INERT, because=because, cells=(one, other))


def _untested(pairs: Sequence[tuple[CellCount, CellCount]], required: int) -> str:
    mixed = [(a, b) for pair in pairs for a, b in (pair, pair[::-1]) if a.bad and b.good and not b.bad]
    if mixed:
        fails, passes = max(mixed, key=lambda pair: (pair[1].good, pair[0].bad))
        asked = f"{FAILURES} failures and {required} passes are asked for"
        return f"two cells that differ only here {fails} and {passes}; {asked}"
    return "no two cells that differ only here both gave an answer" if not pairs else "no such pair fails on one side"


def _passes(count: CellCount, required: int) -> bool:
    return not count.bad and count.good >= max(required, 1)


def _at(factor: Factor, count: CellCount) -> str:
    return f"{factor.name}={count.cell.get(factor.name)}"
