import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsa.config import RunConfig
from nsa.errors import ConfigError

PATHS = RunConfig.paths()


def values_for(setting):
    if setting.choices:
        return st.sampled_from(setting.choices)
    if setting.type is bool:
        return st.booleans()
    if setting.type is int:
        return st.integers(int(setting.at_least or 0), 10_000)
    if setting.type is float:
        return st.floats(setting.at_least or 0.0, 1e6, allow_nan=False)
    return st.text(max_size=12)


changes = st.sampled_from(sorted(PATHS)).flatmap(lambda p: st.tuples(st.just(p), values_for(PATHS[p])))


@given(changes)
def test_json_round_trip_keeps_every_value(change):
    path, value = change
    try:
        config = RunConfig().with_value(path, value)
    except ConfigError:
        return  # values that do not fit together, e.g. a stride that divides nothing
    assert RunConfig.from_json(config.to_json()) == config
    assert config.value(path) == value


@given(changes)
def test_with_value_changes_that_path_and_no_other(change):
    path, value = change
    try:
        config = RunConfig().with_value(path, value)
    except ConfigError:
        return
    assert {p for p in PATHS if config.value(p) != RunConfig().value(p)} <= {path}


@pytest.mark.parametrize("path", sorted(PATHS))
def test_every_path_knows_its_type_default_and_meaning(path):
    setting = PATHS[path]
    assert type(setting.default) is setting.type
    assert RunConfig().value(path) == setting.default
    assert setting.meaning
    assert setting.parsed(str(setting.default)) == setting.default


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"modle": {}}, "unknown section 'modle'; did you mean 'model'?"),
        ({"model": {"n_layer": 2}}, "unknown setting 'model.n_layer'; did you mean 'model.n_layers'?"),
        ({"model": 3}, "section 'model' must be a mapping"),
        ({"model": {"n_layers": "2"}}, "model.n_layers = '2' is str; it must be int"),
        ({"model": {"n_layers": True}}, "model.n_layers = True is bool; it must be int"),
        ({"model": {"n_layers": 0}}, "model.n_layers = 0 is too small; use 1 or more"),
        ({"model": {"attention": "danse"}}, "did you mean 'dense'?"),
        ({"model": {"d": 5}}, "d = 5 must divide l = 16"),
        ({"model": {"n": 2}}, "model.n = 2 is too small"),
        ({"model": {"n_heads": 3}}, "model.n_heads = 3 is not a multiple of model.n_kv_groups = 2"),
        ({"model": {"d_k": 7}}, "model.d_k = 7 is odd"),
        ({"train": {"lr": float("nan")}}, "train.lr = nan"),
    ],
)
def test_what_cannot_be_run_is_refused_with_value_place_and_next_step(tree, message):
    with pytest.raises(ConfigError) as raised:
        RunConfig.from_mapping(tree)
    assert message in str(raised.value)


def test_values_that_only_fit_together_can_move_together():
    changes = {"model.l": 24, "model.d": 12, "model.l_slc": 48}
    with pytest.raises(ConfigError):
        RunConfig().with_value("model.d", 12)
    assert RunConfig().with_values(changes).model.layout.l_slc == 48


def test_broken_json_names_the_place():
    with pytest.raises(ConfigError, match="line 1 column 2"):
        RunConfig.from_json("{")


def test_an_integer_is_accepted_where_a_float_is_due_and_becomes_one():
    value = RunConfig().with_value("train.lr", 1).train.lr
    assert type(value) is float


def test_the_controllers_part_of_nsa_loads_neither_torch_nor_numpy():
    code = (
        "import sys, json, nsa.config, nsa.blocks, nsa.env, nsa.errors, nsa.train.probe;"
        "print(json.dumps([m for m in ('torch', 'numpy', 'triton') if m in sys.modules]))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(out.stdout) == []
