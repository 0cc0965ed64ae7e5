from __future__ import annotations

import re

import pytest

from harness.core.boundary import Boundary, Claim, Finding
from harness.core.errors import SpecError
from harness.core.point import Axis, AxisType, Point
from harness.core.ports import CellRequest
from harness.core.spec import Effort
from harness.core.verdict import Answer
from harness.search import costs
from harness.search.threshold import MOST_CONFIRMS, ThresholdSearch, certificate_passes

GOOD, BAD, UNRESOLVED = Answer.GOOD, Answer.BAD, Answer.UNRESOLVED


def layers(*values: int) -> Axis:
    return Axis(name="n_layers", path="model.n_layers", type=AxisType.ORDERED, values=values or tuple(range(1, 13)))


def at(layers: int) -> Point:
    return Point.of({"n_layers": layers})


def value_of(request: CellRequest | None) -> int | str:
    assert request is not None
    ((_, value),) = request.cell
    assert isinstance(value, int | str)
    return value


def play(search: ThresholdSearch, answers: dict[int, Answer], *, otherwise: Answer = GOOD) -> list[tuple[int, str]]:
    """Answer every question by its value; BAD costs 12 s, anything else half a second."""
    asked: list[tuple[int, str]] = []
    while (request := search.ask()) is not None:
        asked.append((int(value_of(request)), request.role))  # type: ignore[arg-type]
        answer = answers.get(int(value_of(request)), otherwise)  # type: ignore[arg-type]
        search.tell(cell=request.cell, answer=answer, seconds=12.0 if answer is BAD else 0.5)
    return asked


def from_five(axis: Axis) -> dict[int, Answer]:
    return {v: BAD for v in axis.values if v >= 5}  # type: ignore[misc,operator]


def test_the_smallest_value_comes_first(monkeypatch: pytest.MonkeyPatch):
    request = ThresholdSearch(layers(), Effort()).ask()
    assert request is not None
    assert (value_of(request), request.role) == (1, "search")
    monkeypatch.setattr(costs, "FIRST_PASS_S", 10)
    monkeypatch.setattr(costs, "FIRST_FAIL_S", 1)
    dear_passes = ThresholdSearch(layers(), Effort()).ask()
    assert dear_passes is not None
    assert value_of(dear_passes) == 1


def test_a_deterministic_threshold_is_bracketed_certified_and_confirmed():
    axis = layers()
    search = ThresholdSearch(axis, Effort())
    asked = play(search, from_five(axis))
    found = search.result()
    assert (found.finding, found.last_good, found.first_bad) == (Finding.THRESHOLD, 4, 5)
    assert found.certified
    assert found.claim is Claim.REPRODUCED
    assert asked.count((5, "confirm")) == 1
    assert asked.count((4, "certify")) == found.certificate_passes, "the pass for which it was chosen does not count"
    assert found.posterior is None, "which value is the first that fails is given no probability"
    assert "P(" not in found.because
    assert [c.value for c in found.counts if c.bad] == [5]


def test_the_last_good_value_passing_says_which_rate_it_excludes():
    axis = layers()
    search = ThresholdSearch(axis, Effort(certify=29))
    play(search, from_five(axis))
    found = search.result()
    assert found.excluded_rate == pytest.approx(1 - 0.0405 ** (1 / 29))
    assert "n_layers=5 failed 2 of 2, n_layers=4 passed 30 of 30" in found.because
    assert "0.11 or more at n_layers <= 4 would have been seen with probability 95 %" in found.because
    assert "of which 5 of 12 values were tried" in found.because
    assert "not tested: too few passes and failures at n_layers=5" in found.because


@pytest.mark.parametrize(
    ("values", "value", "words"),
    [((1, 2), 2, "n <= 2"), (("off", "on"), "off", "n=off"), (("single", "ddp", "fsdp"), "ddp", "n up to ddp")],
)
def test_words_have_no_size(values, value, words):
    axis = Axis(name="n", path="n", type=AxisType.ORDERED, values=values)
    assert axis.up_to(value) == words


