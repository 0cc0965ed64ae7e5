"""Findings: what the records of a run show, derived once; sections, forms, sentences and next steps all take it.

Whoever derives the failing cell a second time, from the records, sooner or later derives another one: a page once told
of one trial and named the line of another. So nothing in a report counts, groups or orders trials by itself. Each part
is worked out when it is first asked for and kept with the value; a run of another kind never pays for it. No prose.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.boundary import Finding
from harness.core.campaign import CampaignAnswer, CellStatus, Task, programs_by_cell
from harness.core.dotted import leaves
from harness.core.errors import StoreError
from harness.core.outcome import Ending
from harness.core.verdict import FAILURES, Answer, Kind
from harness.report.tried import Cell, Group, Numbered, Pairs, TrialSet, pairs_of, place_on, together
from harness.store import layout
from harness.store.files import read_object
from harness.store.history import read_evidence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence, Set

    from harness.core.campaign import CellResult, LostShard
    from harness.core.cause import AxisFinding
    from harness.core.evidence import Evidence
    from harness.core.point import Point, Value
    from harness.core.record import Run, TrialRecord


EVIDENCE_PARTS = ("kernels", "config_seen", "config_differences")
"""The parts of a trial's evidence that sections want of every trial."""

_READER = json.JSONDecoder()


def steps_of(record: TrialRecord) -> int:
    """Steps that were finished, never more than were asked for: earlier versions kept those of every rank."""
    most = leaves(record.trial.config).get("train.steps")
    steps = len(record.measurement.step_s)
    return min(steps, most) if isinstance(most, int) else steps


def object_at(path: Path) -> dict[str, Any]:
    """The JSON object in a file of ours; one that is not there or cannot be read says nothing, for or against."""
    with suppress(StoreError):
        return read_object(path)
    return {}


def evidence_parts(path: Path) -> dict[str, Any]:
    """What EVIDENCE_PARTS names of the evidence at ``path``, as plain JSON; empty when it is not there or not readable.

    For the few facts that are wanted of every trial; reading hundreds of stacks for them would take seconds.
    """
    parts: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        text = path.read_text(encoding="utf-8")
        for name in EVIDENCE_PARTS:
            _, is_there, rest = text.partition(f'\n "{name}": ')
            if not is_there:  # not as the store writes it: a line for each part, and no other line begins like it
                data = object_at(path)
                return {name: data.get(name) for name in EVIDENCE_PARTS}
            parts[name] = _READER.raw_decode(rest)[0]
    return parts


FAILED = FAILURES | {Kind.BELOW_TARGET}
"""Kinds that a headline names as a failure: a trial that ended well with wrong numbers did not pass either."""

