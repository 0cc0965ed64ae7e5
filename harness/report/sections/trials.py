"""Trials: counts per value, then every trial in a folded list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.outcome import Ending
from harness.core.ports import Block
from harness.core.verdict import Kind
from harness.report.facts import cells, numbered, steps_of, value_of
from harness.report.sections.beside import folder_of
from harness.report.text import code, details, md, seconds, size, table

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.outcome import Outcome
    from harness.core.record import Run, TrialRecord
    from harness.report.facts import Cell, Numbered

ROLES = {
    "search": "search",
    "certify": "repeat at the last good value",
    "confirm": "repeat at the first bad value",
}


def section(run: Run, run_dir: Path) -> Block | None:
    """The table of values that were tried, and all trials; None when there are none."""
    if not run.records:
        return None
    tried = [cell for cell in cells(run) if cell.total]
    head = (run.spec.axis.name, "passed", "failed", "neither", "verdicts", "a pass takes", "peak memory")
    counts = table(head, (_row(cell) for cell in tried), right=(0, 1, 2, 3, 5, 6))
    every = table(
        ("#", run.spec.axis.name, "why", "verdict", "seconds", "steps", "silent up to", "ended", "folder"),
        (_trial_row(run, run_dir, trial) for trial in numbered(run)),
        right=(0, 1, 4, 5, 6),
    )
    folded = details(f"Every trial ({len(run.records)}), in the order of running", every)
    return Block(title="Trials", markdown=f"{counts}\n\n{folded}")


def _row(cell: Cell) -> tuple[object, ...]:
    kinds = ", ".join(f"{n} {md(kind)}" for kind, n in cell.kinds.items())
    return (
        cell.value,
        f"{cell.good}/{cell.total}",
        f"{cell.bad}/{cell.total}",
        f"{cell.total - cell.good - cell.bad}/{cell.total}",
        kinds,
        seconds(cell.pass_s) if cell.pass_s is not None else "-",
        size(cell.peak_bytes) if cell.peak_bytes else "-",
    )


def _trial_row(run: Run, run_dir: Path, trial: Numbered) -> tuple[object, ...]:
    record = trial.record
    measured = record.measurement
    return (
        trial.number,
        md(value_of(run, trial)),
        why(record),
        md(trial.verdict) if trial.verdict.kind is Kind.PASS else f"**{md(trial.verdict)}**",
        f"{record.outcome.duration_s:.2f}",
        steps_of(record),
        seconds(measured.longest_silence_s),
        md(ended(record.outcome)),
        folder_of(run_dir, record.trial.key),
    )


def why(record: TrialRecord) -> str:
    """What a trial was run for, and of which earlier run it is if it was not run for this one."""
    taken = f" (taken over from {code(record.run)})" if record.run else ""
    return md(ROLES.get(record.trial.role, record.trial.role)) + taken


def ended(outcome: Outcome) -> str:
    """How the process ended, in words: ``exit 0``, ``signal 11``, ``ended by us: stall limit``."""
    match outcome.ending:
        case Ending.EXITED:
            return f"exit {outcome.exit.code if outcome.exit else '?'}"
        case Ending.SIGNALLED:
            return f"signal {outcome.exit.signal if outcome.exit else '?'}"
        case Ending.STOPPED_BY_US:
            return f"ended by us: {outcome.stopped_by or 'no reason kept'}"
        case Ending.NEVER_STARTED:
            return f"never started: {outcome.why}"
        case Ending.STILL_RUNNING:
            return "still running when it was judged"
