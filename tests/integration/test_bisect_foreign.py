"""nsa-harness bisect with a stranger's command line: the axis is declared inline, the search is the whole one."""

from __future__ import annotations

import json
import sys

import pytest
from click.testing import CliRunner

from harness.cli.main import main
from harness.store.run_store import read_run

pytestmark = pytest.mark.usefixtures("_without_figures")

PROGRAM = """
import os, sys
width, layers = int(sys.argv[1]), int(sys.argv[2].partition("=")[2])
for step in range(3):
    print("step", step + 1, flush=True)
assert os.environ["MODE"] == "full"
if layers >= 3:
    raise RuntimeError(f"no room for {layers} layers of {width}")
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("harness.machine.code_fingerprint", lambda: "0+same")  # also while the sources are edited
    (tmp_path / "train.py").write_text(PROGRAM)
    return tmp_path


def bisect(*argv: object):
    return CliRunner().invoke(main, ["bisect", *map(str, argv)], prog_name="nsa-harness")


COMMAND = ("--", sys.executable, "train.py", "{width}", "--layers={layers}")


def test_the_threshold_of_a_strangers_program_is_found_and_certified(place, monkeypatch):
    options = ("--set", "width=64", "--env", "MODE=full", "--progress", r"step (\d+)", "--certify", 3, "--json")
    done = bisect("--axis", "layers=1..4", *options, *COMMAND)

    assert done.exit_code == 0, done.output
    (folder,) = (place / "runs").iterdir()
    run = read_run(folder)
    found = run.answer.boundary
    assert (found.last_good, found.first_bad, found.certified) == (2, 3, True)
    assert {r.verdict.cause for r in run.records if r.trial.point.get("layers") == 3} == {"RuntimeError"}
    assert all(r.trial.budget.stall.source.startswith("learned") for r in run.records[1:])
    assert "no room for 3 layers of 64" in (folder / "report.md").read_text()

    # What a second run would cost, by what the first one has tried.
    plan = bisect("--axis", "layers=1..4", "--dry-run", *options[:-1], *COMMAND)
    assert f"the median of {len([r for r in run.records if r.verdict.kind == 'PASS'])} earlier trials" in plan.stdout
    again = bisect("--axis", "layers=1..4", "--dry-run", "--reuse", *options[:-1], *COMMAND)
    assert "plan: nothing is left to run" in again.stdout

    # It goes on where it was begun, wherever that is asked for.
    monkeypatch.chdir("/")
    again = bisect("--resume", folder)
    assert again.exit_code == 0, again.output
    assert len(read_run(folder).records) == len(run.records)


def test_a_program_gets_each_value_as_it_was_typed(place):
    """One that needs ``12.0`` crashes at ``12`` and nowhere else."""
    (place / "version.py").write_text("import sys\nmajor, minor = sys.argv[1].split('.')\n")
    axis = ("--axis", "cuda=11.8,12.0,12.40", "--certify", 1, "--set")
    done = bisect(*axis, "old=1e-3", "--", sys.executable, "version.py", "{cuda}", "{old}")

    assert done.exit_code == 0, done.output
    assert "No failing value of cuda in 11.8..12.40" in done.output
    assert "--axis cuda=11.8,12.0,12.40" in done.output
    (folder,) = (place / "runs").iterdir()
    assert {r.trial.config["args"]["old"] for r in read_run(folder).records} == {"1e-3"}


def test_the_plan_shows_what_is_held_without_running_anything(place):
    done = bisect("--axis", "layers=1..4", "--set", "width=64", "--dry-run", *COMMAND)

    assert done.exit_code == 0, done.output
    assert f"from {sys.executable} train.py 64 --layers=1" in done.output
    assert f"to {sys.executable} train.py 64 --layers=4" in done.output
    assert not (place / "runs").exists()


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--axis", "layers=1..4"), "width has no value"),
        (
            ("--axis", "layer=1..4", "--set", "width=1"),
            "axis 'layer' has no place in the command; did you mean 'layers'?",
        ),
        (("--axis", "layers", "--set", "width=1"), "needs its values"),
        (("--set", "width=1"), "give --axis width=1..12"),
        (("--axis", "layers=1..4", "--set", "layers=2", "--set", "width=1"), "every place is held by --set"),
        (
            ("--axis", "layers=1..4", "--set", "width=1", "--attention", "dense"),
            "--attention speaks of our own trainer",
        ),
        (
            ("--axis", "layers=1..4", "--set", "width=1", "--control", "dense"),
            "--control dense changes our own trainer",
        ),
        (("--axis", "layers=4..1", "--set", "width=1"), "runs down"),
        (
            ("--axis", "layers=1..4", "--set", "width=1", "--bad", "hang", "--bad", "nonfinite"),
            "nobody looks at the loss of another program. Let it raise",
        ),
    ],
)
def test_wrong_use_is_said_before_anything_runs(place, argv, said):
    done = bisect(*argv, *COMMAND)

    assert done.exit_code == 2, done.output
    assert said in done.output
    assert not (place / "runs").exists()


def test_options_of_a_command_need_one(place):
    done = bisect("--axis", "n_layers", "--progress", "x")

    assert done.exit_code == 2
    assert "--progress needs a command behind --" in done.output


def test_the_report_of_a_command_is_json_too(place):
    done = bisect("--axis", "layers=1,2", "--set", "width=1", "--env", "MODE=full", "--certify", 1, "--json", *COMMAND)

    said = json.loads(done.stdout)
    assert said["run"]["spec"]["matrix"]["command"][1:3] == ["train.py", "{width}"]
    assert said["answer"]


def test_a_search_that_the_machine_spoiled_has_the_code_of_no_answer(place):
    program = place / "program"
    program.write_bytes(b"\x7fELF and nothing else")  # which shows only when it is executed
    program.chmod(0o755)
    done = bisect("--axis", "x=1..2", "--", str(program), "{x}")

    assert done.exit_code == 6, done.output
    assert "Inconclusive" in done.stdout
