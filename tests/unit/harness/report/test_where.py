"""What tells the cells that failed from the others is said in the fewest settings, and only what the cells show."""

from __future__ import annotations

import dataclasses

import pytest

from harness.report.asked import where
from harness.report.findings import Findings
from harness.report.write import build

AXES = """
version: 1
name: canned
description: Which setting does it take?
base: {train.steps: 8}
axes:
  attention: {type: categorical, values: [dense, nsa, legacy-sequential], apply: {config: model.attention}, priority: 9}
  n_layers: {type: ordered, values: [1, 2, 6, 12], priority: 8}
  patch: {type: flag, apply: {config: parallel.find_unused_parameters}}
strategy: one-factor
"""
HANG = "HANG (deadlock)"


def cell(attention, n_layers=1, *, patch=False):
    return {"attention": attention, "n_layers": n_layers, "patch": patch}


@pytest.fixture
def told(make_campaign):
    def make(*trials):
        run, _ = make_campaign([(*trial, 0) for trial in trials], text=AXES)
        return where(Findings(run=run), HANG)

    return make


def test_one_setting_that_all_failing_cells_share_and_no_other_has_is_named_alone(told):
    failing = [(cell("nsa"), "hang"), (cell("nsa", patch=True), "hang"), (cell("nsa", 12), "hang")]
    passing = [(cell("dense"), "pass"), (cell("legacy-sequential", 12), "pass")]
    assert told(*failing, *passing) == "in all 3 cells with attention=nsa, and in no other"


def test_two_settings_are_named_where_one_is_not_enough(told):
    failing = [(cell("legacy-sequential", 12), "hang"), (cell("legacy-sequential", 12, patch=True), "hang")]
    passing = [(cell("legacy-sequential"), "pass"), (cell("nsa", 12), "pass")]
    assert told(*failing, *passing) == "in both cells with attention=legacy-sequential, n_layers=12, and in no other"


def test_settings_that_these_cells_do_not_tell_apart_are_all_named(told):
    """Attention and depth change together, so that either may be what it takes."""
    failing = [(cell("legacy-sequential", 12), "hang"), (cell("legacy-sequential", 12, patch=True), "hang")]
    assert told(*failing, (cell("dense"), "pass")) == (
        "in both cells with attention=legacy-sequential, n_layers=12, and in no other"
    )


def test_the_upper_end_of_an_ordered_axis_is_named_as_such(told):
    failing, passing = [(cell("nsa", n), "hang") for n in (6, 12)], [(cell("nsa", n), "pass") for n in (1, 2)]
    assert told(*failing, *passing) == "in both cells with n_layers>=6, and in no other"


def test_a_least_value_and_another_setting_are_named_together_where_neither_tells_alone(told):
    failing = [(cell("nsa", n), "hang") for n in (6, 12)]
    passing = [(cell("nsa", n), "pass") for n in (1, 2)] + [(cell("dense", n), "pass") for n in (1, 12)]
    assert told(*failing, *passing) == "in both cells with attention=nsa, n_layers>=6, and in no other"
    assert told(*failing, *passing, (cell("nsa", 12, patch=True), "pass")) == (
        "in both cells with attention=nsa, n_layers>=6, patch=false, and in no other"
    )


def test_a_least_value_that_a_passing_cell_has_too_is_not_named(told):
    failing = [(cell("nsa", n), "hang") for n in (2, 12)]
    assert told(*failing, (cell("nsa", 6), "pass"), (cell("dense", 12), "pass")) == ""


def test_failures_without_a_setting_in_common_are_only_counted(make_campaign):
    trials = [(cell("nsa"), "hang", 0), (cell("legacy-sequential", 12), "hang", 0), (cell("nsa", 12), "pass", 0)]
    trials += [(cell("legacy-sequential"), "pass", 0)]
    run, run_dir = make_campaign(trials, text=AXES)
    assert where(Findings(run=run), HANG) == ""
    assert build(run, run_dir).summary.verdict == f"{HANG} in 2 of 4 cells"


def test_a_cell_that_could_not_be_told_is_not_counted_among_the_others(told):
    failing = [(cell("nsa"), "hang"), (cell("nsa", 12), "hang")]
    found = told(*failing, (cell("dense"), "pass"), (cell("legacy-sequential"), "untold"))
    assert found == "in both cells with attention=nsa, and in no other that could be told"


def test_a_crash_alike_in_several_cells_is_one_failure_and_its_line_is_what_to_look_at(make_campaign):
    trials = [(cell("nsa"), "crash", 0), (cell("nsa", patch=True), "crash", 0), (cell("dense"), "pass", 0)]
    told = build(*make_campaign(trials, text=AXES)).summary
    assert told.verdict == "CRASH (RuntimeError) in both cells with attention=nsa, and in no other"
    assert "Both failed trials end in the same stack." in told.sure
    assert told.steps[0].text.startswith("Look at attention (nsa/kernels/flash.py:53); the traceback is in Evidence")


def test_two_cells_that_ran_out_of_time_ended_alike_whatever_reason_was_seen(make_campaign):
    """A limit may end a slow trial before its reason shows; that is no difference between the cells."""
    run, _ = make_campaign([(cell("nsa"), "slow", 0), (cell("nsa", patch=True), "slow", 0)], text=AXES)
    why = dataclasses.replace(run.records[1].verdict, cause="host-bound")
    told = dataclasses.replace(run, records=(run.records[0], dataclasses.replace(run.records[1], verdict=why)))
    patch = next(found for found in Findings(run=told).pairs if found.axis == "patch")
    assert (len(patch.alike), len(patch.different)) == (1, 0)
