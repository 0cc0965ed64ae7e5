"""Trials: every one of a run over cells, folded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.ports import Block
from harness.core.verdict import Kind
from harness.report.campaign.facts import name_of, numbered
from harness.report.facts import steps_of
from harness.report.sections.beside import folder_of
from harness.report.sections.trials import ended, why
from harness.report.text import code, details, md, seconds, size, table

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.record import CampaignRun
    from harness.report.facts import Numbered

MOST = 2000


def section(run: CampaignRun, run_dir: Path) -> Block | None:
    """The list of trials; None when there are none."""
    every = numbered(run)
    if not every:
        return None
    head = ("#", "cell", "why", "verdict", "seconds", "steps", "silent up to", "peak memory", "ended", "folder")
    body = table(head, (_row(run, run_dir, trial) for trial in every[:MOST]), right=(0, 4, 5, 6, 7))
    more = f"\n\n{len(every) - MOST} more are in the journal." if len(every) > MOST else ""
    folded = details(f"Every trial ({len(every)}), in the order of running", body + more)
    return Block(title="Trials", markdown=folded)


def _row(run: CampaignRun, run_dir: Path, trial: Numbered) -> tuple[object, ...]:
    record = trial.record
    measured = record.measurement
    return (
        trial.number,
        code(name_of(run, record.trial.point)),
        why(record),
        md(trial.verdict) if trial.verdict.kind is Kind.PASS else f"**{md(trial.verdict)}**",
        f"{record.outcome.duration_s:.2f}",
        steps_of(record),
        seconds(measured.longest_silence_s),
        size(measured.peak_rss_bytes) if measured.peak_rss_bytes else "-",
        md(ended(record.outcome)),
        folder_of(run_dir, record.trial.key),
    )
