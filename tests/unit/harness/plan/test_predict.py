from __future__ import annotations

from dataclasses import replace

import pytest

from harness.core.evidence import Measurement
from harness.core.outcome import Ending, Outcome
from harness.core.point import Axis, AxisType, Point
from harness.core.record import TrialRecord
from harness.core.spec import Limits
from harness.core.trial import Trial
from harness.core.verdict import Answer, Confidence, Kind, Verdict
from harness.plan.predict import budget, predict

AXIS = Axis(name="n_layers", path="model.n_layers", type=AxisType.ORDERED, values=tuple(range(1, 13)))


def trial(value: int, **settings: object) -> Trial:
    model = {"n_layers": value, "attention": "nsa", **settings}
    return Trial(
        target="nsa",
        point=Point.of({"n_layers": value}),
        repeat=0,
        role="search",
        config={"model": model},
        seed=0,
        code="c",
        machine="m",
        budget=budget(Limits(), None),
    )


def record(
    value: int, *, total_s: float, silence_s: float = 0.1, kind: Kind = Kind.PASS, **settings: object
) -> TrialRecord:
    return TrialRecord(
        trial=trial(value, **settings),
        outcome=Outcome(ending=Ending.EXITED, duration_s=total_s),
        verdict=Verdict(kind=kind, rule="r", because="b", cites=("exit",), confidence=Confidence.PROOF),
        answer=Answer.GOOD,
        measurement=Measurement(longest_silence_s=silence_s),
        started_at="",
    )


def test_nothing_passed_predicts_nothing():
    assert predict([], axis=AXIS, value=3) is None
    assert predict([record(1, total_s=1, kind=Kind.HANG)], axis=AXIS, value=3) is None


def test_only_passed_trials_count():
    slow = record(2, total_s=99, kind=Kind.SLOW)
    found = predict([record(1, total_s=1), slow], axis=AXIS, value=1)
    assert found is not None
    assert found.total_s == pytest.approx(1)


def test_times_on_a_line_are_predicted_by_it():
    records = [record(v, total_s=1 + 0.5 * v, silence_s=0.1 * v) for v in (1, 2, 3, 4)]
    found = predict(records, axis=AXIS, value=6)
    assert found is not None
    assert found.total_s == pytest.approx(4.0)
    assert found.silence_s == pytest.approx(0.6)
    assert found.basis == "4 passed trials at n_layers 1..4"


def test_scatter_widens_the_upper_limit_up_to_three_times_the_fit():
    tight = [record(v, total_s=v + 0.01 * (-1) ** v) for v in (1, 2, 3, 4)]
    loose = [record(v, total_s=v + 0.9 * (-1) ** v) for v in (1, 2, 3, 4)]
    narrow, wide = predict(tight, axis=AXIS, value=4), predict(loose, axis=AXIS, value=4)
    assert narrow is not None
    assert wide is not None
    assert narrow.total_s < narrow.total_high_s < 1.1 * narrow.total_s
    assert narrow.total_high_s < wide.total_high_s <= 3 * wide.total_s


def test_the_interval_is_student_s_prediction_interval():
    # x 1..4, y 1.2 1.8 3.2 3.8: line 0.2 + 0.92 x, residuals 0.08 -0.24 0.24 -0.08, so scatter^2 = 0.128 / 2.
    records = [record(v, total_s=y) for v, y in ((1, 1.2), (2, 1.8), (3, 3.2), (4, 3.8))]
    found = predict(records, axis=AXIS, value=5)
    assert found is not None
    assert found.total_s == pytest.approx(4.8)
    t_95_2, scatter, wide = 4.3027, 0.064**0.5, (1 + 1 / 4 + 2.5**2 / 5) ** 0.5
    assert found.total_high_s == pytest.approx(4.8 + t_95_2 * scatter * wide, rel=1e-4)


def test_too_few_trials_for_an_interval_allow_three_times_the_line():
    found = predict([record(1, total_s=1), record(2, total_s=2)], axis=AXIS, value=3)
    assert found is not None
    assert (found.total_s, found.total_high_s) == (pytest.approx(3), pytest.approx(9))


