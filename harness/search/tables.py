"""Tables: what the trials of a matrix show, cell by cell, held against what was expected, axis by axis, by failure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.core.campaign import AxisFit, CellResult, CellStatus, FailureTable
from harness.core.cause import CellCount
from harness.core.point import AxisType, Point
from harness.core.verdict import NEVER_ENDED_WELL, Answer, Kind
from harness.search.cells import suspects
from harness.search.implicate import axis_verdicts, without
from harness.search.scaling import fits_along, scaling_of
from harness.search.tally import counted

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping, Sequence

    from harness.core.campaign import Override
    from harness.core.matrix import Expectation, Matrix
    from harness.core.record import TrialRecord
    from harness.core.space import Space


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What one trial ended in: its kind, its verdict in words, and the names of the signatures that it matches."""

    kind: Kind
    words: str
    names: tuple[str, ...] = ()

    def is_as(self, expected: Expectation) -> bool:
        """Whether this is the failure that is expected, and not merely one of the same kind."""
        return self.kind is expected.kind and (expected.signature is None or expected.signature in self.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that is known of a campaign's trials.

    ``names`` are the signatures that a failed trial matches, by its key; ``ran`` fingerprints of what trials really
    ran; ``predicted_s`` and ``overrides`` are by cell, as are ``programs``, where shards ran several of them: what is
    said of several cells together is then said only of those that ran the same one.
    """

    records: tuple[TrialRecord, ...]
    names: Mapping[str, tuple[str, ...]]
    ran: Mapping[str, str]
    predicted_s: Mapping[Point, float]
    overrides: Mapping[Point, Override]
    programs: Mapping[Point, str] = field(default_factory=dict["Point", str])

    def of(self, cell: Point) -> tuple[TrialRecord, ...]:
        """The trials of one cell."""
        return of_cell(cell, self.records)

    def ended(self, record: TrialRecord) -> Ended:
        """What one trial ended in; in a word or two its kind, and the signature it matches or else its cause."""
        names = self.names.get(record.trial.key, ())
        kind = record.verdict.kind
        return Ended(kind=kind, words=f"{kind} ({names[0]})" if names else str(record.verdict), names=names)


def of_cell(cell: Point, records: Sequence[TrialRecord]) -> tuple[TrialRecord, ...]:
    """The trials of ``cell`` among ``records``."""
    return tuple(record for record in records if record.trial.point == cell)


def in_force(matrix: Matrix, cell: Point, *, today: dt.date) -> Expectation | None:
    """What ``cell`` is expected to end in today; an expectation outside its dates says nothing."""
    expected = matrix.expected(cell)
    if expected is None or (expected.since and today < expected.since) or (expected.until and today > expected.until):
        return None
    return expected


def words(expected: Expectation | None) -> str:
    """The expectation in a word or two: ``HANG (backward-hang)``."""
    if expected is None:
        return str(Kind.PASS)
    return f"{expected.kind} ({expected.signature})" if expected.signature else str(expected.kind)


def cell_status(expected: Expectation | None, trials: Sequence[Ended]) -> tuple[CellStatus, str]:
    """Whether ``trials`` of one cell are what was expected, and why, in one clause. Without a word it must pass.

    Trials that the machine spoiled (INFRA) never count. A failure other than the expected one is a surprise, also
    when it is of the same kind. A pass where a failure was expected is one only if the expectation is strict: if the
    failure is rare (``rate`` below 1), a single failure among the passes is enough to bear it out.
    """
    total = passes = 0
    other: Counter[str] = Counter()
    for trial in trials:
        if trial.kind is Kind.INFRA:
            continue
        total += 1
        if trial.kind is Kind.PASS:
            passes += 1
        elif expected is None or not trial.is_as(expected):
            other[trial.words] += 1
    if not total:
        status = CellStatus.INCONCLUSIVE if trials else CellStatus.NOT_RUN
        return status, "the machine spoiled every trial of it" if trials else ""
    surprises = [f"{name} {n} of {total}" for name, n in other.items() if not name.startswith(str(Kind.UNRESOLVED))]
    if surprises:
        return CellStatus.UNEXPECTED, f"{', '.join(surprises)}; expected {words(expected)}"
    if other:
        return CellStatus.INCONCLUSIVE, f"no answer in {total - passes} of {total} trials"
    if expected is None or expected.kind is Kind.PASS:
        return CellStatus.EXPECTED, f"passed {passes} of {total}"
    return _failing(expected, passes=passes, failures=total - passes)


def _failing(expected: Expectation, *, passes: int, failures: int) -> tuple[CellStatus, str]:
    of = f"{failures} of {passes + failures}"
    if failures and (not passes or expected.rate < 1):
        return CellStatus.EXPECTED, f"{words(expected)} {of}"
    why = f"passed, {words(expected)} was expected"
    if failures:
        why = f"{words(expected)} in {of} only; every trial was expected to"
    return (CellStatus.UNEXPECTED if expected.strict else CellStatus.EXPECTED), why


def cell_results(matrix: Matrix, cells: Sequence[Point], facts: Facts, *, today: dt.date) -> tuple[CellResult, ...]:
    """Each of ``cells``, and any other that was run, held against what was expected of it."""
    by_cell: dict[Point, list[TrialRecord]] = {}
    for cell in cells:
        by_cell.setdefault(cell, [])
    for record in facts.records:
        by_cell.setdefault(record.trial.point, []).append(record)
    for cell in facts.overrides:
        by_cell.setdefault(cell, [])
    return tuple(_result(matrix, cell, records, facts, today=today) for cell, records in by_cell.items())


def _result(matrix: Matrix, cell: Point, records: Sequence[TrialRecord], facts: Facts, *, today: dt.date) -> CellResult:
    expected = in_force(matrix, cell, today=today)
    ended = list(map(facts.ended, records))
    status, because = cell_status(expected, ended)
    override = facts.overrides.get(cell)
    if override is not None and not records:
        status = CellStatus.SKIPPED if override.answer is Answer.UNRESOLVED else CellStatus.NOT_RUN
        because = override.why
    seconds = sum(record.outcome.duration_s for record in records)
    keys: list[str] = []
    endings: Counter[str] = Counter()
    failure = ""
    for record, end in zip(records, ended, strict=True):
        keys.append(record.trial.key)
        endings[end.words] += 1
        if end.kind not in (Kind.PASS, Kind.INFRA):
            failure = failure or end.words
    return CellResult(
        cell=cell,
        name=matrix.space.name_of(cell),
        count=count_of(cell, records),
        seen=tuple(endings.most_common()),
        expected=words(expected),
        met=status,
        because=because,
        issue=expected.issue if expected else "",
        failure=failure,
        keys=tuple(keys),
        said=f"{override.by}: {override.why}" if override else "",
        ran=next((facts.ran[key] for key in keys if key in facts.ran), ""),
        seconds=seconds,
        gpu_seconds=seconds * matrix.gpus_at(cell),
        predicted_s=facts.predicted_s.get(cell),
    )


def count_of(cell: Point, records: Sequence[TrialRecord]) -> CellCount:
    """The trials of ``cell`` among ``records`` by their answers, without those that the machine spoiled."""
    return counted(cell, [r.answer for r in of_cell(cell, records) if r.verdict.kind is not Kind.INFRA])


def failure_tables(space: Space, facts: Facts) -> tuple[FailureTable, ...]:
    """For each failure by name: what minimal pairs say about every axis, and which pairs of settings never passed.

    Trials that ended in another failure are neither passes nor failures of this one. Without any failure there is
    nothing that an axis could be to blame for, and no table.
    """
    ended: list[tuple[TrialRecord, Ended]] = []
    names: Counter[str] = Counter()
    ran: dict[Point, str] = {}
    for record in facts.records:
        if record.verdict.kind is Kind.INFRA:
            continue
        end = facts.ended(record)
        ended.append((record, end))
        if end.kind not in (Kind.PASS, Kind.UNRESOLVED, Kind.SLOW):
            names[end.words] += 1
        if record.trial.key in facts.ran:
            ran[record.trial.point] = facts.ran[record.trial.key]
    tables: list[FailureTable] = []
    for name, trials in names.most_common():
        counts = _counts(ended, name)
        tables.append(
            FailureTable(
                failure=name,
                cells=sum(bool(count.bad) for count in counts),
                trials=trials,
                axes=axis_verdicts(space, counts, ran=ran, programs=facts.programs),
                interactions=() if facts.programs else suspects(space, counts, strength=min(2, len(space.factors))),
            )
        )
    return tuple(tables)


def _counts(ended: Sequence[tuple[TrialRecord, Ended]], name: str) -> list[CellCount]:
    tallies: dict[Point, Counter[str]] = {}
    well = {Kind.PASS}
    for _, end in ended:
        if end.words == name and end.kind in NEVER_ENDED_WELL:
            well.add(Kind.BELOW_TARGET)
    for record, end in ended:
        what = "bad" if end.words == name else "good" if end.kind in well else "unresolved"
        tallies.setdefault(record.trial.point, Counter())[what] += 1
    return [CellCount(cell=cell, **tally) for cell, tally in tallies.items()]


def axis_fits(space: Space, facts: Facts) -> tuple[AxisFit, ...]:
    """Time, memory and graph against each ordered axis, on the line with the most values that passed."""
    if facts.programs:
        return ()
    fits: list[AxisFit] = []
    for factor in space.factors:
        if factor.axis.type is not AxisType.ORDERED:
            continue
        lines: dict[Point, list[TrialRecord]] = {}
        for record in facts.records:
            lines.setdefault(without(record.trial.point, factor.name), []).append(record)
        longest, n_values = Point(), 0
        for rest, mine in lines.items():
            fit = scaling_of(mine, axis=factor.axis)
            if fit is not None and len(fit.sizes) > n_values:
                longest, n_values = rest, len(fit.sizes)
        if n_values:
            line = fits_along(lines[longest], axis=factor.axis)
            fits += [AxisFit(axis=factor.name, fixed=longest, fit=fit) for fit in line]
    return tuple(fits)
