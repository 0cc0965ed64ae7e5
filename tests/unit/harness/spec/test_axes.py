from __future__ import annotations

import dataclasses

import pytest

from harness.core.errors import SpecError, UnknownNameError
from harness.spec.axes import AXES, parse_axis, setting
from nsa.config import RunConfig


@pytest.mark.parametrize("axis", AXES.values(), ids=list(AXES))
def test_every_value_of_every_axis_changes_only_its_own_setting(axis):
    default = RunConfig()
    for value in axis.values:
        changed = default.with_value(axis.path, value)
        differing = [path for path in RunConfig.paths() if changed.value(path) != default.value(path)]
        assert differing in ([axis.path], [])
        assert changed.value(axis.path) == value


@pytest.mark.parametrize("axis", AXES.values(), ids=list(AXES))
def test_a_bare_name_gives_the_axis_of_the_table(axis):
    assert parse_axis(axis.name) is axis


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("n_layers=1..12", tuple(range(1, 13))),
        ("n_layers=3..3", (3,)),
        ("n_layers=1,2,4,8", (1, 2, 4, 8)),
        ("n_layers = 1..4, 8", (1, 2, 3, 4, 8)),
        ("seq_len=128..2048*2", (128, 256, 512, 1024, 2048)),
        ("seq_len=64..576*3", (64, 192, 576)),
        ("model.d_v=8,16", (8, 16)),
        ("train.lr=0.1,0.25", (0.1, 0.25)),
        ("train.lr=0.1..0.8*2", (0.1, 0.2, 0.4, 0.8)),
    ],
)
def test_the_grammar(text, values):
    assert parse_axis(text).values == values


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n_layer=1..3", "did you mean 'n_layers'"),
        ("layers", "did you mean 'n_layers'"),
        ("n_layers=0..3", "too small"),
        ("n_layers=5..1", r"1\.\.5"),
        ("n_layers=3,2", "must ascend"),
        ("n_layers=1,1", "twice"),
        ("n_layers=1..99999", "99999 values"),
        ("n_layers=1..4*1", "does not grow"),
        ("n_layers=0..4*2", "does not grow"),
        ("seq_len=128..2000*2", "does not reach 2000.*1024, 2048"),
        ("n_layers=1.5", "must be int"),
        ("n_layers=one", "'one' is not a number"),
        ("n_layers=", "needs values"),
        ("model.d_v", "needs values"),
        ("train.lr=0.1..0.3", "whole numbers"),
        ("model.attention=nsa,dense", "no order"),
    ],
)
def test_what_does_not_make_sense_is_refused_with_the_way_out(text, message):
    with pytest.raises(SpecError, match=message):
        parse_axis(text)


def test_an_axis_by_its_path_explains_itself():
    axis = parse_axis("model.d_v=8,16")
    assert (axis.name, axis.path, axis.help) == ("model.d_v", "model.d_v", RunConfig.path("model.d_v").meaning)


def test_own_values_keep_the_rest_of_the_table_row():
    axis = parse_axis("seq_len=64,96")
    assert axis == dataclasses.replace(AXES["seq_len"], values=(64, 96))


@pytest.mark.parametrize(
    ("name", "path"),
    [("n_layers", "model.n_layers"), ("train.lr", "train.lr"), ("attention", "model.attention"), ("w", "model.w")],
)
def test_a_setting_is_found_by_axis_path_or_last_part(name, path):
    assert setting(name).path == path


def test_an_unknown_setting_names_the_nearest():
    with pytest.raises(UnknownNameError, match=r"did you mean 'model\.n_layers'|did you mean 'n_layers'"):
        setting("model.n_layer")
