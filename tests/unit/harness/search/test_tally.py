"""When failures at a value are its own, and how many passes say how much."""

from __future__ import annotations

from math import comb

import pytest

from harness.search.tally import Tally, lean, passes_for, passes_needed


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


@pytest.mark.parametrize(("required", "bad"), [(44, 1), (44, 3), (18, 1), (9, 2)])
def test_passes_with_failures_among_them_rule_out_the_same_rate(required, bad):
    def missed(passes: int) -> float:
        rate, runs = 1 - 0.05 ** (1 / required), passes + bad
        return sum(comb(runs, k) * rate**k * (1 - rate) ** (runs - k) for k in range(bad + 1))

    passes = passes_needed(required, bad)
    assert missed(passes) <= 0.05 < missed(passes - 1)
    assert passes_needed(required, 0) == required


def test_the_third_certificate_of_a_search_asks_for_more_than_the_first_two():
    assert [passes_for(44, attempt) for attempt in (1, 2)] == [44, 44]
    assert 0.9 ** passes_for(44, 9) < 0.9**44 / 8


@pytest.mark.parametrize(("good", "bad", "attempt"), [(29, 0, 1), (29, 0, 4), (70, 1, 1), (92, 2, 3), (1, 1, 1)])
def test_what_passes_are_worth_is_the_largest_clean_certificate_that_they_would_have_met(good, bad, attempt):
    tally = Tally(good=good, bad=bad, attempt=attempt)
    worth = tally.worth
    assert passes_needed(passes_for(worth + 1, attempt), bad) > good
    assert not worth or passes_needed(passes_for(worth, attempt), bad) <= good
    assert worth <= good
