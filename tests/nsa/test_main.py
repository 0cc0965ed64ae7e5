import json

from nsa.config import RunConfig
from nsa.train.__main__ import main

SMALL = ["--set", "model.n_layers=1", "--set", "model.dim=32", "--set", "train.seq_len=64", "--set", "train.steps=2"]


def test_a_run_prints_its_kernels_and_one_line_per_step(capsys, tmp_path):
    path = tmp_path / "run.json"
    path.write_text(RunConfig().to_json())
    assert main([str(path), *SMALL]) == 0
    kernels, *steps = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert len(kernels["kernels"]) == 5
    assert [line["step"] for line in steps] == [0, 1]


def test_show_prints_a_configuration_that_can_be_read_back(capsys):
    assert main([*SMALL, "--show"]) == 0
    assert RunConfig.from_json(capsys.readouterr().out).model.dim == 32


def test_a_wrong_setting_exits_2_and_says_which(capsys):
    assert main(["--set", "model.layers=3"]) == 2
    assert "did you mean 'model.n_layers'" in capsys.readouterr().err


def test_a_missing_file_exits_2(capsys, tmp_path):
    assert main([str(tmp_path / "no.json")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_a_loss_that_is_not_finite_exits_3(capsys):
    assert main([*SMALL, "--set", "train.lr=1e30", "--set", "train.steps=9", "--set", "train.grad_clip=0"]) == 3
    assert "loss = nan at step" in capsys.readouterr().err
