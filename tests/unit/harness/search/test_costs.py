from __future__ import annotations

import pytest

from harness.search.costs import Costs


def test_before_the_first_trial_the_priors_hold():
    costs = Costs()
    assert (costs.of_pass(7), costs.of_failure(), costs.has_line) == (1.0, 15.0, False)


def test_one_value_seen_is_taken_for_all():
    costs = Costs()
    costs.passed(2, 0.4)
    assert costs.of_pass(9) == pytest.approx(0.4)
    assert not costs.has_line


def test_passes_at_several_values_give_a_line():
    costs = Costs()
    for value in (1, 2, 4):
        costs.passed(value, 0.5 + 0.25 * value)
    assert costs.of_pass(12) == pytest.approx(3.5)
    assert costs.has_line


def test_one_slow_start_does_not_bend_the_line():
    costs = Costs()
    costs.passed(1, 30.0)
    for value in (2, 3, 4, 5, 6):
        costs.passed(value, 0.5 * value)
    assert costs.of_pass(12) == pytest.approx(6.0, rel=0.2)


def test_the_line_never_falls_along_the_axis():
    costs = Costs()
    costs.passed(1, 3.0)
    costs.passed(2, 1.0)
    assert costs.of_pass(12) == costs.of_pass(2) == pytest.approx(2.0)


def test_failures_cost_their_mean():
    costs = Costs()
    costs.failed(10.0)
    costs.failed(14.0)
    assert costs.of_failure() == pytest.approx(12.0)


def test_costs_are_never_nothing():
    costs = Costs()
    costs.passed(1, 0.0)
    costs.failed(0.0)
    assert costs.of_pass(1) > 0
    assert costs.of_failure() > 0
