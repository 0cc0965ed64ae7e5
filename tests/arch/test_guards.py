"""Each architecture rule is seen to fail on a small bad example, so that green means something."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def ruff_codes(code: str, *, filename: str) -> set[str]:
    found = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--output-format=json", "--stdin-filename", filename, "-"],
        cwd=ROOT,
        input=code,
        capture_output=True,
        text=True,
        check=False,
    )
    return {row["code"] for row in json.loads(found.stdout)}


HEADER = '"""A module."""\n\nfrom __future__ import annotations\n\n'


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import torch\n\nX = torch\n", "TID253"),
        ("import pydantic\n\nX = pydantic\n", "TID253"),
        ("import os\n\nX = os.environ\n", "TID251"),
        ("from os import environ\n\nX = environ\n", "TID251"),
        ('import os\n\nX = os.getenv("HOME")\n', "TID251"),
        ("import time\n\ntime.sleep(1)\n", "TID251"),
        ("try:\n    X = 1\nexcept Exception:\n    X = 2\n", "BLE001"),
        ("try:\n    X = 1\nexcept ValueError:\n    pass\n", "S110"),
        ("for X in (1, 2):\n    try:\n        X += 1\n    except ValueError:\n        continue\n", "S112"),
        ('print("hello")\n', "T201"),
    ],
)
def test_a_forbidden_habit_in_the_controller_is_refused(code: str, expected: str):
    assert expected in ruff_codes(HEADER + code, filename="harness/observe/example.py")


def test_the_files_that_may_read_the_environment_may():
    code = HEADER + "import os\n\nX = os.environ\n"

    assert "TID251" not in ruff_codes(code, filename="harness/settings.py")
    assert "TID251" not in ruff_codes(code, filename="nsa/env.py")


def lint_imports(tree: Path) -> subprocess.CompletedProcess[str]:
    shutil.copy(ROOT / "pyproject.toml", tree / "pyproject.toml")
    program = Path(sys.executable).with_name("lint-imports")
    return subprocess.run([program, "--no-cache"], cwd=tree, capture_output=True, text=True, check=False)


def copy_of_the_house(tmp_path: Path) -> Path:
    for package in ("nsa", "harness"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.mark.parametrize(
    ("file", "line", "broken"),
    [
        ("nsa/errors.py", "import harness", "The patient never imports the instrument"),
        ("nsa/config.py", "import torch", "stdlib-only"),
        ("harness/observe/heartbeat.py", "import harness.classify.engine", "stages are siblings"),
        ("harness/core/point.py", "import harness.store.layout", "stages are siblings"),
        ("harness/launch/local.py", "import harness.worker.echo", "stages are siblings"),
        ("harness/targets/nsa.py", "import nsa.train.trainer", "The controller never imports torch"),
    ],
)
def test_an_import_against_the_grain_breaks_its_contract(tmp_path: Path, file: str, line: str, broken: str):
    tree = copy_of_the_house(tmp_path)
    source = (tree / file).read_text()
    (tree / file).write_text(
        source.replace("from __future__ import annotations\n", f"from __future__ import annotations\n{line}\n", 1)
    )

    report = lint_imports(tree)

    assert report.returncode == 1, report.stdout + report.stderr
    failed = [row for row in report.stdout.splitlines() if row.endswith("BROKEN")]
    assert any(broken in row for row in failed), report.stdout
