"""Hypotheses: explanations that compete for what was seen, with evidence for, against, missing, and what decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.ports import Block
from harness.core.verdict import Kind
from harness.report import seen
from harness.report.campaign.hypotheses import HEAD, of_axes
from harness.report.facts import controls, failing, is_line
from harness.report.subject import subject
from harness.report.text import code, listed, md, seconds, table
from harness.report.words import at, of
from harness.store.run_store import read_evidence

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.record import Run, TrialRecord


def section(run: Run, run_dir: Path) -> Block | None:
    """One row each; None when nothing failed. Over many cells each axis is a hypothesis."""
    if not is_line(run):
        parts = [*of_axes(run), *_others(subject(run))]
        return Block(title="Hypotheses", markdown="\n\n".join(parts)) if parts else None
    record = subject(run)
    if record is None:
        return None
    rows = [*_of_controls(run), *_of_time(record, run_dir), *of_verdict(record)]
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


def _of_controls(run: Run) -> list[tuple[str, ...]]:
    group = failing(run)
    if group is None:
        return []
    here = f"{md(at(run, group.value))} failed {of(len(group.trials), len(group.trials))}"
    rows: list[tuple[str, ...]] = []
    for name, trials in controls(run).items():
        passed = sum(t.verdict.kind is Kind.PASS for t in trials)
        told = f"control {code(name)}: {of(passed, len(trials))} passed"
        all_passed = passed == len(trials)
        rows.append(
            (
                f"it needs what control {code(name)} takes away",
                f"{here}; {told}" if all_passed else here,
                "-" if all_passed else told,
                "-" if all_passed and len(trials) > 1 else "more passes of the control",
                "decided at this value" if all_passed and len(trials) > 1 else f"control {code(name)} again",
            )
        )
    if not rows:
        other = f"{md(run.axis.name)} alone is enough"
        rows.append(
            (other, here, "-", "a control with one other thing changed", "the same value with one thing changed")
        )
    return rows


def _of_time(record: TrialRecord, run_dir: Path) -> list[tuple[str, ...]]:
    """That a slow step was taken for a hang, or a hang for a slow step."""
    verdict, budget = record.verdict, record.trial.budget
    if verdict.kind is Kind.HANG:
        predicted = record.trial.prediction
        against = (
            f"a silence of up to {seconds(predicted.silence_high_s)} was taken as healthy here" if predicted else "-"
        )
        evidence = read_evidence(run_dir, record.trial.key)
        moved = "nothing moved while it was watched" if evidence is not None and seen.used_no_cpu(evidence) else ""
        return [
            (
                "a slow step, not a hang",
                "-",
                md("; ".join(text for text in (moved, against) if text and text != "-")) or "-",
                "-" if predicted else "a trial that passed nearby, to predict from",
                f"the same with the stall limit at {seconds(4 * budget.stall.seconds)}",
            )
        ]
    if verdict.kind is Kind.SLOW:
        done = len(record.measurement.step_s)
        return [
            (
                "a hang, not a slow step",
                "-",
                md(f"{done} steps were finished, and it still made progress when the limit ran out"),
                "the end of the trial: it was cut off",
                f"the same with a total limit above {seconds(4 * budget.total.seconds)}",
            )
        ]
    return []
