"""Earlier: trials of other runs that answer the same question.

They count if code, configuration and machine match; of a program of the user's, as far as git tells of its code.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness.core.errors import StoreError
from harness.core.verdict import FAILURES, Kind
from harness.plan.predict import limits_set
from harness.store.history import History, read_question

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from harness.core.campaign import CampaignSpec
    from harness.core.record import Machine, TrialRecord
    from harness.core.trial import Trial

MOST_RUNS = 30
"""How many earlier runs of the same question or axes are looked at, newest first."""

TELLING = FAILURES | {Kind.PASS, Kind.BELOW_TARGET}
"""What answers a question by itself. A limit that ran out, a spoiled machine and what nobody could judge do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """What other runs have tried, oldest first.

    ``counted`` are trials of the same question, each with its run's name in it; ``others`` is the number of those that
    had other code, another machine or other variables. ``passed`` are those that passed on this machine, whatever the
    code: they say how long a healthy trial takes, and nothing else.
    """

    counted: tuple[TrialRecord, ...] = ()
    others: int = 0
    passed: tuple[TrialRecord, ...] = ()


def earlier_trials(
    run_dir: Path,
    *,
    question: CampaignSpec,
    machine: Machine,
    program: str,
    like: Callable[[TrialRecord], Trial | None],
) -> Earlier:
    """The trials of other runs beside ``run_dir`` over the same axes as ``question``, asked in the same way.

    ``program`` is the commit of the user's program as it is now. ``like(record)`` is the trial that would be made now
    of the record's cell, None when there is no such cell here.
    Left out are runs that cannot be read, and trials that told nothing or ran under other limits set by the user.
    """
    counted: dict[str, TrialRecord] = {}
    passed: list[TrialRecord] = []
    others = 0
    for record, is_alike, of_program in _trials(run_dir, machine, question):
        now = like(record)
        if now is None or not _same_cell(now, record.trial):
            continue
        same_machine = is_alike and now.machine == record.trial.machine
        if same_machine and record.verdict.kind is Kind.PASS:
            passed.append(record)
        if limits_set(now.budget) != limits_set(record.trial.budget):
            continue
        if same_machine and now.code == record.trial.code and of_program == program:
            counted.pop(record.trial.key, None)  # of two under one key, as after --fresh, the later one counts
            counted[record.trial.key] = record
        else:
            others += 1
    return Earlier(counted=tuple(counted.values()), others=others, passed=tuple(passed))


def words(counted: Sequence[TrialRecord], others: int) -> tuple[str, ...]:
    """What a reader must know of trials of earlier runs before any other is run: who counts, and who does not."""
    notes: list[str] = []
    if counted:
        runs = list(dict.fromkeys(record.run for record in counted))
        listed = ", ".join(runs[:3]) + (f" and {len(runs) - 3} more" if len(runs) > 3 else "")
        verb = "counts" if len(counted) == 1 else "count"
        notes.append(f"{_of_earlier(len(counted))} {verb} here: {listed}. --fresh runs all anew.")
    if others:
        verb = "does" if others == 1 else "do"
        notes.append(f"{_of_earlier(others)} {verb} not count: other code, another machine or other variables.")
    return tuple(notes)


def _of_earlier(number: int) -> str:
    return f"{number} trial{'' if number == 1 else 's'} of earlier runs"


def _trials(run_dir: Path, machine: Machine, question: CampaignSpec) -> Iterator[tuple[TrialRecord, bool, str]]:
    """Every telling trial of the newest akin runs, oldest first.

    With each, whether it had the same variables as now, and the commit of its program.
    """
    for history in _readable(reversed(_runs(run_dir, question))):
        is_alike = history.identity.machine.environment == machine.environment
        for record in history.records():
            if record.verdict.kind in TELLING:
                yield replace(record, run=history.identity.id), is_alike, history.identity.program


def _readable(folders: Iterable[Path]) -> Iterator[History]:
    for folder in folders:
        with suppress(StoreError):  # it cannot be read, so it has nothing to say
            yield History.read(folder)


def _runs(run_dir: Path, question: CampaignSpec) -> list[Path]:
    """The newest akin runs, newest first; their questions alone are read for that."""
    folders: list[Path] = []
    for folder in sorted((path.parent for path in run_dir.parent.glob("*/journal.jsonl")), reverse=True):
        if folder != run_dir and len(folders) < MOST_RUNS:
            with suppress(StoreError):
                if _shaped(read_question(folder)) == _shaped(question):
                    folders.append(folder)
    return folders


def _shaped(question: CampaignSpec) -> tuple[object, ...]:
    """What shapes the trials of a question beside its cells: axes, planted fault, how they start, and the seed."""
    axes = frozenset(question.matrix.space.names)
    return axes, question.matrix.fault, question.executor, question.seed


def _same_cell(now: Trial, then: Trial) -> bool:
    return (now.target, now.point, now.config, str(now.fault), now.env, now.python, now.success) == (
        then.target, then.point, then.config, str(then.fault), then.env, then.python, then.success,
    )  # fmt: skip
