from __future__ import annotations

import pytest

from harness.core.errors import SpecError
from harness.core.trial import Condition
from harness.spec.fault import parse_fault
from harness.specimens.catalog import SPECIMENS

KNOWN = ("clean", "backward-deadlock", "slow_step")


def test_a_specimen_with_two_conditions():
    fault = parse_fault("backward-deadlock@n_layers>=5,seq_len>=256", specimens=KNOWN)
    assert fault.specimen == "backward-deadlock"
    assert fault.conditions == (
        Condition(name="n_layers", op=">=", value=5),
        Condition(name="seq_len", op=">=", value=256),
    )
    assert str(fault) == "backward-deadlock@n_layers>=5,seq_len>=256"


@pytest.mark.parametrize("name", SPECIMENS.names())
def test_every_specimen_can_be_planted_by_name(name):
    assert parse_fault(name).specimen == name
    assert parse_fault(name).active({})


@pytest.mark.parametrize(
    ("written", "name"), [("slow-step", "slow_step"), ("backward_deadlock", "backward-deadlock"), (" clean ", "clean")]
)
def test_dashes_and_underscores_are_the_same(written, name):
    assert parse_fault(written, specimens=KNOWN).specimen == name


@pytest.mark.parametrize(
    ("condition", "value", "holds"),
    [
        ("n_layers>=5", 5, True),
        ("n_layers>=5", 4, False),
        ("n_layers > 5", 5, False),
        ("n_layers<=5", 5, True),
        ("n_layers<5", 5, False),
        ("n_layers==5", 5, True),
        ("n_layers!=5", 5, False),
    ],
)
def test_every_operator_means_what_it_says(condition, value, holds):
    assert parse_fault(f"clean@{condition}", specimens=KNOWN).active({"n_layers": value}) is holds


def test_conditions_have_the_type_of_their_setting():
    fault = parse_fault("clean@attention==dense,train.lr>1e-3,tied_head==false", specimens=KNOWN)
    assert [c.value for c in fault.conditions] == ["dense", 1e-3, False]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("backward-dedlock", "did you mean 'backward-deadlock'"),
        ("", "unknown specimen"),
        ("clean@", "say where it strikes"),
        ("clean@n_layer>=5", "did you mean 'n_layers'"),
        ("clean@n_layers=5", "did you mean '=='"),
        ("clean@n_layers=>5", "did you mean '>='"),
        ("clean@n_layers>>5", "unknown operator '>>'"),
        ("clean@n_layers", "no comparison"),
        ("clean@n_layers>=5,", "no comparison"),
        ("clean@n_layers>=five", "is not int"),
        ("clean@model.attention>=nsa", "no order"),
        ("clean@model.attention==ns", "did you mean 'nsa'"),
    ],
)
def test_what_does_not_make_sense_is_refused_with_the_way_out(text, message):
    with pytest.raises(SpecError, match=message):
        parse_fault(text, specimens=KNOWN)
