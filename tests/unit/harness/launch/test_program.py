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


@pytest.mark.parametrize(
    ("first_line", "name", "why"),
    [
        ("#!/bin/sh", "./go.sh", ""),
        ("#! /bin/sh -e", "./go.sh", ""),
        ("#!interpreter", "./go.sh", ""),
        ("#!", "./go.sh", ""),
        ("no script", "./go.sh", ""),
        (
            "#!/nowhere/python3 -u",
            "./go.py",
            "the interpreter of go.py does not exist: /nowhere/python3, in its first line. Name another, or start it "
            "with python",
        ),
        ("#!/nowhere/x", "go", "the interpreter of go does not exist: /nowhere/x, in its first line. Name another"),
        ("#!plain", "./go", "the interpreter of go is not executable: plain, in its first line. Name another"),
        (
            "#!/bin/sh\r",
            "./go.sh",
            "the first line of go.sh ends with a carriage return, as on Windows, so that its interpreter '/bin/sh\\r' "
            "does not exist: sed -i 's/\\r$//' ./go.sh",
        ),
    ],
)
def test_a_script_cannot_be_started_without_the_interpreter_that_it_names(tmp_path: Path, first_line, name, why):
    for file, text, mode in ((name, first_line, 0o755), ("interpreter", "", 0o755), ("plain", "", 0o644)):
        (tmp_path / file).write_text(f"{text}\n", newline="")
        (tmp_path / file).chmod(mode)
    assert why_not_startable(name, path=str(tmp_path), directory=str(tmp_path)) == why


def test_a_script_further_behind_on_the_path_is_started_where_the_first_has_no_interpreter(tmp_path: Path):
    for folder, interpreter in (("a", "/nowhere/python3"), ("b", "/bin/sh")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "go").write_text(f"#!{interpreter}\n")
        (tmp_path / folder / "go").chmod(0o755)
    assert why_not_startable("go", path=f"{tmp_path}/a:{tmp_path}/b", directory="/") == ""
    assert "interpreter" in why_not_startable("go", path=f"{tmp_path}/a", directory="/")
