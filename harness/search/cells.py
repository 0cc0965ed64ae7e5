"""Which cells of a matrix are run: its strategy's, then the included ones; a large product is never listed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.core.errors import SpecError
from harness.core.matrix import MatrixStrategy
from harness.core.point import Point
from harness.search.constraints import count_cells, valid
from harness.search.covering import covering_array

if TYPE_CHECKING:
    from harness.core.matrix import Matrix
    from harness.core.space import Rule, Space

MOST_CELLS = 10_000
"""A full product larger than this is refused: nobody would wait for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCells:
    """``cells`` are run, in this order; ``forbidden`` are those that a rule forbids, each with that rule."""

    cells: tuple[Point, ...]
    forbidden: tuple[tuple[Point, Rule], ...] = ()


def product_size(space: Space) -> int:
    """How many cells there would be without rules."""
    return math.prod(len(f.axis.values) for f in space.factors)


def planned_cells(matrix: Matrix) -> PlannedCells:
    """The cells that ``matrix`` runs.

    Raises:
        SpecError: a full product of more than MOST_CELLS cells, found out without listing them.
    """
    match matrix.strategy:
        case MatrixStrategy.FULL:
            chosen = PlannedCells(cells=_full(matrix.space))
        case MatrixStrategy.ONE_FACTOR:
            chosen = _one_factor(matrix.space)
        case MatrixStrategy.PAIRWISE:
            rows = covering_array(matrix.space, strength=matrix.strength, included=matrix.include).rows
            chosen = PlannedCells(cells=rows)
        case MatrixStrategy.LIST:
            chosen = PlannedCells(cells=())
    return PlannedCells(cells=tuple(dict.fromkeys((*chosen.cells, *matrix.include))), forbidden=chosen.forbidden)


def _full(space: Space) -> tuple[Point, ...]:
    number, _ = count_cells(space)
    if number > MOST_CELLS:
        raise SpecError(
            f"strategy full means {number:,} cells, more than {MOST_CELLS:,}; use pairwise, one-factor or list, "
            "and a search for the rest"
        )
    return tuple(map(Point.of, valid(space.factors, space.rules, {})))


def _one_factor(space: Space) -> PlannedCells:
    cells, forbidden = [space.good], list[tuple[Point, "Rule"]]()
    for factor in space.factors:
        for value in factor.axis.values:
            cell = space.cell({factor.name: value})
            rule = space.broken(cell)
            if rule is None:
                cells.append(cell)
            else:
                forbidden.append((cell, rule))
    return PlannedCells(cells=tuple(dict.fromkeys(cells)), forbidden=tuple(forbidden))
