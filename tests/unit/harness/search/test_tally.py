"""When failures at a value are its own."""

from __future__ import annotations

import pytest

from harness.search.tally import Tally, lean


def test_two_failures_in_a_row_are_its_own_and_one_is_never_enough():
    assert Tally(bad=2).is_sure(false_alarms=0, tried=5)
    assert not Tally(bad=1).is_sure(false_alarms=0, tried=5)
    assert Tally(bad=1).suspect


def test_a_failure_among_many_passes_is_a_false_alarm():
    assert Tally(good=5, bad=1).suspect
    assert not Tally(good=20, bad=1).suspect
    assert Tally(good=20, bad=4).suspect


@pytest.mark.parametrize("failures", [1, 2, 3])
def test_passes_speak_against_a_failing_value_and_failures_for_it(failures):
    leans = [lean(good, failures) for good in range(60)]
    assert leans == sorted(leans, reverse=True)
    assert lean(10, failures) < lean(10, failures + 1)


def test_where_false_alarms_were_seen_or_many_values_were_tried_more_is_asked_for():
    tally = Tally(good=3, bad=2)
    assert tally.is_sure(false_alarms=0, tried=5)
    assert not tally.is_sure(false_alarms=1, tried=5)
    assert not tally.is_sure(false_alarms=0, tried=100)
    assert Tally(bad=3).is_sure(false_alarms=9, tried=100)


def test_answers_that_tell_nothing_are_held_against_those_that_do():
    assert Tally(unresolved=3).is_exhausted
    assert not Tally(unresolved=2).is_exhausted
    assert not Tally(good=40, unresolved=9).is_exhausted
    assert Tally(good=30, bad=10, unresolved=23).is_exhausted
