"""Failure rates by a few runs: intervals that keep their word."""

import random

import pytest

from harness.core.rates import at_most, interval, passes_that_show


@pytest.mark.parametrize(
    ("failed", "runs", "low", "high"),
    [(3, 40, 0.0157, 0.2039), (0, 40, 0.0, 0.0881), (1, 1, 0.025, 1.0), (10, 10, 0.6915, 1.0), (5, 10, 0.1871, 0.8129)],
)
def test_the_interval_is_clopper_and_pearsons(failed, runs, low, high):
    assert interval(failed, runs) == pytest.approx((low, high), abs=2e-4)


@pytest.mark.parametrize("rate", [0.03, 0.2, 0.5])
def test_the_interval_covers_the_truth_also_where_runs_end_with_the_first_failure(rate):
    rng = random.Random(7)
    fixed = until = 0
    for _ in range(1000):
        low, high = interval(sum(rng.random() < rate for _ in range(40)), 40)
        fixed += low <= rate <= high
        runs = next(n for n in range(1, 10_000) if rng.random() < rate)
        low, high = interval(1, runs)
        until += low <= rate <= high
    assert fixed >= 940
    assert until >= 940


@pytest.mark.parametrize("rate", [0.01, 0.075, 0.5])
def test_as_many_passes_are_as_improbable_as_is_said_and_one_fewer_is_not(rate):
    passes = passes_that_show(rate)
    assert at_most(0, runs=passes, rate=rate) <= 0.05 < at_most(0, runs=passes - 1, rate=rate)


def test_what_always_fails_is_shown_fixed_by_one_pass():
    assert passes_that_show(1.0) == 1
