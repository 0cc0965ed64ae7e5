from __future__ import annotations

from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cell_program import CellProgram
from harness.core.errors import SpecError
from harness.core.point import Axis, AxisType
from harness.core.space import Factor, Rule, Selector, Space
from harness.core.spec import Effort
from harness.core.verdict import Answer
from harness.search import costs
from harness.search.cells import combinations_in, covering_array
from harness.search.constraints import completed, count_cells
from harness.search.explore import Explore


def factor(name: str, values: int) -> Factor:
    axis = Axis(name=name, path=name, type=AxisType.ORDERED, values=tuple(range(values)))
    return Factor(axis=axis, good=0, bad=values - 1)


def space_of(*sizes: int, rules: tuple[Rule, ...] = ()) -> Space:
    return Space(factors=tuple(factor(f"a{i}", n) for i, n in enumerate(sizes)), rules=rules)


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    sizes = draw(st.lists(st.integers(2, 4), min_size=2, max_size=5))

    def selector(names: list[int]) -> Selector:
        return Selector(
            terms=tuple(
                (f"a{i}", tuple(sorted(draw(st.frozensets(st.integers(0, sizes[i] - 1), min_size=1))))) for i in names
            )
        )

    pairs = st.lists(st.integers(0, len(sizes) - 1), min_size=2, max_size=2, unique=True)
    rules = [
        Rule(when=selector([i]), require=selector([j])) if draw(st.booleans()) else Rule(when=selector([i, j]))
        for i, j in draw(st.lists(pairs, max_size=3))
    ]
    return space_of(*sizes, rules=tuple(rules))


def every_cell(space: Space) -> list[dict]:
    names = [f.name for f in space.factors]
    cells = (dict(zip(names, values, strict=True)) for values in product(*(f.axis.values for f in space.factors)))
    return [cell for cell in cells if space.broken(cell.items()) is None]


