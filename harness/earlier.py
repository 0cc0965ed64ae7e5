"""Earlier: trials of other runs that answer the same question. They count if code, configuration and machine match."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.core.campaign import CampaignSpec
from harness.core.errors import StoreError
from harness.store.history import History
from harness.store.run_store import list_runs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness.core.record import TrialRecord
    from harness.core.trial import Trial

MOST_RUNS = 50
"""How many earlier runs are looked at, newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """``counted`` are trials of the same question, each with its run; ``others`` had other code or another machine."""

    counted: tuple[tuple[str, TrialRecord], ...]
    others: int


def earlier_trials(run_dir: Path, *, like: Callable[[TrialRecord], Trial | None]) -> Earlier:
    """What other runs beside ``run_dir`` have tried, oldest first.

    ``like(record)`` is the trial that would be made now of the record's cell, None when there is no such cell here.
    Runs that cannot be read, and trials that the machine spoiled, are left out.
    """
    counted: list[tuple[str, TrialRecord]] = []
    others = 0
    summaries = [s for s in list_runs(run_dir.parent) if not s.problem and s.directory != run_dir][:MOST_RUNS]
    seen: set[str] = set()
    for summary in reversed(summaries):
        for record in _records(summary.directory):
            now = like(record)
            if now is None or record.verdict.kind == "INFRA" or not _same_question(now, record.trial):
                continue
            if (now.code, now.machine) != (record.trial.code, record.trial.machine):
                others += 1
            elif record.trial.key not in seen:
                seen.add(record.trial.key)
                counted.append((summary.directory.name, record))
    return Earlier(counted=tuple(counted), others=others)


def _records(run_dir: Path) -> tuple[TrialRecord, ...]:
    try:
        history = History.read(run_dir)
    except StoreError:
        return ()
    return history.records() if isinstance(history.question, CampaignSpec) else ()


def _same_question(now: Trial, then: Trial) -> bool:
    return (now.target, now.point, now.config, str(now.fault), now.env, now.python, now.success) == (
        then.target, then.point, then.config, str(then.fault), then.env, then.python, then.success,
    )  # fmt: skip