def test_when_nothing_fails_the_largest_value_is_certified():
    search = ThresholdSearch(layers(), Effort(certify=9))
    asked = play(search, {})
    found = search.result()
    assert (found.finding, found.last_good, found.first_bad) == (Finding.NO_FAILURE, 12, None)
    assert found.certified
    assert asked[-9:] == [(12, "certify")] * 9


def test_when_the_smallest_fails_it_is_confirmed_and_nothing_else_is_run():
    search = ThresholdSearch(layers(), Effort())
    asked = play(search, {}, otherwise=BAD)
    found = search.result()
    assert asked == [(1, "search"), (1, "confirm")]
    assert (found.finding, found.first_bad, found.claim) == (Finding.ALL_FAIL, 1, Claim.REPRODUCED)


def test_a_failure_that_does_not_come_again_is_not_counted_and_not_hidden():
    search = ThresholdSearch(layers(1, 2), Effort(certify=2))
    search.tell(cell=at(1), answer=GOOD, seconds=0.5)
    search.tell(cell=at(2), answer=BAD, seconds=12)
    search.tell(cell=at(1), answer=GOOD, seconds=0.5)
    asked = play(search, {})
    assert [value for value, _ in asked].count(1) <= 2, "its certificate; the two passes before do not count"
    assert (2, "confirm") in asked
    found = search.result()
    assert (found.finding, found.last_good, found.first_bad) == (Finding.NO_FAILURE, 2, None)
    (note,) = [note for note in found.notes if "not counted" in note]
    assert note.startswith(f"n_layers=2 failed 1 of {[value for value, _ in asked].count(2) + 1}")
    assert "false alarm, or a failure in fewer than 10 % of the trials" in note


def test_a_failure_that_is_too_rare_to_be_told_from_false_alarms_leaves_the_answer_in_doubt():
    search = ThresholdSearch(layers(1), Effort(max_trials=1000))
    for n in range(MOST_CONFIRMS + 1):
        search.tell(cell=at(1), answer=BAD if n % 16 == 0 else GOOD, seconds=1)
    found = search.result()
    assert search.ask() is None
    assert (found.finding, found.certified, found.claim) == (Finding.ALL_FAIL, False, Claim.OBSERVED)
    assert any("too few to tell a rare failure from false alarms" in note for note in found.notes)


def test_a_rare_failure_that_shows_again_is_reproduced():
    search = ThresholdSearch(layers(1, 2), Effort(certify=2))
    for value, answer in [(1, GOOD), (2, BAD), (1, GOOD), (2, GOOD), (2, GOOD), (2, BAD)]:
        search.tell(cell=at(value), answer=answer, seconds=1)
    play(search, {2: BAD})
    assert search.ask() is None
    assert search.result().claim is Claim.REPRODUCED


def test_a_failure_in_the_certificate_moves_the_threshold_down_and_a_single_pass_below_is_no_longer_believed():
    search = ThresholdSearch(layers(1, 2, 3), Effort(certify=3))
    for value in (1, 2, 3):
        search.tell(cell=at(value), answer=GOOD, seconds=0.5)
    assert value_of(search.ask()) == 3  # type: ignore[union-attr]
    search.tell(cell=at(3), answer=BAD, seconds=12)
    assert (search.low, search.high) == (0, 2), "the passes at 2 and 3 speak for 1, nothing but its own one for 2"
    assert (value_of(search.ask()), search.ask().role) == (2, "search")  # type: ignore[union-attr]
    play(search, {3: BAD})
    assert (search.result().last_good, search.result().first_bad) == (2, 3)


def test_a_failing_value_that_passed_once_does_not_hold_up_a_failure_that_always_comes():
    search = ThresholdSearch(layers(), Effort(certify=3))
    search.tell(cell=at(12), answer=GOOD, seconds=0.5)
    asked = play(search, from_five(layers()))
    assert (search.result().last_good, search.result().first_bad) == (4, 5)
    assert len(asked) < 20


