"""Ctrl-C while a program is silent: it is examined once, kept, and nothing more is run."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "asked"),
    [
        (signal.SIGINT, "the user asked to stop"),
        (signal.SIGTERM, "SIGTERM (a scheduler, or kill) asked to stop"),
    ],
)
def test_a_silent_program_is_examined_before_it_is_ended_and_no_other_run_begins(tmp_path, number, asked):
    (tmp_path / "train.py").write_text("import time\nprint('begun', flush=True)\ntime.sleep(1000)\n")
    tool = Path(sys.executable).with_name("nsa-harness")
    command = [tool, "run", "--repeat", "3", "--json", "--runs", "kept", "--", sys.executable, "train.py"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        for line in run.stderr:
            if "looking into it" in line:
                break
        time.sleep(1.0)
        run.send_signal(number)
        said, errors = run.communicate(timeout=60)
    assert run.returncode == 130, errors
    (trial,) = json.loads(said)["trials"]
    assert trial["verdict"]["kind"] == "UNRESOLVED"
    assert "train.py:3" in trial["verdict"]["because"]
    assert trial["outcome"]["stopped_by"] == "user, after a last look"
    assert trial["outcome"]["why"] == asked
    assert f"{asked} (again: at once): looking into it" in errors or f"ending it: {asked}" in errors
    (page,) = (tmp_path / "kept").glob("*/report.md")
    assert f"ended by us after a last look: {asked}" in page.read_text()
    assert f"ended: interrupted ({asked})" in page.read_text()
