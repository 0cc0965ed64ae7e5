"""What passes are worth below a value that both passed and failed."""

from __future__ import annotations

import pytest

from harness.search.tally import RAREST, Tally
from harness.search.threshold import Doubts, rarest_rate


def test_without_a_failing_value_that_passed_a_failure_counts_as_one_that_always_comes():
    assert rarest_rate([Tally(bad=1), Tally(bad=2)]) == 1.0
    assert rarest_rate([]) == 1.0


def test_the_rarest_failure_counts_and_none_is_taken_to_be_rarer_than_the_search_can_tell():
    assert rarest_rate([Tally(bad=3), Tally(good=2, bad=1)]) == 2 / 4
    assert rarest_rate([Tally(good=99, bad=1)]) == RAREST


def test_a_pass_speaks_for_its_value_and_for_every_smaller_one():
    doubts = Doubts.of([Tally(), Tally(good=1), Tally()], ruled_out=-1, rate=0.5)
    # First failing 0 or 1: a pass was seen against it; 2, or the suspect above: nothing.
    assert doubts.below == pytest.approx((0.5 / 3, 1 / 3, 2 / 3))


def test_what_is_ruled_out_is_no_longer_doubted():
    doubts = Doubts.of([Tally(good=44), Tally(), Tally()], ruled_out=0, rate=0.5)
    assert doubts.below == pytest.approx((0, 1 / 3, 2 / 3))


def test_twenty_passes_leave_little_doubt_of_a_failure_that_comes_one_time_in_ten():
    few, many = (Doubts.of([Tally(good=n)], ruled_out=-1, rate=0.1).below[0] for n in (5, 22))
    assert few == pytest.approx(0.9**5 / (1 + 0.9**5))
    assert many < 0.1 < few


def test_where_failures_are_dear_a_smaller_value_is_asked_than_where_they_are_cheap():
    doubts = Doubts.of([Tally() for _ in range(20)], ruled_out=-1, rate=0.5)
    dear, cheap = (doubts.most_telling(range(20), pass_s=[1.0] * 20, fail_s=s) for s in (60.0, 1.0))
    assert dear < cheap
    assert dear < 5
