from __future__ import annotations

import random

import pytest

from cell_program import CellProgram
from harness.core.boundary import Claim, Count
from harness.core.cause import Cause, Minimised, MinimiseFinding
from harness.core.codec import from_json, to_json
from harness.core.errors import SpecError, UnknownNameError
from harness.core.point import Axis, AxisType
from harness.core.space import Factor, Rule, Selector, Space
from harness.core.spec import Effort
from harness.core.verdict import Answer
from harness.search import costs
from harness.search.constraints import in_order
from harness.search.minimise import Minimise


def flag(name: str, *, priority: int = 0) -> Factor:
    axis = Axis(name=name, path=name, type=AxisType.FLAG, values=(False, True))
    return Factor(axis=axis, good=False, bad=True, priority=priority)


def ordered(name: str, *values: float, good: float | None = None, bad: float | None = None) -> Factor:
    axis = Axis(name=name, path=name, type=AxisType.ORDERED, values=values)
    return Factor(axis=axis, good=values[0] if good is None else good, bad=values[-1] if bad is None else bad)


def categorical(name: str, *values: str) -> Factor:
    axis = Axis(name=name, path=name, type=AxisType.CATEGORICAL, values=values)
    return Factor(axis=axis, good=values[0], bad=values[-1])


def requires(name: str, other: str, *, because: str = "") -> Rule:
    when, require = Selector(terms=((name, (True,)),)), Selector(terms=((other, (True,)),))
    return Rule(when=when, require=require, because=because)


TWELVE_FLAGS = tuple(flag(f"flag_{letter}") for letter in "abcdefghijkl")
FOURTEEN = Space(factors=(ordered("n_layers", *range(1, 13)), ordered("seq_len", 64, 128, 256, 512), *TWELVE_FLAGS))


def deep_long_and_b(cell) -> bool:
    return cell["n_layers"] >= 5 and cell["seq_len"] >= 256 and cell["flag_b"]


def play(space: Space, *causes, rate: float = 1.0, seed: int = 0, effort: Effort | None = None, **options) -> Minimise:
    search = Minimise(space, effort or Effort(max_trials=2000), **options)
    CellProgram(causes, rate=rate, seed=seed).play(search)
    return search


def only_cause(search: Minimise) -> Cause:
    (cause,) = search.result().causes
    return cause


def test_three_settings_among_fourteen_are_found_with_their_thresholds_for_six_hangs():
    search = play(FOURTEEN, deep_long_and_b)
    cause = only_cause(search)
    assert str(cause) == "n_layers>=5, seq_len>=256, flag_b=true"
    assert {need.axis: need.last_good for need in cause.needs} == {"n_layers": 4, "seq_len": 128, "flag_b": False}
    assert cause.certified
    assert search.failures <= 6


def test_a_cause_that_hangs_three_times_in_ten_is_found_exactly_in_97_of_100_runs():
    right = 0
    for seed in range(100):
        cause = only_cause(play(FOURTEEN, deep_long_and_b, rate=0.3, seed=seed))
        right += {str(need) for need in cause.needs} == {"n_layers>=5", "seq_len>=256", "flag_b=true"}
    assert right >= 97


def test_every_sentence_of_the_answer_carries_its_counts():
    search = play(Space(factors=(flag("a"), flag("b"), flag("c"))), lambda cell: cell["a"] and cell["c"])
    result = search.result()
    assert result.because == (
        "{a=true, c=true} failed 2 of 2; with any one of them taken back it passed 22 times, never failing, "
        "so that a failure rate of 0.15 or more would have been seen with 95 % if trials do not depend on each other."
    )
    assert result.notes == ("Not claimed: that no other set of settings fails, or that none is smaller.",)
    assert (result.trials, result.failures) == (search.trials, 3)


def test_a_requirement_stays_with_the_setting_that_needs_it_and_the_answer_says_that_this_was_not_shown():
    space = Space(
        factors=(flag("fa2_win", priority=9), flag("fa2"), flag("other")),
        rules=(requires("fa2_win", "fa2", because="a switch of fa2"),),
    )
    cause = only_cause(play(space, lambda cell: cell["fa2_win"]))
    assert {need.axis for need in cause.needs} == {"fa2", "fa2_win"}
    (kept,) = [need for need in cause.needs if need.kept_by]
    assert kept.axis == "fa2"
    assert str(kept.back).startswith("passed"), "with the setting that requires it taken back, too"
    assert cause.certified
    notes = play(space, lambda cell: cell["fa2_win"]).result().notes
    assert any("That fa2 is needed by itself was not shown" in note and "a switch of fa2" in note for note in notes)


