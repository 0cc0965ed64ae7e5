"""Whose interpreter and packages a page names: those of the harness are not those of somebody's program."""

from __future__ import annotations

import dataclasses

import pytest

from harness.core.evidence import ProcessState
from harness.core.space import Bundle
from harness.report.findings import Findings
from harness.report.sections.setting import machine_section


@pytest.fixture
def table(parts, make_run):
    """``table(target, python=.., config=.., command=..)``: the lines of the section, of one trial that passed."""

    def of(target="command", *, python=None, config=None, processes=()):
        record, evidence = parts["passed"](1)
        trial = dataclasses.replace(record.trial, target=target, python=python, config=config or {})
        looks = tuple(process(name) for name in processes)
        evidence = dataclasses.replace(evidence, processes=looks)
        spec = parts["spec"](target=target, controls=())
        if python:
            matrix = dataclasses.replace(spec.matrix, base=Bundle(python=python))
            spec = dataclasses.replace(spec, matrix=matrix)
        trials = [(dataclasses.replace(record, trial=trial), evidence)]
        run, run_dir = make_run(parts["Canned"](spec, trials, options=()))
        return machine_section(Findings(run=run, run_dir=run_dir)).markdown.splitlines()

    return of


def process(name):
    return ProcessState(
        id="proc-1", t_s=1.0, rank=0, pid=7, state="S", threads=(), rss_bytes=0, minor_faults=0, read_bytes=0,
        written_bytes=0, children=0, command=name,
    )  # fmt: skip


OWN = "| the harness's own versions | Python 3.12.3, torch 2.13.0, py-spy 0.4.1 |"


def test_our_trainer_runs_under_our_interpreter(table):
    lines = table("nsa")

    assert "| Python | 3.12.3 |" in lines
    assert not any("own versions" in line for line in lines)


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"config": {"command": "/opt/py313/bin/python train.py", "args": {}}}, "`/opt/py313/bin/python`"),
        ({"config": {"command": "A=1 python3.13t train.py", "args": {}}}, "`python3.13t`"),
        ({"config": {"command": "{python} x.py", "args": {}}, "python": "/venv/bin/python"}, "`/venv/bin/python`"),
        ({"config": {"command": "sh run.sh", "args": {}}, "processes": ("sh", "python3", "python3")}, "`python3`"),
        ({"config": {"watched": [1]}, "processes": ("python3.11",)}, "`python3.11`"),
    ],
)
def test_the_interpreter_of_a_program_is_named_and_the_versions_are_the_harness_s(table, asked, named):
    lines = table(**asked)

    assert f"| the program's interpreter | {named}; its version and packages were not asked |" in lines
    assert OWN in lines
    assert not any(line.startswith(("| Python |", "| torch |")) for line in lines)


def test_an_interpreter_that_nothing_names_is_not_known(table):
    assert "| the program's interpreter | not known |" in table(config={"command": "./train", "args": {}})


def test_our_trainer_under_another_interpreter_has_not_our_versions(table):
    assert OWN in table("nsa", python="/venv/bin/python")
