"""``bisect`` over interpreters and commits: the question it asks, and what its end means to a script."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli.exit_codes import ExitCode, of_search
from harness.cli.questions import question_of_bisect as question_of
from harness.cli.searches import bisect
from harness.core.boundary import Boundary, Finding
from harness.core.campaign import CampaignAnswer, CampaignSpec
from harness.core.cause import Explored
from harness.core.record import Machine, Run
from harness.report.findings import Findings
from harness.report.summary import notes_of
from harness.settings import Settings

ROOT = Path(__file__).parents[4]
MACHINE = Machine(python="3", torch="2", platform="Linux", kernel="6", cpu="c", cores=2, memory_bytes=1)
COMMAND = ("{python}", "train.py")


def options(**given: object) -> dict[str, object]:
    plain = dict.fromkeys(str(parameter.name) for parameter in bisect.params)
    many = dict.fromkeys(("settings", "env", "bad", "success", "controls"), ())
    return {**plain, **many, "seed": 0, **given}


def asked(given: dict[str, object], command: tuple[str, ...]):
    return question_of(Settings.read(environ={}), given, command)


@pytest.fixture
def spec():
    other = f"{sys.executable},{sys.base_prefix}/bin/python3"
    return asked(options(axis=f"env:torch={other}"), COMMAND)


def test_everything_but_the_axis_is_held_so_that_the_answer_is_a_threshold_on_one_line(spec):
    assert spec.good == spec.matrix.space.good
    assert spec.axis == "torch"


@pytest.mark.parametrize(
    ("finding", "certified", "code"),
    [
        (Finding.THRESHOLD, True, ExitCode.OK),
        (Finding.NO_FAILURE, False, ExitCode.FINDINGS),
        (Finding.ALL_FAIL, True, ExitCode.BASELINE),
    ],
)
def test_a_smallest_value_that_already_fails_is_no_baseline_to_compare_with(spec, finding, certified, code):
    boundary = Boundary(axis="torch", finding=finding, certified=certified)
    run = Run(id="r", spec=spec, machine=MACHINE, code="c", argv=(), started_at="now", ended="answered")
    answered = replace(run, answer=CampaignAnswer(boundary=boundary))
    assert of_search(Findings(run=answered)) is code


@pytest.mark.parametrize(("uncertified", "code"), [((), ExitCode.OK), (("a pair",), ExitCode.FINDINGS)])
def test_a_search_that_certified_what_failed_is_answered(spec, uncertified, code):
    explored = Explored(strength=2, combinations=9, passed=8, explained=1, impossible=0, failures=4)
    explored = replace(explored, uncertified=uncertified)
    run = Run(id="r", spec=spec, machine=MACHINE, code="c", argv=(), started_at="now", ended="answered")
    findings = Findings(run=replace(run, answer=CampaignAnswer(explored=explored)))
    assert of_search(findings) is code
    assert notes_of(findings) == tuple(f"Not certified: {text}" for text in uncertified)


def test_trials_of_earlier_runs_count_where_it_is_known_which_code_they_ran(spec):
    assert not spec.reuse, "what a command runs may have changed since"
    torch = f"env:torch={sys.executable},{sys.base_prefix}/bin/python3"
    assert asked(options(axis=torch, reuse=True), COMMAND).reuse
    assert asked(options(axis=torch), ()).reuse
    assert asked(options(axis="commit=HEAD~1..HEAD"), ()).reuse
    assert not asked(options(axis=torch, reuse=False), ()).reuse
    run = CliRunner().invoke(bisect, ["--axis", torch, "--fresh", "--dry-run", "--", *COMMAND])
    assert run.exit_code == 0, run.output


@pytest.mark.parametrize(
    ("argv", "counts"),
    [
        (["--axis", "n_layers"], True),
        (["--axis", "n_layers", "--fresh"], False),
        (["--axis", "n=1..3", "--", "python", "train.py", "{n}"], False),
        (["--axis", "n=1..3", "--reuse", "--", "python", "train.py", "{n}"], True),
    ],
)
def test_a_plain_bisect_counts_them_for_our_own_trainer_unless_told_otherwise(argv, counts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    questions: list[CampaignSpec] = []
    monkeypatch.setattr("harness.cli.campaigns.print_plan", lambda _, question: questions.append(question))
    run = CliRunner().invoke(bisect, ["--dry-run", *argv])
    assert run.exit_code == 0, run.output
    assert [question.reuse for question in questions] == [counts]


def test_the_soft_limit_reaches_the_search(spec):
    given = asked(options(axis=f"env:torch={sys.executable},{sys.base_prefix}/bin/python3", soft_limit=False), COMMAND)
    assert not given.matrix.effort.soft_limit
    assert spec.matrix.effort.soft_limit, "it is the default"
    assert "--soft-limit" in CliRunner().invoke(bisect, ["--help"]).output


@pytest.mark.parametrize(
    ("file", "given", "controls"),
    [
        ("layers.yaml", (), ("dense",)),
        ("layers.yaml", ("none",), ()),
        ("layers.yaml", ("no-fault",), ("no-fault",)),
    ],
)
def test_a_search_in_a_file_about_our_trainer_runs_the_control_that_fits_it(file, given, controls):
    assert asked(options(file=ROOT / "matrices" / file, controls=given), ()).controls == controls
