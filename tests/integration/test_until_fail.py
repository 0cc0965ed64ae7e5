"""A program that fails now and then: run until it does, and how often that is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from harness.cli.main import main

pytestmark = pytest.mark.usefixtures("_without_figures")

PROGRAM = """
import pathlib
runs = pathlib.Path("runs-so-far")
number = len(runs.read_text()) if runs.exists() else 0
runs.write_text("x" * (number + 1))
if number == 2:
    raise RuntimeError("the third one fails")
"""


def run(tmp_path, *options, program=PROGRAM):
    (tmp_path / "train.py").write_text(program)
    tool = Path(sys.executable).with_name("nsa-harness")
    command = [tool, "run", *options, "--runs", "kept", "--", sys.executable, "train.py"]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)


def test_it_is_run_until_it_fails_and_the_failure_is_what_is_told(tmp_path):
    done = run(tmp_path, "--until-fail", "--json")
    assert done.returncode == 1, done.stderr
    said = json.loads(done.stdout)
    assert [trial["verdict"]["kind"] for trial in said["trials"]] == ["PASS", "PASS", "CRASH"]
    assert said["how_often"].startswith("fails in 1 of 3: 33.3% (95%: 0.8% to 90.6%)")
    line = f"<module> ({tmp_path}/train.py:7)"
    assert (next(iter(said)), said["verdict"], said["place"]) == ("verdict", "CRASH (RuntimeError)", line)
    page, junit = (written(tmp_path, form) for form in ("md", "junit"))
    assert f"- **Rank and line:** `{line.replace(str(Path.home()), '~')}`" in page
    (failure,) = ET.fromstring(junit).iter("failure")
    assert failure.get("message", "").startswith(line.replace(str(Path.home()), "~"))


def test_every_form_of_its_report_says_how_often_it_fails_and_what_would_show_it_fixed(tmp_path):
    said = json.loads(run(tmp_path, "--repeat", "5", "--json").stdout)["how_often"]
    assert "14 passes in a row would show it fixed" in said
    for form in ("md", "html", "short", "terminal"):
        assert said[1:] in " ".join(written(tmp_path, form).split()), form
    assert json.loads(written(tmp_path, "json"))["how_often"] == said
    properties = ET.fromstring(written(tmp_path, "junit")).iter("property")
    assert [(one.get("name"), one.get("value")) for one in properties] == [("how_often", said)]


def test_a_failure_at_the_very_first_run_says_how_little_one_run_tells(tmp_path):
    program = "raise RuntimeError('the first one fails')"
    rate = "fails in 1 of 1: 100.0% (95%: 2.5% to 100.0%). 1 pass in a row would show it fixed at that rate (95%), 119"
    assert json.loads(run(tmp_path, "--until-fail", "--json", program=program).stdout)["how_often"].startswith(rate)
    assert rate[1:] in " ".join(written(tmp_path, "terminal").split())
    assert rate in " ".join(run(tmp_path, "--until-fail", program=program).stdout.split())
    assert "fails in" not in run(tmp_path, program=program).stdout


def written(tmp_path, form):
    done = CliRunner().invoke(main, ["report", "--runs", str(tmp_path / "kept"), "--format", form])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_no_more_runs_than_asked_for_and_the_rate_with_its_interval(tmp_path):
    done = run(tmp_path, "--repeat", "5")
    assert done.returncode == 1
    assert done.stdout.startswith("CRASH (RuntimeError): <module>")
    assert "4 of 5 runs passed" in done.stdout
    assert " ".join(done.stdout.split()).count("fails in 1 of 5: 20.0% (95%: 0.5% to 71.6%). 14 passes in a row") == 1
    assert "the third one fails" in done.stdout


@pytest.mark.long
def test_of_two_failures_each_has_its_own_rate(tmp_path):
    done = run(tmp_path, "--repeat", "5", program=PROGRAM + 'if number == 4:\n    raise KeyError("the fifth")\n')
    said = " ".join(done.stdout.split())
    assert "fails in 2 of 5: 40.0% (95%: 5.3% to 85.3%). So many passes in a row would show one of them fixed" in said
    assert "14 for CRASH (RuntimeError), 1 of 5, 14 for CRASH (KeyError), 1 of 5" in said


def test_at_most_as_often_as_repeat_says(tmp_path):
    done = run(tmp_path, "--until-fail", "--repeat", "2", "--json")
    assert done.returncode == 0
    assert "no failure in 2 runs: a rate of 0.78 or more" in json.loads(done.stdout)["how_often"]
