"""A program that a fault in C ended without a line is told how Python prints it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.core.invocation import Invocation
from harness.core.verdict import Answer, Kind
from harness.report.findings import Findings
from harness.report.next_steps import next_steps

ONE = "version: 1\nname: one\ndescription: python train.py\naxes:\n  n_layers: {type: ordered, values: [1]}\n"
SHOWN = ("--env", "PYTHONFAULTHANDLER=1")


@pytest.mark.parametrize(
    ("cause", "command", "options", "told"),
    [
        ("SIGFPE", ("python", "train.py"), (("--limit", "9s"),), True),
        ("SIGSEGV", ("torchrun", "--nproc-per-node", "2", "train"), (), True),
        ("SIGSEGV", ("./solver",), (), False),
        ("SIGKILL", ("python", "train.py"), (), False),
        ("SIGSEGV", ("python3.12", "train.py"), (SHOWN,), False),
    ],
)
def test_a_fault_without_a_line_asks_for_the_one_that_python_can_print(make_campaign, cause, command, options, told):
    run, run_dir = make_campaign([({}, "crash", 0)], text=ONE)
    record = next(record for record in run.records if record.answer is Answer.BAD)
    record = replace(record, verdict=replace(record.verdict, kind=Kind.CRASH, cause=cause))
    invocation = Invocation(verb=("run",), options=options, command=command)
    findings = Findings(run=replace(run, records=(record,), invocation=invocation), run_dir=run_dir)

    step = next(step for step in next_steps(findings) if step.text.startswith(("Look at", "Run it with")))
    assert (step.text.startswith("Run it with PYTHONFAULTHANDLER=1")) is told
    again = replace(invocation, options=(*options, SHOWN)).argv
    assert step.command == (again if told else ())
    at_a_line = next_steps(findings, place="load (train.py:3)")
    assert any("Look at load (train.py:3)" in step.text for step in at_a_line)


@pytest.mark.parametrize(("ends", "told"), [("hang", "Look at"), ("pass", "Run it again: this run did not")])
def test_of_a_run_that_somebody_ended_when_it_hung_the_line_is_the_next_thing_and_not_another_run(
    make_campaign, ends, told
):
    run, run_dir = make_campaign([({}, ends, 0)], text=ONE, ended="interrupted", answered=False)
    findings = Findings(run=run, run_dir=run_dir)
    assert next_steps(findings, place="load (train.py:3)")[0].text.startswith(told)


def test_of_a_run_that_was_ended_in_a_silence_the_line_is_the_next_thing(make_campaign):
    run, run_dir = make_campaign([({}, "hang", 0)], text=ONE, ended="interrupted", answered=False)
    unclear = [
        replace(record, verdict=replace(record.verdict, kind=Kind.UNRESOLVED, cause="cut-off-in-silence"))
        for record in run.records
    ]
    findings = Findings(run=replace(run, records=tuple(unclear)), run_dir=run_dir)
    assert next_steps(findings, place="load (train.py:3)")[0].text.startswith("Look at load (train.py:3), where it was")
    assert next_steps(findings)[0].text.startswith("Run it again: this run did not")
