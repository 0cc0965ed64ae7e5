"""What a report says along an axis of numbers: no more than the values that were tried have shown."""

from __future__ import annotations

import dataclasses
import shutil

import pytest

from harness.core.boundary import Boundary, Finding
from harness.core.verdict import LIMIT_TOO_SHORT, Answer, Kind
from harness.report.findings import Findings
from harness.report.next_steps import next_steps
from harness.report.render import markdown
from harness.report.sections.threshold import legend, strip_text
from harness.report.sections.threshold import mark as mark_of
from harness.report.words import answer_along, certificate, verdict_along
from harness.report.write import build
from harness.store import layout


@pytest.fixture
def asked(parts, make_run):
    """``asked({5: "pass crash other"})`` gives the run of a bisect over 1..12 and its folder: each value's trials."""

    def one(value: int, ending: str, repeat: int):
        if ending == "pass":
            return parts["passed"](value, repeat)
        if ending in ("untold", "cut"):
            record, evidence = parts["slow"](value, kind=Kind.UNRESOLVED)
            cause = LIMIT_TOO_SHORT if ending == "cut" else None
            return dataclasses.replace(record, verdict=dataclasses.replace(record.verdict, cause=cause)), evidence
        record, evidence = parts["crashed" if ending == "other" else "hung"](value, repeat)
        answer = Answer.UNRESOLVED if ending == "other" else Answer.BAD
        return dataclasses.replace(record, answer=answer), evidence

    def run(endings: dict[int, str], *, finding: Finding = Finding.THRESHOLD, **more):
        trials = []
        for value, words in endings.items():
            trials += [one(value, ending, repeat) for repeat, ending in enumerate(words.split())]
        boundary = Boundary(axis="n_layers", finding=finding, **more)
        return make_run(parts["Canned"](parts["spec"](), trials, boundary))

    return run


def said(made) -> tuple[str, str]:
    """The few words of an answer, and its sentences."""
    findings = Findings(run=made[0], run_dir=made[1])
    return verdict_along(findings)[0], answer_along(findings, made[0].boundary)


def test_a_failing_number_says_nothing_of_those_above_it_that_were_not_tried(asked):
    verdict, answer = said(asked({4: "pass", 5: "hang"}, last_good=4, first_bad=5))

    assert verdict == "HANG (deadlock) at n_layers=5, not at n_layers=4"
    assert answer.endswith("Not tried after it: 6..12.")


def test_where_the_smallest_fails_and_no_other_was_tried_it_alone_is_named(asked):
    verdict, _ = said(asked({1: "hang"}, finding=Finding.ALL_FAIL, first_bad=1))

    assert verdict == "HANG (deadlock) at n_layers=1"


def test_numbers_above_it_that_failed_alike_are_counted_in_up_to_the_first_that_did_not(asked):
    endings = {4: "pass", 5: "hang", 6: "hang", 7: "hang pass", 8: "other", 12: "hang"}
    verdict, answer = said(asked(endings, last_good=4, first_bad=5))

    assert verdict == "HANG (deadlock) from n_layers=5 to n_layers=7"
    assert (
        "After it: n_layers=6: 1 HANG (deadlock); n_layers=7: 1 HANG (deadlock), 1 PASS; n_layers=8: 1 CRASH" in answer
    )
    assert answer.endswith("Not tried after it: 9..11.")


def test_values_that_failed_in_another_way_are_not_called_inconclusive(asked):
    made = asked({3: "pass", 4: "other", 5: "other", 6: "untold", 7: "hang"}, last_good=3, first_bad=7)
    findings = Findings(run=made[0])

    assert "Between them: 4, 5 failed in another way (CRASH (RuntimeError)); 6 inconclusive." in said(made)[1]
    assert "3 . 4 o 5 o 6 ? | 7 X" in strip_text(findings)
    assert "`o` failed in another way than the one sought" in legend(findings)


def test_an_answer_that_is_open_says_once_what_was_not_told(asked):
    made = asked({1: "pass", 2: "pass", 3: "other"}, finding=Finding.INCONCLUSIVE, last_good=2)

    assert said(made)[1] == (
        "Inconclusive. n_layers=2 passes, 1 of 1 trial. "
        "Not told: n_layers 3 failed in another way (CRASH (RuntimeError)); 4..12 not tried."
    )


@pytest.mark.parametrize(
    ("trials", "mark"),
    [
        ("pass pass", "."),
        ("pass untold", ","),
        ("pass other", "o"),
        ("hang hang", "X"),
        ("hang pass", "x"),
        ("hang untold", "x"),
        ("hang other", "*"),
        ("hang other pass", "x"),
        ("untold", "?"),
    ],
)
def test_every_time_is_said_only_of_every_trial(asked, trials, mark):
    made = asked({5: trials}, finding=Finding.INCONCLUSIVE)
    at_five = Findings(run=made[0]).at_value(5)

    assert mark_of(at_five) == mark


def test_the_failure_told_of_is_that_of_the_value_that_is_named_not_of_a_false_alarm_below_it(asked):
    made = asked({4: "hang " + "pass " * 30, 5: "hang hang"}, last_good=4, first_bad=5, excluded_rate=0.2)
    summary = build(*made).summary

    assert summary.verdict == "HANG (deadlock) at n_layers=5, more often than at n_layers=4"
    assert summary.answer.startswith("n_layers=5 hangs (deadlock) in backward, 2 of 2 trials; n_layers=4 passes, 30 of")
    assert summary.happened[0].startswith("At n_layers=5, trial 32: ")
    assert "passed 30/31, failed 1: any failure rate >= 0.20 at n_layers <= 4 would have been seen more often" in (
        certificate(Findings(run=made[0]))
    )


def test_trials_that_pass_and_then_fail_in_another_way_may_have_changed_what_later_ones_find(asked):
    spoiled = asked({4: "pass other other other", 5: "hang hang"}, last_good=4, first_bad=5)
    by_chance = asked({4: "pass other pass other other", 5: "hang hang"}, last_good=4, first_bad=5)
    hint = (
        "n_layers=4 passed, then failed 3 times in another way: a trial may have left something behind that later ones "
        "run into, such as a file."
    )

    assert hint in build(*spoiled).summary.notes
    assert hint not in build(*by_chance).summary.notes


def test_a_value_that_failed_in_another_way_is_the_next_one_to_look_at(asked):
    made = asked({3: "pass", 4: "other"}, finding=Finding.INCONCLUSIVE, last_good=3)
    steps = next_steps(Findings(run=made[0]))

    assert steps[0].text == "See why n_layers=4 fails in another way (1 tried; Evidence)."


def test_where_no_trial_was_slow_the_limit_is_named_and_a_longer_one_is_the_next_step(asked):
    made = asked({1: "pass", 2: "pass", 3: "cut"}, finding=Finding.NO_THRESHOLD_SLOW, last_good=2)
    (step,) = next_steps(Findings(run=made[0]))

    assert said(made)[0] == "No threshold: the limit ran out"
    assert step.text == "Give it time: four times the total limit of 60 s; a healthy trial may need more."


def test_the_short_form_says_of_which_trials_the_evidence_is_missing(asked):
    run, run_dir = asked({4: "pass", 5: "hang"}, last_good=4, first_bad=5)
    shutil.rmtree(layout.trial(run_dir, run.records[1].trial.key))

    assert "- Note: The evidence of 1 of 2 trials is missing" in markdown.short(build(run, run_dir))
