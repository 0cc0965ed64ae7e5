"""Laws that hold for every search over cells: it can be replayed, it wastes nothing, silence only widens its answer."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cell_program import CellProgram
from harness.core.campaign import CampaignSpec, Task
from harness.core.matrix import Matrix
from harness.core.point import Axis, AxisType, Point
from harness.core.ports import CellRequest
from harness.core.space import Factor, Space
from harness.core.spec import Effort
from harness.core.verdict import Answer
from harness.search.cells import planned_cells
from harness.search.strategies import Search, strategy_of

TASKS = (Task.CELLS, Task.BISECT, Task.MINIMISE, Task.EXPLORE)
CERTIFY = 3


def factor(name: str, most: int) -> Factor:
    if most == 1:
        axis = Axis(name=name, path=name, type=AxisType.FLAG, values=(False, True))
        return Factor(axis=axis, good=False, bad=True)
    axis = Axis(name=name, path=name, type=AxisType.ORDERED, values=tuple(range(most + 1)))
    return Factor(axis=axis, good=0, bad=most)


@dataclass(frozen=True)
class Case:
    """A question and a program that fails where every axis of ``needs`` has at least that level."""

    spec: CampaignSpec
    needs: tuple[tuple[str, int], ...]
    rate: float
    mute: frozenset[Point] = field(default_factory=frozenset)

    def fails(self, cell) -> bool:
        return all(int(dict(cell)[name]) >= level for name, level in self.needs)

    def program(self, *, seed: int = 0) -> CellProgram:
        return CellProgram(
            (self.fails,), rate=self.rate, seed=seed, mute=lambda cell: Point.of(dict(cell)) in self.mute
        )

    def __str__(self) -> str:
        return f"{self.spec.task} {dict(self.needs)} at rate {self.rate}"


@st.composite
def cases(draw: st.DrawFn, task: Task, *, rates: tuple[float, ...] = (1.0,), mute: bool = False) -> Case:
    sizes = [draw(st.integers(2, 7)), *draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))]
    space = Space(factors=tuple(factor(f"a{i}", most) for i, most in enumerate(sizes)))
    names = draw(st.lists(st.sampled_from([f.name for f in space.factors]), min_size=1, max_size=2, unique=True))
    if task is Task.BISECT:
        names = ["a0"]
    needs = tuple((name, draw(st.integers(1, int(space.factor(name).bad)))) for name in names)
    matrix = Matrix(name="m", space=space, effort=Effort(certify=CERTIFY, max_trials=3000))
    listed = planned_cells(Matrix(name="m", space=space, include=(space.good, space.bad)))
    spec = CampaignSpec(question="?", task=task, matrix=matrix, cells=listed, passes=2, axis="a0", causes=2, explain=2)
    silent = frozenset()
    if mute:
        corners = {space.good, space.bad}
        levels = [[int(v) for v in f.axis.values] for f in space.factors]
        drawn = draw(st.lists(st.tuples(*[st.sampled_from(values) for values in levels]), max_size=6))
        cells = {Point.of({f.name: type(f.good)(v) for f, v in zip(space.factors, row, strict=True)}) for row in drawn}
        silent = frozenset(cells - corners)
    return Case(spec=spec, needs=needs, rate=draw(st.sampled_from(rates)), mute=silent)


def told(case: Case, search: Search) -> list[tuple[CellRequest, Answer]]:
    return case.program().play(search, most=4000)


@pytest.mark.parametrize("task", TASKS)
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_the_same_answers_in_the_same_order_give_the_same_questions(task: Task, data: st.DataObject):
    case = data.draw(cases(task, rates=(1.0, 0.5), mute=True))
    first, again = strategy_of(case.spec), strategy_of(case.spec)
    for request, answer in told(case, first):
        assert again.ask() == request
        assert again.ask() == request, "asking twice asks the same"
        assert request in again.ready(9)
        again.tell(cell=request.cell, answer=answer, seconds=60.0 if answer is Answer.BAD else 2.0)
    assert again.ask() is None
    assert again.result() == first.result()  # all of them have one


@pytest.mark.parametrize("task", TASKS)
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_no_cell_is_asked_again_once_it_is_decided(task: Task, data: st.DataObject):
    case = data.draw(cases(task))
    asked: Counter[Point] = Counter()
    failed: Counter[Point] = Counter()
    for request, answer in told(case, strategy_of(case.spec)):
        assert failed[request.cell] < 2, "it failed, and failed again"
        assert asked[request.cell] <= 2 * CERTIFY or failed[request.cell], "it has its certificate"
        asked[request.cell] += 1
        failed[request.cell] += answer is Answer.BAD


@given(cases(Task.MINIMISE, mute=True))
@settings(max_examples=40, deadline=None)
def test_a_cell_without_an_answer_only_widens_a_cause(case: Case):
    search = strategy_of(case.spec)
    told(case, search)
    for cause in search.result().causes:
        found = {need.axis: int(need.value) for need in cause.needs}
        assert all(found.get(name, 0) >= level for name, level in case.needs), "a setting that is needed was lost"
        for need in cause.needs:
            # What is in it beyond the true cause is there for want of an answer, and is not certified.
            wider = int(need.value) > dict(case.needs).get(need.axis, 0)
            assert not (wider and need.certified and int(need.last_good) == int(need.value) - 1)


@given(cases(Task.BISECT, mute=True))
@settings(max_examples=40, deadline=None)
def test_a_value_without_an_answer_only_widens_a_threshold_and_is_named(case: Case):
    search = strategy_of(case.spec)
    told(case, search)
    boundary = search.result()
    ((_, first_bad),) = case.needs
    if boundary.last_good is None or boundary.first_bad is None:
        return
    assert boundary.last_good < first_bad <= boundary.first_bad
    silent = {int(cell.get("a0")) for cell in case.mute if all(v == 0 for name, v in cell if name != "a0")}
    between = set(range(boundary.last_good + 1, boundary.first_bad))
    assert between <= silent
    assert between <= set(boundary.unresolved)
