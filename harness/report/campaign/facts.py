"""Facts of a run over many cells, as its report needs them. No judgement, no prose."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from harness.core.verdict import Kind
from harness.report.facts import Group, Numbered, numbered
from harness.report.once import once
from harness.report.subject import GRAVITY, subject
from harness.report.text import listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.campaign import CellResult
    from harness.core.point import Point, Value
    from harness.core.record import Run, TrialRecord

UNTOLD = frozenset({Kind.UNRESOLVED, Kind.INFRA})
"""What a trial ended in that says neither that its cell fails nor that it does not."""


def name_of(run: Run, cell: Point) -> str:
    """The settings in which a cell differs from the known-good corner; ``good`` for that corner."""
    return "the program" if is_single(run) else run.spec.matrix.space.name_of(cell)


def is_single(run: Run) -> bool:
    """Whether it is one program as it is, with nothing varied."""
    return all(len(factor.axis.values) < 2 for factor in run.spec.matrix.space.factors)


def results(run: Run) -> tuple[CellResult, ...]:
    """Every cell with its result; before there is an answer, none."""
    return run.answer.cells if run.answer else ()


@once
def by_cell(run: Run) -> dict[Point, list[Numbered]]:
    """The trials of each cell, in the order in which cells were first tried."""
    found: dict[Point, list[Numbered]] = {}
    for trial in numbered(run):
        found.setdefault(trial.record.trial.point, []).append(trial)
    return found


@once
def groups(run: Run) -> tuple[Group, ...]:
    """Trials of one cell that ended alike and did not pass: the one told of, the failure sought, the gravest."""
    alike: dict[tuple[Point, str], list[Numbered]] = {}
    for trial in numbered(run):
        if trial.verdict.kind is not Kind.PASS:
            alike.setdefault((trial.record.trial.point, str(trial.verdict)), []).append(trial)
    found = [Group(value=name_of(run, cell), trials=tuple(trials)) for (cell, _), trials in alike.items()]
    told_of = subject(run)

    def order(group: Group) -> tuple[bool, bool, int]:
        is_told_of = any(trial.record is told_of for trial in group.trials)
        return not is_told_of, not group.is_bad, GRAVITY.index(group.first.verdict.kind)

    return tuple(sorted(found, key=order))


def kinds(records: tuple[TrialRecord, ...]) -> dict[str, int]:
    """How often each verdict was reached, the commonest first."""
    return dict(Counter(str(record.verdict) for record in records).most_common())


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """The pairs of tried cells that differ in one axis only: those that ended alike, and those that did not.

    ``untold`` are pairs of which one side ran out of time and the other passed, but took longer than the first was
    given: under one limit they might have ended alike. ``outlasted`` are those of them that ran the same program, the
    one that ran out of time first: what passed there shows that nothing was wrong but the limit.
    """

    axis: str
    alike: tuple[tuple[Point, Point], ...] = ()
    different: tuple[tuple[Point, Point], ...] = ()
    untold: tuple[tuple[Point, Point], ...] = ()
    outlasted: tuple[tuple[Point, Point], ...] = ()

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


@once
def pairs(run: Run) -> tuple[Pairs, ...]:
    """For every axis the pairs that differ in nothing else, whatever they ended in; axes without one are left out.

    A cell that could not be told is in no pair: it ended neither like the other side nor otherwise.
    """
    cells = {cell: trials for cell, trials in by_cell(run).items() if not is_untold(trials)}
    ends = {cell: ending(trials) for cell, trials in cells.items()}
    found: list[Pairs] = []
    for factor in run.spec.matrix.space.factors:
        rest: dict[tuple[tuple[str, Value], ...], list[Point]] = {}
        for cell in ends:
            rest.setdefault(tuple(setting for setting in cell if setting[0] != factor.name), []).append(cell)
        every = [pair for group in rest.values() for pair in combinations(group, 2)]
        if every:
            alike = tuple(pair for pair in every if ends[pair[0]] == ends[pair[1]])
            other = [pair for pair in every if ends[pair[0]] != ends[pair[1]]]
            untold = tuple(pair for pair in other if _by_limit_alone(cells[pair[0]], cells[pair[1]]))
            aside = set(untold)
            different = tuple(pair for pair in other if pair not in aside)
            same = (pair for pair in untold if _is_one_program(cells, *pair))
            outlasted = tuple((a, b) if ends[b] == "PASS" else (b, a) for a, b in same)
            found.append(Pairs(axis=factor.name, alike=alike, different=different, untold=untold, outlasted=outlasted))
    return tuple(found)


def _by_limit_alone(one: Sequence[Numbered], other: Sequence[Numbered]) -> bool:
    """Whether one side ran out of time and the other passed only because it was given more of it."""
    for slow, passed in ((one, other), (other, one)):
        given = [t.record.trial.budget.total.seconds for t in slow if t.verdict.kind is Kind.SLOW]
        took = [t.record.outcome.duration_s for t in passed if t.verdict.kind is Kind.PASS]
        if given and took and max(took) > min(given):
            return True
    return False


def _is_one_program(cells: dict[Point, list[Numbered]], one: Point, other: Point) -> bool:
    """Whether the same was run in both cells, so that they differ in their limits at most."""
    ran = [
        (trial.target, trial.config, trial.env, trial.fault, trial.python, trial.tree)
        for trial in (cells[cell][0].record.trial for cell in (one, other))
    ]
    return ran[0] == ran[1]
