"""The wheel holds the two packages and nothing else, and works away from the checkout."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)],
        check=True,
        capture_output=True,
    )
    (built,) = out.glob("*.whl")
    return built


def strangers(names: list[str]) -> list[str]:
    """What does not belong into the wheel: other top-level names, and bytecode."""
    own = ("nsa/", "harness/")
    return [n for n in names if not (n.startswith(own) or ".dist-info/" in n) or n.endswith(".pyc")]


def test_the_wheel_holds_exactly_nsa_and_harness(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()

    assert strangers(names) == []
    assert {"nsa/__init__.py", "harness/__init__.py"} <= set(names)


def test_the_guard_sees_a_stranger():
    good = ["nsa/__init__.py", "harness/cli/main.py", "nsa_harness-1.dist-info/METADATA"]
    bad = ["tests/test_x.py", "matrices/layers.yaml", "nsa/__pycache__/a.cpython-311.pyc"]

    assert strangers(good + bad) == bad


def test_every_module_of_the_checkout_is_in_the_wheel(wheel: Path):
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = {str(p.relative_to(ROOT)) for package in ("nsa", "harness") for p in (ROOT / package).rglob("*.py")}

    assert sources - names == set()


def test_the_command_runs_from_the_wheel_in_an_empty_directory(wheel: Path, tmp_path: Path):
    unpacked = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(unpacked)
    empty = tmp_path / "empty"
    empty.mkdir()
    code = (
        f"import sys; sys.path.insert(0, {str(unpacked)!r}); import harness; print(harness.__file__);"
        "from harness.cli.main import main; main(['--version'])"
    )

    done = subprocess.run([sys.executable, "-P", "-c", code], cwd=empty, capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[0].startswith(str(unpacked))
    assert "nsa-harness" in done.stdout
