"""Why a program cannot be started, in the words of somebody who typed its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.launch.program import why_not_startable


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, mode in (("bin/python", 0o755), ("here/plain.py", 0o644), ("here/go", 0o755), ("here/run.sh", 0o644)):
        place = tmp_path / name
        place.parent.mkdir(exist_ok=True)
        place.write_text("#!/bin/sh\n")
        place.chmod(mode)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("python", ""),
        ("./go", ""),
        ("pyhton", "pyhton is not on PATH; python is"),
        ("xyzzy", "xyzzy is not on PATH"),
        ("go", "go is not on PATH, but in this folder: start it with ./go"),
        ("plain.py", "plain.py is not on PATH, but in this folder: start it with python plain.py"),
        ("./plain.py", "plain.py is not executable: chmod +x it, or start it with python"),
        ("./run.sh", "run.sh is not executable: chmod +x it, or start it with bash"),
        ("./nope", "./nope is not there"),
        ("../here", "../here is a folder, no program"),
    ],
)
def test_what_is_in_the_way_of_a_program_is_one_sentence(folder: Path, name: str, why: str):
    assert why_not_startable(name, path=str(folder / "bin"), directory=str(folder / "here")) == why
