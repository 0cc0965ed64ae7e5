"""Shell completion: what bash, zsh and fish are given for axes, faults, runs and cells."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
from click.shell_completion import get_completion_class

from harness.cli.main import main
from harness.cli.shells import refuse_others

MATRIX = Path(__file__).parents[4] / "matrices" / "backward_layers.yaml"


def completed(line: str, shell: str = "bash") -> list[str]:
    """The values that ``shell`` is given for the last word of ``line``, of others than our words with their type."""
    *words, last = shlex.split(line)
    refuse_others(shell)
    found = get_completion_class(shell)
    assert found is not None
    items = found(main, {}, "nsa-harness", "_NSA_HARNESS_COMPLETE").get_completions(words, last)
    return [item.value if item.type == "plain" else f"{item.value} ({item.type})" for item in items]


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("bisect --axis n_l", ["n_layers"]),
        ("minimise --fault backward-d", ["backward-deadlock"]),
        ("selftest lock-d", ["lock-deadlock"]),
        ("bisect --bad non", ["nonfinite"]),
        ("bisect --executor fork", ["forkserver"]),
        (f"matrix run {MATRIX} --cell seq_len=5", ["seq_len=512"]),
        (f"bisect {MATRIX} --axis att", ["attention"]),
        ("report 2026", ["20261124-1-b", "20261124-0-a"][::-1]),
        ("bisect --from-run lat", ["latest"]),
        ("bisect --from-run nowhere --cell n", ["n (file)"]),
        ("matrix run nowhere.yaml --cell n", ["n (file)"]),
        ("run -- python qui", ["qui (file)"]),
        ("run --runs r", ["r (file)"]),
        ("report ../o", ["../o (file)"]),
        ("run --progress-file p", ["p (file)"]),
    ],
)
def test_the_values_of_options_and_arguments(line, values, tmp_path, monkeypatch):
    for name in ("20261124-0-a", "20261124-1-b"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "journal.jsonl").write_text("")
    monkeypatch.chdir(tmp_path)

    assert completed(line) == values


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script_and_is_answered_in_its_own_form(shell, monkeypatch, capsys):
    words = {"bash": ("nsa-harness bisect --axis n_l", "3"), "zsh": ("nsa-harness bisect --axis n_l", "3")}
    line, at = words.get(shell, ("nsa-harness bisect --axis ", "n_l"))
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", at)
    for how, shown in ((f"{shell}_source", "_NSA_HARNESS_COMPLETE"), (f"{shell}_complete", "n_layers")):
        monkeypatch.setenv("_NSA_HARNESS_COMPLETE", how)
        monkeypatch.setattr(sys, "argv", ["nsa-harness"])
        with pytest.raises(SystemExit):
            main(prog_name="nsa-harness")
        assert shown in capsys.readouterr().out


def test_a_shell_without_completion_is_told_which_have_one(monkeypatch, capsys):
    monkeypatch.setenv("_NSA_HARNESS_COMPLETE", "tcsh_source")

    with pytest.raises(SystemExit) as end:
        main(prog_name="nsa-harness")

    assert end.value.code == 2
    assert "there is no completion for 'tcsh', only for bash, zsh and fish" in capsys.readouterr().err
