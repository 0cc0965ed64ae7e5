"""A program that cannot be started is refused before any trial."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harness.cli.main import main


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain.py").write_text("")

    def ask(*words: str) -> str:
        done: Result = CliRunner().invoke(main, [*words])
        assert done.exit_code == 2, done.output
        assert not (tmp_path / "runs").exists()
        return done.output.splitlines()[0].removeprefix("nsa-harness: ")

    return ask


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--until-fail", "--", "pyhton", "six.py"),
        ("bisect", "--axis", "layers=1..12", "--", "pyhton", "six.py", "{layers}"),
        ("minimise", "--", "A=1", "pyhton", "six.py", "{amp:--amp}", "{zero:--zero}"),
        ("matrix", "run", "--axis", "layers=1,2", "--", "pyhton", "{layers}"),
    ],
)
def test_a_name_that_is_not_on_path_is_refused_by_every_command(refused, words):
    assert refused(*words).startswith("pyhton is not on PATH")


def test_the_path_is_the_one_that_the_trial_will_have(refused, tmp_path: Path):
    assert refused("run", "--env", f"PATH={tmp_path}", "--", "sh", "-c", "true") == "sh is not on PATH"
    assert refused("run", "--", f"PATH={tmp_path}", "sh", "-c", "true") == "sh is not on PATH"


def test_a_script_that_may_not_be_executed_is_refused_with_how_to_start_it(refused):
    assert refused("run", "--", "./plain.py") == "plain.py is not executable: chmod +x it, or start it with python"
