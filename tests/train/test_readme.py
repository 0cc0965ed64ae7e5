"""The documented nsa-train commands as printed, without network and GPU; and the sizes that are told, counted."""

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from nsa.config import RunConfig
from nsa.errors import DataFailed, DataUnavailable
from nsa.model.estimate import n_parameters
from nsa.train.__main__ import main
from nsa.train.effective import effective
from nsa.train.loader import Loader

ROOT = Path(__file__).parents[2]
COMMANDS = ROOT / "docs" / "original-commands.md"


def commands(program):
    """The right column's commands of ``program``, a pattern, with the variables before it."""
    section = COMMANDS.read_text().partition("## The original reports' commands")[2].partition("\n## ")[0]
    cells = [line.split(" | ")[-1] for line in section.splitlines() if line.startswith("| ")]
    found = [command for cell in cells for command in re.findall(r"`([^`]+)`", cell)]
    return [command for command in found if re.match(rf"([A-Z_0-9]+=\S+ )*({program}) .*", command)]


def one_of_each_kind(program):
    """These commands; long are those of torchrun, of a GPU, and those that come after one of the same kind."""
    kinds, params = {"torchrun", "m7c_125m"}, []
    for command in commands(program):
        kind = re.search(r"torchrun|m7c_125m|train_showcase|python", command)[0]
        params.append(pytest.param(command, marks=[pytest.mark.long] * (kind in kinds)))
        kinds.add(kind)
    return params