GRAVITY = (Kind.HANG, Kind.CRASH, Kind.OOM, Kind.NONFINITE, Kind.SLOW, Kind.BELOW_TARGET, Kind.UNRESOLVED, Kind.INFRA)
"""The gravest first: what a report speaks of when several things went wrong."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Findings:
    """What a run shows: two of them are the same only where they are one object, and then nothing was derived twice.

    ``run_dir`` is where its evidence lies; whoever asks for no evidence need not name it.
    """

    run: Run
    run_dir: Path = Path()

    def evidence_of(self, record: TrialRecord) -> Evidence | None:
        """What was seen of a trial; None when it was not kept.

        Raises:
            StoreError: it cannot be read.
        """
        return read_evidence(self.run_dir, record.trial.key)

    def readable_evidence_of(self, record: TrialRecord) -> Evidence | None:
        """The same; None also where it cannot be read."""
        with suppress(StoreError):
            return self.evidence_of(record)
        return None

    def has_evidence_of(self, record: TrialRecord) -> bool:
        """Whether it is there."""
        return self._evidence_file(record).is_file()

    def _evidence_file(self, record: TrialRecord) -> Path:
        return layout.evidence(layout.trial(self.run_dir, record.trial.key))

    @cached_property
    def parts(self) -> tuple[tuple[Numbered, dict[str, Any]], ...]:
        """Every trial with the few facts of its evidence that are wanted of all: see :func:`evidence_parts`."""
        return tuple((trial, evidence_parts(self._evidence_file(trial.record))) for trial in self.trials)

    @cached_property
    def is_passed_on(self) -> bool:
        """Whether its evidence is that of a bundle."""
        return layout.bundle_manifest(self.run_dir).is_file()

    @cached_property
    def trials(self) -> tuple[Numbered, ...]:
        """Every trial, in the order in which they finished."""
        return tuple(Numbered(number=i, record=record) for i, record in enumerate(self.run.records, start=1))

    @cached_property
    def is_line(self) -> bool:
        """Whether it is a threshold search, whose trials lie along one axis."""
        return self.run.spec.task is Task.BISECT

    @cached_property
    def is_single(self) -> bool:
        """Whether it is one program as it is, with nothing varied."""
        return all(len(factor.axis.values) < 2 for factor in self.run.spec.matrix.space.factors)

    @cached_property
    def is_watched(self) -> bool:
        """Whether it is a job that was only watched, and still ran at the last look, which speaks for all of them."""
        return bool(self.trials) and self.trials[-1].record.outcome.ending is Ending.STILL_RUNNING

    @cached_property
    def answer(self) -> CampaignAnswer:
        """Everything that the run showed; before there is an answer, nothing."""
        return self.run.answer or CampaignAnswer()

    @cached_property
    def results(self) -> tuple[CellResult, ...]:
        """Every cell with its result, named as everywhere else; before there is an answer, none."""
        space = self.run.spec.matrix.space
        return tuple(replace(result, name=space.name_of(result.cell)) for result in self.answer.cells)

    @cached_property
    def expects(self) -> bool:
        """Whether its matrix says what cells end in, which the report then holds against what they ended in."""
        return self.run.spec.task is Task.CELLS and bool(self.run.spec.matrix.expect) and bool(self.results)

    @cached_property
    def surprises(self) -> tuple[CellResult, ...]:
        """The cells that ended otherwise than a matrix that says so expects; of any other matrix none."""
        return self.results_that_are(CellStatus.UNEXPECTED) if self.expects else ()

    @cached_property
    def foreseen(self) -> Set[Point]:
        """The cells that ended as a matrix that says so expects, with a failure or without one."""
        results = self.results_that_are(CellStatus.EXPECTED) if self.expects else ()
        return frozenset(result.cell for result in results)

    @cached_property
    def unforeseen(self) -> tuple[Numbered, ...]:
        """The trials that ask for something: all but those of cells that ended as expected."""
        return tuple(trial for trial in self.trials if trial.cell not in self.foreseen)

    @cached_property
    def subject(self) -> TrialRecord | None:
        """The trial to tell about: see :func:`to_tell_of`; where cells ended otherwise than expected, one of those."""
        trials = self.trials
        if self.surprises:
            cells = {result.cell for result in self.surprises}
            trials = tuple(trial for trial in self.trials if trial.cell in cells)
        return to_tell_of([trial.record for trial in trials], answered=self.answered)

    @cached_property
    def subject_evidence(self) -> tuple[TrialRecord, Evidence] | None:
        """The subject with its evidence; None when there is neither."""
        evidence = self.evidence_of(self.subject) if self.subject else None
        return (self.subject, evidence) if self.subject and evidence else None

    @cached_property
    def answered(self) -> tuple[Point, ...]:
        """The failing cells of the causes that were named, in the order in which they are told of."""
        return tuple(cause.seen.cell for cause in self.answer.causes)

    @cached_property
    def kinds(self) -> Set[Kind]:
        """Every kind of verdict that was reached."""
        return TrialSet(trials=self.trials).kinds

    @cached_property
    def subject_number(self) -> int | None:
        """Its number."""
        for trial in self.trials:
            if trial.record is self.subject:
                return trial.number
        return None

    @cached_property
    def not_run(self) -> tuple[CellResult, ...]:
        """The cells that were asked for and not run."""
        return self.results_that_are(CellStatus.SKIPPED, CellStatus.NOT_RUN)

    @cached_property
    def pending(self) -> Set[Point]:
        """The cells that were asked for, and of which neither a trial nor anybody else says anything."""
        answered = {result.cell for result in self.results if result.said or result.met is CellStatus.SKIPPED}
        return set(self.run.spec.cells) - set(self.by_cell) - answered

    @cached_property
    def lost(self) -> tuple[LostShard, ...]:
        """The shards that left no run, each with its cells that were not run since; none once all of them were."""
        lost: list[LostShard] = []
        for shard in self.run.spec.lost:
            cells = tuple(cell for cell in shard.cells if cell in self.pending)
            lost += [replace(shard, cells=cells)] if cells else []
        return tuple(lost)

    def results_that_are(self, *statuses: CellStatus) -> tuple[CellResult, ...]:
        """The cells that came to one of these, in their order."""
        return tuple(result for result in self.results if result.met in statuses)

    def axes_with(self, finding: AxisFinding) -> set[str]:
        """The axes about which minimal pairs say so, of any failure."""
        axes: set[str] = set()
        for table in self.answer.failures:
            for verdict in table.axes:
                if verdict.finding is finding:
                    axes.add(verdict.axis)
        return axes

    @cached_property
    def searched(self) -> tuple[Numbered, ...]:
        """The trials that an answer rests on: all but the controls."""
        return tuple(trial for trial in self.trials if not trial.is_control)

    @cached_property
    def failed(self) -> tuple[Numbered, ...]:
        """The trials that a headline names as failures."""
        return self.ended_in(FAILED)

    @cached_property
    def slow(self) -> tuple[Numbered, ...]:
        """The trials that ran out of time while still making progress."""
        return self.ended_in({Kind.SLOW})

    def ended_in(self, kinds: Set[Kind]) -> tuple[Numbered, ...]:
        """The trials with a verdict of these kinds."""
        return tuple(trial for trial in self.trials if trial.verdict.kind in kinds)

    @cached_property
    def slow_groups(self) -> list[Group]:
        """The groups along an axis that ran out of time while still making progress."""
        return [group for group in self.groups if group.first.verdict.kind is Kind.SLOW]

    @cached_property
    def controls(self) -> Mapping[str, TrialSet]:
        """The control trials by the name of the control."""
        return together(self.trials, lambda trial: trial.record.trial.control if trial.is_control else None)

    @cached_property
    def by_cell(self) -> Mapping[Point, TrialSet]:
        """The trials of each cell, in the order in which cells were first tried."""
        return together(self.trials, lambda trial: trial.cell)

    @cached_property
    def endings(self) -> Mapping[Point, str]:
        """What the trials of each cell ended in, for comparison."""
        return {cell: trials.ending for cell, trials in self.by_cell.items()}

    @cached_property
    def named(self) -> Mapping[Point, Set[str]]:
        """What each cell ended in, by the names of the answer: a failure that matches a signature has that one's."""
        return {result.cell: {name for name, _ in result.seen} for result in self.results}

    def name_of(self, cell: Point) -> str:
        """The settings in which a cell differs from the known-good corner; ``baseline`` for that corner."""
        return "the program" if self.is_single else self.run.spec.matrix.space.name_of(cell)

    @cached_property
    def subjects(self) -> Mapping[Value, str]:
        """The subject of the commit of each value of the axis that is one, as far as they were written down."""
        factor = self.run.spec.matrix.space.factor(self.run.axis.name)
        by_commit = object_at(layout.commits(self.run_dir)) if self.run_dir.name else {}
        bundles = zip(factor.axis.values, factor.bundles, strict=False)
        return {value: str(by_commit[bundle.commit]) for value, bundle in bundles if bundle.commit in by_commit}

    def value_of(self, trial: Numbered) -> Value:
        """Where on the axis it was."""
        return trial.cell.get(self.run.axis.name)

    @cached_property
    def along(self) -> tuple[Cell, ...]:
        """Every value of the axis with its trials, in axis order; those without a trial, too."""
        at: dict[Value, list[Numbered]] = {value: [] for value in self.run.axis.values}
        for trial in self.searched:
            at.setdefault(self.value_of(trial), []).append(trial)
        return tuple(Cell(value=value, trials=tuple(trials)) for value, trials in at.items())

    def at_value(self, value: Value) -> Cell:
        """The trials at ``value`` of the axis."""
        for cell in self.along:
            if cell.value == value:
                return cell
        return Cell(value=value)

    def is_threshold(self, value: Value) -> bool:
        """Whether it is the first failing value of the axis, located behind a good one."""
        boundary = self.run.boundary
        return boundary is not None and boundary.finding is Finding.THRESHOLD and value == boundary.first_bad

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Trials of one cell that ended alike and did not pass, the one to speak of first.

        Along an axis that is the failure sought, at the first failing value; over cells it is the group of the trial
        that is told of, then what no matrix expected, then the failure sought, then the gravest.
        """
        alike: dict[tuple[Value, str, bool], list[Numbered]] = {}
        for trial in self.searched if self.is_line else self.trials:
            if trial.verdict.kind is not Kind.PASS:
                value = self.value_of(trial) if self.is_line else self.name_of(trial.cell)
                is_sought = self.is_line and trial.record.answer is Answer.BAD  # along an axis it decides what counts
                alike.setdefault((value, str(trial.verdict), is_sought), []).append(trial)
        groups = [Group(value=value, trials=tuple(trials)) for (value, *_), trials in alike.items()]
        return tuple(sorted(groups, key=self._place_of))

    def _place_of(self, group: Group) -> tuple[int, ...]:
        if self.is_line:
            first_bad = self.run.boundary.first_bad if self.run.boundary else None
            return int(not group.is_bad), int(group.value != first_bad), place_on(self.run.axis, group.value)
        is_subject = self.subject_number in group.numbers
        is_foreseen = group.first.cell in self.foreseen
        return int(not is_subject), int(is_foreseen), int(not group.is_bad), GRAVITY.index(group.first.verdict.kind)

    @cached_property
    def group_words(self) -> tuple[str, ...]:
        """What each group ended in, in their order."""
        return tuple(str(group.first.verdict) for group in self.groups)

    @property
    def failing(self) -> Group | None:
        """The failure that the answer is about: the one sought, at the first failing value."""
        first = next(iter(self.groups), None)
        return first if first is not None and first.is_bad else None

    def pairs_along(self, axis: str) -> Pairs:
        """The pairs that differ in ``axis`` only; of an axis that no two cells differ in, none."""
        for pairs in self.pairs:
            if pairs.axis == axis:
                return pairs
        return Pairs(axis=axis)

    @cached_property
    def pairs(self) -> tuple[Pairs, ...]:
        """For every axis the pairs of cells that differ in nothing else: see :func:`pairs_of`."""
        programs = programs_by_cell(self.run.programs)
        return pairs_of(self.by_cell, axes=self.run.spec.matrix.space.names, programs=programs)


def cells_of(trials: Iterable[Numbered]) -> list[Point]:
    """The cells of ``trials``, each once, in their order."""
    return list(dict.fromkeys(trial.cell for trial in trials))


def to_tell_of(records: Sequence[TrialRecord], *, answered: Sequence[Point] = ()) -> TrialRecord | None:
    """The first trial that failed, of those that showed the failure sought if any did; else the gravest; None without.

    Of a hang and a crash the first is told of, not the graver one: it is what whoever runs it meets first. Where a
    search named causes, whose cells are ``answered``, it is the first failure of the first of those: another one, of
    a cell that holds more, is not what was answered.
    """
    wrong = [r for r in records if r.verdict.kind is not Kind.PASS and not r.trial.is_control]

    def order(record: TrialRecord) -> tuple[bool, int, int]:
        gravity = -1 if record.verdict.kind in FAILURES else GRAVITY.index(record.verdict.kind)
        cell = record.trial.point
        place = answered.index(cell) if cell in answered else len(answered)
        return record.answer is not Answer.BAD, place, gravity

    return min(wrong, key=order, default=None)