def test_two_settings_that_only_go_together_are_needed_together_and_for_neither_is_more_said():
    space = Space(factors=(flag("a"), flag("b"), flag("c")), rules=(requires("a", "b"), requires("b", "a")))
    result = play(space, lambda cell: cell["a"]).result()
    (cause,) = result.causes
    assert {need.axis for need in cause.needs if need.kept_by} == {"a", "b"}
    assert cause.certified
    notes = [note for note in result.notes if "is needed by itself was not shown" in note]
    assert len(notes) == 2


@pytest.mark.parametrize("cause", ["a", "b", "d"])
def test_what_a_rule_ties_to_a_setting_is_left_out_with_it_in_every_way_that_the_rule_leaves(cause):
    """Leaving out c alone is forbidden; a or b has to go with it, and only one of them may be the cause."""
    rule = Rule(when=Selector(terms=(("a", (True,)), ("b", (True,)), ("c", (False,)))))
    space = Space(factors=(flag("a"), flag("b"), flag("c"), flag("d")), rules=(rule, requires("d", "b")))
    found = only_cause(play(space, lambda cell: cell[cause]))
    assert {need.axis for need in found.needs} == ({"d", "b"} if cause == "d" else {cause})
    assert found.certified


def test_a_tenth_of_the_trials_without_an_answer_does_not_keep_a_cause_from_its_certificate():
    space = Space(factors=tuple(flag(f"f{i}") for i in range(12)))
    search, draw = Minimise(space, Effort(max_trials=2000)), random.Random(1)
    while (request := search.ask()) is not None:
        fails = request.cell.get("f3") and request.cell.get("f8")
        answer = Answer.BAD if fails else Answer.UNRESOLVED if draw.random() < 0.1 else Answer.GOOD
        search.tell(cell=request.cell, answer=answer, seconds=2.0)
    cause = only_cause(search)
    assert {need.axis for need in cause.needs} == {"f3", "f8"}
    assert cause.certified


def test_a_soft_limit_cuts_every_failure_but_the_one_that_is_certified():
    space = Space(factors=tuple(flag(f"f{i}") for i in range(6)))
    search, whole = Minimise(space, Effort(soft_limit=True)), 0
    while (request := search.ask()) is not None:
        fails = request.cell.get("f1") and request.cell.get("f4")
        if fails and request.soft:
            search.tell(cell=request.cell, answer=Answer.UNRESOLVED, seconds=10.0, soft=True)
        else:
            whole += bool(fails)
            search.tell(cell=request.cell, answer=Answer.BAD if fails else Answer.GOOD, seconds=60.0 if fails else 2.0)
    cause = only_cause(search)
    assert (str(cause), whole, cause.seen.bad) == ("f1=true, f4=true", 1, 1)
    assert cause.certified


def test_what_only_takes_long_is_no_cause_because_a_soft_limit_cut_it_off():
    space = Space(factors=tuple(flag(f"f{i}") for i in range(4)))
    search = Minimise(space, Effort(soft_limit=True))
    while (request := search.ask()) is not None:
        slow = request.soft and request.cell.get("f1")
        answer = Answer.UNRESOLVED if slow else Answer.GOOD
        search.tell(cell=request.cell, answer=answer, seconds=10.0 if slow else 15.0, soft=bool(slow))
    assert not search.result().causes
    assert not search.result().failures


def test_requirements_far_apart_are_taken_along_and_cost_no_hang_each():
    between = [flag(f"f{i}", priority=5) for i in range(10)]
    factors = (flag("fa2", priority=9), *between, flag("sdpa", priority=1), flag("win"))
    space = Space(factors=factors, rules=(requires("win", "fa2"), requires("win", "sdpa")))
    search = play(space, lambda cell: cell["win"])
    assert {need.axis for need in only_cause(search).needs} == {"win", "fa2", "sdpa"}
    assert search.failures <= 4


