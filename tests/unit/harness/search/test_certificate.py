"""What passes rule out when they are added until there are enough of them, and whether trials depend on each other."""

from __future__ import annotations

import math
import random

import pytest

from harness.search.certificate import Certificate, error, excluded_rate, failure_curve, passes_needed, share, stated
from harness.search.conclude import runs_test


def test_the_shares_of_all_looks_add_up_to_one():
    assert sum(share(n) for n in range(100_000)) == pytest.approx(1, abs=1e-5)
    assert share(0) == 0.9


@pytest.mark.parametrize(("required", "bad", "attempt"), [(44, 1, 1), (44, 3, 2), (18, 1, 1), (9, 2, 5), (18, 0, 3)])
def test_later_certificates_and_failures_ask_for_the_passes_that_rule_out_the_same_rate(required, bad, attempt):
    rate = excluded_rate(required)

    def missed(passes: int) -> float:
        runs = passes + bad
        return sum(math.comb(runs, k) * rate**k * (1 - rate) ** (runs - k) for k in range(bad + 1))

    passes, level = passes_needed(required, bad, attempt=attempt), error(attempt=attempt, bad=bad, confidence=0.95)
    assert missed(passes) <= level < missed(passes - 1)
    assert passes > required


def test_at_exactly_the_rate_that_it_rules_out_a_certificate_is_wrong_in_at_most_one_of_twenty():
    """The chance that a value which fails at that rate completes one of five certificates, failures among them."""
    rate, wrong = excluded_rate(18), 0.0
    for attempt in range(1, 6):
        alive, done = {0: 1.0}, 0.0
        for runs in range(1, 200):
            after: dict[int, float] = {}
            for bad, chance in alive.items():
                after[bad] = after.get(bad, 0.0) + chance * (1 - rate)
                after[bad + 1] = after.get(bad + 1, 0.0) + chance * rate
            complete = {b for b in after if runs - b >= passes_needed(18, b, attempt=attempt)}
            done += sum(after[b] for b in complete)
            alive = {b: chance for b, chance in after.items() if b not in complete and chance > 1e-12}
        wrong += done
    assert 0.03 < wrong <= 0.05


def test_a_certificate_says_what_its_passes_rule_out_before_it_is_complete():
    certificate = Certificate(required=18)
    assert certificate.excluded_rate is None
    for _ in range(9):
        certificate.count(passed=True)
    assert certificate.excluded_rate == pytest.approx(1 - 0.0405 ** (1 / 9))
    assert not certificate.complete
    assert stated(0.14001) == stated(0.15) == 0.15


def test_trials_that_come_in_runs_are_told_from_trials_that_do_not():
    sticky = [True] * 6 + [False] * 5 + [True] * 6 + [False]
    assert runs_test(sticky).dependent
    assert not runs_test([True, False] * 9).dependent
    few = runs_test([True, False, True, False])
    assert (few.good, few.bad, few.can_tell) == (2, 1, False), "the last answer is no random one"


def test_independent_trials_are_called_dependent_in_at_most_one_of_twenty():
    draw = random.Random(0)
    called = sum(runs_test([draw.random() < 0.6 for _ in range(25)]).dependent for _ in range(1000))
    assert 5 < called <= 60


def test_the_band_of_the_failure_curve_holds_for_all_values_at_once_and_rises_along_the_axis():
    draw, rates, held, runs = random.Random(1), (0.0, 0.05, 0.3, 0.9), 0, 300
    for _ in range(runs):
        counts = [(30 - (bad := sum(draw.random() < rate for _ in range(30))), bad, 0) for rate in rates]
        band = failure_curve((1, 2, 3, 4), counts, confidence=0.95)
        held += all(b.low <= rate <= b.high for b, rate in zip(band, rates, strict=True))
        assert [b.low for b in band] == sorted(b.low for b in band)
        assert [b.high for b in band] == sorted(b.high for b in band)
    assert held >= 0.93 * runs


def test_what_was_cut_off_may_be_either_and_what_was_not_tried_has_no_band():
    (band,) = failure_curve((1, 2), [(0, 0, 0), (20, 0, 5)], confidence=0.95)
    assert (band.value, band.low) == (2, 0.0)
    assert band.high > 0.3
