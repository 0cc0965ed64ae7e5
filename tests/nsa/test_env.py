import pytest

from nsa.config import RunConfig
from nsa.env import NUMBERS, SWITCHES, read_environment
from nsa.errors import ConfigError
from nsa.train.effective import effective


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, values in SWITCHES.items() for v in values])
def test_every_switch_changes_what_its_table_says_and_nothing_else(name, value):
    config = effective(None, environ={name: value}).config
    expected = RunConfig().with_values(SWITCHES[name][value])
    assert config == expected


@pytest.mark.parametrize(("name", "path"), NUMBERS.items())
def test_numbers_are_read_in_the_type_of_their_setting(name, path):
    config = effective(None, environ={name: "3"}).config
    assert config.value(path) == 3
    assert type(config.value(path)) is RunConfig.path(path).type


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"NSA_USE_TRITON_SELL": "1"}, "did you mean 'NSA_USE_TRITON_SEL'"),
        ({"NSA_DDP_SAFE_MOD": "1"}, "NSA_DDP_SAFE_MOD steers nothing here: DDP's switches are settings"),
        ({"NSA_TRACE_AUTOGRAD": "1"}, "NSA_TRACE_AUTOGRAD steers nothing here: set train.trace_grads"),
        ({"NSA_FORCE_BRANCH": "selected"}, "NSA_FORCE_BRANCH='selected' is not understood; use one of cmp, sel"),
        ({"NSA_SEQ_LEN": "many"}, "train.seq_len = 'many' is not int"),
        ({"NSA_USE_SEL_PACK": "1", "NSA_USE_SEL_MASK": "1"}, "disagree about kernels.selected ('packed' or 'masked')"),
    ],
)
def test_what_is_not_understood_is_an_error_that_helps(environ, message):
    with pytest.raises(ConfigError) as raised:
        read_environment(environ)
    assert message in str(raised.value)


def test_a_narrow_flash_switch_wins_over_the_broad_one():
    config = effective(None, environ={"NSA_USE_FA2": "1", "NSA_USE_FA2_WIN": "0"}).config
    assert (config.kernels.compressed, config.kernels.window) == ("flash-attn", "sdpa")


def test_the_instruments_own_variables_and_everyone_elses_are_left_alone():
    assert read_environment({"NSA_HARNESS_RUNS": "x", "NSAX": "1", "PATH": "/", "NSA_USE_FA2": ""}) == ()


def test_the_process_environment_is_read_when_none_is_given(monkeypatch):
    monkeypatch.setenv("NSA_SEQ_LEN", "64")
    assert effective().config.train.seq_len == 64
