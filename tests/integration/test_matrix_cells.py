"""A matrix file where programmers are: ``pytest matrices/`` collects its cells, ``nh.configs`` draws them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import Phase, find, given, settings

import nsa_harness as nh
from lean_pytest import LEAN_ENVIRON

ROOT = Path(__file__).parents[2]
MATRIX = """\
version: 1
name: two
target: command
command: ["{python}", train.py]
axes:
  n: {{type: ordered, values: [1, 2, 3, 4], apply: {{env: N}}}}
  mode: {{type: categorical, values: [plain, shared], apply: {{env: MODE}}}}
strategy: list
include:
  - {{n: 1}}
  - {{n: 3}}
  - {{n: 4}}
exclude:
  - {{n: 2, mode: shared}}
expect:
  - {{when: {{n: 3}}, verdict: crash}}
"""
TRAIN = "import os\nprint('step 1', flush=True)\nif int(os.environ['N']) >= 3:\n    raise ValueError('planted')\n"


@pytest.fixture
def project(tmp_path) -> Path:
    (tmp_path / "matrices").mkdir()
    (tmp_path / "matrices" / "two.yaml").write_text(MATRIX.format(python=sys.executable))
    (tmp_path / "matrices" / "other.yaml").write_text("a: 1\n")
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_own.py").write_text("def test_own(): pass\n")
    return tmp_path


def pytest_on(project: Path, *argv: str) -> str:
    command = [sys.executable, "-m", "pytest", "-pharness.pytest_plugin", "-pno:cacheprovider", "-ra", *argv]
    environ = {**os.environ, **LEAN_ENVIRON, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=project, env=environ, capture_output=True, text=True, check=False).stdout


def test_each_planned_cell_is_a_test_that_passes_when_it_ends_as_expected(project):
    said = pytest_on(project, "-v", "matrices")

    assert "::baseline PASSED" in said
    assert "::n=3 PASSED" in said  # it crashes, as the file expects
    assert "::n=4 FAILED" in said
    assert "expected PASS" in said
    assert "CRASH (ValueError)" in said
    assert "1 failed, 2 passed" in said


def test_nobody_runs_cells_without_naming_them(project):
    assert "1 passed" in pytest_on(project)
    assert "1 passed" in pytest_on(project, ".")


def test_one_cell_can_be_named(project):
    assert "1 passed" in pytest_on(project, "matrices/two.yaml::n=3")


def test_a_file_that_is_wrong_is_an_error_that_says_where(project):
    file = project / "matrices" / "two.yaml"
    file.write_text(file.read_text().replace("strategy: list", "strategie: list"))

    assert "two.yaml:8: unknown key 'strategie'" in pytest_on(project, "matrices/two.yaml")


def test_cells_that_the_matrix_allows_are_drawn_and_shrink_towards_the_good_values(project):
    cells = nh.configs(project / "matrices" / "two.yaml")
    seen = set()

    @settings(max_examples=200, database=None, deadline=None, phases=[Phase.generate])
    @given(cells)
    def draw(cell):
        seen.add((cell["n"], cell["mode"]))

    draw()
    every = {(n, mode) for n in (1, 2, 3, 4) for mode in ("plain", "shared")}
    assert seen == every - {(2, "shared")}
    smallest = settings(database=None, deadline=None)
    assert find(cells, lambda cell: cell["n"] >= 3, settings=smallest) == {"n": 3, "mode": "plain"}
    assert find(cells, lambda cell: cell["mode"] == "shared", settings=smallest) == {"n": 1, "mode": "shared"}


def test_what_is_no_matrix_is_a_usage_error_in_the_commands_own_words(tmp_path):
    (tmp_path / "none.yaml").write_text("version: 1\nname: m\n")

    with pytest.raises(nh.UsageError, match="'axes' is missing"):
        nh.configs(tmp_path / "none.yaml")
