"""Tried: trials with their numbers, what those of one cell show together, pairs of cells. No prose."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import combinations
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

from harness.core.verdict import FAILURES, Answer, Kind
from harness.report.text import how_many, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set

    from harness.core.point import Axis, Point, Value
    from harness.core.record import TrialRecord
    from harness.core.verdict import Verdict

    Pair = tuple[Point, Point]


K = TypeVar("K")
T = TypeVar("T")

UNDECIDED = frozenset({Kind.UNRESOLVED, Kind.INFRA})
"""What a trial ended in that says neither that its cell fails nor that it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbered:
    """A trial with its number in the run, from 1."""

    number: int
    record: TrialRecord

    @property
    def verdict(self) -> Verdict:
        """What was concluded of it."""
        return self.record.verdict

    @property
    def cell(self) -> Point:
        """The settings that it ran with."""
        return self.record.trial.point

    @property
    def is_control(self) -> bool:
        """Whether it was run with one thing changed, and so does not count for the threshold."""
        return self.record.trial.is_control

    @property
    def has_failed_otherwise(self) -> bool:
        """Whether it failed, and not in the way that was sought."""
        return self.verdict.kind in FAILURES and self.record.answer is Answer.UNRESOLVED

    @property
    def word(self) -> str:
        """What it ended in; SLOW whatever the reason, since a limit ends a slow trial before all reasons are seen."""
        return "SLOW" if self.verdict.kind is Kind.SLOW else str(self.verdict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSet:
    """Some trials, those of one cell in most cases, and what they show together."""

    trials: tuple[Numbered, ...] = ()

    def __iter__(self) -> Iterator[Numbered]:
        return iter(self.trials)

    def __len__(self) -> int:
        return len(self.trials)

    @property
    def records(self) -> tuple[TrialRecord, ...]:
        """Them as they were recorded."""
        return tuple(trial.record for trial in self.trials)

    @property
    def first(self) -> Numbered:
        """The one to look at."""
        return self.trials[0]

    @property
    def numbers(self) -> tuple[int, ...]:
        """Their numbers in the run."""
        return tuple(trial.number for trial in self.trials)

    @property
    def good(self) -> int:
        """Trials that passed."""
        return self._answered(Answer.GOOD)

    @property
    def bad(self) -> int:
        """Trials that showed the failure being sought."""
        return self._answered(Answer.BAD)

    def _answered(self, answer: Answer) -> int:
        return sum(trial.record.answer is answer for trial in self.trials)

    @property
    def kind_counts(self) -> Counter[Kind]:
        """How often each kind of verdict was reached."""
        return kind_counts(self.records)

    @property
    def kinds(self) -> Set[Kind]:
        """Every kind of verdict that was reached."""
        return frozenset(self.kind_counts)

    @property
    def passed(self) -> int:
        """Those whose verdict is PASS, whatever was sought."""
        return self.kind_counts[Kind.PASS]

    @property
    def has_passed(self) -> bool:
        """Whether each of them passed."""
        return self.kinds == {Kind.PASS}

    @property
    def is_undecided(self) -> bool:
        """Whether none of them says that its cell fails, nor that it does not."""
        return self.kinds <= UNDECIDED

    @property
    def words(self) -> tuple[str, ...]:
        """What they ended in, each word once: ``("PASS", "HANG (deadlock)")``."""
        return tuple(dict.fromkeys(trial.word for trial in self.trials))

    @property
    def ending(self) -> str:
        """The same for comparison: ``HANG (deadlock), PASS``."""
        return listed(sorted(self.words))

    @property
    def verdicts(self) -> dict[str, int]:
        """How often each verdict was reached, the most frequent first."""
        return verdicts(self.records)

    @property
    def times_s(self) -> tuple[float, ...]:
        """How long each of them took, seconds."""
        return tuple(trial.record.outcome.duration_s for trial in self.trials)

    @property
    def seconds(self) -> float:
        """How long all of them took."""
        return sum(self.times_s)

    @property
    def longest_s(self) -> float:
        """How long the longest of them took, seconds."""
        return max(self.times_s, default=0.0)

    @property
    def passes_s(self) -> tuple[float, ...]:
        """How long each of those took that passed, seconds."""
        return tuple(t.record.outcome.duration_s for t in self.trials if t.verdict.kind is Kind.PASS)

    @property
    def pass_s(self) -> float | None:
        """Median seconds of the trials that passed."""
        times_s = self.passes_s
        return median(times_s) if times_s else None

    @property
    def slow_limits_s(self) -> tuple[float, ...]:
        """The total limit of each of those that it ended while they still made progress, seconds."""
        return tuple(t.record.trial.budget.total.seconds for t in self.trials if t.verdict.kind is Kind.SLOW)

    @property
    def peak_bytes(self) -> int:
        """Most memory that any of them held."""
        return max((t.record.measurement.peak_rss_bytes for t in self.trials), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell(TrialSet):
    """The search's trials at one value of the axis."""

    value: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Group(TrialSet):
    """Trials of one cell that ended alike; ``value`` is its value on the axis, or its name where there are many."""

    value: Value

    @property
    def is_bad(self) -> bool:
        """Whether this is the failure being sought."""
        return self.first.record.answer is Answer.BAD


def kind_counts(records: Iterable[TrialRecord]) -> Counter[Kind]:
    """How often each kind of verdict was reached."""
    return Counter(record.verdict.kind for record in records)


def verdicts(records: Iterable[TrialRecord]) -> dict[str, int]:
    """How often each verdict was reached, the commonest first."""
    return dict(Counter(str(record.verdict) for record in records).most_common())


def each_verdict(trials: Iterable[Numbered]) -> str:
    """``PASS, HANG (deadlock)``: each verdict once, in the order in which they came."""
    return listed(dict.fromkeys(str(trial.verdict) for trial in trials))


def verdict_counts(records: Iterable[TrialRecord]) -> str:
    """``3 PASS, 1 HANG (deadlock)``: how often each verdict was reached, the commonest first."""
    return how_many(verdicts(records).items())


def together(trials: Iterable[Numbered], key: Callable[[Numbered], K | None]) -> dict[K, TrialSet]:
    """``trials`` with the same key together, those that have none left out; in the order of the first of each."""
    groups = grouped(trials, key).items()
    return {name: TrialSet(trials=tuple(some)) for name, some in groups if name is not None}


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """``items`` with the same key together, in the order of the first of each."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def latest_of_each(items: Iterable[T], of: Callable[[T], int], *, by: Callable[[T], Any]) -> list[T]:
    """Of the items of each rank or device, which ``of`` tells, the last in the order of ``by``; in their order."""
    latest = {of(item): item for item in sorted(items, key=by)}
    return [latest[number] for number in sorted(latest)]


def place_on(axis: Axis, value: Value) -> int:
    """Where ``value`` stands on ``axis``, from 0; behind all of them where it is none of its values."""
    return axis.values.index(value) if value in axis.values else len(axis.values)


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


def pairs_of(
    by_cell: Mapping[Point, TrialSet], *, axes: Sequence[str], programs: Mapping[Point, str]
) -> tuple[Pairs, ...]:
    """For every axis the pairs that differ in nothing else, whatever they ended in; axes without one are left out.

    A cell that could not be told is in no pair: it ended neither like the other side nor otherwise. Nor are two cells
    that ran different commits of the program, which ``programs`` has by cell where there are several.
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
            for same in grouped(alike, lambda cell: programs.get(cell, "")).values():
                every += combinations(same, 2)
        if every:
            pairs.append(_sorted_out(axis, every, cells, ends))
    return tuple(pairs)


def alike_but(cells: Iterable[Point], axes: Collection[str]) -> Iterable[list[Point]]:
    """Each set of cells that differ in nothing but these axes."""

    def rest(cell: Point) -> tuple[tuple[str, Value], ...]:
        return tuple(setting for setting in cell if setting[0] not in axes)

    return grouped(cells, rest).values()


def _sorted_out(axis: str, every: Sequence[Pair], cells: Mapping[Point, TrialSet], ends: Mapping[Point, str]) -> Pairs:
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
    same, other, unequal = tuple(alike), tuple(different), tuple(incomparable)
    return Pairs(axis=axis, alike=same, different=other, incomparable=unequal, outlasted=tuple(outlasted))


def _outlasts(passed: TrialSet, slow: TrialSet) -> bool:
    """Whether a trial of the one passed after a time that a slow trial of the other was not given."""
    limits_s, times_s = slow.slow_limits_s, passed.passes_s
    return bool(limits_s) and bool(times_s) and max(times_s) > min(limits_s)


def _program(trials: TrialSet) -> tuple[object, ...]:
    """What was run: where it is the same in two cells, they differ in their limits at most."""
    trial = trials.first.record.trial
    return (trial.target, trial.config, trial.env, trial.fault, trial.python, trial.tree)
