"""The law of a trial's own pace: how long a busy silence must last, and that it never is more than four limits."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from harness.core.evidence import Heartbeat, Pace
from harness.core.point import Point
from harness.core.trial import Budget, Limit, Prediction, Trial
from harness.reading.pace import (
    AGE_SHARE,
    HUNDREDFOLD,
    LEAST_S,
    STEPS,
    SUSPICIOUS_S,
    TWICE,
    UNTOLD,
    UNUSUAL,
    WATCHED,
    busy_patience_s,
    own_busy_patience_s,
    suspicious_s,
)

gaps = st.floats(min_value=0.0, max_value=1e4)
limits = st.floats(min_value=0.1, max_value=1e4)
enough = st.integers(min_value=STEPS, max_value=10**6)
phases = st.sampled_from(["data", "forward", "backward", "save", *sorted(UNTOLD)])
edges = st.sampled_from(["begin", "progress", "end"])


def trial(limit_s: float = 1e9, *, by_user: bool = False, healthy_s: float | None = None) -> Trial:
    limit = Limit(seconds=limit_s, source="default", by_user=by_user)
    predicted = None
    if healthy_s is not None:
        predicted = Prediction(
            total_s=1.0, total_high_s=1.0, silence_s=healthy_s, silence_high_s=healthy_s, basis="steps=1"
        )
    return Trial(
        target="nsa", point=Point(settings=()), repeat=0, role="search", config={}, seed=0, code="c", machine="m",
        budget=Budget(startup=limit, stall=limit, total=limit), prediction=predicted,
    )  # fmt: skip


def last(phase: str = "forward", edge: str = "begin", *, t_s: float = 1.0) -> Heartbeat:
    return Heartbeat(seq=1, t_s=t_s, rank=0, pid=1, phase=phase, edge=edge, step=4)


def pace(gap_s: float, *, steps: int = STEPS, phase: str = "forward", edge: str = "begin") -> Pace:
    return Pace(steps=steps, longest_s=gap_s, gaps=((phase, edge, gap_s),))


@given(gaps, limits, st.booleans())
def test_a_busy_silence_is_judged_after_four_limits_at_the_latest(gap_s, limit_s, training):
    assert busy_patience_s(pace(gap_s), last(), trial(limit_s), training=training) <= WATCHED * limit_s


@given(gaps, gaps, phases, edges)
def test_what_computes_has_a_hundred_gaps_of_its_phase_and_three_of_any(own_s, other_s, phase, edge):
    seen = replace(pace(own_s, phase=phase, edge=edge), longest_s=max(own_s, other_s))
    told_s = own_busy_patience_s(seen, last(phase, edge), trial())
    if edge == "end" or phase in UNTOLD:
        assert told_s is None
        return
    assert told_s >= max(LEAST_S, HUNDREDFOLD * own_s, 3.0 * other_s)


@given(gaps, gaps, limits, st.booleans(), st.booleans())
def test_what_computes_has_a_minute_or_twice_its_limit(gap_s, healthy_s, limit_s, training, by_user):
    """However quick steps and passed trials were: it may do something that it never did before."""
    known = trial(limit_s, by_user=by_user, healthy_s=healthy_s)
    assert busy_patience_s(pace(gap_s), last(), known, training=training) >= min(LEAST_S, TWICE * limit_s)


@given(gaps, st.floats(min_value=0.0, max_value=1e6))
def test_a_long_job_is_given_a_hundredth_of_its_age(gap_s, t_s):
    young_s = own_busy_patience_s(pace(gap_s), last(), trial())
    assert own_busy_patience_s(pace(gap_s), last(t_s=t_s), trial()) == max(young_s, AGE_SHARE * t_s)


@given(gaps, st.integers(min_value=0, max_value=STEPS - 1))
def test_there_is_no_pace_before_three_steps(gap_s, steps):
    assert own_busy_patience_s(pace(gap_s, steps=steps), last(), trial()) is None


@given(gaps, enough, limits)
def test_a_limit_that_the_user_set_is_kept(gap_s, steps, limit_s):
    by_user = trial(limit_s, by_user=True)
    assert own_busy_patience_s(pace(gap_s, steps=steps), last(), by_user) is None
    assert busy_patience_s(pace(gap_s, steps=steps), last(), by_user, training=True) == WATCHED * limit_s


@given(gaps, enough, phases, edges, phases, edges)
def test_the_pace_says_nothing_of_a_place_that_is_new(gap_s, steps, phase, edge, new_phase, new_edge):
    known = (phase, edge) == (new_phase, new_edge) and new_edge != "end" and new_phase not in UNTOLD
    seen = pace(gap_s, steps=steps, phase=phase, edge=edge)
    assert (own_busy_patience_s(seen, last(new_phase, new_edge), trial()) is not None) == known


def test_a_trial_without_a_mark_has_no_pace():
    assert own_busy_patience_s(pace(0.1), None, trial()) is None


@given(gaps, st.floats(min_value=0.0, max_value=1e4))
def test_a_silence_that_passed_trials_predict_is_in_proportion(gap_s, healthy_s):
    predicted = trial(healthy_s=healthy_s)
    assert own_busy_patience_s(pace(gap_s), last(), predicted) >= healthy_s
    assert busy_patience_s(pace(gap_s), last(), predicted, training=True) >= LEAST_S


@given(gaps)
def test_nothing_is_suspicious_before_three_seconds_nor_before_one_and_a_half_of_the_longest_gap(gap_s):
    assert suspicious_s(pace(gap_s)) == max(SUSPICIOUS_S, UNUSUAL * gap_s)
