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


def other_cells(space: Space, cause: Point, *, held: frozenset[str], number: int, seed: int) -> tuple[Point, ...]:
    """Up to ``number`` different allowed cells with the axes ``held`` as in ``cause`` and every other at random.

    Where rules leave little choice, fewer are found. The same arguments give the same cells.
    """
    draw = random.Random(f"{seed}|{cause}")
    kept = {name: value for name, value in cause if name in held}
    found: dict[Point, None] = {}
    for _ in range(DRAWS * number):
        if len(found) >= number:
            break
        cell = _drawn(space, kept, draw)
        if cell is not None and cell != cause:
            found[cell] = None
    return tuple(found)


def _drawn(space: Space, kept: dict[str, Value], draw: random.Random) -> Point | None:
    """A cell with the values ``kept`` and others at random; None where rules forbid it and its half."""
    cell: dict[str, Value] = {}
    for factor in space.factors:
        cell[factor.name] = kept[factor.name] if factor.name in kept else draw.choice(factor.axis.values)
    if space.broken(Point.of(cell).settings) is None:
        return Point.of(cell)
    some = draw.sample(sorted(cell.keys() - kept.keys()), k=(len(cell) - len(kept)) // 2)
    completion = completed(space, kept | {name: cell[name] for name in some})
    return None if completion is None else Point.of(completion)


def ask_each(search: Script, cells: Sequence[Point]) -> Steps:
    """One trial of each of ``cells`` that was not tried yet."""
    for cell in cells:
        if not (search.good(cell) or search.bad(cell) or search.unresolved(cell)):
            reason = "the cause, with everything else at random"
            yield CellRequest(cell=cell, role="alternative", reason=reason)


def freedom(counts: Sequence[CellCount], *, cause: Point, held: frozenset[str]) -> Freedom | None:
    """What the trials of such cells show; None when none gave an answer."""
    told = [count for count in counts if count.good or count.bad]
    if not told:
        return None
    passed = [count.cell for count in told if not count.bad]
    values: dict[str, set[Value]] = {}
    for cell in (cause, *(count.cell for count in told)):
        for name, value in cell:
            values.setdefault(name, set()).add(value)
    free = tuple(name for name, seen in values.items() if name not in held and len(seen) > 1)
    against = min((_different(cell, cause) for cell in passed), key=len, default=())
    return Freedom(tried=len(told), failed=len(told) - len(passed), free=() if passed else free, against=against)


def _different(cell: Point, cause: Point) -> tuple[tuple[str, Value], ...]:
    settings = dict(cause)
    return tuple((name, value) for name, value in cell if settings[name] != value)
