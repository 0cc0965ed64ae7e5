"""What a plan says: trials from the beginning, seconds once a trial has shown what one takes."""

from __future__ import annotations

import io
import re

import pytest

from harness.cli.console import PlainScreen
from harness.core.point import Axis, AxisType
from harness.core.space import Factor, Space
from harness.core.spec import Effort
from harness.core.verdict import Answer
from harness.search.explore import Explore
from harness.search.forecast import within
from harness.search.minimise import Minimise
from harness.search.strategies import Listed
from harness.search.threshold import ThresholdSearch

AXES = tuple(Axis(name=f"a{i}", path=f"a{i}", type=AxisType.ORDERED, values=(0, 1, 2)) for i in range(3))
SPACE = Space(factors=tuple(Factor(axis=axis, good=0, bad=2) for axis in AXES))
SEARCHES = {
    "bisect": lambda: ThresholdSearch(AXES[0], Effort(), base=SPACE.good),
    "minimise": lambda: Minimise(SPACE, Effort()),
    "explore": lambda: Explore(SPACE, Effort()),
    "cells": lambda: Listed((SPACE.good, SPACE.bad), passes=2),
}
SECONDS = re.compile(r"\d s\b|\d min\b")


@pytest.mark.parametrize("name", SEARCHES)
def test_no_seconds_are_named_before_a_trial_has_shown_what_one_takes(name):
    search = SEARCHES[name]()
    before = search.estimate()
    assert before.trials > 0
    assert not before.is_measured
    assert not SECONDS.search(before.text), before.text
    assert "known once" in before.text

    search.tell(cell=search.ask().cell, answer=Answer.GOOD, seconds=7.0)
    after = search.estimate()
    assert after.is_measured
    assert SECONDS.search(after.text), after.text


@pytest.mark.parametrize(("most", "done", "ends"), [(4, 0, False), (3, 0, True), (4, 1, True), (5, 1, False)])
def test_a_plan_of_more_trials_than_may_be_run_says_so(most: int, done: int, ends: bool):
    estimate = within(SEARCHES["cells"]().estimate(), most=most, done=done)
    assert estimate.trials == 4
    assert estimate.text.endswith(f"; the limit of {most} trials (--max-trials) ends it before") == ends


def test_a_log_has_the_plan_twice_before_the_first_trial_and_when_its_seconds_are_known():
    out = io.StringIO()
    screen, search = PlainScreen(out), SEARCHES["bisect"]()
    screen.planned(search.estimate())
    screen.planned(search.estimate())
    search.tell(cell=SPACE.good, answer=Answer.GOOD, seconds=7.0)
    screen.planned(search.estimate())
    screen.planned(search.estimate())
    plans = out.getvalue().splitlines()
    assert [bool(SECONDS.search(line)) for line in plans] == [False, True]


@pytest.mark.parametrize(
    ("failures_s", "ends", "least_high_s"),
    [
        ((0.1, 0.2), "2 s if the rest pass; failures so far took 0.2 s at most, less than a pass", 30.0),
        ((0.1, 8.0), "2 s if the rest pass, 16 s if each fails like the slowest so far", 16.0),
    ],
)
def test_what_the_rest_costs_if_it_fails_is_by_the_slowest_failure_and_not_by_quick_crashes(
    failures_s, ends, least_high_s
):
    cells = [SPACE.good.with_value("a0", a).with_value("a1", b) for a in (0, 1, 2) for b in (0, 1)][:5]
    search = Listed(cells, passes=1)
    search.tell(cell=cells[0], answer=Answer.GOOD, seconds=1.0)
    for cell, seconds in zip(cells[1:], failures_s, strict=False):
        search.tell(cell=cell, answer=Answer.BAD, seconds=seconds)
    estimate = search.estimate()
    assert estimate.text == f"2 trials of 5 cells, {ends}"
    assert (estimate.seconds_low, estimate.seconds_high) == (2.0, least_high_s)


def test_a_plan_names_one_trial_as_one_and_one_time_once():
    search = ThresholdSearch(Axis(name="n", path="", type=AxisType.ORDERED, values=(1,)), Effort(certify=1))
    search.tell(cell=search.ask().cell, answer=Answer.GOOD, seconds=7.0)

    assert search.estimate().text == "about 1 trial, no failure to wait for, about 7 s"
