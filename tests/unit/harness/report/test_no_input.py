"""A trial that asked for input, and found the end of an empty one, is told that there is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.core.verdict import Answer, Kind
from harness.report import one
from harness.report.findings import Findings
from harness.report.next_steps import next_steps
from harness.report.sections.onward import minimal


@pytest.mark.parametrize(
    ("cause", "message", "asks"),
    [
        ("EOFError", "EOF when reading a line", True),
        ("EOFError", "Ran out of input", False),  # a pickle that was cut off
        ("ValueError", "EOF when reading a line", False),
    ],
)
def test_a_crash_for_want_of_input_is_told_how_to_give_some(make_run, cause, message, asks):
    run, _ = make_run("threshold")
    record = next(record for record in run.records if record.answer is Answer.BAD)
    crash = replace(record.verdict, kind=Kind.CRASH, cause=cause, because=f"raised {cause} in f, in output: {message}")
    trial = replace(record.trial, target="command", config={"command": "python train.py"})
    record = replace(record, verdict=crash, trial=trial)
    run = replace(run, records=(record,))

    findings = Findings(run=run)
    steps = next_steps(findings)
    assert ("the standard input of a trial is empty" in " ".join(step.text for step in steps)) is asks
    screen = one.text(run, {}, where=Path("runs"), steps=steps)
    assert ("the standard input of a trial is empty" in " ".join(screen.split())) is asks
    assert findings.subject is not None
    assert ("`< /dev/null`" in minimal(findings)) is asks