def test_values_that_cannot_be_told_widen_the_answer_and_are_named():
    axis = layers()
    search = ThresholdSearch(axis, Effort())
    play(search, from_five(axis) | {4: UNRESOLVED})
    found = search.result()
    assert (found.last_good, found.first_bad, found.unresolved) == (3, 5, (4,))
    assert any("n_layers 4" in note for note in found.notes)


def test_an_unresolved_top_is_not_called_no_failure():
    search = ThresholdSearch(layers(), Effort(certify=2))
    play(search, {11: UNRESOLVED, 12: UNRESOLVED})
    found = search.result()
    assert (found.finding, found.last_good, found.certified) == (Finding.INCONCLUSIVE, 10, False)


def test_a_slow_value_ends_the_way_up():
    search = ThresholdSearch(layers(), Effort())
    asked: list[int] = []
    while (request := search.ask()) is not None:
        value = int(value_of(request))  # type: ignore[arg-type]
        asked.append(value)
        assert request.role == "search"  # a certificate of slow passes would buy no answer
        if value * 4.0 > 18:
            search.tell(cell=at(value), answer=UNRESOLVED, seconds=18, slow=True)
        else:
            search.tell(cell=at(value), answer=GOOD, seconds=value * 4.0)
    found = search.result()
    assert (found.finding, found.last_good, found.first_bad) == (Finding.NO_THRESHOLD_SLOW, 4, None)
    assert max(asked) in found.unresolved
    assert set(found.untested) == set(range(1, 13)) - set(asked)
    assert min(set(found.untested) - {2, 3}) == 5
    assert not found.certified
    assert found.fit is not None
    assert found.fit.slope == pytest.approx(4.0)
    assert dict(found.fit.predicted)[12.0] == pytest.approx(48.0)
    assert "made progress" in found.because


def test_after_a_slow_value_smaller_ones_that_should_finish_are_still_asked():
    search = ThresholdSearch(layers(1, 2, 3, 4, 5, 6), Effort())
    search.tell(cell=at(1), answer=GOOD, seconds=4)
    search.tell(cell=at(2), answer=GOOD, seconds=8)
    search.tell(cell=at(6), answer=UNRESOLVED, seconds=18, slow=True)
    asked = []
    while (request := search.ask()) is not None:
        asked.append(value_of(request))
        search.tell(cell=request.cell, answer=GOOD, seconds=float(value_of(request)) * 4)  # type: ignore[arg-type]
    assert asked
    assert set(asked) <= {3, 4}
    assert search.result().last_good == 4


def test_a_failure_below_a_slow_value_is_still_a_threshold():
    search = ThresholdSearch(layers(1, 2, 3, 4), Effort(certify=2))
    search.tell(cell=at(1), answer=GOOD, seconds=1)
    search.tell(cell=at(4), answer=UNRESOLVED, seconds=30, slow=True)
    play(search, {3: BAD})
    found = search.result()
    assert (found.finding, found.last_good, found.first_bad) == (Finding.THRESHOLD, 2, 3)


def test_a_failure_at_a_certified_value_is_called_non_monotone():
    axis = layers(1, 2, 3, 4)
    search = ThresholdSearch(axis, Effort(certify=3))
    play(search, {4: BAD})
    assert search.result().last_good == 3
    search.tell(cell=at(2), answer=BAD, seconds=12)
    found = search.result()
    assert found.non_monotone
    assert (found.last_good, found.first_bad) == (None, 2)
    assert value_of(search.ask()) == 1  # type: ignore[union-attr]
    assert any("n_layers=2 failed although 3 had passed the certificate" in note for note in found.notes)


def test_many_passes_above_the_first_failing_value_are_called_non_monotone():
    search = ThresholdSearch(layers(1, 2, 3), Effort(certify=20))
    search.tell(cell=at(2), answer=BAD, seconds=12)
    for _ in range(8):
        search.tell(cell=at(3), answer=GOOD, seconds=1)
    assert not search.result().non_monotone
    search.tell(cell=at(3), answer=GOOD, seconds=1)
    assert search.result().non_monotone


