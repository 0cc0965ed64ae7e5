"""A project with packages ``harness`` and ``nsa`` of its own, or without torch: commands work, or say what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness import trainer
from harness.cli.main import main
from lean_pytest import LEAN

PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *LEAN]


@pytest.fixture
def project(tmp_path) -> Path:
    for package in ("harness", "nsa"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "own.py").write_text("WHOSE = 'theirs'")
    (tmp_path / "harness" / "__init__.py").write_text("")
    (tmp_path / "test_theirs.py").write_text(
        "import pytest\nimport harness.own\n\n"
        "@pytest.mark.hang_guard(off=True)\ndef test_theirs():\n    assert harness.own.WHOSE == 'theirs'\n"
    )
    return tmp_path


def ask(project: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    return subprocess.run(argv, cwd=project, env=environ, capture_output=True, text=True, check=False)


def test_pytest_runs_their_tests_and_refuses_the_guard_with_a_way_out(project):
    plain = ask(project, *PYTEST, "--strict-markers")
    guarded = ask(project, *PYTEST, "--hang-guard")

    assert plain.returncode == 0, plain.stdout + plain.stderr
    assert guarded.returncode == 4
    assert "nsa-harness run -- python -m pytest" in guarded.stderr
    assert f"{project / 'harness'}" in guarded.stderr


def test_pytest_has_the_whole_guard_where_nothing_hides_it(tmp_path):
    (tmp_path / "test_one.py").write_text("def test_one():\n    pass\n")

    done = ask(tmp_path, *PYTEST, "--hang-guard", "--hang-guard-after=30")

    assert done.returncode == 0, done.stdout + done.stderr


def test_without_torch_a_question_to_the_trainer_ends_with_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(trainer, "find_spec", lambda name: None)

    done = CliRunner().invoke(main, ["bisect", "--axis", "n_layers=1,2", "--runs", str(tmp_path)])

    assert done.exit_code == 2
    assert "nsa's trainer needs torch" in done.stderr
    assert "pip install 'nsa-harness[nsa]'" in done.stderr
