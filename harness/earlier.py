"""Earlier: trials of other runs that answer the same question. They count if code, configuration and machine match."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.core.campaign import CampaignSpec
from harness.core.errors import StoreError
from harness.core.verdict import Kind
from harness.store.history import History, read_question

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness.core.record import TrialRecord
    from harness.core.trial import Trial

MOST_RUNS = 30
"""How many earlier runs of the same axes are looked at, newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """What other runs have tried, oldest first.

    ``counted`` are trials of the same question, each with its run; ``others`` is the number of those that had other
    code or another machine. ``passed`` are those that passed on this machine, whatever the code: they say how long a
    healthy trial takes, and nothing else.
    """

    counted: tuple[tuple[str, TrialRecord], ...] = ()
    others: int = 0
    passed: tuple[TrialRecord, ...] = ()


def earlier_trials(run_dir: Path, *, axes: frozenset[str], like: Callable[[TrialRecord], Trial | None]) -> Earlier:
    """The trials of other runs beside ``run_dir`` over the same ``axes``.

    ``like(record)`` is the trial that would be made now of the record's cell, None when there is no such cell here.
    Runs that cannot be read, and trials that the machine spoiled or a soft limit cut off, are left out.
    """
    counted: dict[str, tuple[str, TrialRecord]] = {}
    passed: list[TrialRecord] = []
    others = 0
    for folder in reversed(_runs(run_dir, axes)):
        for record in _records(folder):
            now = like(record)
            if (
                now is None
                or record.verdict.kind is Kind.INFRA
                or record.is_cut
                or not _same_question(now, record.trial)
            ):
                continue
            same_machine = now.machine == record.trial.machine
            if same_machine and record.verdict.kind is Kind.PASS:
                passed.append(record)
            if same_machine and now.code == record.trial.code:
                counted.setdefault(record.trial.key, (folder.name, record))
            else:
                others += 1
    return Earlier(counted=tuple(counted.values()), others=others, passed=tuple(passed))


def _runs(run_dir: Path, axes: frozenset[str]) -> list[Path]:
    """The newest runs over the same axes, newest first; their questions alone are read for that."""
    found: list[Path] = []
    for folder in sorted((path.parent for path in run_dir.parent.glob("*/journal.jsonl")), reverse=True):
        if folder != run_dir and len(found) < MOST_RUNS and _axes(folder) == axes:
            found.append(folder)
    return found


def _axes(run_dir: Path) -> frozenset[str]:
    try:
        question = read_question(run_dir)
    except StoreError:
        return frozenset()
    names = (f.name for f in question.matrix.space.factors) if isinstance(question, CampaignSpec) else ()
    return frozenset(names)


def _records(run_dir: Path) -> tuple[TrialRecord, ...]:
    try:
        return History.read(run_dir).records()
    except StoreError:
        return ()


def _same_question(now: Trial, then: Trial) -> bool:
    return (now.target, now.point, now.config, str(now.fault), now.env, now.python, now.success) == (
        then.target, then.point, then.config, str(then.fault), then.env, then.python, then.success,
    )  # fmt: skip
