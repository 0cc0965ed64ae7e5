"""What to do next after a run: trials that would decide something."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from harness.core.campaign import Met, Task
from harness.core.cause import AxisFinding
from harness.core.invocation import Invocation
from harness.core.verdict import FAILURES, Kind
from harness.report.campaign.asked import instead_of_slow
from harness.report.campaign.facts import pairs, results
from harness.report.facts import is_line, numbered
from harness.report.next_steps import Step, again, next_along, resume
from harness.report.subject import subject
from harness.report.text import count, seconds

if TYPE_CHECKING:
    from harness.core.record import Run


def next_steps(run: Run, *, place: str = "") -> tuple[Step, ...]:
    """What would decide most, first; ``place`` is the line at fault, where one is known."""
    is_open = not run.is_whole or (is_line(run) and run.boundary is None)
    if is_open and run.directory:
        return (Step(text="Continue; finished trials are not run again.", command=resume(run)),)
    if is_line(run):
        return next_along(run)
    steps = [_look(run, place), _instead(run), _slow(run), _untold(run), _search(run), _repeat(run), _rare(run)]
    return tuple(step for step in steps if step is not None)


def _failed(run: Run) -> bool:
    return any(trial.verdict.kind in FAILURES for trial in numbered(run))


def _look(run: Run, place: str) -> Step | None:
    told_of = subject(run)
    if told_of is None or told_of.verdict.kind not in FAILURES:
        return None
    bad = next(trial for trial in numbered(run) if trial.record is told_of)
    if place:
        shown = "its stacks are" if bad.verdict.kind is Kind.HANG else "the traceback is"
        return Step(text=f"Look at {place}; {shown} in Evidence, trial {bad.number}.")
    where = "the function that waits" if bad.verdict.kind is Kind.HANG else "the line where it ended"
    return Step(text=f"Look at {where} (Evidence, trial {bad.number}).")


def _instead(run: Run) -> Step | None:
    """What was seen to pass in place of what was slow: it costs nothing more."""
    text = instead_of_slow(run)
    return Step(text=text) if text else None


def _slow(run: Run) -> Step | None:
    slow = [t.record for t in numbered(run) if t.verdict.kind is Kind.SLOW]
    if not slow:
        return None
    ended = {passed for pair in pairs(run) for _, passed in pair.outlasted}
    if ended:
        took = max(t.record.outcome.duration_s for t in numbered(run) if t.record.trial.point in ended)
        needed = f"the {seconds(took)} that it was seen to need"
        return Step(text=f"Make a step faster, or allow {needed}: no trial showed a hang.")
    limit = max(record.trial.budget.total.seconds for record in slow)
    predicted = max((r.predicted_s or 0.0 for r in results(run)), default=0.0)
    enough = math.ceil(max(2 * predicted, 4 * limit) / 10) * 10
    return Step(
        text=f"Give the slow cells time, {seconds(enough)}, or make a step faster: no trial showed a hang.",
    )


def _untold(run: Run) -> Step | None:
    untold = [r for r in results(run) if r.met is Met.UNTOLD]
    return Step(text=f"See why {count(len(untold), 'cell')} could not be told: {untold[0].name}.") if untold else None


def _search(run: Run) -> Step | None:
    """A search for the settings that a failure needs, where minimal pairs do not tell them yet."""
    if run.spec.task is not Task.CELLS or not _failed(run) or not run.spec.file:
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


def _repeat(run: Run) -> Step | None:
    once = [r for r in results(run) if r.count.bad == 1 and not r.count.good]
    if not once or run.spec.task is not Task.CELLS:
        return None
    passes = str(max(2, run.spec.passes + 1))
    return Step(
        text=f"Run it again: {count(len(once), 'cell')} failed once only.",
        command=again(run, "--repeat", passes),
    )


def _rare(run: Run) -> Step | None:
    """More passes, where nothing failed and few were asked for."""
    good = [r.count.good for r in results(run)]
    if not good or _failed(run) or min(good) < 1 or run.spec.task is not Task.CELLS:
        return None
    unseen = math.ceil(100 * (1 - 0.05 ** (1 / min(good))))
    return Step(
        text=f"Repeat: {count(min(good), 'pass')} of a cell can miss a failure in up to {unseen} % of runs (95 %).",
        command=again(run, "--repeat", str(max(9, 3 * min(good)))),
    )
