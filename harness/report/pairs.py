"""Pairs: cells that differ in one axis only, and whether they ended alike. No prose."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from harness.core.verdict import Kind
from harness.report.text import listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.core.point import Point, Value
    from harness.report.findings import Numbered

    Pair = tuple[Point, Point]
    Tried = Mapping[Point, Sequence[Numbered]]

UNTOLD = frozenset({Kind.UNRESOLVED, Kind.INFRA})
"""What a trial ended in that says neither that its cell fails nor that it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """The pairs of tried cells that differ in one axis only: those that ended alike, and those that did not.

    ``untold`` are pairs of which one side ran out of time and the other passed, but took longer than the first was
    given: under one limit they might have ended alike. ``outlasted`` are those of them that ran the same program, the
    one that ran out of time first: what passed there shows that nothing was wrong but the limit.
    """

    axis: str
    alike: tuple[Pair, ...] = ()
    different: tuple[Pair, ...] = ()
    untold: tuple[Pair, ...] = ()
    outlasted: tuple[Pair, ...] = ()

    @property
    def total(self) -> int:
        """Those that tell something."""
        return len(self.alike) + len(self.different)


def word_of(trial: Numbered) -> str:
    """What a trial ended in; SLOW whatever the reason, since a limit ends a slow trial before all reasons are seen."""
    return "SLOW" if trial.verdict.kind is Kind.SLOW else str(trial.verdict)


def ending(trials: Sequence[Numbered]) -> str:
    """What the trials of one cell ended in: ``PASS``, ``PASS, HANG (deadlock)``."""
    return listed(sorted({word_of(trial) for trial in trials}))


def is_untold(trials: Sequence[Numbered]) -> bool:
    """Whether none of a cell's trials says that it fails, nor that it does not."""
    return all(trial.verdict.kind in UNTOLD for trial in trials)


def pairs_of(tried: Tried, *, axes: Sequence[str]) -> tuple[Pairs, ...]:
    """For every axis the pairs that differ in nothing else, whatever they ended in; axes without one are left out.

    A cell that could not be told is in no pair: it ended neither like the other side nor otherwise.
    """
    cells = {cell: trials for cell, trials in tried.items() if not is_untold(trials)}
    found: list[Pairs] = []
    for axis in axes:
        every = _differing_only_in(axis, cells)
        if every:
            found.append(_sorted_out(axis, every, cells))
    return tuple(found)


def _differing_only_in(axis: str, cells: Tried) -> list[Pair]:
    rest: dict[tuple[tuple[str, Value], ...], list[Point]] = {}
    for cell in cells:
        rest.setdefault(tuple(setting for setting in cell if setting[0] != axis), []).append(cell)
    every: list[Pair] = []
    for group in rest.values():
        every += combinations(group, 2)
    return every


def _sorted_out(axis: str, every: Sequence[Pair], cells: Tried) -> Pairs:
    alike: list[Pair] = []
    different: list[Pair] = []
    untold: list[Pair] = []
    outlasted: list[Pair] = []
    ends = {cell: ending(trials) for cell, trials in cells.items()}
    for one, other in every:
        if ends[one] == ends[other]:
            alike.append((one, other))
        elif not _by_limit_alone(cells[one], cells[other]):
            different.append((one, other))
        else:
            untold.append((one, other))
            if _ran(cells[one]) == _ran(cells[other]):
                outlasted.append((one, other) if ends[other] == "PASS" else (other, one))
    return Pairs(
        axis=axis,
        alike=tuple(alike),
        different=tuple(different),
        untold=tuple(untold),
        outlasted=tuple(outlasted),
    )


def _by_limit_alone(one: Sequence[Numbered], other: Sequence[Numbered]) -> bool:
    """Whether one side ran out of time and the other passed only because it was given more of it."""
    return _outlasts(other, one) or _outlasts(one, other)


def _outlasts(passed: Sequence[Numbered], slow: Sequence[Numbered]) -> bool:
    """Whether a trial of the one passed after a time that a slow trial of the other was not given."""
    given = [t.record.trial.budget.total.seconds for t in slow if t.verdict.kind is Kind.SLOW]
    took = [t.record.outcome.duration_s for t in passed if t.verdict.kind is Kind.PASS]
    return bool(given) and bool(took) and max(took) > min(given)


def _ran(trials: Sequence[Numbered]) -> tuple[object, ...]:
    """What was run: where it is the same in two cells, they differ in their limits at most."""
    trial = trials[0].record.trial
    return (trial.target, trial.config, trial.env, trial.fault, trial.python, trial.tree)
