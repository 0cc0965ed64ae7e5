"""The law of a trial's own pace: under ten seconds for quick steps, under three steps and ten for others, or no say."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from harness.core.evidence import Heartbeat
from harness.core.pace import AGE_SHARE, LEAST_S, STEPS, UNTOLD, WATCHED, Pace, busy_patience_s, still_patience_s
from harness.core.point import Point
from harness.core.trial import BY_USER, Budget, Limit, Prediction, Trial

gaps = st.floats(min_value=0.0, max_value=1e4)
limits = st.floats(min_value=0.1, max_value=1e4)
enough = st.integers(min_value=STEPS, max_value=10**6)
phases = st.sampled_from(["data", "forward", "backward", "save", *sorted(UNTOLD)])
edges = st.sampled_from(["begin", "progress", "end"])


def trial(limit_s: float = 1e9, *, source: str = "default", healthy_s: float | None = None) -> Trial:
    limit = Limit(seconds=limit_s, source=source)
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


@given(gaps, enough, st.floats(min_value=0.0, max_value=900.0))
def test_a_standstill_is_told_within_ten_seconds_of_quick_steps_and_three_steps_and_ten_seconds_of_others(
    gap_s, steps, t_s
):
    """In the first quarter of an hour."""
    patience_s = still_patience_s(pace(gap_s, steps=steps), last(t_s=t_s), trial())
    assert patience_s is not None
    assert patience_s >= LEAST_S
    assert patience_s < 10.0 if gap_s < 1.0 else patience_s < 3 * gap_s + 10.0


@given(gaps, st.floats(min_value=0.0, max_value=1e6))
def test_a_long_job_is_given_a_hundredth_of_its_age(gap_s, t_s):
    patience_s = still_patience_s(pace(gap_s), last(t_s=t_s), trial())
    assert patience_s == max(still_patience_s(pace(gap_s), last(), trial()), AGE_SHARE * t_s)


@given(gaps, limits)
def test_nothing_is_told_later_than_after_four_limits(gap_s, limit_s):
    for ask in (still_patience_s, busy_patience_s):
        assert ask(pace(gap_s), last(), trial(limit_s)) <= WATCHED * limit_s


@given(gaps, st.integers(min_value=0, max_value=STEPS - 1))
def test_there_is_no_pace_before_three_steps(gap_s, steps):
    for ask in (still_patience_s, busy_patience_s):
        assert ask(pace(gap_s, steps=steps), last(), trial()) is None


@given(gaps, enough, limits)
def test_a_limit_that_the_user_set_is_kept(gap_s, steps, limit_s):
    for ask in (still_patience_s, busy_patience_s):
        assert ask(pace(gap_s, steps=steps), last(), trial(limit_s, source=f"{BY_USER} (stall_s)")) is None


@given(gaps, enough, phases, edges, phases, edges)
def test_the_pace_says_nothing_of_a_place_that_is_new(gap_s, steps, phase, edge, new_phase, new_edge):
    known = (phase, edge) == (new_phase, new_edge)
    there = last(new_phase, new_edge)
    patience_s = still_patience_s(pace(gap_s, steps=steps, phase=phase, edge=edge), there, trial())
    assert (patience_s is not None) == known


def test_a_trial_without_a_mark_has_no_pace():
    assert still_patience_s(pace(0.1), None, trial()) is None


@given(gaps, st.floats(min_value=0.0, max_value=1e4))
def test_a_silence_that_passed_trials_predict_is_in_proportion(gap_s, healthy_s):
    assert still_patience_s(pace(gap_s), last(), trial(healthy_s=healthy_s)) >= healthy_s


@given(gaps, gaps, phases, edges)
def test_what_computes_has_a_hundred_gaps_and_never_less_than_what_stands_still(own_s, other_s, phase, edge):
    seen = replace(pace(own_s, phase=phase, edge=edge), longest_s=max(own_s, other_s))
    there = last(phase, edge)
    busy_s = busy_patience_s(seen, there, trial())
    if edge == "end" or phase in UNTOLD:
        assert busy_s is None
        return
    assert busy_s >= max(100.0 * own_s, still_patience_s(seen, there, trial()))
