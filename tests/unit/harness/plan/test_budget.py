from __future__ import annotations

import pytest

from harness.core.spec import Limits
from harness.core.trial import Prediction
from harness.plan.predict import budget


def healthy(*, total_high_s: float, silence_high_s: float) -> Prediction:
    return Prediction(
        total_s=1.0,
        total_high_s=total_high_s,
        silence_s=0.1,
        silence_high_s=silence_high_s,
        basis="3 passed trials at n_layers 1..4",
    )


def test_before_anything_passed_the_defaults_hold_and_say_so():
    limits = budget(Limits(), None)
    assert (limits.startup.seconds, limits.stall.seconds, limits.total.seconds) == (120, 30, 600)
    assert limits.stall.source == "default: no comparable trial has passed yet"


@pytest.mark.parametrize("prediction", [None, healthy(total_high_s=20, silence_high_s=0.52)])
def test_the_start_up_limit_is_learned_from_no_trial_and_says_so(prediction):
    assert budget(Limits(), prediction).startup.source == "default: not learned from passed trials"


def test_limits_are_learned_and_name_what_they_were_learned_from():
    limits = budget(Limits(), healthy(total_high_s=20, silence_high_s=0.52))
    assert limits.stall.seconds == pytest.approx(5.2)
    assert (
        limits.stall.source
        == "learned: 10 x 0.52 s, the longest silence to expect after 3 passed trials at n_layers 1..4"
    )
    assert limits.total.seconds == pytest.approx(126)
    said = "learned: 5 x 20 s, the longest time to expect after 3 passed trials at n_layers 1..4, and 26 s to watch a"
    assert limits.total.source == f"{said} silence"


@pytest.mark.parametrize(
    ("silence_high_s", "stall_s", "words"), [(0.12, 4, ", at least 4 s"), (31, 300, ", at most 300 s"), (1, 10, "1..4")]
)
def test_the_stall_limit_stays_within_bounds(silence_high_s, stall_s, words):
    stall = budget(Limits(), healthy(total_high_s=1, silence_high_s=silence_high_s)).stall
    assert stall.seconds == stall_s
    assert stall.source.endswith(words)


def test_the_total_limit_has_a_floor():
    total = budget(Limits(), healthy(total_high_s=1, silence_high_s=0.1)).total
    assert total.seconds == 30
    assert total.source.endswith(", at least 30 s")


def test_a_silence_can_be_watched_to_four_times_its_limit_before_the_total_limit_cuts_it_off():
    limits = budget(Limits(), healthy(total_high_s=0.5, silence_high_s=3))
    assert limits.total.seconds > 4 * limits.stall.seconds


def test_what_the_user_set_wins_over_what_was_learned():
    limits = budget(Limits(startup_s=1, stall_s=2, total_s=3), healthy(total_high_s=9, silence_high_s=9))
    assert [limit.seconds for limit in (limits.startup, limits.stall, limits.total)] == [1, 2, 3]
    assert limits.total.source == "set by the user (total_s)"


def test_a_soft_limit_is_a_few_times_a_pass_and_leaves_a_hang_the_time_to_be_told():
    assert not budget(Limits(), None, soft=True).soft, "nothing passed yet, so nobody knows what a pass takes"
    prediction = healthy(total_high_s=4, silence_high_s=3)
    soft = budget(Limits(total_s=300), prediction, soft=True)
    assert (soft.soft, soft.total.seconds) == (True, 20)
    assert soft.total.source == "soft limit: 5 x 4 s, the longest time to expect after 3 passed trials at n_layers 1..4"
    assert budget(Limits(total_s=300), healthy(total_high_s=0.5, silence_high_s=3), soft=True).total.seconds == 10
    assert budget(Limits(total_s=300), prediction).total.seconds == 300


def test_a_soft_limit_never_outlasts_the_whole_one():
    short = budget(Limits(total_s=8), healthy(total_high_s=4, silence_high_s=3), soft=True)
    assert (short.soft, short.total.seconds) == (False, 8)
