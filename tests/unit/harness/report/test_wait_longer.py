"""A hang that the trial's own pace told from a wait for the outside leads to more time, first of all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.core.invocation import Invocation
from harness.core.outcome import StopReason
from harness.core.trial import NEVER_S, Budget, Limit
from harness.core.verdict import Answer, Confidence, Kind
from harness.report import one
from harness.report.findings import Findings
from harness.report.next_steps import more_time, next_steps
from harness.report.write import build
from harness.store.history import read_evidence
from recordings import specimen


def ended(run, *, stopped_by, confidence):
    def told(record):
        if record.answer is not Answer.BAD:
            return record
        return replace(
            record,
            outcome=replace(record.outcome, stopped_by=stopped_by),
            verdict=replace(record.verdict, confidence=confidence),
        )

    return replace(run, records=tuple(map(told, run.records)))


@pytest.mark.parametrize(
    ("stopped_by", "confidence", "proposed"),
    [
        (StopReason.PACE, Confidence.MEDIUM, True),
        (StopReason.PACE, Confidence.HIGH, False),
        (StopReason.STALL, Confidence.MEDIUM, False),
    ],
)
def test_a_longer_limit_is_proposed_where_the_outside_may_only_have_been_late(
    make_run, stopped_by, confidence, proposed
):
    run, _ = make_run("threshold")
    first = next_steps(Findings(run=ended(run, stopped_by=stopped_by, confidence=confidence)))[0]
    assert (first.command[-2:] == ("--stall", "60s")) is proposed


ONE = "version: 1\nname: one\ndescription: python train.py\naxes:\n  n_layers: {type: ordered, values: [1]}\n"
PASS_AGAIN = "nsa-harness run --stall 6s --steps 7 -- python train.py"


@pytest.mark.parametrize(
    ("stopped_by", "kind", "words", "command"),
    [
        (
            StopReason.STALL,
            Kind.UNRESOLVED,
            "Give it ten times",
            "nsa-harness run --steps 7 --stall {}s -- python train.py",
        ),
        (
            StopReason.STARTUP,
            Kind.UNRESOLVED,
            "Give it ten times",
            "nsa-harness run --stall 6s --steps 7 --startup {}s -- python train.py",
        ),
        (
            StopReason.TOTAL,
            Kind.UNRESOLVED,
            "Give it ten times",
            "nsa-harness run --stall 6s --steps 7 --limit {}s -- python train.py",
        ),
        (
            StopReason.TOTAL,
            Kind.SLOW,
            "Give it time",
            "nsa-harness run --stall 6s --steps 7 --limit 320s -- python train.py",
        ),
        (
            StopReason.STALL,
            Kind.SLOW,
            "Give it ten times the stall limit",
            "nsa-harness run --steps 7 --stall {}s -- python train.py",
        ),
        (StopReason.EXAMINED, Kind.SLOW, "Let it run", PASS_AGAIN),
        (StopReason.CERTAIN, Kind.HANG, "Look at the function that waits (Evidence, trial 1)", PASS_AGAIN),
    ],
)
def test_what_a_terminal_says_to_do_next_is_the_report_s(make_campaign, stopped_by, kind, words, command):
    """`again:` had repeated the limit that had just decided nothing."""
    asked = Invocation(verb=("run",), options=(("--stall", "6s"), ("--steps", "7")), command=("python", "train.py"))
    run, run_dir = make_campaign([({}, "slow", 0)], text=ONE)
    record = run.records[0]
    evidence = read_evidence(run_dir, record.trial.key)
    outcome, verdict = replace(record.outcome, stopped_by=stopped_by), replace(record.verdict, kind=kind)
    trial = record.trial
    if stopped_by is StopReason.EXAMINED:  # by the user, of a program without a limit
        endless = replace(trial.budget, total=Limit(seconds=NEVER_S, source="none was set"))
        trial = replace(trial, budget=endless)
    record = replace(record, trial=trial, outcome=outcome, verdict=verdict)
    run = replace(run, records=(record,), invocation=asked, argv=asked.argv)
    steps = build(run, run_dir).summary.steps
    screen = " ".join(one.text(run, {record.trial.key: evidence}, where=Path("runs"), steps=steps).split())

    budget = record.trial.budget
    limit = {StopReason.STALL: budget.stall, StopReason.STARTUP: budget.startup, StopReason.TOTAL: budget.total}
    more_s = round(10 * limit[stopped_by].seconds) if stopped_by in limit else 0
    assert screen.endswith(command.format(more_s))
    assert f"next: {words}" in screen
    assert f"next: {steps[0].text}" in screen
    assert ("again:" in screen) is (steps[0].command == ())


def test_a_program_that_passed_asks_for_nothing_on_a_terminal(make_campaign):
    run, run_dir = make_campaign([({}, "pass", 0)], text=ONE)
    steps = build(run, run_dir).summary.steps
    assert steps
    screen = one.text(run, {}, where=Path("runs"), steps=steps)
    assert "next:" not in screen
    assert "again:" in screen


@pytest.mark.parametrize(("total_s", "startup_s", "proposed_s"), [(12, 120, 492), (60, 120, 600), (12, NEVER_S, 120)])
def test_more_of_all_its_time_is_enough_for_a_silence_to_be_decided(make_run, parts, total_s, startup_s, proposed_s):
    record, _ = parts["slow"](5)
    limits = {"total": total_s, "startup": startup_s, "stall": 4.0}
    budget = Budget(**{name: Limit(seconds=float(amount), source="test") for name, amount in limits.items()})
    record = replace(
        record,
        trial=replace(record.trial, budget=budget),
        outcome=replace(record.outcome, stopped_by=StopReason.TOTAL, duration_s=float(total_s)),
        verdict=replace(record.verdict, kind=Kind.UNRESOLVED),
    )
    asked = Invocation(verb=("run",), options=(("--limit", f"{total_s}s"),), command=("python", "train.py"))
    step = more_time(replace(make_run("threshold")[0], records=(record,), invocation=asked), record, None)
    assert step is not None
    assert f"--limit {proposed_s}s" in " ".join(step.command)
    assert (f"{proposed_s} s instead of {total_s} s, by which a standstill is decided" in step.text) is (
        proposed_s == 492
    )


@pytest.mark.parametrize("stopped_by", [StopReason.STALL, StopReason.STARTUP, StopReason.TOTAL])
def test_no_limit_is_proposed_for_what_a_timer_may_wake(make_run, parts, stopped_by):
    """Of ``sleep 3000`` each run proposed a longer limit, and none decides that."""
    record, _ = parts["slow"](5)
    record = replace(
        record,
        outcome=replace(record.outcome, stopped_by=stopped_by),
        verdict=replace(record.verdict, kind=Kind.UNRESOLVED),
    )
    asked = Invocation(verb=("run",), options=(("--limit", "8s"),), command=("sleep", "3000"))
    run = replace(make_run("threshold")[0], records=(record,), invocation=asked, argv=asked.argv)
    steps = (more_time(run, record, specimen("poll-forever").evidence),)
    by_key = {record.trial.key: specimen("poll-forever").evidence}
    screen = " ".join(one.text(run, by_key, where=Path("runs"), steps=steps).split())
    assert "next: No limit decides it, as a timer may wake it" in screen
    assert "Give it" not in screen
    assert screen.endswith("again: nsa-harness run --limit 8s -- sleep 3000")


@pytest.mark.parametrize(("stopped_by", "has_command"), [(StopReason.TOTAL, True), (StopReason.STARTUP, False)])
def test_slow_cells_of_a_matrix_get_the_command_that_gives_them_time(make_campaign, stopped_by, has_command):
    """Where it was not the time of a whole trial that ran out, more of that decides nothing."""
    run, _ = make_campaign([({"n_layers": 1}, "pass", 0), ({"n_layers": 12}, "slow", 0)])
    records = tuple(replace(one, outcome=replace(one.outcome, stopped_by=stopped_by)) for one in run.records)
    steps = next_steps(Findings(run=replace(run, records=records)))
    (step,) = [step for step in steps if step.text.startswith("Give the slow cells time")]
    assert (step.command[:5] == ("nsa-harness", "matrix", "run", "canned.yaml", "--total")) is has_command
