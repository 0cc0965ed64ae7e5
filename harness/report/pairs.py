"""Pairs: cells that differ in one axis only, and whether they ended alike. No prose."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from harness.report.tried import grouped

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from harness.core.point import Point, Value
    from harness.report.tried import TrialSet

    Pair = tuple[Point, Point]
    Cells = Mapping[Point, TrialSet]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """The pairs of tried cells that differ in one axis only: those that ended alike, and those that did not.

    ``incomparable`` are pairs of which one side ran out of time and the other passed, but took longer than the first
    was given: under one limit they might have ended alike. ``outlasted`` are those of them that ran the same program,
    the one that ran out of time first: what passed there shows that nothing was wrong but the limit.
    """

    axis: str
    alike: tuple[Pair, ...] = ()
    different: tuple[Pair, ...] = ()
    incomparable: tuple[Pair, ...] = ()
    outlasted: tuple[Pair, ...] = ()

    @property
    def total(self) -> int:
        """Those that tell something."""
        return len(self.alike) + len(self.different)


def pairs_of(by_cell: Cells, *, axes: Sequence[str]) -> tuple[Pairs, ...]:
    """For every axis the pairs that differ in nothing else, whatever they ended in; axes without one are left out.

    A cell that could not be told is in no pair: it ended neither like the other side nor otherwise.
    """
    cells: dict[Point, TrialSet] = {}
    ends: dict[Point, str] = {}
    for cell, trials in by_cell.items():
        if not trials.is_undecided:
            cells[cell], ends[cell] = trials, trials.ending
    pairs: list[Pairs] = []
    for axis in axes:
        every: list[Pair] = []
        for alike in alike_but(cells, (axis,)):
            every += combinations(alike, 2)
        if every:
            pairs.append(_sorted_out(axis, every, cells, ends))
    return tuple(pairs)


def alike_but(cells: Iterable[Point], axes: Collection[str]) -> Iterable[list[Point]]:
    """Each set of cells that differ in nothing but these axes."""

    def rest(cell: Point) -> tuple[tuple[str, Value], ...]:
        return tuple(setting for setting in cell if setting[0] not in axes)

    return grouped(cells, rest).values()


def _sorted_out(axis: str, every: Sequence[Pair], cells: Cells, ends: Mapping[Point, str]) -> Pairs:
    alike: list[Pair] = []
    different: list[Pair] = []
    incomparable: list[Pair] = []
    outlasted: list[Pair] = []

    for one, other in every:
        if ends[one] == ends[other]:
            alike.append((one, other))
        elif not (_outlasts(cells[other], cells[one]) or _outlasts(cells[one], cells[other])):
            different.append((one, other))
        else:
            incomparable.append((one, other))
            if _program(cells[one]) == _program(cells[other]):
                outlasted.append((one, other) if ends[other] == "PASS" else (other, one))
    return Pairs(
        axis=axis,
        alike=tuple(alike),
        different=tuple(different),
        incomparable=tuple(incomparable),
        outlasted=tuple(outlasted),
    )


def _outlasts(passed: TrialSet, slow: TrialSet) -> bool:
    """Whether a trial of the one passed after a time that a slow trial of the other was not given."""
    limits_s, times_s = slow.slow_limits_s, passed.passes_s
    return bool(limits_s) and bool(times_s) and max(times_s) > min(limits_s)


def _program(trials: TrialSet) -> tuple[object, ...]:
    """What was run: where it is the same in two cells, they differ in their limits at most."""
    trial = trials.first.record.trial
    return (trial.target, trial.config, trial.env, trial.fault, trial.python, trial.tree)
