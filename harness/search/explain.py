"""Explain: a cause with everything else set at random. Whatever varies while it keeps failing does not matter."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from harness.core.cause import Freedom
from harness.core.point import Point
from harness.core.ports import CellRequest
from harness.search.constraints import completed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.cause import CellCount
    from harness.core.point import Value
    from harness.core.space import Space
    from harness.search.script import Script, Steps

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
        if not (search.good(cell) or search.bad(cell) or search.unresolved(cell)):
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
