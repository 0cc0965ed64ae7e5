from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.core.campaign import threshold_question
from harness.core.errors import SpecError
from harness.core.point import Axis, AxisType, Point
from harness.core.ports import CellRequest
from harness.core.trial import Condition, Fault
from harness.plan.cells import CellPlanner

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.core.point import Value

AXIS = Axis(name="n_layers", path="model.n_layers", type=AxisType.ORDERED, values=tuple(range(1, 13)))
HANG = Fault(specimen="backward-deadlock", conditions=(Condition(name="n_layers", op=">=", value=5),))


class TwoSettings:
    """A target with a depth, an attention and a default length."""

    def config(self, settings: Mapping[str, Value]) -> dict[str, object]:
        tree: dict[str, dict[str, Value]] = {"model": {"n_layers": 4, "attention": "nsa"}, "train": {"seq_len": 256}}
        for path, value in settings.items():
            section, _, name = path.partition(".")
            tree[section][name] = value
        return dict(tree)

    def command(self, *_: object, **__: object) -> None:
        raise AssertionError("a planner starts nothing")


def planner(*, held: tuple[tuple[str, Value], ...] = (("train.seq_len", 64),), **changes: object) -> CellPlanner:
    spec = threshold_question(question="q", axis=AXIS, fixed=Point(held), **changes)  # type: ignore[arg-type]
    return CellPlanner(spec, target=TwoSettings(), code="abc", machine="here")  # type: ignore[arg-type]


def ask(value: int, role: str = "search") -> CellRequest:
    return CellRequest(cell=Point.of({"n_layers": value}), role=role, reason="")


def test_a_trial_carries_the_point_the_whole_configuration_and_its_origin():
    trial = planner().trial(ask(3))
    assert dict(trial.point) == {"n_layers": 3}
    assert trial.config == {"model": {"n_layers": 3, "attention": "nsa"}, "train": {"seq_len": 64}}
    assert (trial.target, trial.role, trial.repeat, trial.code, trial.machine) == ("nsa", "search", 0, "abc", "here")
    assert trial.budget.stall.source.startswith("default")


def test_repeats_are_counted_per_value_and_no_two_trials_share_key_or_seed():
    plan = planner()
    trials = [plan.trial(ask(3)), plan.trial(ask(3, "certify")), plan.trial(ask(4)), plan.trial(ask(3, "certify"))]
    trials += [plan.trial(ask(3, "confirm")), plan.trial(ask(3, "control dense"))]
    assert [t.repeat for t in trials] == [0, 1, 0, 2, 3, 4]
    assert len({t.key for t in trials}) == len(trials)
    assert len({t.seed for t in trials}) == len(trials)


def test_the_same_question_makes_the_same_trials():
    first, second = planner(), planner()
    assert [first.trial(ask(v)) for v in (1, 2, 2)] == [second.trial(ask(v)) for v in (1, 2, 2)]


def test_another_seed_makes_other_seeds_at_the_same_points():
    assert planner(seed=1).trial(ask(3)).seed != planner(seed=2).trial(ask(3)).seed


def test_after_a_resume_numbering_goes_on_where_it_stopped():
    before = planner()
    made = [before.trial(ask(3)), before.trial(ask(3))]
    after = planner()
    for trial in made:
        after.note(trial)
    assert after.trial(ask(3)) == before.trial(ask(3))


def test_the_fault_is_planted_only_where_its_conditions_hold():
    plan = planner(fault=HANG)
    assert [plan.trial(ask(v)).fault for v in (4, 5, 12)] == [None, HANG, HANG]


@pytest.mark.parametrize(
    ("name", "value", "planted"),
    [
        ("train.seq_len", 64, True),
        ("seq_len", 64, True),
        ("seq_len", 65, False),
        ("attention", "nsa", True),
        ("model.n_layers", 3, True),
        ("model.n_layers", 4, False),
    ],
)
def test_a_condition_may_name_any_setting_also_one_left_at_its_default(name, value, planted):
    op = "==" if isinstance(value, str) else ">="
    fault = Fault(specimen="crash", conditions=(Condition(name=name, op=op, value=value),))
    assert (planner(fault=fault).trial(ask(3)).fault is not None) is planted


def test_a_condition_on_a_setting_that_does_not_exist_is_refused_before_the_first_trial():
    fault = Fault(specimen="crash", conditions=(Condition(name="seqlen", op=">=", value=1),))
    with pytest.raises(SpecError, match="did you mean 'seq_len'"):
        planner(fault=fault)


def test_the_control_without_fault_changes_nothing_else():
    plan = planner(fault=HANG, controls=("no-fault",))
    bad, control = plan.trial(ask(5)), plan.trial(ask(5, "control no-fault"))
    assert control.fault is None
    assert control.role == "control no-fault"
    assert (control.point, control.config) == (bad.point, bad.config)


def test_the_dense_control_changes_the_attention_and_keeps_the_fault():
    plan = planner(fault=HANG, controls=("dense",))
    control = plan.trial(ask(5, "control dense"))
    assert control.config["model"] == {"n_layers": 5, "attention": "dense"}
    assert control.fault == HANG


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"controls": ("no-fault",)}, "no fault is planted"),
        ({"controls": ("dense",), "held": (("model.attention", "dense"),)}, "changes nothing"),
        ({"controls": ("dens",)}, "did you mean 'dense'"),
    ],
)
def test_a_control_that_would_change_nothing_is_refused_before_the_first_trial(changes, message):
    with pytest.raises(SpecError, match=message):
        planner(**changes)
