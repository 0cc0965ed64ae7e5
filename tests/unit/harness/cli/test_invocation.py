"""A command as its parts: what is printed to be typed next comes from them, and is understood again."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner

from harness.cli.foreign import COMMAND, INVOCATION
from harness.cli.main import main
from harness.cli.questions import question_of_bisect as question_of
from harness.core.boundary import Boundary, Claim, Finding
from harness.core.campaign import CampaignAnswer
from harness.core.invocation import Invocation
from harness.core.record import Machine, Run
from harness.report.findings import Findings
from harness.report.next_steps import next_steps
from harness.settings import Settings

MACHINE = Machine(python="3", torch="2", platform="Linux", kernel="6", cpu="c", cores=2, memory_bytes=1)

AWKWARD = (
    "bisect", "--axis", "layers=1..4", "--set=width=64", "--env", "A=--b", "--env", "C=", "--stall", "60s", "--fresh",
    "--", "python", "x.py", "--layers", "{layers}", "{width}", "--axis", "layers=9", "--stall", "1s", "--", "--total",
)  # fmt: skip
"""The program has options that are called as ours are, and a ``--`` of its own."""

TYPED = (
    AWKWARD,
    ("bisect", "matrices/layers.yaml", "--fault", "crash@n_layers>=3", "--control", "none", "--no-soft-limit"),
    ("bisect", "--resume"),
    ("bisect", "--resume", "runs/x", "--json"),
    ("minimise", "--axis", "a=1,2", "--axis", "b=x,y", "--", "p", "{a}", "{b}", "{c:--c}"),
    ("matrix", "run", "m.yaml::s", "--only", "a>=2", "--only=b=1", "--repeat", "3", "--fail-fast"),
    ("explore", "m.yaml", "--strength", "3"),
    ("trial", "m.yaml::n_layers=5", "--repeat", "9"),
    ("run", "--until-fail", "--set", "n=1", "--", "python", "x.py", "--until-fail", "{n}"),
)


def parsed(argv: tuple[str, ...]) -> click.Context:
    """The context of the command that ``argv`` names, not run."""
    context = main.make_context("nsa-harness", list(argv))
    while isinstance(context.command, click.Group):
        name, command, rest = context.command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, list(rest), parent=context)
    return context


@pytest.mark.parametrize("typed", TYPED, ids=" ".join)
def test_what_was_typed_is_understood_the_same_when_it_is_typed_again_from_its_parts(typed):
    first = parsed(typed)
    again = parsed(first.meta[INVOCATION].argv[1:])

    assert again.params == first.params
    assert again.meta.get(COMMAND) == first.meta.get(COMMAND)
    assert again.meta[INVOCATION] == first.meta[INVOCATION]


def test_an_option_is_changed_among_ours_only():
    invocation = parsed(AWKWARD).meta[INVOCATION].having("--axis", "layers=4..8").without("--stall")
    context = parsed(invocation.argv[1:])

    assert (context.params["axis"], context.params["stall"]) == ("layers=4..8", None)
    assert context.meta[COMMAND] == AWKWARD[AWKWARD.index("--") + 1 :]
    assert invocation.having("--set", "width=1").options.count(("--set", "width=1")) == 1


def test_a_secret_is_in_no_part():
    invocation = parsed(
        ("bisect", "--axis", "n=1,2", "--env", "HF_TOKEN=abcdefghij", "--", "x", "{n}", "--token=klmnopqrst")
    )

    text = repr(invocation.meta[INVOCATION])
    assert "abcdefghij" not in text
    assert "klmnopqrst" not in text


def run_of(options: dict[str, Any], command: tuple[str, ...], *, invocation: Invocation, boundary: Boundary) -> Run:
    spec = question_of(Settings.read(environ={}), options, command)
    answer = CampaignAnswer(boundary=boundary)
    return Run(
        id="r", spec=spec, machine=MACHINE, code="c", argv=invocation.argv, invocation=invocation, started_at="now",
        answer=answer,
        ended="answered", directory="runs/r",
    )  # fmt: skip


@pytest.mark.parametrize("command", [AWKWARD, ("bisect", "--axis", "attention=dense,nsa", "--steps", "2")])
@pytest.mark.parametrize("finding", Finding)
@pytest.mark.parametrize("ended", ["answered", "interrupted"])
def test_every_next_command_of_a_search_is_one_that_can_be_asked(command, finding, ended, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    context = parsed(command)
    boundary = Boundary(
        axis=question_of(Settings.read(environ={}), context.params, context.meta[COMMAND]).axis or "",
        finding=finding,
        last_good=2,
        first_bad=3,
        claim=Claim.OBSERVED,
        certificate_passes=20,
    )
    run = run_of(context.params, context.meta[COMMAND], invocation=context.meta[INVOCATION], boundary=boundary)
    if ended == "interrupted":
        object.__setattr__(run, "ended", ended)

    commands = [step.command for step in next_steps(Findings(run=run)) if step.command]
    assert commands or finding is Finding.NO_THRESHOLD_SLOW
    for argv in commands:
        again = parsed(argv[1:])
        if again.params["resume"]:
            continue
        done = CliRunner().invoke(main, ["bisect", "--dry-run", *argv[2:]])
        assert done.exit_code == 0, done.output
        assert again.meta[COMMAND] == context.meta[COMMAND]
