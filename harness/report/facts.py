"""Facts: the trials of a run, counted and grouped as reports need them. No judgement, no prose."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from statistics import median
from typing import TYPE_CHECKING, Any

from harness.core.campaign import Task
from harness.core.verdict import Answer, Kind
from harness.store import layout

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.point import Value
    from harness.core.record import Run, TrialRecord
    from harness.core.verdict import Verdict


TOLD = ("kernels", "config_seen", "config_differences")
"""The parts of a trial's evidence that sections want of every trial."""

_READER = json.JSONDecoder()


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbered:
    """A trial with its number in the run, from 1."""

    number: int
    record: TrialRecord

    @property
    def verdict(self) -> Verdict:
        """What was concluded of it."""
        return self.record.verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The search's trials at one value of the axis."""

    value: Value
    trials: tuple[Numbered, ...] = ()

    @property
    def total(self) -> int:
        """All trials here."""
        return len(self.trials)

    @property
    def good(self) -> int:
        """Trials that passed."""
        return sum(t.record.answer is Answer.GOOD for t in self.trials)

    @property
    def bad(self) -> int:
        """Trials that showed the failure being sought."""
        return sum(t.record.answer is Answer.BAD for t in self.trials)

    @property
    def kinds(self) -> dict[str, int]:
        """How often each verdict was reached, the most frequent first."""
        seen: dict[str, int] = {}
        for trial in self.trials:
            seen[str(trial.verdict)] = seen.get(str(trial.verdict), 0) + 1
        return dict(sorted(seen.items(), key=lambda item: -item[1]))

    @property
    def pass_s(self) -> float | None:
        """Median seconds of the trials that passed."""
        times = [t.record.outcome.duration_s for t in self.trials if t.verdict.kind is Kind.PASS]
        return median(times) if times else None

    @property
    def peak_bytes(self) -> int:
        """Most memory that any of them held."""
        return max((t.record.measurement.peak_rss_bytes for t in self.trials), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Trials at one value that ended alike."""

    value: Value
    trials: tuple[Numbered, ...]

    @property
    def first(self) -> Numbered:
        """The one to look at."""
        return self.trials[0]

    @property
    def is_bad(self) -> bool:
        """Whether this is the failure being sought."""
        return self.first.record.answer is Answer.BAD


def numbered(run: Run) -> tuple[Numbered, ...]:
    """Every trial, in the order in which they finished."""
    return tuple(Numbered(number=i, record=record) for i, record in enumerate(run.records, start=1))


def is_line(run: Run) -> bool:
    """Whether it is a threshold search, whose trials lie along one axis."""
    return run.spec.task is Task.BISECT


def is_control(trial: Numbered) -> bool:
    """Whether it was run with one thing changed, and so does not count for the threshold."""
    return trial.record.trial.is_control


def searched(run: Run) -> tuple[Numbered, ...]:
    """The trials that the threshold rests on."""
    return tuple(trial for trial in numbered(run) if not is_control(trial))


def value_of(run: Run, trial: Numbered) -> Value:
    """Where on the axis it was."""
    return trial.record.trial.point.get(run.axis.name)


def cells(run: Run) -> tuple[Cell, ...]:
    """Every value of the axis with its trials, in axis order."""
    at: dict[Value, list[Numbered]] = {value: [] for value in run.axis.values}
    for trial in searched(run):
        at.setdefault(value_of(run, trial), []).append(trial)
    return tuple(Cell(value=value, trials=tuple(trials)) for value, trials in at.items())


def cell(run: Run, value: Value) -> Cell:
    """The trials at ``value``."""
    return next((cell for cell in cells(run) if cell.value == value), Cell(value=value))


def groups(run: Run) -> tuple[Group, ...]:
    """The search's trials that did not pass: the failure being sought first, the first failing value first."""
    alike: dict[tuple[bool, Value, str], list[Numbered]] = {}
    for trial in searched(run):
        if trial.verdict.kind is not Kind.PASS:
            key = (trial.record.answer is Answer.BAD, value_of(run, trial), str(trial.verdict))
            alike.setdefault(key, []).append(trial)
    order = {value: i for i, value in enumerate(run.axis.values)}
    found = [Group(value=value, trials=tuple(trials)) for (_, value, _), trials in alike.items()]
    return tuple(sorted(found, key=lambda g: (not g.is_bad, order.get(g.value, len(order)))))


def failing(run: Run) -> Group | None:
    """The failure that the answer is about: the one sought, at the first failing value."""
    found = groups(run)
    return found[0] if found and found[0].is_bad else None


def controls(run: Run) -> dict[str, tuple[Numbered, ...]]:
    """The control trials by the name of the control."""
    found: dict[str, list[Numbered]] = {}
    for trial in filter(is_control, numbered(run)):
        found.setdefault(trial.record.trial.control, []).append(trial)
    return {name: tuple(trials) for name, trials in found.items()}


def steps_of(record: TrialRecord) -> int:
    """Steps that were finished, never more than were asked for: earlier versions kept those of every rank."""
    train = record.trial.config.get("train")
    asked = train.get("steps") if isinstance(train, dict) else record.trial.config.get("train.steps")
    done = len(record.measurement.step_s)
    return min(done, asked) if isinstance(asked, int) else done


def raw_evidence(run_dir: Path, key: str) -> dict[str, Any] | None:
    """What TOLD names of a trial's evidence, as plain JSON, or None when it was not kept or cannot be read.

    For the few facts that are wanted of every trial; reading hundreds of stacks for them would take seconds.
    """
    path = layout.evidence(layout.trial(run_dir, key))
    try:
        return _told(path, path.stat().st_mtime_ns)
    except (OSError, ValueError):
        return None


@lru_cache(maxsize=4096)
def _told(path: Path, written_ns: int) -> dict[str, Any] | None:
    """What TOLD names of the evidence at ``path``; ``written_ns`` tells a file that was written again."""
    text = path.read_text(encoding="utf-8")
    starts = {name: text.find(f'\n "{name}": ') for name in TOLD}
    if -1 not in starts.values():  # as the store writes it: a line for each part, and no other line begins like it
        return {name: _READER.raw_decode(text, at + len(f'\n "{name}": '))[0] for name, at in starts.items()}
    data = json.loads(text)
    return {name: data.get(name) for name in TOLD} if isinstance(data, dict) else None