def test_a_limit_on_trials_leaves_the_answer_open_and_says_so():
    axis = layers()
    search = ThresholdSearch(axis, Effort(max_trials=2))
    asked = play(search, from_five(axis))
    found = search.result()
    assert len(asked) == 2
    assert found.finding is Finding.INCONCLUSIVE
    assert any("2 trials" in note for note in found.notes)


def test_a_bracket_with_values_left_to_ask_is_no_threshold_yet():
    search = ThresholdSearch(layers(), Effort(max_trials=2))
    search.tell(cell=at(1), answer=GOOD, seconds=1)
    search.tell(cell=at(5), answer=BAD, seconds=12)
    assert search.ask() is None
    found = search.result()
    assert (found.finding, found.last_good, found.first_bad) == (Finding.INCONCLUSIVE, 1, 5)
    assert not found.certified


def test_a_limit_on_seconds_during_the_certificate_leaves_it_incomplete():
    axis = layers()
    search = ThresholdSearch(axis, Effort(max_seconds=20))
    play(search, from_five(axis))
    found = search.result()
    assert (found.finding, found.last_good, found.first_bad) == (Finding.THRESHOLD, 4, 5)
    assert not found.certified
    assert any("incomplete" in note for note in found.notes)


def test_a_certificate_that_keeps_coming_back_unresolved_is_given_up():
    search = ThresholdSearch(layers(1), Effort())
    search.tell(cell=at(1), answer=GOOD, seconds=1)
    for _ in range(3):
        assert search.ask() is not None
        search.tell(cell=at(1), answer=UNRESOLVED, seconds=1)
    assert search.ask() is None
    assert not search.result().certified


