"""Faults in our own processes: a few that are always the same. More: python -m bench.chaos."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from bench.chaos.faults import Fault

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="no strace on PATH")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("_without_figures")]

# What a campaign forks from has imported everything and becomes a subreaper: not the process that runs the tests.
CAMPAIGN = """
from harness.clock import WallClock
from bench.chaos import faults as chaos
from bench.chaos.faults import Chaos, Fault
campaign = Chaos(clock=WallClock())
{changes}
for fault in {faults}:
    print(campaign.strike(fault))
"""


def strike(*faults: Fault, changes: str = "") -> list[str]:
    """What each fault gave, a line each."""
    code = CAMPAIGN.format(faults=faults, changes=changes)
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


PLACED = [
    Fault(whom="nsa-supervisor", what="signal=KILL", call="sendmsg", number=1),
    Fault(whom="nsa-guard", what="signal=KILL", way="forkserver", call="clone", number=1),
]
MORE = [
    Fault(whom="controller", what="error=ENOSPC", call="fsync", number=9),
    Fault(whom="controller", what="signal=KILL", way="forkserver", call="rename", number=3),
    Fault(whom="nsa-supervisor", what="error=EIO", call="poll", number=1),
    Fault(whom="nsa-forkserver", what="error=EMFILE", way="forkserver", call="recvmsg", number=2),
]


@needs_strace
@pytest.mark.parametrize("placed", [PLACED, pytest.param(MORE, marks=pytest.mark.long)], ids=["usual", "more"])
def test_what_must_hold_holds_at_these_calls(placed):
    given = dict(zip(placed, strike(*placed), strict=True))
    # Beside other work a search may be over before its process comes to the call: it is asked for again.
    for _ in range(4):
        missed = [fault for fault, said in given.items() if said == "None"]
        given.update(zip(missed, strike(*missed), strict=True))

    assert given == dict.fromkeys(placed, "[]")


def test_a_guard_that_is_killed_at_any_moment_is_no_reason_to_end_anybody_else():
    kills = [Fault(whom="nsa-guard", what="killed", way="forkserver", at_s=0.05 * number) for number in (1, 3)]

    assert set(strike(*kills)) <= {"[]", "None"}


@pytest.mark.long
def test_what_does_not_hold_is_told():
    changes = """
chaos.ANSWER = (2, 3, True)
looks = iter(("before", "after"))
chaos.Place.files = lambda _: next(looks)
"""
    (said,) = strike(Fault(whom="controller", what="killed", at_s=0.3), changes=changes)

    assert "the answer is (1, 2, True)" in said
    assert "a file beside the run was touched" in said


def test_a_process_that_is_left_is_told_and_ended():
    changes = """
program = chaos.PROGRAM.replace("os.wait()", "time.sleep(0)").replace("import os", "import time, os")
chaos.GONE_S = 0.5
import os, subprocess
stray = subprocess.Popen(["sleep", "1000"])
"""
    (said,) = strike(Fault(whom="controller", what="killed", at_s=0.3), changes=changes)

    assert "left running" in said
    assert "sleep" in said
