from __future__ import annotations

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


def verdicts(*counts: CellCount, required: int = 9, ran=None) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for verdict in axis_verdicts(SPACE, counts, required=required, ran=ran):
        found.setdefault(verdict.axis, set()).add(verdict.finding.value)
    return found


def test_a_minimal_pair_with_both_sides_certified_implicates_its_axis_and_no_other():
    found = axis_verdicts(SPACE, [seen(bad=2, deep=True), seen(good=9)], required=9)
    (deep,) = [v for v in found if v.axis == "deep"]
    assert deep.finding is AxisFinding.IMPLICATED
    assert deep.because == "deep=True failed 2 of 2, deep=False passed 9 of 9, and nothing else differs"
    assert {v.finding for v in found if v.axis != "deep"} == {AxisFinding.NOT_NECESSARY}


def test_one_failure_or_too_few_passes_implicate_nothing_and_say_what_is_asked_for():
    for counts in ((seen(bad=1, deep=True), seen(good=9)), (seen(bad=2, deep=True), seen(good=8))):
        (deep,) = [v for v in axis_verdicts(SPACE, counts, required=9) if v.axis == "deep"]
        assert deep.finding is AxisFinding.UNTESTED
        assert "2 failures and 9 passes are asked for" in deep.because


def test_two_cells_that_differ_in_two_axes_implicate_neither():
    found = verdicts(seen(bad=3, deep=True, ckpt=True), seen(good=20))
    assert found == {"deep": {"untested"}, "ckpt": {"untested"}, "ddp": {"not necessary"}}


def test_a_pass_with_the_bad_value_makes_it_not_sufficient():
    assert "not sufficient" in verdicts(seen(good=9, ckpt=True))["ckpt"]
    assert verdicts(seen(good=8, ckpt=True))["ckpt"] == {"untested"}


def test_an_axis_may_be_implicated_and_neither_necessary_nor_sufficient():
    found = verdicts(
        seen(bad=2, deep=True, ckpt=True), seen(good=9, ckpt=True), seen(bad=2, ddp=True), seen(good=9, deep=True)
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
    found = axis_verdicts(SPACE, [seen(bad=3, deep=True, ckpt=True), spoiled], required=9)
    (ckpt,) = [v for v in found if v.axis == "ckpt"]
    assert (ckpt.finding, ckpt.because) == (AxisFinding.UNTESTED, "no such pair fails on one side")


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
    found = axis_verdicts(SPACE, counts, required=9)
    for factor in SPACE.factors:
        mine = [v for v in found if v.axis == factor.name]
        assert mine
        assert len(mine) == 1 or all(v.finding is not AxisFinding.UNTESTED for v in mine)
        for verdict in mine:
            assert {c.cell for c in verdict.cells} <= {c.cell for c in counts}
            if verdict.finding is AxisFinding.IMPLICATED:
                fails, passes = verdict.cells
                assert fails.bad >= 2
                assert passes.good >= 9
                assert not passes.bad
                differ = {name for name, value in fails.cell if passes.cell.get(name) != value}
                assert differ == {factor.name}
