"""What a failing command line is held against: said so that a reader sees which setting differs."""

from __future__ import annotations

import pytest

from harness.core.boundary import Boundary, Finding
from harness.core.campaign import CampaignAnswer, threshold_question
from harness.core.evidence import Measurement
from harness.core.outcome import Cleanup, Ending, Outcome
from harness.core.point import Axis, AxisType, Point
from harness.core.record import TrialRecord
from harness.core.trial import Budget, Limit, Trial
from harness.core.verdict import Answer, Confidence, Kind, Verdict
from harness.search.afterwards import own_commands

COMMIT = "cf795942bab3f1a0c1e7c1f3cf795942bab3f1a0"
LIMIT = Limit(seconds=1.0, source="test")


def record(axis: str, value: str, kind: Kind, command: str, code: str = "c") -> TrialRecord:
    trial = Trial(
        target="command",
        point=Point.of({axis: value}),
        repeat=0,
        role="search",
        config={"command": command, "args": {axis: value}},
        seed=0,
        code=code,
        machine="m",
        budget=Budget(startup=LIMIT, stall=LIMIT, total=LIMIT),
    )
    answer = Answer.GOOD if kind is Kind.PASS else Answer.BAD
    verdict = Verdict(kind=kind, confidence=Confidence.PROOF, rule="r", because="b", cites=("exit",))
    outcome = Outcome(ending=Ending.EXITED, exit=None, duration_s=1.0, cleanup=Cleanup(ended=0))
    return TrialRecord(
        trial=trial, outcome=outcome, verdict=verdict, answer=answer, measurement=Measurement(), started_at=""
    )


@pytest.mark.parametrize(
    ("axis", "good", "bad", "command", "change"),
    [
        ("mode", "single", "ddp", "python x.py {mode}", "with mode=single"),
        ("mode", "single", "ddp", "python x.py --mode {mode}", "with --mode single"),
        ("commit", "v2", "v3", "python x.py", "with commit=v2"),
    ],
)
def test_a_bare_word_and_a_commit_are_named_by_their_axis(axis, good, bad, command, change):
    question = threshold_question(
        question="?",
        axis=Axis(name=axis, path="", type=AxisType.ORDERED, values=(good, bad)),
        target="command",
    )
    boundary = Boundary(axis=axis, finding=Finding.THRESHOLD, last_good=good, first_bad=bad)
    records = [record(axis, good, Kind.PASS, command), record(axis, bad, Kind.CRASH, command)]

    (own,) = own_commands(question, CampaignAnswer(boundary=boundary), records)

    assert own.next_to[0].change == change


def test_the_command_of_a_commit_names_it():
    trial = record("commit", "v3", Kind.CRASH, "python x.py", code=f"commit {COMMIT} under 0.1.0+abc").trial

    assert trial.commit == COMMIT[:12]
