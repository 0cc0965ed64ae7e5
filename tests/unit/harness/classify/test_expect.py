"""The judge of specimens."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.core.outcome import Cleanup, Ending, Outcome, Survivor
from harness.core.verdict import Confidence, Kind, Verdict
from harness.specimens.catalog import SPECIMENS, score

DEADLOCK = SPECIMENS.load("lock-deadlock")
FLAKY = SPECIMENS.load("flaky-hang")
RIGHT = Verdict(
    kind=Kind.HANG,
    rule="hung_waiting",
    because="the main thread waits in acquire_twice (harness/specimens/lock_deadlock.py:15)",
    cites=("stack-1",),
    confidence=Confidence.HIGH,
    cause="deadlock",
    phase="forward",
    step=1,
    rank=0,
)
CLEAN = Outcome(ending=Ending.STOPPED_BY_US, cleanup=Cleanup(ended=1))
PASSED = Verdict(kind=Kind.PASS, rule="passed", because="exit status 0", cites=("exit",), confidence=Confidence.PROOF)


def test_the_declared_verdict_is_right():
    assert score(DEADLOCK, RIGHT, CLEAN).wrong == ()


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"kind": Kind.SLOW}, "expected HANG, got SLOW"),
        ({"cause": "gil-held"}, "expected cause deadlock, got gil-held"),
        ({"because": "it waits somewhere"}, "names acquire_twice"),
        ({"rank": 1}, "expected rank 0, got 1"),
        ({"phase": "data"}, "expected phase forward, got data"),
        ({"step": 0}, "struck at step 1, the verdict says step 0"),
        ({"cites": ()}, "cites no evidence"),
    ],
)
def test_each_difference_is_told(changes, complaint):
    (told,) = score(DEADLOCK, replace(RIGHT, **changes), CLEAN).wrong
    assert complaint in told


def test_the_frame_may_stand_in_the_signature():
    moved = replace(RIGHT, because="...", signature="HANG deadlock: lock_deadlock.acquire_twice")
    assert score(DEADLOCK, moved, CLEAN).wrong == ()


def test_a_flaky_specimen_may_hang_or_pass_but_nothing_else():
    hang = replace(RIGHT, because="in acquire_twice_sometimes")
    assert score(FLAKY, hang, CLEAN).wrong == ()
    assert score(FLAKY, PASSED, CLEAN).wrong == ()
    assert score(FLAKY, replace(hang, kind=Kind.CRASH), CLEAN).wrong


def test_a_survivor_is_a_mismatch_also_beside_a_right_verdict():
    left = replace(CLEAN, cleanup=Cleanup(survivors=(Survivor(pid=7, state="S", command="python"),)))
    assert score(DEADLOCK, RIGHT, left).wrong == ("PID 7 (python) is still there, state S",)


def test_a_specimen_that_leaves_processes_must_have_had_them_swept():
    late = SPECIMENS.load("late-grandchild")
    assert score(late, PASSED, CLEAN).wrong == ()
    assert score(late, PASSED, replace(CLEAN, cleanup=Cleanup())).wrong == (
        "it leaves a process behind, but the cleanup ended none",
    )
