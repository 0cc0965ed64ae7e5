"""Whatever the core types hold survives a round trip by JSON text."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import types
import typing
from enum import Enum
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.core import boundary, campaign, cause, evidence, matrix, outcome, point, record, spec, trial, verdict
from harness.core.codec import from_json, to_json
from harness.core.columns import from_columns, to_columns
from harness.core.errors import JournalError
from harness.core.point import Axis, AxisType, Point
from harness.core.space import Bundle, Factor, Space

MODULES = (boundary, campaign, cause, evidence, matrix, outcome, point, record, spec, trial, verdict)
NAMES = {name: value for module in MODULES for name, value in vars(module).items()}
CORE = sorted(
    {c for c in NAMES.values() if dataclasses.is_dataclass(c) and isinstance(c, type) and c is not verdict.Case},
    key=lambda c: c.__name__,
)

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | st.integers() | NUMBERS | st.text(max_size=8)
TEXT = st.text(max_size=6)
LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(),
    float: NUMBERS,
    str: TEXT,
    bool: st.booleans(),
    type(None): st.none(),
    dict: st.dictionaries(TEXT, SCALARS | st.dictionaries(TEXT, SCALARS, max_size=2), max_size=3),
    Point: st.dictionaries(TEXT, SCALARS, max_size=3).map(Point.of),
    Axis: st.lists(st.integers(), min_size=1, max_size=4, unique=True).map(
        lambda values: Axis(name="x", path="a.x", type=AxisType.ORDERED, values=tuple(sorted(values)))
    ),
}

FLAG = Factor(
    axis=Axis(name="y", path="", type=AxisType.FLAG, values=(False, True)),
    good=False,
    bad=True,
    bundles=(Bundle(), Bundle(env=(("Y", "1"),), commit="abc")),
)
LEAVES[dt.date] = st.dates()
LEAVES[Factor] = LEAVES[Axis].map(lambda axis: Factor(axis=axis, good=axis.values[0], bad=axis.values[-1]))
LEAVES[Space] = LEAVES[Factor].map(lambda factor: Space(factors=(factor, FLAG)))


@cache
def anything(hint: Any) -> st.SearchStrategy[Any]:
    """Values of ``hint``, with every field of a dataclass drawn, also those that have a default."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if (origin or hint) in LEAVES:
        return LEAVES[origin or hint]
    if origin in (typing.Union, types.UnionType):
        return st.one_of([anything(arg) for arg in args])
    if origin is tuple and args[1:] == (...,):
        return st.lists(anything(args[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*[anything(arg) for arg in args])
    if issubclass(hint, Enum):
        return st.sampled_from(list(hint))
    hints = typing.get_type_hints(hint, localns=NAMES)
    return st.builds(hint, **{f.name: anything(hints[f.name]) for f in dataclasses.fields(hint) if f.init})


def test_the_core_types_are_all_here():
    assert {"Trial", "Verdict", "Evidence", "Boundary", "Run", "CampaignSpec", "TrialRecord"} <= {
        c.__name__ for c in CORE
    }


@pytest.mark.parametrize("cls", CORE, ids=lambda cls: cls.__name__)
@given(data=st.data())
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_core_types_survive_json(cls: type, data: st.DataObject):
    value = data.draw(anything(cls))
    assert from_json(cls, json.loads(json.dumps(to_json(value)))) == value


@given(anything(evidence.Evidence))
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_evidence_survives_columns(value: evidence.Evidence):
    assert from_columns(evidence.Evidence, json.loads(json.dumps(to_columns(value)))) == value


@given(anything(verdict.Verdict))
@settings(max_examples=20)
def test_a_key_that_the_type_does_not_have_is_refused_with_the_nearest(value: verdict.Verdict):
    written = {**to_json(value), "becaus": "x"}
    with pytest.raises(JournalError, match="did you mean 'because'"):
        from_json(verdict.Verdict, written)


@given(anything(trial.Trial))
@settings(max_examples=20)
def test_a_trial_has_the_same_key_after_a_round_trip(value: trial.Trial):
    assert from_json(trial.Trial, json.loads(json.dumps(to_json(value)))).key == value.key


def test_what_is_wrong_is_said_with_its_place():
    ranks = [{"heartbeats": [{"phse": "forward"}]}]
    with pytest.raises(JournalError, match=r"^Evidence\.ranks\[0\]\.heartbeats\[0\]: unknown key 'phse'"):
        from_json(evidence.Evidence, {"ranks": ranks})
    with pytest.raises(JournalError, match=r"^TrialRecord\.answer: 'perhaps' is not a valid Answer$"):
        from_json(record.TrialRecord, {"answer": "perhaps"})


def test_what_earlier_versions_said_in_words_alone_is_read():
    limit = from_json(trial.Limit, {"seconds": 4.0, "source": "set by the user (stall_s)"})
    assert limit.by_user
    assert not from_json(trial.Limit, {"seconds": 4.0, "source": "learned"}).by_user
    line = dict.fromkeys(("intercept", "slope", "slope_low", "slope_high", "r_squared"), 1.0)
    was = {"quantity": "peak memory, MB", "points": [], **line}
    assert from_json(boundary.ScalingFit, was).quantity == "peak memory, MiB"
