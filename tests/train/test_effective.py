import subprocess
import sys

import pytest

from nsa.config import RunConfig
from nsa.env import SAFE_MODE, read_launch, related
from nsa.errors import ConfigError
from nsa.train.__main__ import main
from nsa.train.effective import effective, names


def test_a_file_the_environment_and_an_override_win_in_this_order_and_are_named(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text("model:\n  dim: 32\n  n_layers: 3\ntrain:\n  seq_len: 64\n  lr: 1.0e-3\n")
    built = effective(
        str(file), environ={"NSA_SEQ_LEN": "96", "NSA_LR": "0.5"}, overrides=["train.lr=0.25 train.seed=7"]
    )
    found = {path: (built.config.value(path), built.sources[path]) for path in built.sources}
    assert found["model.dim"] == (32, "run.yaml:2")
    assert found["model.n_layers"] == (3, "run.yaml:3")
    assert found["train.seq_len"] == (96, "NSA_SEQ_LEN=96")
    assert found["train.lr"] == (0.25, "--override")
    assert found["train.seed"] == (7, "--override")
    assert found["model.vocab"] == (256, "default")
    assert [line.partition(" ")[0] for line in built.lines(only_changed=True)] == [
        "model.dim",
        "model.n_layers",
        "train.seq_len",
        "train.lr",
        "train.seed",
    ]


def test_the_first_reports_override_is_obeyed():
    built = effective("train_showcase", overrides=["train.steps=10 model.n_layers=2 train.seq_len=512"], environ={})
    assert (built.config.train.steps, built.config.model.n_layers, built.config.train.seq_len) == (10, 2, 512)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "model:\n  dim: 32\n  n_layer: 3\n",
            "run.yaml:3: unknown setting 'model.n_layer'; did you mean",
        ),
        ("modle:\n  dim: 32\n", "run.yaml:2: unknown setting 'modle.dim'; did you mean 'model.dim'"),
        ("model:\n  dim: wide\n", "run.yaml:2: model.dim = 'wide' is str; it must be int"),
        ("model: 3\n", "section 'model' must be a mapping"),
        ("- 1\n", "a run configuration is a mapping of sections"),
        ("model:\n  dim: 32\n  dim: 64\n", "duplicate key"),
        ("train:\n  resume: yes\n", "train.resume = 'yes' is str; it must be bool"),
        ("a: [\n", "is not YAML"),
    ],
)
def test_a_wrong_line_in_a_file_is_named_by_its_number(tmp_path, text, message):
    file = tmp_path / "run.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as raised:
        effective(str(file), environ={})
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.steps", "'train.steps' has no value"),
        ("train.stepps=3", "did you mean 'train.steps'"),
        ("train.steps=many", "train.steps = 'many' is not int"),
        ("train.out_dir='a", "No closing quotation"),
    ],
)
def test_a_wrong_override_is_refused(override, message):
    with pytest.raises(ConfigError) as raised:
        effective(overrides=[override], environ={})
    assert message in str(raised.value)


@pytest.mark.parametrize("name", names())
def test_every_shipped_configuration_can_be_run(name):
    built = effective(name, environ={})
    assert built.config != RunConfig()
    assert built.config.model.phi == "mean"


def test_the_two_gpu_production_configuration_is_the_reports():
    config = effective("m7c_125m_2xa100_production", environ={}).config
    assert (config.model.dim, config.model.n_layers, config.model.l_slc, config.model.n) == (768, 12, 64, 16)
    assert (config.train.steps, config.train.seq_len, config.train.batch_size, config.train.lr) == (500, 2048, 2, 2e-4)
    assert (config.train.precision, config.parallel.mode) == ("bf16", "ddp")


def test_an_unknown_name_lists_or_suggests_those_there_are():
    with pytest.raises(ConfigError, match="did you mean 'train_showcase'"):
        effective("train_showcas", environ={})


def test_safe_mode_sets_the_reports_ten_switches_and_says_so():
    built = effective(environ={"NSA_DDP_SAFE_MODE": "1"})
    assert {path for path in built.sources if built.sources[path] == "NSA_DDP_SAFE_MODE=1"} == set(SAFE_MODE)
    assert built.config.parallel.bucket_cap_mb == 2
    assert "parallel.find_unused_parameters = True  (NSA_DDP_SAFE_MODE=1)" in list(built.lines(only_changed=True))


@pytest.mark.parametrize("text", ["1", "1:", ":2", "2:1", "1:1", "0:5", "-1:2", "a:b", "1:2:3"])
def test_a_range_of_blocks_that_names_none_is_refused(text):
    with pytest.raises(ConfigError, match="is no range of blocks"):
        RunConfig().with_value("train.checkpoint_layers", text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train.precision": "fp16", "train.precision_mode": "pure"}, "cannot be unscaled"),
        ({"train.precision": "fp16", "parallel.mode": "fsdp"}, "its own loss scale"),
        (
            {
                "train.checkpointing": "reentrant",
                "parallel.mode": "ddp",
                "parallel.find_unused_parameters": True,
            },
            "marked as ready twice",
        ),
    ],
)
def test_combinations_that_cannot_work_are_refused_with_the_reason(changes, message):
    with pytest.raises(ConfigError, match=message):
        RunConfig().with_values(changes)


def test_a_known_failure_can_be_asked_for():
    changes = {
        "train.checkpointing": "reentrant",
        "parallel.mode": "ddp",
        "parallel.find_unused_parameters": True,
        "parallel.allow_known_bad": True,
    }
    assert RunConfig().with_values(changes).parallel.allow_known_bad


def test_the_launch_is_read_whole_or_not_at_all():
    assert read_launch({"PATH": "/"}) is None
    found = read_launch({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"})
    assert found is not None
    assert (found.rank, found.world_size, found.local_rank) == (1, 2, 1)
    with pytest.raises(ConfigError, match=r"WORLD_SIZE=\(unset\)"):
        read_launch({"RANK": "1", "LOCAL_RANK": "0"})


def test_the_record_keeps_what_can_change_a_run_and_nothing_private():
    assert related({"NCCL_DEBUG": "INFO", "RANK": "0", "HOME": "/h", "TOKEN": "x"}) == {
        "NCCL_DEBUG": "INFO",
        "RANK": "0",
    }


def test_sources_and_list_are_printed(capsys):
    assert main(["train_showcase", "--sources"]) == 0
    out = capsys.readouterr().out
    assert "train.steps = 200  (train_showcase.yaml:" in out
    assert "model.tied_head = False  (default)" in out
    assert main(["--list"]) == 0
    assert capsys.readouterr().out.split() == list(names())


def test_showing_a_configuration_loads_no_torch():
    code = (
        "import sys; from nsa.train.__main__ import main; main(['train_showcase', '--show']); "
        "sys.exit(3 * ('torch' in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
