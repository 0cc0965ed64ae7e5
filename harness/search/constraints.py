"""What the rules of a space mean for a search: the order of its axes, valid cells and their number, steps back."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeAlias

from harness.core.point import AxisType, Point

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

    from harness.core.point import Value
    from harness.core.space import Factor, Rule, Selector, Space


MOST_COUNTED = 200_000
"""Cells of axes that rules tie together that are counted one by one; above, the number is an upper bound."""


def in_order(space: Space, factors: Sequence[Factor]) -> tuple[Factor, ...]:
    """``factors`` by falling priority, but each after those that its bad value requires.

    A cell built up in this order stays valid where any order does, so fewer of its prefixes cannot be asked.
    """
    by_priority = sorted(factors, key=lambda f: -f.priority)
    placed: list[Factor] = []
    done: set[str] = set()

    def place(factor: Factor, above: frozenset[str]) -> None:
        if factor.name in done or factor.name in above:
            return
        before = _required_by(space, factor)
        for other in by_priority:
            if other.name in before:
                place(other, above | {factor.name})
        done.add(factor.name)
        placed.append(factor)

    for factor in by_priority:
        place(factor, frozenset())
    return tuple(placed)


def _required_by(space: Space, factor: Factor) -> set[str]:
    """The axes that must leave their good value when ``factor`` takes its bad one."""
    cell = dict(space.cell({factor.name: factor.bad}))
    required: set[str] = set()
    for rule in space.rules:
        if factor.name in rule.when.names and rule.require is not None and rule.broken(cell):
            required |= lacking(rule.require, cell)
    return required - {factor.name}


def lacking(required: Selector, settings: Mapping[str, Value]) -> set[str]:
    """The axes that do not have a value that is ``required``."""
    return {name for name, values in required.terms if settings[name] not in values}


def count_cells(space: Space) -> tuple[int, bool]:
    """How many cells break no rule, and whether that is exact; it is an upper bound otherwise.

    Axes that no rule mentions only multiply. Axes tied together by rules are counted group by group, so that the
    work depends on the rules and not on the number of cells.
    """
    total, exact = 1, True
    for names in _groups(space):
        group: list[Factor] = []
        product = 1
        for factor in space.factors:
            if factor.name in names:
                group.append(factor)
                product *= len(factor.axis.values)
        rules = [rule for rule in space.rules if rule.names & names]
        if rules and product > MOST_COUNTED:
            exact = False
        elif rules:
            product = 0
            for _ in valid(group, rules, {}):
                product += 1
        total *= product
    return total, exact


def _groups(space: Space) -> list[set[str]]:
    """The axes, those that rules tie together in one group."""
    groups = [{name} for name in space.names]
    for rule in space.rules:
        tied: set[str] = set()
        apart: list[set[str]] = []
        for group in groups:
            if group & rule.names:
                tied |= group
            else:
                apart.append(group)
        groups = [*apart, tied] if tied else apart
    return groups


def valid(factors: Sequence[Factor], rules: Sequence[Rule], partial: Mapping[str, Value]) -> Iterator[dict[str, Value]]:
    """Every completion of ``partial`` by ``factors`` that breaks no rule, good values first.

    A branch is left as soon as a rule is broken already, so a first completion comes after few steps.
    """
    if any(rule.broken_already(partial) for rule in rules):
        return
    open_factors = [f for f in factors if f.name not in partial]
    if not open_factors:
        yield dict(partial)
        return
    factor = open_factors[0]
    for value in sorted(factor.axis.values, key=lambda v: v != factor.good):
        yield from valid(open_factors[1:], rules, {**partial, factor.name: value})


def completed(space: Space, partial: Mapping[str, Value]) -> dict[str, Value] | None:
    """``partial`` with every other axis at its good value where the rules let it; None when no cell contains it.

    Only axes that rules mention are searched; the others simply take their good value.
    """
    plain = {**dict(space.good), **partial}
    if space.broken(plain.items()) is None:
        return plain
    tied: set[str] = set()
    for rule in space.rules:
        tied |= rule.names
    completion = next(valid([f for f in space.factors if f.name in tied], space.rules, partial), None)
    return None if completion is None else {**plain, **completion}


Levels: TypeAlias = "tuple[int, ...]"
"""How many steps each differing axis is away from its good value; comparable position by position."""

MOST_WAYS = 256
"""Cells that are looked at for one step back where rules tie settings together."""


class Ladder:
    """Maps levels to cells. Position ``i`` of a level belongs to ``names[i]``, suspected in this order.

    An ordered axis has a step for every value between its two ends, any other axis one step.
    """

    def __init__(self, space: Space, *, good: Point, bad: Point) -> None:
        self.space = space
        self._good = dict(good)
        low, high = dict(good), dict(bad)
        differing = [f for f in space.factors if low[f.name] != high[f.name]]
        self.factors = in_order(space, differing)
        self._ways: list[tuple[Value, ...]] = []
        self._cells: dict[Levels, Point] = {}
        names: list[str] = []
        top: list[int] = []
        for factor in self.factors:
            way = _way(factor.axis.type, factor.axis.values, low[factor.name], high[factor.name])
            self._ways.append(way)
            names.append(factor.name)
            top.append(len(way) - 1)
        self.names = tuple(names)
        self.bottom: Levels = (0,) * len(names)
        self.top: Levels = tuple(top)

    def value(self, position: int, level: int) -> Value:
        """The value of an axis at a level."""
        return self._ways[position][level]

    def cell(self, levels: Levels) -> Point:
        """The cell at these levels; axes on which the two corners agree keep that value."""
        if levels not in self._cells:
            settings = dict(self._good)
            for name, way, level in zip(self.names, self._ways, levels, strict=True):
                settings[name] = way[level]
            self._cells[levels] = Point.of(settings)
        return self._cells[levels]

    def broken(self, levels: Levels) -> Rule | None:
        """The rule that forbids the cell at these levels, or None."""
        return self.space.broken(self.cell(levels))

    def raised(self, levels: Levels, positions: Iterable[int], *, top: Levels) -> Levels:
        """``levels`` with these positions at the level of ``top``."""
        raised = list(levels)
        for position in positions:
            raised[position] = top[position]
        return tuple(raised)

    def at(self, levels: Levels, position: int, level: int) -> Levels:
        """``levels`` with one position at another level."""
        return (*levels[:position], level, *levels[position + 1 :])

    def with_requirements(self, levels: Levels, *, top: Levels) -> Levels:
        """``levels`` and what its settings require, taken from ``top``; unchanged where that does not help."""
        now = levels
        while (rule := self.broken(now)) is not None and rule.require is not None:
            required = self._positions(lacking(rule.require, dict(self.cell(now))))
            raised = self.raised(now, required, top=top)
            if raised == now:
                return levels
            now = raised
        return levels if self.broken(now) else now

    def _positions(self, names: Set[str]) -> list[int]:
        return [i for i, name in enumerate(self.names) if name in names]

    def lowered(self, levels: Levels, position: int, level: int) -> tuple[Levels, ...]:
        """The largest allowed cells below ``levels`` with one position at ``level``.

        What a rule then forbids is taken back too, step by step, in every way that is not below another one.
        """
        open_, allowed, visited = deque([self.at(levels, position, level)]), list[Levels](), set[Levels]()
        while open_ and len(visited) < MOST_WAYS:
            now = open_.popleft()
            if now in visited or any(is_within(now, other) for other in allowed):
                continue
            visited.add(now)
            rule = self.broken(now)
            if rule is None:
                allowed.append(now)
            else:
                tied = self._positions(rule.names)
                open_.extend(self.at(now, i, now[i] - 1) for i in tied if now[i])
        return tuple(allowed)


def members(levels: Levels) -> list[int]:
    """The positions that have left their good value."""
    return [i for i, level in enumerate(levels) if level]


def is_within(levels: Levels, caps: Levels) -> bool:
    """Whether no position is above ``caps``."""
    return all(level <= cap for level, cap in zip(levels, caps, strict=True))


def _way(kind: AxisType, values: tuple[Value, ...], good: Value, bad: Value) -> tuple[Value, ...]:
    first, last = values.index(good), values.index(bad)
    if kind is not AxisType.ORDERED:
        return (good, bad)
    return values[first : last + 1] if last > first else values[last : first + 1][::-1]
