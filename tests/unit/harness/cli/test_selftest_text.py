"""The score card, as a stranger reads it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from harness.cli.main import main
from harness.cli.selftest import _json_line, card, progress, summary
from harness.core.outcome import Cleanup, Ending, Outcome
from harness.core.verdict import Confidence, Kind, Verdict
from harness.selftest import JudgedSpecimen
from harness.specimens.catalog import SPECIMENS, score

OUTCOME = Outcome(ending=Ending.STOPPED_BY_US, cleanup=Cleanup(ended=1))
RIGHT = Verdict(
    kind=Kind.HANG,
    rule="hung_waiting",
    because="rank 0 silent for 6.9 s; the main thread waits in acquire_twice",
    cites=("stack-1",),
    confidence=Confidence.HIGH,
    cause="deadlock",
    phase="forward",
    step=1,
    rank=0,
)


def row(
    name: str = "lock-deadlock", *, number: int = 1, after_s: float | None = 6.9, **changes: object
) -> JudgedSpecimen:
    specimen, verdict = SPECIMENS.load(name), replace(RIGHT, **changes)
    judged = score(specimen, verdict, OUTCOME)
    return JudgedSpecimen(
        round=number, specimen=specimen, verdict=verdict, seconds=7.1, to_verdict_s=after_s, score=judged
    )


PASSED = {"kind": Kind.PASS, "cause": None, "phase": "optim", "after_s": None}


def test_a_specimen_that_is_judged_right_takes_one_line():
    assert card([row(), row("slow-step", **PASSED)]) == [
        "specimen            kind       cause                  rank phase    after  right",
        "lock-deadlock       HANG       deadlock                  0 forward    6.9     ok",
        "slow-step           PASS       -                         - -            -     ok",
    ]


def test_below_it_stands_what_it_got_instead_and_why():
    wrong = row(kind=Kind.UNRESOLVED, cause="busy", after_s=None)
    assert card([wrong])[1:] == [
        "lock-deadlock       HANG       deadlock                  0 forward      -  WRONG",
        "  got               UNRESOLVED busy                      0 forward",
        "    expected HANG, got UNRESOLVED (busy) by rule hung_waiting: rank 0 silent for\n"
        "      6.9 s; the main thread waits in acquire_twice",
    ]


def test_of_many_rounds_it_counts_the_right_ones_and_shows_the_slowest_and_two_wrong_ones():
    rounds = [row(number=k, after_s=6.0 + k) for k in range(1, 7)]
    rounds += [row(number=k, cause="native-lock") for k in range(7, 11)]
    lines = card(rounds)
    assert lines[1].split()[-2:] == ["12.0", "6/10"]
    assert lines[2].split() == ["got,", "4", "times", "HANG", "native-lock", "0", "forward"]
    assert [line.split(":")[0].strip() for line in lines[3:5]] == ["round 7", "round 8"]
    assert lines[5] == "    and 2 rounds more (--json has them all)"


def test_the_summary_counts_each_column_the_false_hangs_and_the_time_to_a_verdict():
    rows = [row(), row(after_s=8.0, rank=1), row("slow-step", **PASSED), row("slow-step", after_s=7.5)]
    assert summary(rows) == [
        "right: kind 3/4, cause 2/2, rank 1/2, phase 2/2",
        "look-alikes: 1 called HANG in 2 runs",
        "stall to HANG: median 7.5 s, longest 8.0 s (lock-deadlock)",
    ]


@pytest.mark.parametrize("changes", [{}, {"rank": 1}])
def test_a_line_of_progress_says_when_something_is_wrong(changes):
    line = progress(row(**changes), number=3, total=120)
    assert line.startswith("[  3/120] lock-deadlock ")
    assert line.endswith("WRONG") == bool(changes)
    assert len(line) <= 80


def test_the_same_for_programs():
    told = json.loads(_json_line(row(rank=1)))
    assert told["expected"] == {"kinds": ["HANG"], "cause": "deadlock", "rank": 0, "phase": "forward"}
    assert (told["score"]["kind"], told["score"]["rank"]) == (True, False)
    assert told["to_verdict_s"] == 6.9


@pytest.mark.parametrize(
    ("argv", "there", "not_there"),
    [
        ((), {"clean", "infinite-loop", "slow-loader", "straggler"}, {"gpu-oom", "nccl-skip"}),
        (("--only", "look-alike"), {"slow-loader", "debugged"}, {"infinite-loop", "clean"}),
        (("--only", "gloo", "--only", "oom"), {"rank-killed", "memory-leak"}, {"slow-loader", "clean"}),
        (("lock-deadlock", "clean", "--only", "hang"), {"lock-deadlock"}, {"clean"}),
    ],
)
def test_what_takes_part_can_be_chosen_and_listed(argv, there, not_there):
    done = CliRunner().invoke(main, ["selftest", "--list", *argv])
    listed = {line.split()[0] for line in done.output.splitlines() if not line.startswith(" ")}
    assert done.exit_code == 0
    assert there <= listed
    assert not not_there & listed
    assert all(len(line) <= 80 for line in done.output.splitlines())


def test_without_limits_what_needs_them_is_left_out_and_named():
    done = CliRunner().invoke(main, ["selftest", "--list", "--no-limits", "--only", "look-alike"])
    why = "left out, because without limits they pass: "
    assert done.stderr.splitlines() == [f"{why}slow-loop, straggler"]
    listed = {line.split()[0] for line in done.stdout.splitlines() if not line.startswith(" ")}
    assert "slow-loader" in listed
    assert not {"slow-loop", "straggler"} & listed

    nothing = CliRunner().invoke(main, ["selftest", "--list", "--no-limits", "slow-loop"])
    assert nothing.exit_code == 2
    assert "no specimen is left" in nothing.output


def test_a_group_that_is_empty_here_says_how_to_fill_it():
    done = CliRunner().invoke(main, ["selftest", "--list", "--only", "nccl"])
    assert done.exit_code == 2
    assert "take part with --gpu" in done.output
