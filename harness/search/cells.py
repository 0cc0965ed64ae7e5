"""Which cells of a matrix are run: its strategy's, then the included ones; a large product is never listed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.errors import SpecError
from harness.core.matrix import MatrixStrategy
from harness.core.point import Point
from harness.search.constraints import count_cells, valid
from harness.search.covering import covering_array

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.core.matrix import Matrix
    from harness.core.space import Rule, Space

MOST_CELLS = 10_000
"""A full product larger than this is refused: nobody would wait for it."""


def planned_cells(matrix: Matrix) -> tuple[Point, ...]:
    """The cells that ``matrix`` runs, in this order.

    Raises:
        SpecError: a full product of more than MOST_CELLS cells, found out without listing them.
    """
    space = matrix.space
    match matrix.strategy:
        case MatrixStrategy.FULL:
            cells = _full(space)
        case MatrixStrategy.ONE_FACTOR:
            cells = (space.good, *(cell for cell, rule in _one_by_one(space) if rule is None))
        case MatrixStrategy.PAIRWISE:
            cells = covering_array(space, strength=matrix.strength, included=matrix.include).rows
        case MatrixStrategy.LIST:
            cells = ()
    return tuple(dict.fromkeys((*cells, *matrix.include)))


def forbidden_cells(matrix: Matrix) -> Iterator[tuple[Point, Rule]]:
    """The cells that its strategy would have, but a rule forbids, each with that rule."""
    if matrix.strategy is MatrixStrategy.ONE_FACTOR:
        for cell, rule in _one_by_one(matrix.space):
            if rule is not None:
                yield cell, rule


def _full(space: Space) -> tuple[Point, ...]:
    number, _ = count_cells(space)
    if number > MOST_CELLS:
        raise SpecError(
            f"strategy full means {number:,} cells, more than {MOST_CELLS:,}; use pairwise, one-factor or list, "
            "and a search for the rest"
        )
    return tuple(map(Point.of, valid(space.factors, space.rules, {})))


def _one_by_one(space: Space) -> Iterator[tuple[Point, Rule | None]]:
    """Each value of each axis in the good cell, and the rule that this breaks."""
    for factor in space.factors:
        for value in factor.axis.values:
            cell = space.cell({factor.name: value})
            yield cell, space.broken(cell)
