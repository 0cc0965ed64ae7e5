from __future__ import annotations

import random
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.cause import AxisFinding, CellCount
from harness.core.point import Axis, AxisType
from harness.core.space import Factor, Space
from harness.search.implicate import axis_verdicts


def flag(name: str) -> Factor:
    axis = Axis(name=name, path=name, type=AxisType.FLAG, values=(False, True))
    return Factor(axis=axis, good=False, bad=True)


SPACE = Space(factors=(flag("deep"), flag("ckpt"), flag("ddp")))


def seen(good: int = 0, bad: int = 0, **settings: bool) -> CellCount:
    return CellCount(cell=SPACE.cell(settings), good=good, bad=bad)


def verdicts(*counts: CellCount, ran=None) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for verdict in axis_verdicts(SPACE, counts, ran=ran):
        found.setdefault(verdict.axis, set()).add(verdict.finding.value)
    return found


def test_a_minimal_pair_with_both_sides_certified_implicates_its_axis_and_no_other():
    found = axis_verdicts(SPACE, [seen(bad=2, deep=True), seen(good=9)])
    (deep,) = [v for v in found if v.axis == "deep"]
    assert deep.finding is AxisFinding.IMPLICATED
    assert deep.because == "deep=true failed 2 of 2, deep=false passed 9 of 9, and nothing else differs (p = 0.018)"
    assert {v.finding for v in found if v.axis != "deep"} == {AxisFinding.NOT_NECESSARY}


def test_what_chance_does_as_well_implicates_nothing_and_says_so():
    for counts in ((seen(bad=1, deep=True), seen(good=9)), (seen(bad=2, deep=True), seen(good=4))):
        (deep,) = [v for v in axis_verdicts(SPACE, counts) if v.axis == "deep"]
        assert deep.finding is AxisFinding.UNTESTED
        assert "chance alone does as much with p = 0." in deep.because


def test_pairs_that_show_little_by_themselves_show_it_together():
    one = (seen(bad=3, good=1, deep=True), seen(good=4))
    many = [seen(bad=3, good=1, deep=True, ckpt=c, ddp=d) for c in (False, True) for d in (False, True)]
    many += [seen(good=4, ckpt=c, ddp=d) for c in (False, True) for d in (False, True)]
    assert verdicts(*one)["deep"] == {"untested"}
    assert verdicts(*many) == {"deep": {"implicated"}, "ckpt": {"not necessary"}, "ddp": {"not necessary"}}


def test_false_alarms_say_nothing_about_any_axis_however_often_each_cell_is_run():
    cells = [dict(zip(("deep", "ckpt", "ddp"), values, strict=True)) for values in product((False, True), repeat=3)]
    alarms = [1, 2, 1, 1, 0, 0, 0, 0]
    counts = [
        seen(bad=30, **cell) if cell["deep"] else seen(bad=bad, good=30 - bad, **cell)
        for cell, bad in zip(cells, alarms, strict=True)
    ]
    assert verdicts(*counts) == {"deep": {"implicated"}, "ckpt": {"not necessary"}, "ddp": {"not necessary"}}


@pytest.mark.parametrize(("rate", "false"), [(1.0, 0.02), (0.5, 0.0), (0.3, 0.02)])
@pytest.mark.parametrize("runs", [3, 18])
def test_no_false_word_is_said_of_a_table_in_more_than_one_of_ten(rate: float, false: float, runs: int):
    draw, wrong = random.Random(f"{rate} {false} {runs}"), 0
    for _ in range(60):
        counts: list[CellCount] = []
        for deep, ckpt, ddp in product((False, True), repeat=3):
            chance = 1 - (1 - rate * deep) * (1 - false)
            bad = sum(draw.random() < chance for _ in range(runs))
            counts.append(seen(bad=bad, good=runs - bad, deep=deep, ckpt=ckpt, ddp=ddp))
        found = verdicts(*counts)
        wrong += "implicated" in found["ckpt"] | found["ddp"] or bool(
            {"not necessary", "not sufficient"} & found["deep"]
        )
    assert wrong <= 6


def test_two_cells_that_differ_in_two_axes_implicate_neither():
    found = verdicts(seen(bad=3, deep=True, ckpt=True), seen(good=20))
    assert found == {"deep": {"untested"}, "ckpt": {"untested"}, "ddp": {"not necessary"}}


def test_passes_with_the_bad_value_where_others_with_it_fail_make_it_not_sufficient():
    assert "not sufficient" in verdicts(seen(good=9, ckpt=True), seen(bad=9, ckpt=True, deep=True))["ckpt"]
    assert "not sufficient" not in verdicts(seen(good=3, ckpt=True), seen(bad=2, good=2, ckpt=True, deep=True))["ckpt"]
    assert verdicts(seen(good=9, ckpt=True))["ckpt"] == {"untested"}


def test_an_axis_may_be_implicated_and_neither_necessary_nor_sufficient():
    found = verdicts(
        seen(bad=4, deep=True, ckpt=True), seen(good=9, ckpt=True), seen(bad=4, ddp=True), seen(good=9, deep=True)
    )
    assert found["deep"] == {"implicated", "not necessary", "not sufficient"}


def test_a_pair_that_ran_the_same_thing_is_inert_whatever_it_answered():
    fails, passes = seen(bad=2, ckpt=True), seen(good=9)
    ran = {fails.cell: "a", passes.cell: "a"}
    assert verdicts(fails, passes, ran=ran)["ckpt"] == {"inert"}
    assert verdicts(fails, passes, ran={fails.cell: "a", passes.cell: "b"})["ckpt"] == {"implicated"}
    assert verdicts(fails, passes, ran={fails.cell: "a"})["ckpt"] == {"implicated"}


def test_a_report_whose_only_control_was_spoiled_leaves_checkpointing_untested():
    spoiled = CellCount(cell=SPACE.cell({"deep": True}), unresolved=1)
    found = axis_verdicts(SPACE, [seen(bad=3, deep=True, ckpt=True), spoiled])
    (ckpt,) = [v for v in found if v.axis == "ckpt"]
    assert (ckpt.finding, ckpt.because) == (
        AxisFinding.UNTESTED,
        "no two cells that differ only here both gave an answer",
    )


def test_trials_of_one_cell_that_come_in_two_parts_count_together():
    assert "implicated" in verdicts(seen(bad=1, deep=True), seen(good=5), seen(bad=1, deep=True), seen(good=4))["deep"]


COUNTS = st.lists(
    st.builds(
        lambda deep, ckpt, ddp, good, bad: seen(good, bad, deep=deep, ckpt=ckpt, ddp=ddp),
        st.booleans(),
        st.booleans(),
        st.booleans(),
        st.integers(0, 10),
        st.integers(0, 3),
    ),
    max_size=8,
)


@given(COUNTS)
@settings(deadline=None)
def test_every_axis_has_a_finding_untested_stands_alone_and_each_cell_cited_was_run(counts):
    found = axis_verdicts(SPACE, counts)
    for factor in SPACE.factors:
        mine = [v for v in found if v.axis == factor.name]
        assert mine
        assert len(mine) == 1 or all(v.finding is not AxisFinding.UNTESTED for v in mine)
        for verdict in mine:
            assert {c.cell for c in verdict.cells} <= {c.cell for c in counts}
            if verdict.finding is AxisFinding.IMPLICATED:
                fails, passes = verdict.cells
                assert fails.bad * (passes.bad + passes.good) > passes.bad * (fails.bad + fails.good)
                differ = {name for name, value in fails.cell if passes.cell.get(name) != value}
                assert differ == {factor.name}
