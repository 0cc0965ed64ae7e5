"""The script that fails without the harness: what counts as the same failure, and that it was really run."""

from __future__ import annotations

import ast
import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli.main import main
from harness.clock import WallClock
from harness.core.campaign import CampaignAnswer, ForeignJob
from harness.core.errors import SpecError
from harness.launch import procs
from harness.report.findings import Findings
from harness.report.sections.onward import onward
from harness.reproduce import Expected, reproduce, script
from harness.solo import foreign_question, foreign_trial

HANGS = Expected(sentence="hangs in wait", words=("wait",), by_limit=True, still_moving=False)
SLOW = Expected(sentence="still moves", words=(), by_limit=True, still_moving=True)
RAISES = Expected(sentence="ends with ValueError", words=("ValueError",), by_limit=False)

QUIET = "[0.7 s] step 1 backward begin\nTimeout (0:00:20)!\n  File x, line 3 in wait\n"
BUSY = "[19.2 s] step 9 forward progress\nTimeout (0:00:20)!\n  File x, line 3 in wait\n"


@pytest.mark.parametrize(
    ("wanted", "output", "code", "seen"),
    [
        (HANGS, QUIET, 1, "hangs in wait"),
        (HANGS, BUSY, 1, "no: it was still making progress when its limit ran out"),
        (HANGS, QUIET.replace("wait", "work"), 1, "no: its output does not name wait"),
        (HANGS, "ValueError: 3", 1, "no: it ended by itself with exit code 1"),
        (HANGS, "", 0, "no: it ran to its end"),
        (HANGS, QUIET, None, "no: it did not even end by its own limit"),
        (SLOW, BUSY, 1, "still moves"),
        (SLOW, QUIET, 1, "no: it was silent when its limit ran out"),
        (RAISES, "ValueError: 3", 1, "ends with ValueError"),
        (RAISES, "KeyError: 3", 1, "no: its output does not name ValueError"),
        (RAISES, QUIET, 1, "no: it reached its limit"),
    ],
)
def test_only_the_same_failure_counts(wanted, output, code, seen):
    assert wanted.judge(output, code) == seen


def test_a_script_is_python_whatever_the_trial_was(make_run):
    run, _ = make_run("threshold")
    for record in run.records[4:6]:
        ast.parse(script(record, limit_s=20.0, symptom="hangs"))


def test_it_is_tried_before_it_is_told_of_and_a_script_that_does_not_fail_says_so(make_run, monkeypatch):
    run, run_dir = make_run("threshold")
    monkeypatch.setattr("harness.reproduce.SCRIPT", "print('{verdict}')")
    notes: list[str] = []
    tried = reproduce(run, run_dir, python=sys.executable, env={}, clock=WallClock(), note=notes.append)
    assert notes == ["trying the failure twice without the harness .."]
    assert (tried.shown, tried.tries) == (0, 2)
    assert tried.ended == ("no: it ran to its end",) * 2
    assert tried.sentence.startswith("reproduced 0/2 outside the harness")
    assert json.loads((run_dir / "repro.json").read_text())["shown"] == 0
    assert "HANG (deadlock)" in (run_dir / "repro-2.txt").read_text()


def test_the_report_shows_the_script_with_how_often_it_failed(make_run, monkeypatch):
    from harness.report.write import build

    run, run_dir = make_run("threshold")
    hang = "import faulthandler, time\ndef acquire_forever():\n"
    hang += "    faulthandler.dump_traceback_later(0.2, exit=True)\n    time.sleep(900)\nacquire_forever()\n"
    monkeypatch.setattr("harness.reproduce.SCRIPT", hang)
    reproduce(run, run_dir, python=sys.executable, env={}, clock=WallClock())
    shown = dict(build(run, run_dir).blocks)["reproduce"].markdown
    assert "Reproduced 2/2 outside the harness: python repro.py hangs until its limit with a thread in" in shown
    assert "acquire\\_forever" in shown or "acquire_forever" in shown


def test_nothing_is_made_of_a_run_that_did_not_fail(make_run):
    run, run_dir = make_run("no_failure")
    with pytest.raises(SpecError, match="nothing to reproduce"):
        reproduce(run, run_dir, python=sys.executable, env={}, clock=WallClock())
    assert not Path(run_dir / "repro.py").exists()


def test_of_a_job_that_was_only_watched_it_is_said_why_it_cannot_be_reproduced(make_run, parts):
    canned = parts["threshold"]()
    record, evidence = parts["hung"](5)
    trial = foreign_trial("python train.py", code="1", machine="x", why="not ours")
    canned.spec, canned.boundary = foreign_question(name="watch", question="What?"), None
    canned.trials = [(dataclasses.replace(record, trial=trial), evidence)]
    run, run_dir = make_run(canned)
    with pytest.raises(SpecError, match=r"only watched what somebody else had started.*: python train\.py"):
        reproduce(run, run_dir, python=sys.executable, env={}, clock=WallClock())
    assert not Path(run_dir / "repro.py").exists()
    done = CliRunner().invoke(main, ["report", str(run_dir), "--repro"], prog_name="nsa-harness")
    assert "only watched" in done.stderr
    assert "trying" not in done.stderr, "nothing was tried"


@pytest.mark.parametrize("watched", [True, False])
def test_the_command_that_writes_the_report_of_a_watched_job_again_can_be_run_from_any_folder(watched, make_run, parts):
    """Somebody who was not there finds that page; others stand beside their run."""
    canned = parts["threshold"]()
    if watched:
        canned.spec, canned.boundary = foreign_question(name="watch", question="What?"), None
        canned.answer = CampaignAnswer(job=ForeignJob(command="python train.py"))
    run, run_dir = make_run(canned)
    folder = str(Path(run.directory).absolute()) if watched else run.directory
    assert f"nsa-harness report {folder}\n" in onward(Findings(run=run, run_dir=run_dir))


TRYING = """
import os, sys
from pathlib import Path
from harness import reproduce
from harness.clock import WallClock
code = "import os, time; print(os.getpid(), flush=True); time.sleep(1000)"
reproduce._run((sys.executable, "-c", code), env=os.environ, limit_s=1000.0, clock=WallClock(), log=Path(sys.argv[1]))
"""


def test_a_script_that_is_tried_ends_with_whoever_tries_it_also_when_that_is_killed(tmp_path):
    log = tmp_path / "log"
    trying = subprocess.Popen([sys.executable, "-c", TRYING, str(log)])
    until = time.monotonic() + 60
    while not (log.exists() and log.read_text().endswith("\n")) and time.monotonic() < until:
        time.sleep(0.02)
    script = int(log.read_text())
    trying.kill()
    trying.wait()
    while (seen := procs.read(script)) is not None and seen.state not in "ZX" and time.monotonic() < until:
        time.sleep(0.02)

    assert seen is None or seen.state in "ZX"
