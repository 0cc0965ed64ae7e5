"""What a healthy trial of a cell should take: known, along one axis, or scaled from the nearest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.core.evidence import Measurement
from harness.core.outcome import Ending, Outcome
from harness.core.point import Point
from harness.core.record import TrialRecord
from harness.core.trial import Budget, Limit, Trial
from harness.core.verdict import Answer, Confidence, Kind, Verdict
from harness.plan.predict import guess_cell, predict_cell
from harness.spec.inline import inline_matrix

SPACE = inline_matrix(["n_layers=1..12", "seq_len=64..1024*2", "tied_head=false,true"]).space
LIMIT = Limit(seconds=1.0, source="test")


def passed(seconds: float, *, kind: Kind = Kind.PASS, **settings: int) -> TrialRecord:
    trial = Trial(
        target="nsa", point=SPACE.cell(settings), repeat=0, role="search", config={}, seed=0, code="", machine="",
        budget=Budget(startup=LIMIT, stall=LIMIT, total=LIMIT),
    )  # fmt: skip
    return TrialRecord(
        trial=trial,
        outcome=Outcome(ending=Ending.EXITED, duration_s=seconds),
        verdict=Verdict(kind=kind, rule="", because="", cites=(), confidence=Confidence.PROOF),
        answer=Answer.GOOD,
        measurement=Measurement(longest_silence_s=seconds / 10),
        started_at="",
    )


def at(records: list[TrialRecord], **settings: int):
    return predict_cell(records, space=SPACE, cell=Point.of(dict(SPACE.cell(settings))))


def test_nothing_is_predicted_from_nothing_or_from_failures():
    assert at([]) is None
    assert at([passed(9.0, kind=Kind.HANG)]) is None


def test_trials_of_the_cell_itself_say_it_best():
    known = at([passed(2.0, n_layers=4), passed(4.0, n_layers=4), passed(99.0, n_layers=5)], n_layers=4)
    assert known is not None
    assert known.total_s == pytest.approx(3.0)


def test_trials_along_one_axis_give_a_line():
    line = at([passed(1.0 + n, n_layers=n) for n in (1, 2, 3, 4)], n_layers=8)
    assert line is not None
    assert line.total_s == pytest.approx(9.0)
    assert line.total_high_s >= line.total_s


def test_the_nearest_cell_is_scaled_on_every_ordered_axis_and_the_limit_is_wide():
    far = at([passed(2.0, n_layers=2)], n_layers=6, seq_len=256)
    assert far is not None
    assert far.total_s == pytest.approx(2.0 * 3 * 4)
    assert far.total_high_s == pytest.approx(6 * far.total_s)
    assert (
        far.source
        == "1 passed trial that differs in n_layers, seq_len; this is 12 times beyond, where time may grow faster"
    )


def test_far_beyond_on_one_axis_the_limit_is_as_wide_as_over_two():
    near, far = at([passed(2.0, n_layers=3)], n_layers=12), at([passed(2.0, n_layers=2)], n_layers=12)
    assert near is not None
    assert far is not None
    assert (near.least, near.total_high_s) == ("", pytest.approx(3 * 8.0))
    assert (far.least, far.total_high_s) == ("at least about ", pytest.approx(6 * 12.0))


def test_the_start_up_of_the_nearest_cell_does_not_grow_with_it():
    seen = passed(9.0, n_layers=1)
    seen = replace(seen, measurement=replace(seen.measurement, startup_s=4.0))
    far = at([seen], n_layers=2, seq_len=128)
    assert far is not None
    assert far.total_s == pytest.approx(4.0 + 4 * 5.0)
    assert far.total_high_s == pytest.approx(6 * 4 * 9.0)


def test_another_setting_without_a_size_predicts_nothing_and_only_sets_limits():
    """Attention as a loop takes a hundred times longer than another: neither says what the other should take."""
    seen, wanted = [passed(2.0, n_layers=2)], {"n_layers": 4, "tied_head": True}
    assert at(seen, **wanted) is None
    guess = guess_cell(seen, space=SPACE, cell=Point.of(dict(SPACE.cell(wanted))))
    assert guess is not None
    assert (guess.total_s, guess.basis) == (pytest.approx(4.0), "1 passed trial that differs in n_layers, tied_head")
    like = at([*seen, passed(9.0, n_layers=8, tied_head=True), passed(3.0, n_layers=2, seq_len=128)], **wanted)
    assert like is not None
    assert like.total_s == pytest.approx(9.0)


def test_a_smaller_cell_is_not_predicted_to_be_faster_than_what_was_seen():
    near = at([passed(8.0, n_layers=8, seq_len=512)], n_layers=1)
    assert near is not None
    assert near.total_s == pytest.approx(8.0)
