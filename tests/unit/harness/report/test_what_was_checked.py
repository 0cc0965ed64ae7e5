"""Where every trial passed, the report names what was looked at of this program, and no more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.core.outcome import Cleanup
from harness.core.success import Success
from harness.report.findings import Findings
from harness.report.summary import happened


@pytest.mark.parametrize(
    ("changes", "littered", "sentence"),
    [
        ({}, 0, "all steps done, the loss finite, nothing left behind."),
        ({}, 2, "all steps done, the loss finite, 2 of {n} left processes behind, which were ended."),
        (
            {"target": "command", "config": {"command": "train"}},
            0,
            "exit status 0, nothing left behind; nothing else was looked at, such as its loss.",
        ),
        (
            {"target": "command", "config": {"command": "train", "steps": 9}, "success": Success(require=("saved",))},
            1,
            "exit status 0, the steps that were asked for, what success asks for, 1 of {n} left processes behind, "
            "which were ended (if the work was in them, the program must wait for it); nothing else was looked at, "
            "such as its loss.",
        ),
    ],
)
def test_a_pass_claims_only_what_was_looked_at(make_run, changes, littered, sentence):
    run, _ = make_run("no_failure")
    records = []
    for i, record in enumerate(run.records):
        outcome = replace(record.outcome, cleanup=Cleanup(ended=int(i < littered)))
        records.append(replace(record, trial=replace(record.trial, **changes), outcome=outcome))
    findings = Findings(run=replace(run, records=tuple(records)))

    assert happened(findings, None) == (f"Every trial passed: {sentence.format(n=len(records))}",)
