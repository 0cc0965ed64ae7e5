from __future__ import annotations

import pytest

from harness.search.posterior import excluded_rate, threshold_posterior


def integrate(
    counts: list[tuple[int, int]], steps: int = 20000, false_alarms: tuple[float, ...] = (0.0,)
) -> list[float]:
    """The posterior by brute force: midpoint rule over the rate, plus the deterministic spike."""
    weights = []
    for threshold in range(len(counts) + 1):
        below, above = counts[:threshold], counts[threshold:]
        passed, failed = sum(g for g, _ in below), sum(b for _, b in below)
        noise = sum(q**failed * (1 - q) ** passed for q in false_alarms) / len(false_alarms)
        good, bad = sum(g for g, _ in above), sum(b for _, b in above)
        rates = ((i + 0.5) / steps for i in range(steps))
        flat = sum(rate**bad * (1 - rate) ** good for rate in rates) / steps
        weights.append(noise * (0.5 * (good == 0) + 0.5 * flat))
    return [w / sum(weights) for w in weights]


@pytest.mark.parametrize(
    "counts",
    [
        [(1, 0), (1, 0), (1, 0), (1, 0), (0, 1)],
        [(1, 0), (29, 0), (0, 2)],
        [(1, 0), (3, 1), (9, 0), (2, 2)],
        [(4, 0), (4, 0)],
        [(0, 0), (0, 0), (0, 3)],
    ],
)
def test_it_is_the_integral_over_the_rate(counts):
    assert threshold_posterior(counts) == pytest.approx(integrate(counts), abs=1e-6)


def test_nothing_seen_leaves_all_thresholds_alike():
    assert threshold_posterior([(0, 0)] * 3) == pytest.approx([0.25] * 4)


def test_a_failure_rules_out_every_threshold_above_it():
    chances = threshold_posterior([(1, 0), (0, 1), (0, 0), (0, 0)])
    assert chances[2:] == (0.0, 0.0, 0.0)
    assert sum(chances) == pytest.approx(1.0)


def test_more_passes_below_the_failure_make_the_threshold_surer():
    def chance(passes: int) -> float:
        return threshold_posterior([(1, 0)] * 3 + [(passes, 0), (0, 2)])[4]

    assert chance(1) < chance(9) < chance(29)
    assert chance(29) > 0.999


def test_a_failing_value_that_also_passed_rules_out_nothing_but_the_spike():
    sure = threshold_posterior([(9, 0), (0, 1)])[1]
    flaky = threshold_posterior([(9, 0), (3, 1)])[1]
    assert flaky < sure


def test_thousands_of_passes_do_not_underflow():
    chances = threshold_posterior([(5000, 0)] * 50)
    assert chances[-1] > 0.98
    assert sum(chances) == pytest.approx(1.0)


@pytest.mark.parametrize(("passes", "rate"), [(9, 0.283), (29, 0.0981), (44, 0.0658), (1, 0.95)])
def test_passes_exclude_the_rate_that_would_have_shown(passes, rate):
    found = excluded_rate(passes, confidence=0.95)
    assert found == pytest.approx(rate, abs=5e-4)
    assert (1 - found) ** passes == pytest.approx(0.05)  # type: ignore[operator]


def test_no_pass_excludes_nothing():
    assert excluded_rate(0, confidence=0.95) is None


@pytest.mark.parametrize("counts", [[(70, 1), (0, 2)], [(19, 1), (1, 0), (44, 0), (0, 3)], [(30, 0), (2, 1)]])
def test_with_false_alarms_it_is_the_integral_over_both_rates(counts):
    rates = (0.01, 0.03)
    expected = integrate(counts, false_alarms=rates)
    assert threshold_posterior(counts, false_alarms=rates) == pytest.approx(expected, abs=1e-6)


def test_a_false_alarm_far_below_does_not_forbid_the_threshold_above_it():
    counts = [(70, 1), (1, 0), (44, 0), (0, 2)]
    assert threshold_posterior(counts)[3] == 0
    assert threshold_posterior(counts, false_alarms=(0.01, 0.05))[3] > 0.95
