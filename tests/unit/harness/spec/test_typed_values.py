"""A value reaches a program as it was typed: numbers are for order, not for spelling."""

from __future__ import annotations

import json

import pytest

from harness.core.codec import from_json, to_json
from harness.core.command_line import composed
from harness.core.errors import SpecError
from harness.core.matrix import Matrix
from harness.core.point import Axis, AxisType, as_typed, size_of, word_of
from harness.spec.axes import parse_axis
from harness.spec.inline import fixed_settings, program_matrix
from harness.spec.matrix import parse_matrix
from harness.spec.matrix_axes import parse_cell, parse_selector

OWN_WAYS = ["12.0", "1e-3", "010", "+5", "1_000", ".5", "1e6", "-0.50", "12.50"]
USUAL_WAYS = ["12", "0", "-1", "0.1", "12.5", "1e-05", "-0.25"]
WORDS = ["x", "nan", "inf", "1e999", "0x10", "2.9.0", "", "9007199254740994"]


def typed(tmp_path, *axes: str, settings: dict[str, str] | None = None) -> Matrix:
    fixed = {f"args.{name}": as_typed(text) for name, text in (settings or {}).items()}
    settings = {"command": "sci.py {v} {w}", **fixed}
    return program_matrix(
        ["sci.py", "{v}", "{w}"], axes=axes, settings=settings, env=(), environ={}, repository=tmp_path
    )


def arguments(matrix: Matrix, cell: str) -> tuple[str, ...]:
    """What the program of ``matrix`` gets in ``cell``."""
    args = {path.removeprefix("args."): value for path, value in matrix.bundle(parse_cell(cell, matrix.space)).config}
    return composed({"command": "sci.py {v} {w}", "args": args}, python="python").argv[1:]


@pytest.mark.parametrize("text", [*OWN_WAYS, *USUAL_WAYS, *WORDS])
def test_what_was_typed_is_what_is_written(text):
    assert word_of(as_typed(text)) == text


def test_a_number_has_a_size_however_it_is_typed_and_a_word_has_none():
    assert [size_of(as_typed(text)) for text in OWN_WAYS] == [12, 0.001, 10, 5, 1000, 0.5, 1e6, -0.5, 12.5]
    assert [size_of(as_typed(text)) for text in USUAL_WAYS] == [12, 0, -1, 0.1, 12.5, 1e-05, -0.25]
    assert [size_of(as_typed(text)) for text in WORDS] == [None] * len(WORDS)
    assert all(isinstance(as_typed(text), int | float) for text in USUAL_WAYS)


def test_a_program_gets_every_value_as_it_was_typed(tmp_path):
    matrix = typed(tmp_path, "v=11.8,12.0,12.4", "w=1e-4,1e-3,0.010")
    assert arguments(matrix, "v=12.0,w=1e-3") == ("12.0", "1e-3")
    assert arguments(matrix, "v=11.8,w=0.010") == ("11.8", "0.010")
    assert [axis.type for axis in (factor.axis for factor in matrix.space.factors)] == [AxisType.ORDERED] * 2
    assert [matrix.space.factor("w").axis.size(v) for v in ("1e-4", "1e-3", "0.010")] == [1e-4, 1e-3, 1e-2]
    assert not matrix.space.factor("v").axis.is_named
    assert parse_selector(["v>=12"], matrix.space).terms == (("v", ("12.0", 12.4)),)
    assert from_json(Matrix, json.loads(json.dumps(to_json(matrix)))) == matrix


def test_a_value_that_is_held_is_handed_on_as_it_was_typed(tmp_path):
    assert arguments(typed(tmp_path, "v=1..3", settings={"w": "010"}), "v=2") == ("2", "010")


def test_ranges_write_their_numbers_in_the_usual_way(tmp_path):
    assert typed(tmp_path, "v=1..3,4.0", "w=1").space.factor("v").axis.values == (1, 2, 3, "4.0")
    assert typed(tmp_path, "v=08..16*2", "w=1").space.factor("v").axis.values == (8, 16)


@pytest.mark.parametrize("values", ["4,0", "0.1,0,-1", "2.8,2.9,2.10"])
def test_numbers_that_do_not_ascend_are_words_in_the_order_in_which_they_stand(tmp_path, values):
    factor = typed(tmp_path, f"v={values}", "w=1").space.factor("v")
    assert factor.axis.values == tuple(values.split(","))
    assert (factor.good, factor.bad) == (values.split(",")[0], values.split(",")[-1])
    assert factor.axis.is_named


def test_a_range_in_a_list_that_does_not_ascend_is_refused_with_the_way_out(tmp_path):
    with pytest.raises(SpecError, match="its smallest value first, or list all in their order"):
        typed(tmp_path, "v=4..8,0", "w=1")


def test_an_axis_that_is_also_held_stays_at_that_one_of_its_values(tmp_path):
    matrix = typed(tmp_path, "v=1..3", "w=4,0", settings={"w": "4"})
    assert matrix.space.names == ("v",)
    assert dict(matrix.base.config)["args.w"] == "4"
    with pytest.raises(SpecError, match="'5' is not a value of axis 'w'"):
        typed(tmp_path, "v=1..3", "w=4,0", settings={"w": "5"})


FILE = """
version: 1
name: m
target: command
command: [sci.py, "{v}", "{w}"]
env: {A: 12.0, B: 1e-3, C: 90}
axes:
  v: {type: ordered, values: [11.8, 12.0, 12.40], good: 11.80, bad: 12.4}
  w: {type: categorical, values: [x, "8", 010]}
  f: {type: ordered, values: [1.0, 2.0], apply: {arg: --f}}
  g: {type: categorical, values: [1, 1e1], apply: {map: {1: {}, 10: {env: {D: 1_0}}}}}
exclude: [{v: 12.0, f: 1.0}]
"""


def test_a_matrix_file_hands_on_its_values_as_it_writes_them():
    matrix = parse_matrix(FILE, name="m.yaml").matrix
    assert arguments(matrix, "v=12.0,w=010,f=2.0") == ("12.0", "010")
    assert (matrix.space.factor("v").good, matrix.space.factor("v").bad) == (11.8, "12.40")
    assert matrix.base.env == (("A", "12.0"), ("B", "1e-3"), ("C", "90"))
    assert matrix.space.factor("f").bundles[1].args == ("--f", "2.0")
    assert matrix.space.factor("g").bundles[1].env == (("D", "1_0"),)
    assert matrix.space.rules[0].when.terms == (("v", ("12.0",)), ("f", ("1.0",)))


def test_our_own_trainer_gets_numbers():
    matrix = parse_matrix("version: 1\nname: m\naxes:\n  train.lr: {type: ordered, values: [1e-3, 1.0]}\n", name="m")
    assert matrix.matrix.space.factor("train.lr").axis.values == (0.001, 1.0)
    assert parse_axis("train.lr=1e-3,1.0").values == (0.001, 1.0)
    assert fixed_settings([("train.lr", "1e-3")]) == {"train.lr": 0.001}


def test_an_axis_of_numbers_says_in_which_order_they_belong():
    with pytest.raises(SpecError, match=r"must ascend: 0, 4\.0, not 4\.0, 0"):
        Axis(name="v", path="v", type=AxisType.ORDERED, values=("4.0", 0))
