"""``--locals`` that has nothing to show says why."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from harness.core.invocation import Invocation
from harness.core.outcome import Ending, Exit
from harness.core.verdict import Answer, Kind
from harness.report import one
from harness.report.render import markdown
from harness.report.write import build

ENDED = "no variables: --locals reads them where a program is stuck, and this one ended by itself"
UNREAD = "no variables: none were read of the frames in which it is stuck"


@pytest.fixture
def shown(parts, make_run):
    """``shown(kind, "--locals")``: what a terminal shows and the page of one trial that ended so."""

    def of(kind, *options):
        record, evidence = parts["hung"](1) if kind is Kind.HANG else parts["passed"](1)
        if kind is Kind.CRASH:
            outcome = dataclasses.replace(record.outcome, ending=Ending.EXITED, exit=Exit(code=1))
            verdict = dataclasses.replace(record.verdict, kind=kind)
            record = dataclasses.replace(record, verdict=verdict, answer=Answer.BAD, outcome=outcome)
        run, run_dir = make_run(parts["Canned"](parts["spec"](), [(record, evidence)]))
        run = dataclasses.replace(run, invocation=Invocation(verb=("run",), options=tuple((o, None) for o in options)))
        text = one.text(run, {record.trial.key: evidence}, where=Path("runs"), steps=())
        return " ".join(text.split()), markdown.render(build(run, run_dir), hide=str, figures="figures")

    return of


@pytest.mark.parametrize(("kind", "why"), [(Kind.CRASH, ENDED), (Kind.HANG, UNREAD)])
def test_variables_that_were_asked_for_and_are_not_there_are_accounted_for(shown, kind, why):
    text, page = shown(kind, "--locals")

    assert why in text
    assert f"N{why[1:]}." in page


@pytest.mark.parametrize("kind", [Kind.CRASH, Kind.HANG])
def test_nothing_is_said_of_variables_that_nobody_asked_for(shown, kind):
    assert "variables:" not in "".join(shown(kind))
