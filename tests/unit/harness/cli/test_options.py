"""Wrong use is an error with the nearest right one, before anything is run."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from harness.cli.main import main


def run(*argv: str):
    return CliRunner().invoke(main, list(argv), prog_name="nsa-harness")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["bisekt"], "did you mean 'bisect'?"),
        (["bisect", "--axs", "n_layers"], "--axis"),
        (["bisect", "--axis", "n_layer"], "did you mean 'n_layers'?"),
        (["bisect", "--axis", "n_layers", "--fault", "backward-deadlok"], "did you mean 'backward-deadlock'?"),
        (["bisect", "--axis", "n_layers", "--fault", "crash@n_layer>=5"], "did you mean 'n_layers'?"),
        (["bisect", "--axis", "n_layers", "--set", "model.dmi=64"], "did you mean 'model.dim'?"),
        (["bisect", "--axis", "n_layers", "--set", "model.dim=many"], "model.dim"),
        (["bisect", "--axis", "n_layers", "--set", "model.dim"], "path=value"),
        (["bisect", "--axis", "n_layers", "--total", "soon"], "90s"),
        (["bisect", "--axis", "n_layers", "--bad", "hangs"], "did you mean 'hang'?"),
        (["bisect", "--axis", "n_layers", "--control", "densee"], "did you mean 'dense'?"),
        (["bisect", "--axis", "n_layers", "--set", "model.n_layers=3"], "varied by --axis n_layers"),
        (["bisect"], "--axis n_layers"),
        (["selftest", "lock-deadlok"], "did you mean 'lock-deadlock'?"),
    ],
)
def test_wrong_use_exits_2_and_names_the_nearest_right_one(argv: list[str], said: str, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    done = run(*argv)

    assert done.exit_code == 2, done.output
    assert said in done.output
    assert not list(tmp_path.iterdir())


def test_an_unknown_variable_of_the_patient_is_an_error_with_a_suggestion(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NSA_USE_TRITON_SELL", "1")

    done = run("bisect", "--axis", "n_layers", "--dry-run")

    assert done.exit_code == 2
    assert "NSA_USE_TRITON_SEL" in done.output


def test_a_dry_run_prints_the_plan_with_its_cost_and_creates_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    done = run("bisect", "--axis", "n_layers=1..12", "--fault", "crash@n_layers>=3", "--seq-len", "128", "--dry-run")

    assert done.exit_code == 0, done.output
    assert "From which n_layers in 1..12 does training fail?" in done.output
    assert "trials" in done.output
    assert "train.seq_len=128" in done.output
    assert "fault: crash@n_layers>=3; controls: no-fault" in done.output
    assert not list(tmp_path.iterdir())


def test_every_command_documents_its_exit_codes_and_gives_examples():
    for command in ("bisect", "selftest", "report", "classify", "doctor"):
        text = run(command, "--help").output
        assert "Exit codes:" in text, command
        assert "Example" in text, command


def test_the_tables_of_axes_and_faults_can_be_listed():
    assert "model.n_layers" in run("bisect", "--list-axes").output
    assert "backward-deadlock" in run("bisect", "--list-faults").output