@given(spaces(), st.integers(1, 3), st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_every_combination_that_a_valid_cell_can_hold_is_in_a_row_and_no_row_breaks_a_rule(space, strength, seed):
    strength = min(strength, len(space.factors))
    covering = covering_array(space, strength=strength, seed=seed)
    names = [f.name for f in space.factors]
    possible = {
        tuple((n, cell[n]) for n in some) for cell in every_cell(space) for some in combinations(names, strength)
    }
    assert combinations_in(space, covering.rows, strength=strength) >= possible
    assert covering.combinations == possible
    assert all(space.broken(row) is None for row in covering.rows)
    assert len(set(covering.rows)) == len(covering.rows) <= max(len(every_cell(space)), 1)


@given(spaces())
@settings(max_examples=60, deadline=None)
def test_cells_are_counted_exactly(space):
    assert count_cells(space) == (len(every_cell(space)), True)


@given(spaces(), st.data())
@settings(max_examples=60, deadline=None)
def test_a_part_of_a_cell_is_completed_exactly_where_a_valid_cell_contains_it(space, data):
    names = data.draw(st.lists(st.sampled_from([f.name for f in space.factors]), unique=True))
    partial = {n: data.draw(st.sampled_from(space.factor(n).axis.values)) for n in names}
    whole = completed(space, partial)
    if whole is None:
        assert not [cell for cell in every_cell(space) if partial.items() <= cell.items()]
    else:
        assert partial.items() <= whole.items()
        assert whole in every_cell(space)


def test_seventeen_axes_and_ten_million_cells_need_no_more_than_38_rows_for_every_pair():
    space = space_of(6, 5, 4, 4, 3, 3, 3, *[2] * 10)
    assert count_cells(space)[0] > 10**7 / 3
    assert len(covering_array(space).rows) <= 38


def test_given_cells_are_not_covered_again():
    space = space_of(3, 3, 2)
    whole = covering_array(space)
    assert covering_array(space, included=whole.rows).rows == ()
    rest = covering_array(space, included=whole.rows[:4]).rows
    assert combinations_in(space, [*whole.rows[:4], *rest], strength=2) == whole.combinations
    assert len(rest) < len(whole.rows)


@pytest.mark.parametrize("strength", [0, 3])
def test_a_strength_that_does_not_fit_is_refused(strength):
    with pytest.raises(SpecError, match=f"strength {strength} does not fit 2 axes"):
        covering_array(space_of(2, 2), strength=strength)


def test_more_combinations_than_could_ever_be_run_are_refused_at_once():
    with pytest.raises(SpecError, match="use a smaller strength"):
        covering_array(space_of(*[6] * 30), strength=4)


def play(space: Space, *causes, **options) -> Explore:
    search = Explore(space, Effort(certify=3, max_trials=5000), **options)
    CellProgram(causes).play(search)
    return search


PAIR = (lambda cell: cell["a1"] >= 2 and cell["a4"] == 1,)


def test_a_pair_that_fails_only_together_is_detected_and_named():
    result = play(space_of(3, 4, 2, 2, 2, 3), *PAIR).result()
    assert [str(cause) for cause in result.causes] == ["a1>=2, a4>=1"]
    assert result.causes[0].certified
    assert result.passed + result.explained == result.combinations
    assert result.because.endswith("1 cause was found: {a1>=2, a4>=1}.")
    assert str(result.suspects[0]).startswith(("a1=2, a4=1", "a1=3, a4=1"))


def test_a_known_cause_costs_no_second_hang_and_hides_no_other_one():
    space = space_of(3, 4, 2, 2, 2, 3)
    search = Explore(space, Effort(certify=3, max_trials=5000))
    program = CellProgram((*PAIR, lambda cell: cell["a0"] == 2 and cell["a3"] == 1))
    told = program.play(search)
    result = search.result()
    assert {str(cause) for cause in result.causes} == {"a1>=2, a4>=1", "a0>=2, a3>=1"}
    rows = [r for r, answer in told if answer is Answer.BAD and r.reason.startswith("a row")]
    assert len(rows) == 2
    assert result.passed + result.explained == result.combinations


def test_what_passed_before_needs_no_row():
    space = space_of(3, 4, 2, 2, 2, 3)
    first = play(space)
    again = Explore(space, Effort(), prior=first.observations)
    assert again.ask() is None
    assert again.covering.rows == ()


def test_nothing_failing_is_said_with_the_number_of_pairs_that_passed():
    result = play(space_of(3, 3, 2)).result()
    assert result.because == (
        "21 of 21 possible pairs of values occur in a cell that passed, in 1 pass at least: of such pairs of values, "
        "one that fails in fewer than 95 % of its trials may have been missed; nothing failed."
    )
    assert (result.causes, result.suspects, result.notes) == ((), (), ())


def test_told_to_stop_at_the_first_cause_it_says_what_is_left():
    search = play(space_of(3, 4, 2, 2, 2, 3), *PAIR, lambda cell: cell["a0"] == 2 and cell["a3"] == 1, first_only=True)
    result = search.result()
    assert len(result.causes) == 1
    assert any("are in no cell that passed" in note for note in result.notes)
    (open_question,) = result.uncertified
    assert open_question.endswith("they are tried where the search does not end with the first cause.")


def test_with_every_cause_certified_and_every_pair_told_nothing_is_left_to_certify():
    result = play(space_of(3, 4, 2, 2, 2, 3), *PAIR).result()
    assert result.failures
    assert result.uncertified == ()


def test_a_cause_is_counted_with_what_was_seen_of_it_after_its_own_search():
    search = play(space_of(3, 4, 2, 2, 2, 3), *PAIR)
    seen = search.result().causes[0].seen
    search.tell(cell=seen.cell, answer=Answer.BAD, seconds=1.0)
    assert search.result().causes[0].seen.bad == seen.bad + 1


def test_what_is_not_certified_is_named_with_what_would_certify_it():
    search = Explore(space_of(3, 4, 2, 2, 2, 3), Effort(certify=9, max_trials=30))
    CellProgram(PAIR).play(search)
    result = search.result()
    assert not result.causes[0].certified
    assert any("passes are asked for" in text for text in result.uncertified)


def test_a_failing_good_corner_ends_it():
    search = play(space_of(2, 2), lambda _: True)
    assert search.trials == 2, "once more, since a single failure may be a false alarm"
    assert "nothing to compare with" in search.result().notes[0]
    assert search.result().uncertified


@given(spaces(), st.integers(0, 2**32), st.floats(0.2, 1), st.data())
@settings(max_examples=40, deadline=None)
def test_replaying_the_answers_asks_the_same_questions_and_no_rule_is_broken(space, seed, rate, data):
    if space.broken(space.good) is not None:
        return
    names = data.draw(st.lists(st.sampled_from([f.name for f in space.factors]), min_size=1, max_size=2, unique=True))
    program = CellProgram((lambda cell: all(cell[n] >= 1 for n in names),), rate=rate, seed=seed)
    search, again = (Explore(space, Effort(certify=2, max_trials=500)) for _ in range(2))
    while (request := search.ask()) is not None:
        assert again.ask() == request
        assert space.broken(request.cell) is None
        answer, seconds = program.run(request.cell)
        for each in (search, again):
            each.tell(cell=request.cell, answer=answer, seconds=seconds)
    assert search.result() == again.result()


def test_the_plan_says_how_many_rows_are_left(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(costs, "FIRST_PASS_S", 2)
    monkeypatch.setattr(costs, "FIRST_FAIL_S", 60)
    search = Explore(space_of(3, 3, 2), Effort())
    assert search.estimate().trials == len(search.covering.rows)
    CellProgram(()).play(search)
    assert search.estimate().trials == 0