def test_one_value_seen_is_scaled_in_proportion():
    found = predict([record(2, total_s=1)], axis=AXIS, value=4)
    assert found is not None
    assert (found.total_s, found.total_high_s) == (pytest.approx(2), pytest.approx(6))


def test_the_start_up_does_not_grow_in_proportion_but_the_limit_lets_it():
    """Seen on an H200: 9.2 s at 64 tokens, 4.3 s of them start-up, foretold 294 s at 2048, which took 199 s."""
    seen = record(1, total_s=9.2)
    seen = replace(seen, measurement=replace(seen.measurement, startup_s=4.3))
    found = predict([seen], axis=AXIS, value=12)
    assert found is not None
    assert found.total_s == pytest.approx(4.3 + 12 * 4.9)
    assert found.total_high_s == pytest.approx(6 * 12 * 9.2)


def test_one_value_seen_predicts_no_less_for_smaller_ones():
    found = predict([record(4, total_s=2)], axis=AXIS, value=1)
    assert found is not None
    assert found.total_s == pytest.approx(2)


def test_beyond_four_times_the_largest_value_the_limit_doubles():
    records = [record(1, total_s=1), record(2, total_s=2)]
    near, far = predict(records, axis=AXIS, value=8), predict(records, axis=AXIS, value=9)
    assert near is not None
    assert far is not None
    assert near.total_high_s == pytest.approx(3 * 8)
    assert far.total_high_s == pytest.approx(6 * 9)


def test_far_beyond_what_was_measured_a_prediction_is_a_lower_bound_and_says_so():
    records = [record(1, total_s=1), record(2, total_s=2)]
    near, far = predict(records, axis=AXIS, value=8), predict(records, axis=AXIS, value=9)
    assert near is not None
    assert far is not None
    assert (near.least, near.source) == ("", "2 passed trials at n_layers 1..2")
    assert far.least == "at least about "
    assert far.source == "2 passed trials at n_layers 1..2; this is 4.5 times beyond, where time may grow faster"


def test_the_seconds_for_each_autograd_node_are_those_of_the_trial_that_built_most():
    def counted(value: int, step_s: float, nodes: float) -> TrialRecord:
        seen = Measurement(step_s=(9.0, step_s, step_s), facts=(("forward_nodes", nodes),))
        return replace(record(value, total_s=9.0), measurement=seen)

    few, many = counted(1, 0.3, 1000.0), counted(2, 0.4, 2000.0)
    found, uncounted = predict([many, few], axis=AXIS, value=4), predict([record(1, total_s=1)], axis=AXIS, value=4)
    assert found is not None
    assert found.node_s == pytest.approx(0.0002)
    assert uncounted is not None
    assert uncounted.node_s is None


def test_the_upper_limit_is_never_below_the_largest_time_seen():
    records = [record(v, total_s=1) for v in (1, 2, 3)] + [record(3, total_s=40)]
    found = predict(records, axis=AXIS, value=1)
    assert found is not None
    assert found.total_high_s == pytest.approx(40)


def test_a_line_that_falls_predicts_no_less_beyond_it_than_was_seen():
    # The first trial also started a server.
    records = [record(1, total_s=3), record(2, total_s=0.2), record(3, total_s=0.3)]
    found = predict(records, axis=AXIS, value=12)
    assert found is not None
    assert found.total_s == pytest.approx(3)


def test_an_axis_without_numbers_compares_equal_values_only():
    axis = Axis(name="attention", path="model.attention", type=AxisType.CATEGORICAL, values=("nsa", "dense"))
    seen = record(1, total_s=1)
    seen = replace(seen, trial=replace(seen.trial, point=Point.of({"attention": "nsa"})))
    found = predict([seen], axis=axis, value="nsa")
    assert found is not None
    assert found.basis == "1 passed trial at attention nsa"
    assert predict([seen], axis=axis, value="dense") is None


def test_of_a_trial_in_which_no_step_was_seen_all_may_have_been_silence():
    """A program that computes for 16 s and prints then: nobody measured its silence, which was not 0 s."""
    found = predict([record(3, total_s=33.0, silence_s=0.0)], axis=AXIS, value=3)
    assert found is not None
    assert found.silence_s == pytest.approx(33.0)
