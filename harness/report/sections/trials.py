"""Trials: along an axis the counts per value first; then every trial in a folded list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.outcome import Ending, StopReason
from harness.core.ports import Block
from harness.core.verdict import Kind
from harness.report.facts import steps_of
from harness.report.sections.beside import folder_of
from harness.report.text import code, details, md, seconds, size, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.outcome import Outcome
    from harness.core.record import TrialRecord
    from harness.report.findings import Findings
    from harness.report.tried import Numbered

MOST = 2000
"""Trials that are listed; of a larger run the others are in the journal."""

ROLES = {
    "search": "search",
    "certify": "repeat at the last good value",
    "confirm": "repeat at the first bad value",
}


def section(findings: Findings) -> Block | None:
    """The table of values that were tried, and all trials; None when there are none."""
    every = findings.trials
    if not every:
        return None
    body = _listed(findings, every[:MOST])
    more = f"\n\n{len(every) - MOST} more are in the journal." if len(every) > MOST else ""
    folded = details(f"Every trial ({len(every)}), in the order of running", body + more)
    parts = [_counts(findings), folded] if findings.is_line else [folded]
    return Block(title="Trials", markdown="\n\n".join(parts))


def _counts(findings: Findings) -> str:
    rows: list[tuple[object, ...]] = []
    for cell in filter(len, findings.along):
        good, bad, total = cell.good, cell.bad, len(cell)
        kinds = ", ".join(f"{n} {md(kind)}" for kind, n in cell.verdicts.items())
        pass_s = seconds(cell.pass_s) if cell.pass_s is not None else "-"
        neither = f"{total - good - bad}/{total}"
        rows.append((cell.value, f"{good}/{total}", f"{bad}/{total}", neither, kinds, pass_s, _peak(cell.peak_bytes)))
    head = (findings.run.axis.name, "passed", "failed", "neither", "verdicts", "a pass takes", "peak memory")
    return table(head, rows, right=(0, 1, 2, 3, 5, 6))


def _listed(findings: Findings, trials: Sequence[Numbered]) -> str:
    """A row for each trial: along an axis with its value, over cells with its cell and its memory."""
    rows: list[tuple[object, ...]] = []
    for trial in trials:
        record = trial.record
        where = md(findings.value_of(trial)) if findings.is_line else code(findings.name_of(trial.cell))
        verdict = md(trial.verdict) if trial.verdict.kind is Kind.PASS else f"**{md(trial.verdict)}**"
        took, gap_s = f"{record.outcome.duration_s:.2f}", record.measurement.longest_silence_s
        gap = seconds(gap_s) if gap_s else "-"  # fewer than two marks have none between them
        steps = "-" if record.outcome.ending is Ending.STILL_RUNNING else steps_of(record)
        peak = () if findings.is_line else (_peak(record.measurement.peak_rss_bytes),)
        end = (md(ended(record.outcome)), folder_of(findings, record))
        rows.append((trial.number, where, why(record), verdict, took, steps, gap, *peak, *end))
    head = ("why", "verdict", "seconds", "steps", "longest between marks")
    if findings.is_line:
        return table(("#", findings.run.axis.name, *head, "ended", "folder"), rows, right=(0, 1, 4, 5, 6))
    return table(("#", "cell", *head, "peak memory", "ended", "folder"), rows, right=(0, 4, 5, 6, 7))


def _peak(peak_bytes: int) -> str:
    return size(peak_bytes) if peak_bytes else "-"


def why(record: TrialRecord) -> str:
    """What a trial was run for, and of which earlier run it is if it was not run for this one."""
    origin = f" (taken over from {code(record.run)})" if record.run else ""
    return md(ROLES.get(record.trial.role, record.trial.role)) + origin


def ended(outcome: Outcome) -> str:
    """How the process ended, in words: ``exit 0``, ``signal 11``, ``ended by us: stall limit``."""
    exit_record = outcome.exit
    match outcome.ending:
        case Ending.EXITED:
            return f"exit {_or_unknown(None if exit_record is None else exit_record.code)}"
        case Ending.SIGNALLED:
            return f"signal {_or_unknown(None if exit_record is None else exit_record.signal)}"
        case Ending.STOPPED_BY_US if outcome.stopped_by is StopReason.EXAMINED:
            return f"ended by us after a last look: {outcome.why}"
        case Ending.STOPPED_BY_US:
            return f"ended by us: {outcome.stopped_by or 'no reason kept'}"
        case Ending.NEVER_STARTED:
            return f"never started: {outcome.why}"
        case Ending.STILL_RUNNING if outcome.exit is None:
            return "still running when it was judged"
        case Ending.STILL_RUNNING:
            return "while it was watched, how nobody saw"


def _or_unknown(value: int | None) -> str:
    return "?" if value is None else str(value)
