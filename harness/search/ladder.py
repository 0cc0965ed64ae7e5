"""Ladder: the axes on which two cells differ, each with its steps from good to bad."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from harness.core.point import AxisType, Point
from harness.search.constraints import in_order

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.core.point import Value
    from harness.core.space import Rule, Space

Levels: TypeAlias = "tuple[int, ...]"
"""How many steps each differing axis is away from its good value; comparable position by position."""


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
        self.names = tuple(f.name for f in self.factors)
        self._ways = tuple(_way(f.axis.type, f.axis.values, low[f.name], high[f.name]) for f in self.factors)
        self._cells: dict[Levels, Point] = {}
        self.bottom: Levels = (0,) * len(self.names)
        self.top: Levels = tuple(len(way) - 1 for way in self._ways)

    def value(self, position: int, level: int) -> Value:
        """The value of an axis at a level."""
        return self._ways[position][level]

    def cell(self, levels: Levels) -> Point:
        """The cell at these levels; axes on which the two corners agree keep that value."""
        if levels not in self._cells:
            changed = {name: way[level] for name, way, level in zip(self.names, self._ways, levels, strict=True)}
            self._cells[levels] = Point.of({**self._good, **changed})
        return self._cells[levels]

    def broken(self, levels: Levels) -> Rule | None:
        """The rule that forbids the cell at these levels, or None."""
        return self.space.broken(self.cell(levels))

    def raised(self, levels: Levels, positions: Iterable[int], *, top: Levels) -> Levels:
        """``levels`` with these positions at the level of ``top``."""
        changed = set(positions)
        return tuple(top[i] if i in changed else level for i, level in enumerate(levels))

    def at(self, levels: Levels, position: int, level: int) -> Levels:
        """``levels`` with one position at another level."""
        return (*levels[:position], level, *levels[position + 1 :])

    def with_requirements(self, levels: Levels, *, top: Levels) -> Levels:
        """``levels`` and what its settings require, taken from ``top``; unchanged where that does not help."""
        now = levels
        while (rule := self.broken(now)) is not None and rule.require is not None:
            lacking = {name for name, values in rule.require.terms if dict(self.cell(now))[name] not in values}
            raised = self.raised(now, (i for i, name in enumerate(self.names) if name in lacking), top=top)
            if raised == now:
                return levels
            now = raised
        return levels if self.broken(now) else now

    def without_dependents(self, levels: Levels) -> Levels:
        """``levels`` with every setting taken back whose requirement is not met; it may still break a rule."""
        now = levels
        while (rule := self.broken(now)) is not None:
            back = {i for i, name in enumerate(self.names) if name in rule.when.names and now[i]}
            if not back:
                return now
            now = tuple(0 if i in back else level for i, level in enumerate(now))
        return now


def _way(kind: AxisType, values: tuple[Value, ...], good: Value, bad: Value) -> tuple[Value, ...]:
    first, last = values.index(good), values.index(bad)
    if kind is not AxisType.ORDERED:
        return (good, bad)
    step = 1 if last > first else -1
    return tuple(values[i] for i in range(first, last + step, step))