@pytest.mark.parametrize("causes", [1, 3])
def test_a_plan_of_several_causes_says_that_it_counts_one(causes):
    search = Minimise(Space(factors=(flag("a"), flag("b"), flag("c"))), Effort(max_trials=2000), causes=causes)
    assert ("where one cause is all; further ones are not counted" in search.estimate().text) is (causes > 1)


def test_breaking_a_cause_takes_what_requires_it_along_so_that_completeness_can_be_shown():
    space = Space(factors=(flag("fa2"), flag("win"), flag("other")), rules=(requires("win", "fa2"),))
    result = play(space, lambda cell: cell["fa2"], lambda cell: cell["other"], causes=9).result()
    assert {str(cause) for cause in result.causes} == {"fa2=true", "other=true"}
    assert result.complete


def test_suspects_with_a_higher_priority_cost_fewer_trials():
    def trials(first: int) -> int:
        names = [flag(f"f{i}", priority=9 if i == first else 0) for i in range(24)]
        return play(Space(factors=tuple(names)), lambda cell: cell["f20"], effort=Effort(certify=1)).trials

    assert trials(20) < trials(0)


def test_an_ordered_axis_whose_bad_end_is_the_small_one_is_lowered_towards_it():
    space = Space(factors=(ordered("bucket_mb", 1, 2, 5, 10, 25, good=25, bad=1), flag("a")))
    cause = only_cause(play(space, lambda cell: cell["bucket_mb"] <= 5))
    assert str(cause) == "bucket_mb<=5"
    assert cause.needs[0].last_good == 10


def test_other_values_of_a_categorical_axis_are_tried_in_place_of_the_bad_one():
    space = Space(factors=(categorical("kernel", "gather", "packed", "triton", "flash"), flag("a")))
    cause = only_cause(play(space, lambda cell: cell["kernel"] in ("flash", "triton")))
    assert str(cause) == "kernel=flash"
    assert cause.needs[0].others == (Count(value="packed", good=3), Count(value="triton", bad=1))


def test_another_value_that_a_rule_excludes_is_not_tried():
    excluded = Rule(when=Selector(terms=(("kernel", ("packed",)),)))
    space = Space(factors=(categorical("kernel", "gather", "packed", "flash"), flag("a")), rules=(excluded,))
    search = Minimise(space, Effort())
    told = CellProgram((lambda cell: cell["kernel"] == "flash",)).play(search)
    assert all(request.cell.get("kernel") != "packed" for request, _ in told)
    assert only_cause(search).needs[0].others == ()


def test_settings_come_in_the_order_of_suspicion_but_after_what_they_require():
    factors = (flag("a"), flag("b", priority=1), flag("c", priority=9), flag("d", priority=5))
    space = Space(factors=factors, rules=(requires("c", "b"), requires("b", "a")))
    assert [f.name for f in in_order(space, factors)] == ["a", "b", "c", "d"]


def test_axes_on_which_the_corners_agree_are_held_and_never_blamed():
    space = Space(factors=(flag("a"), flag("b")))
    good, bad = space.cell({"b": True}), space.cell({"a": True, "b": True})
    search = Minimise(space, Effort(), good=good, bad=bad)
    told = CellProgram((lambda cell: cell["a"] and cell["b"],)).play(search)
    assert all(request.cell.get("b") is True for request, _ in told)
    assert str(only_cause(search)) == "a=true"


def test_a_second_cause_that_needs_less_of_the_first_ones_axis_is_found_too():
    space = Space(factors=(ordered("n_layers", *range(1, 9)), flag("a"), flag("b")))
    search = play(space, lambda cell: cell["n_layers"] >= 6, lambda cell: cell["n_layers"] >= 3 and cell["b"], causes=5)
    result = search.result()
    assert {str(cause) for cause in result.causes} == {"n_layers>=6", "n_layers>=3, b=true"}
    assert result.complete
    assert any("No other cause" in note for note in result.notes)


