from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest

from harness.search.costs import MAX_PROBES, failures_allowed, next_probe


def first_of(n: int, *, pass_s: float, fail_s: float, failures: int = 99) -> int:
    """The first probe over ``n`` values whose threshold is anywhere in them or nowhere."""
    return next_probe(
        range(n), unknown_below=-1, unknown_above=n, pass_s=[pass_s] * n, fail_s=fail_s, failures=failures
    )


def expected_seconds(n: int, *, pass_s: float, fail_s: float) -> float:
    """What the search costs on average over all thresholds 0..n when every probe is chosen by next_probe."""

    def play(threshold: int) -> float:
        low, high, seconds = -1, n, 0.0
        while high - low > 1:
            inside = range(low + 1, high)
            costs = [pass_s] * len(inside)
            probe = next_probe(inside, unknown_below=low, unknown_above=high, pass_s=costs, fail_s=fail_s, failures=99)
            low, high = (low, probe) if probe >= threshold else (probe, high)
            seconds += fail_s if high == probe else pass_s
        return seconds

    return sum(play(t) for t in range(n + 1)) / (n + 1)


@cache
def least_seconds(candidates: int, pass_s: float, fail_s: float) -> float:
    """The textbook recursion, times the number of candidates."""
    if candidates == 1:
        return 0.0
    return min(
        j * fail_s
        + (candidates - j) * pass_s
        + least_seconds(j, pass_s, fail_s)
        + least_seconds(candidates - j, pass_s, fail_s)
        for j in range(1, candidates)
    )


@pytest.mark.parametrize(("pass_s", "fail_s"), [(1.0, 1.0), (2.0, 60.0), (1.0, 15.0), (20.0, 60.0), (5.0, 1.0)])
@pytest.mark.parametrize("n", [1, 2, 5, 12, 20])
def test_the_search_costs_exactly_what_the_optimal_search_costs(n, pass_s, fail_s):
    best = least_seconds(n + 1, pass_s, fail_s) / (n + 1)
    assert expected_seconds(n, pass_s=pass_s, fail_s=fail_s) == pytest.approx(best)


def test_equal_costs_halve_and_dear_failures_climb():
    assert first_of(15, pass_s=1, fail_s=1) == 7
    assert first_of(12, pass_s=1, fail_s=1000) == 0


def test_a_dear_pass_jumps_up():
    assert first_of(12, pass_s=100, fail_s=1) == 11


def test_passes_that_get_dearer_along_the_axis_keep_the_search_low():
    rising = [float(2**i) for i in range(12)]
    flat = [sum(rising) / 12] * 12
    common = {"unknown_below": -1, "unknown_above": 12, "fail_s": 50.0, "failures": 99}
    assert next_probe(range(12), pass_s=rising, **common) < next_probe(range(12), pass_s=flat, **common)


@pytest.mark.parametrize("n", range(1, 40))
def test_with_one_failure_left_it_climbs_one_by_one(n):
    assert first_of(n, pass_s=100, fail_s=1, failures=1) == 0


@pytest.mark.parametrize("fail_s", [0.1, 1.0, 15.0, 300.0])
@pytest.mark.parametrize("n", range(1, 13))
def test_up_to_twelve_values_cost_at_most_two_failures(n, fail_s):
    for threshold in range(n + 1):
        low, high, fails = -1, n, 0
        while high - low > 1:
            inside = range(low + 1, high)
            probe = next_probe(
                inside,
                unknown_below=low,
                unknown_above=high,
                pass_s=[1.0] * len(inside),
                fail_s=fail_s,
                failures=failures_allowed(n) - fails,
            )
            low, high = (low, probe) if probe >= threshold else (probe, high)
            fails += high == probe
        assert high == threshold
        assert fails <= 2


def test_holes_are_never_chosen():
    probes = [0, 3, 7, 8]
    chosen = next_probe(probes, unknown_below=-1, unknown_above=12, pass_s=[1.0] * 4, fail_s=1.0, failures=9)
    assert chosen in probes


def test_a_wide_gap_of_values_that_cannot_be_asked_weighs_what_it_holds():
    # 99 of 101 thresholds lie above position 1, so one pass there decides nearly all of them.
    common = {"unknown_below": -1, "pass_s": [1.0, 1.0], "fail_s": 1.0, "failures": 9}
    assert next_probe([0, 1], unknown_above=100, **common) == 1
    assert next_probe([98, 99], unknown_above=100, **common) == 98


def test_a_long_axis_is_thinned_and_still_searched():
    n = 1024
    chosen = first_of(n, pass_s=1, fail_s=1)
    assert n // 3 < chosen < 2 * n // 3
    assert n > MAX_PROBES


def test_the_failures_allowed_never_fall_as_the_axis_grows():
    allowed = [failures_allowed(n) for n in range(1, 2000)]
    assert allowed[:12] == [2] * 12
    assert all(a <= b for a, b in pairwise(allowed))
