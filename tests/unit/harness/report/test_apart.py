"""Figures drawn by a second process are the same bytes, and a second process that dies costs no report."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys

import pytest

from harness.report import apart
from harness.report.apart import here
from harness.report.findings import Findings

DRAWS = """
import json, os, signal, sys
from pathlib import Path
from harness.report.apart import apart, here
from harness.report.findings import Findings
from harness.store.run_store import read_run

run_dir, what = Path(sys.argv[1]), sys.argv[2]
with apart() as draw:
    assert draw is not here
    (second,) = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    if what == "dies":
        os.kill(int(second), signal.SIGKILL)
    figures = draw(Findings(run=read_run(run_dir), run_dir=run_dir), str)() if what != "is not asked" else ()
print(json.dumps({"svgs": [figure.svg for figure in figures], "drew": "matplotlib.figure" in sys.modules}))
"""


LEAVES = """
import sys
from operator import methodcaller
from pathlib import Path
from harness.report.apart import apart
from harness.report.findings import Findings
from harness.store.run_store import read_run

run_dir = Path(sys.argv[1])
with apart() as draw:
    draw(Findings(run=read_run(run_dir), run_dir=run_dir), methodcaller("ljust", 4000))  # an answer that no pipe holds
    raise SystemExit(3)
"""

two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")


@two_cores
@pytest.mark.parametrize(("what", "drew_itself"), [("draws", False), ("dies", True), ("is not asked", False)])
def test_the_second_process_draws_the_same_and_where_it_dies_the_first_does(what, drew_itself, make_run):
    run, run_dir = make_run("threshold")
    done = subprocess.run([sys.executable, "-c", DRAWS, run_dir, what], capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    figures = here(Findings(run=run, run_dir=run_dir), str)() if what != "is not asked" else ()
    assert told["svgs"] == [figure.svg for figure in figures]
    assert told["drew"] is drew_itself
    assert done.stderr == ""


@two_cores
def test_an_error_before_the_figures_are_needed_leaves_nobody_waiting(make_run):
    run_dir = make_run("threshold")[1]
    done = subprocess.run([sys.executable, "-c", LEAVES, run_dir], capture_output=True, text=True, timeout=20)
    assert done.returncode == 3
    assert "Traceback" not in done.stderr


def test_a_process_that_has_the_library_already_draws_itself():
    import matplotlib.figure  # noqa: F401

    with apart.apart() as draw:
        assert draw is here


def test_a_user_who_may_start_no_more_processes_still_gets_figures(monkeypatch):
    def refuse():
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(apart, "_is_worth_it", lambda: True)
    monkeypatch.setattr(os, "fork", refuse)
    with apart.apart() as draw:
        assert draw is here