def test_a_tentative_pass_that_was_luck_is_found_out_by_the_certificate(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(costs, "FIRST_PASS_S", 2)
    monkeypatch.setattr(costs, "FIRST_FAIL_S", 60)
    space = Space(factors=(flag("a"), flag("b"), flag("c")))
    search = Minimise(space, Effort(certify=3))
    lucky = True
    while (request := search.ask()) is not None:
        fails = request.cell.get("a") is True
        if fails and request.cell == space.cell({"a": True}) and lucky:
            fails = lucky = False
        search.tell(cell=request.cell, answer=Answer.BAD if fails else Answer.GOOD, seconds=60 if fails else 2)
    assert not lucky
    assert str(only_cause(search)) == "a=true"
    assert search.is_flaky()


def test_a_search_out_of_trials_says_so_and_certifies_nothing():
    search = play(FOURTEEN, deep_long_and_b, effort=Effort(max_trials=20))
    result = search.result()
    assert result.trials == 20
    assert result.finding is MinimiseFinding.INCONCLUSIVE
    assert "ended early by the limit of 20 trials" in result.notes[0]
    assert not result.causes[0].certified
    assert result.causes[0].claim is Claim.OBSERVED


def test_the_plan_before_the_first_trial_is_what_a_single_or_double_cause_would_cost(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(costs, "FIRST_PASS_S", 2)
    monkeypatch.setattr(costs, "FIRST_FAIL_S", 60)
    search = Minimise(FOURTEEN, Effort(certify=5))
    estimate = search.estimate()
    CellProgram((lambda cell: cell["flag_c"],)).play(search)
    assert estimate.seconds_low <= search.seconds <= estimate.seconds_high
    assert search.failures <= estimate.hangs
    assert search.estimate().text == "nothing left to run"


def test_a_plan_with_the_time_of_an_earlier_pass_is_the_one_that_the_search_has_after_its_own():
    before, after = Minimise(FOURTEEN, Effort()), Minimise(FOURTEEN, Effort())
    unknown = before.estimate()
    before.expect_pass(0.2)
    after.tell(cell=FOURTEEN.good, answer=Answer.GOOD, seconds=0.2)
    assert 0 <= before.estimate().trials - 1 - after.estimate().trials <= 1
    assert f"about {unknown.trials} to " in unknown.text
    assert not unknown.is_measured


def test_the_plan_counts_that_the_minimal_command_line_is_run_twice_more(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(costs, "FIRST_FAIL_S", 60)
    alone, tried_again = (Minimise(FOURTEEN, Effort(certify=5), again=n).estimate() for n in (0, 2))
    assert (tried_again.trials, tried_again.hangs) == (alone.trials + 2, alone.hangs + 2)
    assert tried_again.seconds_high == pytest.approx(alone.seconds_high + 120)
    assert f"about {alone.hangs + 2} failures" in tried_again.text


@pytest.mark.parametrize("corner", ["good", "bad"])
def test_a_corner_that_breaks_a_rule_is_refused_with_the_rule(corner):
    space = Space(factors=(flag("a"), flag("b")), rules=(requires("a", "b", because="why"),))
    with pytest.raises(
        SpecError, match=rf"the {corner} corner \(a=true\) breaks a rule: a=true requires b=true \(why\)"
    ):
        Minimise(space, Effort(), **{corner: space.cell({"a": True})})


def test_a_bad_corner_that_breaks_a_rule_is_refused_with_one_that_does_not():
    rule = Rule(when=Selector(terms=(("a", (True,)), ("b", (True,)))))
    space = Space(factors=(flag("a"), flag("b"), flag("c")), rules=(rule,))
    with pytest.raises(SpecError, match=r"excluded; this one does not: --bad-cell a=true,c=true$"):
        Minimise(space, Effort())


def test_two_equal_corners_are_refused():
    space = Space(factors=(flag("a"),))
    with pytest.raises(SpecError, match="the same cell"):
        Minimise(space, Effort(), bad=space.good)


def test_a_space_with_an_unknown_axis_in_a_rule_is_refused_with_the_nearest_name():
    with pytest.raises(UnknownNameError, match="did you mean 'fa2'"):
        Space(factors=(flag("fa2"),), rules=(requires("fa", "fa2"),))


def test_the_answer_survives_the_way_through_json():
    result = play(FOURTEEN, deep_long_and_b).result()
    assert from_json(Minimised, to_json(result)) == result
