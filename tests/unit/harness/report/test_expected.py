"""A matrix that expects verdicts: its report leads with what ended otherwise, and never sends anybody to the rest."""

from __future__ import annotations

import pytest

from harness.report.compare import compare
from harness.report.render import markdown, terminal
from harness.report.write import build, summary_text

AXES = """
version: 1
name: canned
description: every night
base: {train.steps: 8}
axes:
  n_layers: {type: ordered, values: [1, 12]}
  ckpt: {type: categorical, values: [none, reentrant], apply: {config: train.checkpointing}}
strategy: list
include: [{}, {n_layers: 12}, {ckpt: reentrant}, {n_layers: 12, ckpt: reentrant}]
expect:
"""
CRASHES = AXES + '  - {when: {ckpt: reentrant}, verdict: crash, issue: "#7"}\n'
STRICT = AXES + '  - {when: {ckpt: reentrant}, verdict: crash, issue: "#7", strict: true}\n'
DEEP, LATE = {"n_layers": 12}, {"ckpt": "reentrant"}
BOTH = {**DEEP, **LATE}
AS_EXPECTED = [({}, "pass", 0), (LATE, "crash", 0), (DEEP, "pass", 0), (BOTH, "crash", 0)]
WITH_A_HANG = [({}, "pass", 0), (LATE, "crash", 0), (DEEP, "hang", 0), (BOTH, "crash", 0)]


def test_the_unexpected_failure_leads_and_is_what_is_looked_at_also_where_an_expected_one_came_first(make_campaign):
    report = build(*make_campaign(WITH_A_HANG, text=CRASHES))
    summary = report.summary
    assert summary.verdict == "1 of 4 cells is not as expected: HANG (deadlock) instead of PASS"
    assert summary.tone == "bad"
    assert summary.answer.startswith("Not as expected: n_layers=12. 4 cells: ")
    assert summary.happened[0].startswith("At n_layers=12, trial 3: ")
    assert summary.place.brief.startswith("acquire_forever (")
    assert "Look at acquire_forever" in summary.steps[0].text
    assert "--bad-cell n_layers=12" in " ".join(summary.steps[1].command)
    assert any(text.startswith("CRASH (RuntimeError), failed 1 of 1, as expected: ") for text in summary.sure)
    assert not any("2 cells failed once" in step.text for step in summary.steps)
    for text in (markdown.short(report), markdown.step_summary(report), markdown.render(report)):
        assert f"**{summary.verdict}" in text.replace("# every night", "").strip().splitlines()[0]


def test_a_matrix_all_of_whose_cells_are_as_expected_is_green_and_asks_for_nothing(make_campaign):
    run, run_dir = make_campaign(AS_EXPECTED, text=CRASHES)
    report = build(run, run_dir)
    assert (report.summary.verdict, report.summary.tone) == ("All 4 cells are as expected", "good")
    assert markdown.short(report).startswith("✅ **All 4 cells are as expected** · every night\n")
    assert summary_text(run).startswith("All 4 cells are as expected. 4 cells: ")
    assert report.summary.happened[0].startswith("As expected, at ckpt=reentrant, trial 2: ")
    assert not any("Look at" in step.text or step.command[1:2] == ("minimise",) for step in report.summary.steps)


def test_a_pass_where_a_failure_must_be_is_told_by_what_was_expected(make_campaign):
    report = build(*make_campaign([({}, "pass", 0), (LATE, "crash", 0), (BOTH, "pass", 0)], text=STRICT))
    assert report.summary.verdict == "1 of 4 cells is not as expected: PASS instead of CRASH (#7)"
    assert report.summary.happened == ("At n_layers=12,ckpt=reentrant: passed, CRASH was expected.",)
    assert report.summary.steps[0].text == (
        "n_layers=12,ckpt=reentrant passes, CRASH (#7) was expected: if that is mended, take it out of canned.yaml."
    )


def test_several_ways_to_end_otherwise_are_told_apart(make_campaign):
    trials = [({}, "crash", 0), (LATE, "crash", 0), (DEEP, "hang", 0), (BOTH, "pass", 0)]
    summary = build(*make_campaign(trials, text=STRICT)).summary
    assert summary.verdict.startswith("3 of 4 cells are not as expected: CRASH (RuntimeError) instead of PASS, HANG")
    assert "; n_layers=12,ckpt=reentrant (PASS instead of CRASH (#7))." in summary.answer


@pytest.mark.parametrize(
    ("trials", "verdict"),
    [
        (AS_EXPECTED[:3], "3 of 4 cells as expected, 1 not run"),
        ([*AS_EXPECTED[:3], (BOTH, "untold", 0)], "3 of 4 cells as expected, 1 inconclusive"),
    ],
)
def test_what_could_not_be_told_is_no_green(make_campaign, trials, verdict):
    summary = build(*make_campaign(trials, text=CRASHES)).summary
    assert (summary.verdict, summary.tone) == (verdict, "unsure")


def test_two_runs_that_fail_alike_leave_the_unexpected_failure_to_look_at(make_campaign):
    before, _ = make_campaign(WITH_A_HANG, text=CRASHES)
    after, after_dir = make_campaign(WITH_A_HANG, text=CRASHES)
    report = compare(before, after, after_dir)
    assert report.summary.verdict == "Nothing changed"
    assert "Look at acquire_forever" in report.summary.steps[0].text
    assert "the question is answered" not in markdown.render(report)
    apart, apart_dir = make_campaign([(BOTH, "crash", 0)], text=CRASHES)
    assert compare(make_campaign(AS_EXPECTED[:1], text=CRASHES)[0], apart, apart_dir).summary.steps


def test_a_matrix_that_expects_nothing_is_headed_by_what_failed(make_campaign):
    text = AXES.partition("expect:")[0]
    run, run_dir = make_campaign(WITH_A_HANG, text=text)
    assert build(run, run_dir).summary.verdict.startswith("CRASH (RuntimeError), HANG (deadlock) in 3 of 4 cells")
    assert "not as expected" not in terminal.text(build(run, run_dir), run_dir)