def test_the_estimate_covers_what_a_deterministic_search_then_spends(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(costs, "FIRST_PASS_S", 0.5)
    monkeypatch.setattr(costs, "FIRST_FAIL_S", 12)
    axis = layers()
    estimate = ThresholdSearch(axis, Effort()).estimate()
    search = ThresholdSearch(axis, Effort())
    asked = play(search, from_five(axis))
    assert estimate.seconds_low <= search.seconds <= estimate.seconds_high
    assert estimate.hangs >= 2
    assert str(estimate.trials) in estimate.text
    assert len(asked) > 2


def test_a_plan_with_the_time_of_an_earlier_pass_is_the_one_that_the_search_has_after_its_own():
    before, after = ThresholdSearch(layers(), Effort()), ThresholdSearch(layers(), Effort())
    before.expect_pass(0.25)
    after.tell(cell=at(1), answer=GOOD, seconds=0.25)
    assert before.estimate().is_measured
    # Before it, the first value may still be the failing one, and then little is asked.
    assert abs(before.estimate().trials - after.estimate().trials) <= 4


def test_a_plan_before_any_pass_says_between_how_many_trials_it_lies():
    search, brief = ThresholdSearch(layers(), Effort()), ThresholdSearch(layers(), Effort())
    brief.expect_pass(0.1)
    few, many = search.estimate().trials, brief.estimate().trials
    assert many > few + 20
    assert f"about {few} to {many} trials" in search.estimate().text
    assert "how many, and how long it takes is known once a trial has passed" in search.estimate().text
    assert ThresholdSearch(layers(), Effort(certify=5)).estimate().text.startswith("about 12 trials (at most 18 if ")


def test_estimating_changes_nothing():
    search = ThresholdSearch(layers(), Effort())
    before = search.ask()
    search.estimate()
    assert search.ask() == before
    assert search.result().counts == ()


@pytest.mark.parametrize(
    ("pass_s", "fail_s", "passes"),
    [(0.15, 12, 44), (0.5, 12, 30), (2.5, 12, 18), (200, 12, 18), (1, 30, 21), (2, 60, 21)],
)
def test_the_certificate_costs_seven_tenths_of_a_failure_within_bounds_or_fifteen_seconds(pass_s, fail_s, passes):
    assert certificate_passes(pass_s=pass_s, fail_s=fail_s) == passes


def test_an_unordered_axis_is_refused():
    axis = Axis(name="attention", path="model.attention", type=AxisType.CATEGORICAL, values=("nsa", "dense"))
    with pytest.raises(SpecError, match="ordered"):
        ThresholdSearch(axis, Effort())


def test_an_empty_search_concludes_nothing():
    found = ThresholdSearch(layers(), Effort()).result()
    assert isinstance(found, Boundary)
    assert found.finding is Finding.INCONCLUSIVE
    assert found.untested == tuple(range(1, 13))


def test_a_false_alarm_in_the_certificate_asks_for_more_passes_and_moves_nothing():
    search = ThresholdSearch(layers(1, 2), Effort(certify=20))
    search.tell(cell=at(1), answer=GOOD, seconds=1)
    search.tell(cell=at(2), answer=BAD, seconds=12)
    for _ in range(15):
        search.tell(cell=at(1), answer=GOOD, seconds=1)
    search.tell(cell=at(1), answer=BAD, seconds=12)
    assert search.low == 0
    play(search, {2: BAD})
    found = search.result()
    assert (found.last_good, found.first_bad, found.certified) == (1, 2, True)
    assert found.certificate_passes > 40
    assert found.excluded_rate is not None
    assert found.excluded_rate <= 1 - 0.0405 ** (1 / 20)


def test_the_certificate_and_the_confirmation_can_be_run_at_once():
    axis = layers()
    search = ThresholdSearch(axis, Effort(certify=9))
    while search.ask().role == "search":  # type: ignore[union-attr]
        request = search.ask()
        bad = value_of(request) >= 5  # type: ignore[union-attr,operator]
        search.tell(cell=request.cell, answer=BAD if bad else GOOD, seconds=12 if bad else 0.5)  # type: ignore[union-attr]
    batch = search.ready(6)
    assert [(value_of(r), r.role) for r in batch] == [(5, "confirm")] + [(4, "certify")] * 5
    assert [r.reason.split(" at")[0] for r in batch[1:]] == [f"pass {number} of 9" for number in range(1, 6)]
    for request in batch:
        search.tell(cell=request.cell, answer=BAD if value_of(request) == 5 else GOOD, seconds=1)
    assert [(value_of(r), r.role) for r in search.ready(6)] == [(4, "certify")] * 4
    assert [r.reason.split(" at")[0] for r in search.ready(6)] == [f"pass {number} of 9" for number in range(6, 10)]


def test_values_above_the_first_failing_one_are_looked_at_on_request():
    axis = layers()
    search = ThresholdSearch(axis, Effort(check_above=3))
    asked = play(search, {5: BAD, 6: BAD, 7: GOOD, 12: GOOD})
    assert [value for value, _ in asked].count(12) == 9
    found = search.result()
    assert found.non_monotone
    assert any("n_layers=12 passed 9 of 9, above the first failing value" in note for note in found.notes)


def test_commits_are_searched_in_the_order_in_which_they_are_given():
    axis = Axis(name="commit", path="", type=AxisType.ORDERED, values=("f00d", "beef", "cafe", "0ff5", "ba5e"))
    search = ThresholdSearch(axis, Effort(certify=3))
    while (request := search.ask()) is not None:
        bad = value_of(request) in ("0ff5", "ba5e")
        search.tell(cell=request.cell, answer=BAD if bad else GOOD, seconds=12 if bad else 1)
    found = search.result()
    assert (found.last_good, found.first_bad, found.certified) == ("cafe", "0ff5", True)
    assert found.fit is None


def test_a_long_ladder_is_searched_without_looking_at_every_value():
    values = tuple(2**i for i in range(17))
    search = ThresholdSearch(layers(*values), Effort(certify=3))
    asked = play(search, {v: BAD for v in values if v > 3000})
    assert (search.result().last_good, search.result().first_bad) == (2048, 4096)
    assert len({value for value, _ in asked}) < len(values)


def test_a_value_that_a_soft_limit_cut_off_is_run_with_its_whole_limit_before_it_is_called_failing():
    search = ThresholdSearch(layers(1, 2), Effort(certify=3, soft_limit=True))
    asked = []
    while (request := search.ask()) is not None:
        asked.append((value_of(request), request.role, request.soft))
        if value_of(request) == 1:
            search.tell(cell=at(1), answer=GOOD, seconds=1)
        elif request.soft:
            search.tell(cell=at(2), answer=UNRESOLVED, seconds=5, slow=True, soft=True)
        else:
            search.tell(cell=at(2), answer=BAD, seconds=300)
    assert asked == [(1, "search", True), (2, "search", True), *[(1, "certify", True)] * 3, (2, "confirm", False)]
    found = search.result()
    assert (found.last_good, found.first_bad, found.certified, found.claim) == (1, 2, True, Claim.OBSERVED)


def test_trials_that_a_soft_limit_cut_off_are_not_forgotten_because_others_passed():
    """A hang in three of ten trials must not pass for ten stragglers."""
    search = ThresholdSearch(layers(1), Effort(soft_limit=True))
    for n in range(20):
        cut = n % 3 == 0
        answer = UNRESOLVED if cut else GOOD
        search.tell(cell=at(1), answer=answer, seconds=5 if cut else 1, slow=cut, soft=cut)
    assert search.high == 0
    assert not search.result().certified


def test_one_straggler_among_many_passes_is_no_failure():
    search = ThresholdSearch(layers(1), Effort(certify=9, soft_limit=True))
    for n in range(30):
        search.tell(cell=at(1), answer=UNRESOLVED if n == 5 else GOOD, seconds=5, slow=n == 5, soft=n == 5)
    found = search.result()
    assert (found.finding, found.certified) == (Finding.NO_FAILURE, True)


def test_a_value_that_was_only_cut_off_is_not_called_failing_when_the_search_is_ended():
    search = ThresholdSearch(layers(1, 2), Effort(soft_limit=True, max_trials=2))
    search.tell(cell=at(1), answer=GOOD, seconds=1)
    search.tell(cell=at(2), answer=UNRESOLVED, seconds=10, soft=True)
    found = search.result()
    assert (found.finding, found.last_good, found.first_bad, found.unresolved) == (Finding.INCONCLUSIVE, 1, None, (2,))


def test_where_the_whole_limit_tells_no_more_than_the_soft_one_the_value_is_slow_and_not_failing():
    search = ThresholdSearch(layers(1, 2), Effort(certify=3, soft_limit=True))
    search.tell(cell=at(1), answer=GOOD, seconds=1)
    search.tell(cell=at(2), answer=UNRESOLVED, seconds=10, slow=True, soft=True)
    while (request := search.ask()) is not None:
        slow = value_of(request) == 2
        search.tell(cell=request.cell, answer=UNRESOLVED if slow else GOOD, seconds=300 if slow else 1, slow=slow)
    found = search.result()
    assert (found.finding, found.last_good, found.first_bad) == (Finding.NO_THRESHOLD_SLOW, 1, None)


def test_trials_that_come_in_few_runs_may_depend_on_each_other_and_nothing_more_is_said():
    search = ThresholdSearch(layers(1, 2), Effort())
    play(search, {2: BAD})
    search.outcomes[1] = [True] * 20 + [False] * 3 + [True] * 3
    found = search.result()

    assert found.independence == (
        "22 passes and 3 failures at n_layers=2 came in 3 runs, p = 0.011, as few as come by chance in 1.1 % of such "
        "series: they may depend on each other"
    )
    assert f"No certificate: {found.independence}." in found.notes


@pytest.mark.parametrize("threshold", [2, 6, 7, 12, 13])
def test_a_plan_names_no_fewer_trials_than_the_longest_search_takes_where_each_failure_comes_each_time(threshold):
    search = ThresholdSearch(layers(), Effort())
    most = int(re.search(r"\(at most (\d+) if what fails does so each time, more if not\)", search.estimate().text)[1])
    while (request := search.ask()) is not None:
        fails = request.cell.get("n_layers") >= threshold
        search.tell(cell=request.cell, answer=BAD if fails else GOOD, seconds=0.1)
    assert search.trials <= most
