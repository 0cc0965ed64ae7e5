"""Laws of the search for a cause, on simulated programs over random spaces with random rules."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import product

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cell_program import CellProgram
from harness.core.boundary import Claim
from harness.core.cause import Cause, MinimiseFinding
from harness.core.point import Axis, AxisType, Point
from harness.core.space import Factor, Rule, Selector, Space
from harness.core.spec import Effort
from harness.core.verdict import Answer
from harness.search.minimise import Minimise
from harness.search.tally import lean

FEW = Effort(certify=3, max_trials=5000)
ONCE = Effort(certify=1, max_trials=5000)


@dataclass(frozen=True)
class Levels:
    """A cause as the least level of each axis that it needs; axis i is called a<i>."""

    needs: tuple[tuple[str, int], ...]

    def __call__(self, cell) -> bool:
        return all(int(cell[name]) >= level for name, level in self.needs)

    def __str__(self) -> str:
        return str(dict(self.needs))


def factor(name: str, most: int, priority: int = 0) -> Factor:
    if most == 1:
        axis = Axis(name=name, path=name, type=AxisType.FLAG, values=(False, True))
        return Factor(axis=axis, good=False, bad=True, priority=priority)
    axis = Axis(name=name, path=name, type=AxisType.ORDERED, values=tuple(range(most + 1)))
    return Factor(axis=axis, good=0, bad=most, priority=priority)


@st.composite
def spaces(draw: st.DrawFn, *, axes: int = 6, ruled: bool = False) -> Space:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=axes))
    factors = tuple(factor(f"a{i}", most, draw(st.integers(0, 3))) for i, most in enumerate(sizes))
    rules = []
    if ruled and len(sizes) > 1:
        pairs = st.lists(st.integers(0, len(sizes) - 1), min_size=2, max_size=2, unique=True)
        for i, j in draw(st.lists(pairs.map(sorted), max_size=4)):
            # a<j> away from its good value requires the same of a<i>: both corners stay valid.
            when = Selector(terms=((f"a{j}", factors[j].axis.values[1:]),))
            rules.append(Rule(when=when, require=Selector(terms=((f"a{i}", factors[i].axis.values[1:]),))))
    return Space(factors=factors, rules=tuple(rules))


@st.composite
def causes(draw: st.DrawFn, space: Space, *, most: int = 3) -> Levels:
    names = draw(st.lists(st.sampled_from([f.name for f in space.factors]), min_size=1, max_size=most, unique=True))
    return Levels(
        tuple((name, draw(st.integers(1, len(space.factor(name).axis.values) - 1))) for name in sorted(names))
    )


@st.composite
def cases(draw: st.DrawFn, *, ruled: bool = False, most_causes: int = 1) -> tuple[Space, tuple[Levels, ...]]:
    space = draw(spaces(ruled=ruled))
    return space, tuple(draw(st.lists(causes(space), min_size=1, max_size=most_causes)))


def found(cause: Cause) -> dict[str, int]:
    return {need.axis: int(need.value) for need in cause.needs}


def minimal(many: tuple[Levels, ...]) -> set[frozenset[tuple[str, int]]]:
    """The causes that contain no other one."""

    def contains(big: Levels, small: Levels) -> bool:
        return all(dict(big.needs).get(name, 0) >= level for name, level in small.needs)

    return {frozenset(c.needs) for c in many if not any(contains(c, o) and not contains(o, c) for o in many)}


def steps_back(space: Space, levels: dict[str, int]):
    """Every valid cell with one need further back, at the nearest level that the rules allow."""
    for name, level in levels.items():
        for lower in range(level - 1, -1, -1):
            cell = space.cell({**levels, name: space.factor(name).axis.values[lower]})
            if space.broken(cell) is None:
                yield name, cell
                break


@given(cases())
@settings(deadline=None)
def test_a_steady_cause_is_found_exactly_and_certified(case):
    space, (cause,) = case
    search = Minimise(space, FEW)
    CellProgram((cause,)).play(search)
    result = search.result()
    assert result.finding is MinimiseFinding.CAUSE
    assert found(result.causes[0]) == dict(cause.needs)
    assert result.causes[0].certified
    assert result.causes[0].claim is Claim.REPRODUCED
    assert all(need.last_good == int(need.value) - 1 for need in result.causes[0].needs)


@given(cases(ruled=True, most_causes=3))
@settings(deadline=None)
def test_with_rules_the_answer_fails_and_every_allowed_step_back_from_it_passes(case):
    space, many = case
    program = CellProgram(many)
    search = Minimise(space, FEW)
    program.play(search)
    (cause,) = search.result().causes
    assert program.can_fail(cause.seen.cell)
    levels = found(cause)
    back = dict(steps_back(space, levels))
    assert not any(program.can_fail(cell) for cell in back.values())
    assert {need.axis for need in cause.needs if need.kept_by} == set(levels) - set(back)


@given(cases(ruled=True, most_causes=3))
@settings(deadline=None)
def test_no_cell_that_breaks_a_rule_is_ever_asked(case):
    space, many = case
    for request, _ in CellProgram(many).play(Minimise(space, ONCE, causes=9)):
        assert space.broken(request.cell) is None


@given(cases(most_causes=3))
@settings(deadline=None)
def test_all_causes_are_found_and_the_answer_says_that_there_is_no_other(case):
    space, many = case
    search = Minimise(space, ONCE, causes=20)
    CellProgram(many).play(search)
    result = search.result()
    assert {frozenset(found(c).items()) for c in result.causes} == minimal(many)
    assert result.complete


@given(cases(most_causes=3))
@settings(deadline=None)
def test_asked_for_one_of_several_causes_it_does_not_claim_to_be_complete(case):
    space, many = case
    search = Minimise(space, ONCE)
    CellProgram(many).play(search)
    result = search.result()
    assert len(result.causes) == 1
    assert not result.complete
    assert any("Not claimed" in note for note in result.notes)


@given(cases(ruled=True, most_causes=2), st.floats(0.05, 1), st.integers(0, 2**32))
@settings(deadline=None)
def test_nothing_is_asked_that_a_certificate_or_the_confirmation_does_not_need(case, rate, seed):
    space, many = case
    search = Minimise(space, FEW)
    told = CellProgram(many, rate=rate, seed=seed).play(search)
    asked = Counter((request.cell, request.role) for request, _ in told)
    passed, failed = Counter[Point](), Counter[Point]()
    for request, answer in told:
        cell = request.cell
        if request.role == "confirm":
            assert failed[cell], "only what failed is asked whether it does so again"
        else:
            assert not failed[cell] or lean(passed[cell], failed[cell]) <= 0, "a cell that failed is decided"
        (failed if answer is Answer.BAD else passed)[cell] += 1
    for cell, certificate in search.certificates.items():
        assert certificate.good <= certificate.needed
        assert asked[cell, "certify"] <= certificate.good + certificate.bad
    searched = [n for (cell, role), n in asked.items() if role == "search" and cell != space.bad]
    assert set(searched) <= {1}


@given(cases(ruled=True, most_causes=2), st.floats(0.05, 1), st.integers(0, 2**32))
@settings(deadline=None)
def test_a_flaky_answer_really_can_fail_it_is_at_worst_too_large(case, rate, seed):
    space, many = case
    program = CellProgram(many, rate=rate, seed=seed)
    search = Minimise(space, ONCE)
    program.play(search)
    for cause in search.result().causes:
        assert program.can_fail(cause.seen.cell)


@given(cases(ruled=True, most_causes=2), st.floats(0.3, 1), st.floats(0.02, 1), st.integers(0, 2**32))
@settings(deadline=None, max_examples=40)
def test_failures_that_come_in_any_cell_but_not_soon_again_make_no_wrong_cause_certified(case, rate, false, seed):
    space, many = case
    program = CellProgram(many, rate=rate, false=false, apart=40, seed=seed)
    search = Minimise(space, Effort(max_trials=5000))
    program.play(search)
    result = search.result()
    assert all(program.can_fail(cause.seen.cell) for cause in result.causes if cause.certified)
    assert result.finding is not MinimiseFinding.GOOD_FAILS
    assert result.finding is not MinimiseFinding.BAD_PASSES or not program.can_fail(space.bad)


@given(cases(), st.integers(0, 2**32))
@settings(deadline=None, max_examples=20)
def test_a_steady_cause_is_found_and_certified_in_spite_of_them(case, seed):
    space, (cause,) = case
    search = Minimise(space, Effort(max_trials=5000))
    CellProgram((cause,), false=0.02, apart=40, seed=seed).play(search)
    (answer,) = search.result().causes
    assert found(answer) == dict(cause.needs)
    assert answer.certified


@given(cases(ruled=True), st.data())
@settings(deadline=None)
def test_cells_without_an_answer_only_make_the_answer_larger_and_it_says_so(case, data: st.DataObject):
    space, many = case
    program = CellProgram(many)
    every = [space.cell(dict(zip([f.name for f in space.factors], values, strict=True))) for values in _all(space)]
    holes = data.draw(st.frozensets(st.sampled_from(every), max_size=8))
    program.mute = lambda cell: Point.of(cell) in holes
    search = Minimise(space, FEW)
    program.play(search)
    result = search.result()
    if {space.good, space.bad} & holes:
        assert result.finding is MinimiseFinding.INCONCLUSIVE
        assert not result.causes
        return
    (cause,) = result.causes
    assert program.can_fail(cause.seen.cell)
    for need in cause.needs:
        assert need.back is None or not program.can_fail(need.back.cell)
        assert need.back is not None or need.kept_by or any(need.axis in note for note in result.notes)


def _all(space: Space):
    return product(*(f.axis.values for f in space.factors))


@given(cases(ruled=True, most_causes=2), st.floats(0.05, 1), st.integers(0, 2**32), st.integers(1, 4))
@settings(deadline=None)
def test_replaying_the_answers_asks_the_same_questions(case, rate, seed, most):
    space, many = case
    program = CellProgram(many, rate=rate, seed=seed)
    search = Minimise(space, FEW, causes=most)
    again, unasked = Minimise(space, FEW, causes=most), Minimise(space, FEW, causes=most)
    while (request := search.ask()) is not None:
        assert again.ask() == again.ask() == request
        answer, seconds = program.run(request.cell)
        for each in (search, again, unasked):
            each.tell(cell=request.cell, answer=answer, seconds=seconds)
    assert again.ask() is None
    assert search.result() == again.result() == unasked.result()


@given(cases(ruled=True, most_causes=2), st.integers(0, 40))
@settings(max_examples=30, deadline=None)
def test_looking_at_the_plan_or_the_result_changes_nothing(case, trials):
    space, many = case
    search = Minimise(space, FEW)
    CellProgram(many).play(search, most=trials)
    before, request = search.result(), search.ask()
    estimate = search.estimate()
    assert (search.result(), search.ask()) == (before, request)
    assert (estimate.trials == 0) == (request is None) or "not predictable" in estimate.text


@given(cases(most_causes=2), st.integers(1, 30))
@settings(deadline=None)
def test_the_search_ends_within_its_trials_and_then_claims_no_certificate_it_lacks(case, most):
    space, many = case
    search = Minimise(space, Effort(certify=3, max_trials=most))
    assert len(CellProgram(many).play(search)) <= most
    result = search.result()
    if search.stopped:
        assert any("ended early" in note for note in result.notes)
        assert not result.complete
    for cause in result.causes:
        for need in cause.needs:
            assert not need.certified or (need.back is not None and need.back.good >= 3)


@given(cases(), st.integers(0, 30))
@settings(max_examples=30, deadline=None)
def test_what_was_seen_before_is_not_run_again(case, known):
    space, many = case
    program = CellProgram(many)
    first = Minimise(space, FEW)
    told = program.play(first)
    second = Minimise(space, FEW, prior=first.observations[:known])
    again = program.play(second)
    known_cells = {request.cell for request, _ in told[:known]}
    assert not [r for r, _ in again if r.role == "search" and r.cell in known_cells]
    certified = Counter(r.cell for r, answer in [*told[:known], *again] if answer is Answer.GOOD)
    before = Counter(r.cell for r, answer in told[:known] if answer is Answer.GOOD)
    assert all(n <= before[cell] + second.required + 1 for cell, n in certified.items()), "those of before do not count"
    assert [str(cause) for cause in second.result().causes] == [str(cause) for cause in first.result().causes]


@given(cases())
@settings(deadline=None)
def test_a_good_corner_that_fails_ends_the_search_at_once(case):
    space, _ = case
    search = Minimise(space, FEW)
    told = CellProgram((lambda _: True,)).play(search)
    assert search.result().finding is MinimiseFinding.GOOD_FAILS
    assert [request.cell for request, _ in told] == [space.good] * 2


@given(cases())
@settings(deadline=None)
def test_a_bad_corner_that_passes_its_certificate_ends_the_search(case):
    space, _ = case
    assume(space.good != space.bad)
    search = Minimise(space, FEW)
    told = CellProgram(()).play(search)
    assert search.result().finding is MinimiseFinding.BAD_PASSES
    assert [request.cell for request, _ in told] == [space.good] + [space.bad] * 3
