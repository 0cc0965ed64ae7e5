"""Two wheels: the instrument, which needs no torch, and the trainer; each holds its own and works on its own."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "numpy", "matplotlib", "triton")


def built(folder: Path, out: Path) -> Path:
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(folder)],
        check=True,
        capture_output=True,
    )
    (wheel,) = out.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(ROOT / "nsa", tmp_path_factory.mktemp("trainer"))


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The instrument's wheel, unpacked."""
    folder = tmp_path_factory.mktemp("site")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


def strangers(names: list[str], *, own: tuple[str, ...]) -> list[str]:
    """What does not belong into the wheel: other top-level names, and bytecode."""
    return [n for n in names if not (n.startswith(own) or ".dist-info/" in n) or n.endswith(".pyc")]


def in_git(folder: str) -> set[str]:
    done = subprocess.run(["git", "ls-files", folder], cwd=ROOT, capture_output=True, text=True, check=True)
    return {name for name in done.stdout.splitlines() if (ROOT / name).is_file()}


def needs(wheel: Path) -> list[str]:
    """The distributions that the wheel needs without any extra."""
    text = next(n for n in zipfile.ZipFile(wheel).namelist() if n.endswith("/METADATA"))
    found = Parser().parsestr(zipfile.ZipFile(wheel).read(text).decode()).get_all("Requires-Dist") or []
    return [line for line in found if "extra ==" not in line]


def nsa_harness(site: Path, cwd: Path, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    """The console script of the unpacked wheel, as its installer writes it, where the trainer is not installed."""
    # With -S no .pth file is read, so that the checkout itself is not found; what the instrument needs is.
    places = [str(site), sysconfig.get_path("purelib")]
    code = f"import sys; sys.path[:] += {places!r}; sys.argv[0] = 'nsa-harness'; "
    code += "from nsa_harness.start import entry; sys.exit(entry())"
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | env
    return subprocess.run(
        [sys.executable, "-P", "-S", "-c", code, *argv],
        cwd=cwd,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )


def test_each_wheel_holds_its_own_and_nothing_else(wheel: Path, trainer: Path):
    instrument, patient = zipfile.ZipFile(wheel).namelist(), zipfile.ZipFile(trainer).namelist()

    assert strangers(instrument, own=("harness/", "nsa_harness/")) == []
    assert strangers(patient, own=("nsa/",)) == []


def test_the_guard_sees_a_stranger():
    good = ["harness/cli/main.py", "nsa_harness-1.dist-info/METADATA"]
    bad = ["tests/test_x.py", "nsa/__init__.py", "harness/__pycache__/a.cpython-311.pyc"]

    assert strangers(good + bad, own=("harness/", "nsa_harness/")) == bad


def test_every_file_of_the_checkout_is_in_its_wheel(wheel: Path, trainer: Path):
    instrument, patient = set(zipfile.ZipFile(wheel).namelist()), set(zipfile.ZipFile(trainer).namelist())
    matrices = {f"harness/{name}" for name in in_git("matrices")}

    assert (in_git("harness") | in_git("nsa_harness") | matrices) - instrument == set()
    assert in_git("nsa") - patient == {"nsa/LICENSE", "nsa/README.md", "nsa/pyproject.toml"}
    assert {"harness/py.typed", "nsa_harness/py.typed"} <= instrument


def test_the_instrument_needs_nothing_heavy_and_the_trainer_needs_torch(wheel: Path, trainer: Path):
    assert [line for line in needs(wheel) if line.startswith(HEAVY)] == []
    assert [line for line in needs(trainer) if line.startswith("torch")] != []


def test_what_an_index_shows_has_no_link_into_the_checkout(wheel: Path):
    name = next(n for n in zipfile.ZipFile(wheel).namelist() if n.endswith("/METADATA"))

    assert "](" not in zipfile.ZipFile(wheel).read(name).decode()


def test_the_command_runs_from_the_wheel_beside_anybodys_harness_and_nsa(site: Path, tmp_path: Path):
    for package in ("harness", "nsa"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise SystemExit('not ours')")

    done = nsa_harness(site, tmp_path, "bisect", "--list-axes", PYTHONPATH=".")

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("n_layers")


@pytest.mark.parametrize("argv", [("bisect", "--axis", "n_layers"), ("matrix", "show", "matrices/safe_mode.yaml")])
def test_a_question_about_the_trainer_says_what_to_install(site: Path, tmp_path: Path, argv: tuple[str, ...]):
    copied = nsa_harness(site, tmp_path, "matrix", "copy")
    asked = nsa_harness(site, tmp_path, *argv)

    assert copied.returncode == 0, copied.stderr
    assert asked.returncode == 2, asked.stderr
    assert "pip install 'nsa-harness[nsa]'" in asked.stderr.splitlines()[0]
    assert "Traceback" not in asked.stderr
