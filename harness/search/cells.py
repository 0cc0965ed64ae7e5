"""Which cells are run: of a matrix those of its strategy, of a search a covering array; no large product is listed."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass
from itertools import combinations, product
from typing import TYPE_CHECKING, TypeAlias

from harness.core.cause import Interaction
from harness.core.errors import SpecError
from harness.core.matrix import MatrixStrategy
from harness.core.point import Point, Value
from harness.search.constraints import completed, count_cells, valid

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from harness.core.cause import CellCount
    from harness.core.matrix import Matrix
    from harness.core.space import Rule, Space


Combination: TypeAlias = "tuple[tuple[str, Value], ...]"
"""One value for each of t axes, in the order of the space."""

CANDIDATES = 6
"""Rows built for each row that is kept; the one that covers most stays."""
MOST_COMBINATIONS = 200_000
"""More combinations than this are refused: that many rows would never be run."""
MOST_SUSPECTS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Covering:
    """``rows`` hold each of ``combinations`` at least once; ``impossible`` ones break a rule in every cell."""

    rows: tuple[Point, ...]
    combinations: frozenset[Combination]
    impossible: int


def covering_array(space: Space, *, strength: int = 2, included: Sequence[Point] = (), seed: int = 0) -> Covering:
    """Rows that, with the ``included`` cells, hold every combination of ``strength`` axes that the rules allow.

    Greedy, one row at a time (Cohen et al., AETG, 1997): each row starts from a combination that is still missing and
    takes, axis by axis, the value that adds most; where nothing is to be gained, the good value. The same arguments
    give the same rows.

    Raises:
        SpecError: fewer than one axis at a time, more than there are, or more combinations than could ever be run.
    """
    if not 1 <= strength <= len(space.factors):
        raise SpecError(f"strength {strength} does not fit {len(space.factors)} axes; use 1 to {len(space.factors)}")
    every = _combinations(space, strength)
    possible = [c for c in every if completed(space, dict(c)) is not None]
    missing = dict.fromkeys(possible)
    for cell in included:
        _cover(missing, space, cell, strength)
    rng, rows = random.Random(seed), list[Point]()
    while missing:
        start = next(iter(missing))
        candidates = [_row(space, start, missing, strength, rng) for _ in range(CANDIDATES)]
        row = max(candidates, key=lambda cell: len(missing.keys() & _in_cell(space, cell, strength)))
        _cover(missing, space, row, strength)
        rows.append(row)
    return Covering(
        rows=tuple(rows),
        combinations=frozenset(possible),
        impossible=len(every) - len(possible),
    )


def combinations_in(space: Space, cells: Iterable[Point], *, strength: int) -> set[Combination]:
    """Every combination of ``strength`` axes that occurs in one of ``cells``."""
    every: set[Combination] = set()
    for cell in cells:
        every.update(_in_cell(space, cell, strength))
    return every


def _combinations(space: Space, strength: int) -> list[Combination]:
    choices = [list(product([factor.name], factor.axis.values)) for factor in space.factors]
    total = sum(map(math.prod, combinations(map(len, choices), strength)))
    if total > MOST_COMBINATIONS:
        raise SpecError(
            f"{total:,} combinations of {strength} axes are more than {MOST_COMBINATIONS:,}; use a smaller strength"
        )
    every: list[Combination] = []
    for some in combinations(choices, strength):
        every += product(*some)
    return every


def _row(
    space: Space, start: Combination, missing: Mapping[Combination, None], strength: int, rng: random.Random
) -> Point:
    row: dict[str, Value] = dict(start)
    rest = [f for f in space.factors if f.name not in row]
    rng.shuffle(rest)
    order = {f.name: i for i, f in enumerate(space.factors)}
    for factor in rest:
        others = sorted(row.items(), key=lambda item: order[item[0]])
        best, best_gain = None, -1
        for value in sorted(factor.axis.values, key=lambda v: v != factor.good):
            gain = _new(factor.name, value, others, missing, strength, order)
            if gain > best_gain and completed(space, {**row, factor.name: value}) is not None:
                best, best_gain = value, gain
        row[factor.name] = best
    return Point.of(row)


def _new(
    name: str,
    value: Value,
    others: Sequence[tuple[str, Value]],
    missing: Mapping[Combination, None],
    strength: int,
    order: Mapping[str, int],
) -> int:
    """Missing combinations that ``name=value`` completes together with ``others``."""
    place = order[name]
    at = sum(order[other] < place for other, _ in others)
    low, high = others[:at], others[at:]
    gain = 0
    for below in range(strength):
        above = strength - 1 - below
        for lower in combinations(low, below):
            for upper in combinations(high, above):
                gain += (*lower, (name, value), *upper) in missing
    return gain


def _in_cell(space: Space, cell: Point, strength: int) -> Iterable[Combination]:
    settings = dict(cell)
    return combinations([(f.name, settings[f.name]) for f in space.factors], strength)


def _cover(missing: dict[Combination, None], space: Space, cell: Point, strength: int) -> None:
    for combination in _in_cell(space, cell, strength):
        missing.pop(combination, None)


def suspects(space: Space, counts: Sequence[CellCount], *, strength: int) -> tuple[Interaction, ...]:
    """The combinations of ``strength`` axes in cells that failed, and in none that passed; most failures first."""
    passed, failed = Counter[Combination](), Counter[Combination]()
    for count in counts:
        if count.good or count.bad:
            (failed if count.bad else passed).update(combinations_in(space, [count.cell], strength=strength))
    interactions = [Interaction(settings=c, failed=n) for c, n in failed.items() if c not in passed]
    return tuple(sorted(interactions, key=lambda s: (-s.failed, str(s))))[:MOST_SUSPECTS]


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