@pytest.fixture
def as_on_the_readmes_installation(tmp_path):
    """The environment of ``pip install .``: no datasets, network or GPU; nsa-train, python and torchrun on the path."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "lib").mkdir()
    program = tmp_path / "bin" / "nsa-train"
    program.write_text(f"#!{sys.executable}\nimport sys\nfrom nsa.train.__main__ import main\nsys.exit(main())\n")
    program.chmod(0o755)
    for name, module in (("python", ""), ("torchrun", "-m torch.distributed.run")):
        program = tmp_path / "bin" / name  # a link would not find its virtual environment
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {module} "$@"\n')
        program.chmod(0o755)
    (tmp_path / "lib" / "datasets.py").write_text("raise ModuleNotFoundError(name='datasets')\n")
    paths = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": f"{tmp_path / 'lib'}:{ROOT}"}
    more = {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    more["PET_STANDALONE"] = "1"  # a port of its own for every torchrun, beside others on this machine
    return {**os.environ, **paths, **more}


def test_the_readme_has_these_commands_for_one_process_and_for_two():
    words = [" ".join(re.findall(r"(nsa-train \w+|python -c)", command)) for command in commands("nsa-train|python")]
    assert words == [
        "nsa-train m7c_125m_1xa100_production",
        "nsa-train train_showcase",
        "nsa-train train_showcase",
        "python -c",
        "nsa-train train_showcase",
    ]
    words = [re.search(r"-m nsa.train (\w+)", command)[1] for command in commands("torchrun")]
    assert words == [
        "train_showcase",
        *["m7c_125m_2xa100_shake"] * 3,
        "m7c_125m_2xa100_production",
        *["train_showcase"] * 4,
    ]


@contextmanager
def begun(command, tmp_path, environ):
    """The command as a shell starts it, in an empty folder; it is ended with all its children, whatever comes."""
    work = tmp_path / "work"
    work.mkdir()
    process = subprocess.Popen(
        ["bash", "-c", f"exec env {command}" if "=" in command.split()[0] else f"exec {command}"],
        cwd=work,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def finished(process, *, is_long):
    """What it says; one that would take its time is sent SIGTERM at its first step."""
    seen = ""
    while is_long and '"step": 0,' not in seen:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        seen += line
    if is_long:
        process.send_signal(signal.SIGTERM)
    out, error = process.communicate(timeout=240)
    return seen + out, error


@pytest.mark.parametrize("command", one_of_each_kind("nsa-train|python"))
def test_a_command_runs_as_printed(command, tmp_path, as_on_the_readmes_installation):
    """To its end where that is a step; else to its first step, and then SIGTERM ends it in good order."""
    is_long = command.endswith("nsa-train train_showcase")
    with begun(command, tmp_path, as_on_the_readmes_installation) as process:
        seen, error = finished(process, is_long=is_long)
    if "m7c_125m_1xa100" in command:
        assert process.returncode == 2, error
        assert "train.device = 'cuda', but torch sees no GPU here" in error
        assert not list((tmp_path / "work").iterdir())
    elif command.startswith("python"):
        assert process.returncode == 0, error
    else:
        assert process.returncode == (143 if is_long else 0), error
        assert '"step": 0,' in seen
        assert '"loss": 5.5' in seen


@pytest.mark.parametrize("command", one_of_each_kind("torchrun"))
def test_a_command_of_two_ranks_runs_as_printed(command, tmp_path, as_on_the_readmes_installation):
    """To its end where one step is all; else to its first step. torchrun names the status of its ranks."""
    is_long = "m7c_125m" not in command and not command.endswith('train.steps=1"')
    with begun(command, tmp_path, as_on_the_readmes_installation) as process:
        seen, error = finished(process, is_long=is_long)
    if "m7c_125m" in command:
        assert process.returncode == 1, error
        assert "torch sees no GPU here" in error
        assert re.search(r"exitcode +: 2 ", error), error
        assert not list((tmp_path / "work").iterdir())
    else:
        assert is_long or process.returncode == 0, error
        assert '"step": 0,' in seen
        assert re.search(r'"loss": 5\.[45]', seen)


FALLBACK = (
    "train.data=fineweb-edu train.synthetic_on_fail=true train.steps=2 train.out_dir= model.n_layers=1 model.dim=32"
)


def test_the_fallback_falls_back_without_datasets(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert main(["train_showcase", "--override", FALLBACK + " model.n_heads=2 model.n_kv_groups=1"]) == 0
    out, error = capsys.readouterr()
    assert out.count('"synthetic": 1.0') == 2
    assert "random ids instead of train.data = 'fineweb-edu': rank 0 has no data at step 0" in error
    assert "needs datasets; pip install 'nsa-harness[data]'" in error
    assert main(["train_showcase", "--override", FALLBACK.replace("=true", "=false")]) == 2
    assert "error: train.data = 'fineweb-edu' needs datasets" in capsys.readouterr().err


def test_a_stream_that_cannot_be_opened_fails_at_the_first_fetch_where_random_ids_may_stand_in(monkeypatch):
    datasets = pytest.importorskip("datasets")

    def unreachable(*_args, **_how):
        raise ConnectionError("the hub does not answer\nat all")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    config = RunConfig().with_value("train.data", "fineweb-edu")
    with pytest.raises(
        DataUnavailable, match="cannot open the dataset 'HuggingFaceFW/fineweb-edu': the hub does not answer"
    ):
        Loader(config)
    loader = Loader(config.with_value("train.synthetic_on_fail", value=True))
    assert loader.position() == {}
    with pytest.raises(DataFailed, match="the hub does not answer"):
        loader.fetch(0)
    loader.substitute()
    (ids,) = loader.fetch(0)
    assert ids.shape == (config.train.batch_size, config.train.seq_len + 1)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_configuration_without_a_gpu_is_refused_before_anything_is_written(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("m7c_125m_1xa100_production", "m7c_125m_2xa100_production", "m7c_125m_2xa100_shake"):
        assert main([name, "--override", "parallel.allow_single=true train.batch_size=1"]) == 2
        assert "torch sees no GPU here" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_sizes_that_are_told_are_the_sizes_that_are():
    sparse = n_parameters(effective("m7c_125m_1xa100_production").config.model)
    dense = n_parameters(effective("m7c_125m_1xa100_production", overrides=["model.attention=dense"]).config.model)
    assert (sparse, dense) == (80_121_600, 73_550_592)
    told = f"{sparse / 1e6:.1f} M parameters"
    for page, words in (
        ("docs/measured.md", f"{told} with bytes as its vocabulary; dense {dense / 1e6:.1f} M"),
        ("docs/training.md", f"{told}, the dense one {dense / 1e6:.1f} M, with bytes as the vocabulary"),
        ("nsa/configs/m7c_125m_1xa100_production.yaml", f"it has {sparse / 1e6:.1f} million parameters"),
        ("nsa/configs/m7c_125m_2xa100_production.yaml", f"it has {sparse / 1e6:.1f} million parameters"),
    ):
        text = " ".join((ROOT / page).read_text().split())
        assert words in text, page
        assert not re.search(r"125 ?(M parameters|million)", text), page
