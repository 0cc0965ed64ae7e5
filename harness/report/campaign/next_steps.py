"""What to do next after a run: trials that would decide something."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from harness.core.campaign import Met, Task
from harness.core.cause import AxisFinding
from harness.core.invocation import Invocation
from harness.core.verdict import FAILURES, Kind
from harness.report.campaign.asked import instead_of_slow
from harness.report.next_steps import Step, again, next_along, resume
from harness.report.text import count, seconds

if TYPE_CHECKING:
    from harness.report.findings import Findings


def next_steps(findings: Findings, *, place: str = "") -> tuple[Step, ...]:
    """What would decide most, first; ``place`` is the line at fault, where one is known."""
    run = findings.run
    is_open = not run.is_whole or (findings.is_line and run.boundary is None)
    if is_open and run.directory:
        return (Step(text="Continue; finished trials are not run again.", command=resume(findings)),)
    if findings.is_line:
        return next_along(findings)
    steps = [
        _look(findings, place),
        _instead(findings),
        _slow(findings),
        _untold(findings),
        _search(findings),
        _repeat(findings),
        _rare(findings),
    ]
    return tuple(step for step in steps if step is not None)


def _failed(findings: Findings) -> bool:
    return any(trial.verdict.kind in FAILURES for trial in findings.trials)


def _look(findings: Findings, place: str) -> Step | None:
    told_of = findings.subject
    if told_of is None or told_of.verdict.kind not in FAILURES:
        return None
    bad = next(trial for trial in findings.trials if trial.record is told_of)
    if place:
        shown = "its stacks are" if bad.verdict.kind is Kind.HANG else "the traceback is"
        return Step(text=f"Look at {place}; {shown} in Evidence, trial {bad.number}.")
    where = "the function that waits" if bad.verdict.kind is Kind.HANG else "the line where it ended"
    return Step(text=f"Look at {where} (Evidence, trial {bad.number}).")


def _instead(findings: Findings) -> Step | None:
    """What was seen to pass in place of what was slow: it costs nothing more."""
    text = instead_of_slow(findings)
    return Step(text=text) if text else None


def _slow(findings: Findings) -> Step | None:
    if not findings.slow:
        return None
    passed = {cell for pair in findings.pairs for _, cell in pair.outlasted}
    if passed:
        took = max(trial.record.outcome.duration_s for trial in findings.trials if trial.cell in passed)
        needed = f"the {seconds(took)} that it was seen to need"
        return Step(text=f"Make a step faster, or allow {needed}: no trial showed a hang.")
    enough = seconds(_enough_s(findings))
    return Step(text=f"Give the slow cells time, {enough}, or make a step faster: no trial showed a hang.")


def _enough_s(findings: Findings) -> int:
    """Twice what a healthy trial is predicted to need, or four times the longest limit that ran out."""
    limit = max(trial.record.trial.budget.total.seconds for trial in findings.slow)
    predicted = max((result.predicted_s or 0.0 for result in findings.results), default=0.0)
    return math.ceil(max(2 * predicted, 4 * limit) / 10) * 10


def _untold(findings: Findings) -> Step | None:
    untold = [r for r in findings.results if r.met is Met.UNTOLD]
    return Step(text=f"See why {count(len(untold), 'cell')} could not be told: {untold[0].name}.") if untold else None


def _search(findings: Findings) -> Step | None:
    """A search for the settings that a failure needs, where minimal pairs do not tell them yet."""
    run = findings.run
    if run.spec.task is not Task.CELLS or not _failed(findings) or not run.spec.file:
        return None
    answer = run.answer
    found = answer is not None and any(
        v.finding is AxisFinding.IMPLICATED for table in answer.failures for v in table.axes
    )
    if found:
        return None
    return Step(
        text="Find the settings that the failure needs, step by step from the passing side.",
        command=Invocation(verb=("minimise",), operands=(run.spec.file,)).argv,
    )


def _repeat(findings: Findings) -> Step | None:
    run = findings.run
    once = [r for r in findings.results if r.count.bad == 1 and not r.count.good]
    if not once or run.spec.task is not Task.CELLS:
        return None
    passes = str(max(2, run.spec.passes + 1))
    return Step(
        text=f"Run it again: {count(len(once), 'cell')} failed once only.",
        command=again(findings, "--repeat", passes),
    )


def _rare(findings: Findings) -> Step | None:
    """More passes, where nothing failed and few were asked for."""
    good = [r.count.good for r in findings.results]
    if not good or _failed(findings) or min(good) < 1 or findings.run.spec.task is not Task.CELLS:
        return None
    unseen = math.ceil(100 * (1 - 0.05 ** (1 / min(good))))
    return Step(
        text=f"Repeat: {count(min(good), 'pass')} of a cell can miss a failure in up to {unseen} % of runs (95 %).",
        command=again(findings, "--repeat", str(max(9, 3 * min(good)))),
    )
