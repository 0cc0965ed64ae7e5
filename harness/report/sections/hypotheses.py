"""Hypotheses: explanations that compete for what was seen, with evidence for, against, missing, and what decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.ports import Block
from harness.core.verdict import Kind
from harness.report import seen
from harness.report.campaign.hypotheses import HEAD, of_axes
from harness.report.text import code, listed, md, seconds, table
from harness.report.words import at, of
from harness.store.run_store import read_evidence

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.core.record import TrialRecord
    from harness.report.findings import Findings, Numbered


def section(findings: Findings, run_dir: Path) -> Block | None:
    """One row each; None when nothing failed. Over many cells each axis is a hypothesis."""
    if not findings.is_line:
        parts = [*of_axes(findings), *_others(findings.subject)]
        return Block(title="Hypotheses", markdown="\n\n".join(parts)) if parts else None
    record = findings.subject
    if record is None:
        return None
    rows = [*_of_controls(findings), *_of_time(record, run_dir), *of_verdict(record)]
    return Block(title="Hypotheses", markdown=table(HEAD, rows)) if rows else None


def _others(record: TrialRecord | None) -> list[str]:
    rows = of_verdict(record)
    return [f"Other explanations of what the trial showed:\n\n{table(HEAD, rows)}"] if rows else []


def of_verdict(record: TrialRecord | None) -> list[tuple[str, ...]]:
    """The competing causes that the verdict itself names."""
    rows: list[tuple[str, ...]] = []
    for other in record.verdict.alternatives if record else ():
        missing = "-" if other.supports and other.against else "a trial that tells it from the others"
        rows.append(
            (
                f"{md(other.cause)}: {md(other.because)}",
                listed(map(md, other.supports)) or "-",
                listed(map(md, other.against)) or "-",
                missing,
                md(other.experiment) or "-",
            )
        )
    return rows


def _of_controls(findings: Findings) -> list[tuple[str, ...]]:
    group = findings.failing
    if group is None:
        return []
    here = f"{md(at(findings, group.value))} failed {of(len(group.trials), len(group.trials))}"
    if findings.controls:
        return [_of_control(name, trials, here) for name, trials in findings.controls.items()]
    alone = f"{md(findings.run.axis.name)} alone is enough"
    return [(alone, here, "-", "a control with one other thing changed", "the same value with one thing changed")]


def _of_control(name: str, trials: Sequence[Numbered], here: str) -> tuple[str, ...]:
    """Whether the failure needs what a control takes away: decided where it passed every time, and more than once."""
    passed = sum(trial.verdict.kind is Kind.PASS for trial in trials)
    told = f"control {code(name)}: {of(passed, len(trials))} passed"
    claim = f"it needs what control {code(name)} takes away"
    again = f"control {code(name)} again"
    if passed < len(trials):
        return (claim, here, told, "more passes of the control", again)
    if len(trials) == 1:
        return (claim, f"{here}; {told}", "-", "more passes of the control", again)
    return (claim, f"{here}; {told}", "-", "-", "decided at this value")


def _of_time(record: TrialRecord, run_dir: Path) -> list[tuple[str, ...]]:
    """That a slow step was taken for a hang, or a hang for a slow step."""
    match record.verdict.kind:
        case Kind.HANG:
            return [_slow_not_hung(record, run_dir)]
        case Kind.SLOW:
            return [_hung_not_slow(record)]
        case _:
            return []


def _slow_not_hung(record: TrialRecord, run_dir: Path) -> tuple[str, ...]:
    predicted = record.trial.prediction
    against: list[str] = []
    evidence = read_evidence(run_dir, record.trial.key)
    if evidence is not None and seen.used_no_cpu(evidence):
        against.append("nothing moved while it was watched")
    if predicted:
        against.append(f"a silence of up to {seconds(predicted.silence_high_s)} was taken as healthy here")
    return (
        "a slow step, not a hang",
        "-",
        md("; ".join(against)) or "-",
        "-" if predicted else "a trial that passed nearby, to predict from",
        f"the same with the stall limit at {seconds(4 * record.trial.budget.stall.seconds)}",
    )


def _hung_not_slow(record: TrialRecord) -> tuple[str, ...]:
    done = len(record.measurement.step_s)
    return (
        "a hang, not a slow step",
        "-",
        md(f"{done} steps were finished, and it still made progress when the limit ran out"),
        "the end of the trial: it was cut off",
        f"the same with a total limit above {seconds(4 * record.trial.budget.total.seconds)}",
    )
