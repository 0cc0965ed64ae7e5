"""Ladder: the axes on which two cells differ, each with its steps from good to bad."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeAlias

from harness.core.point import AxisType, Point
from harness.search.constraints import in_order, lacking

if TYPE_CHECKING:
    from collections.abc import Iterable, Set

    from harness.core.point import Value
    from harness.core.space import Rule, Space

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
