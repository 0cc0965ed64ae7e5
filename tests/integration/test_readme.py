"""The README's first commands exactly as printed, after its installation: they answer what it says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def commands():
    """The console's commands of ``Ask something``: the last of each line, without the installation before it."""
    section = (ROOT / "README.md").read_text().partition("## Ask something")[2].partition("\n## ")[0]
    lines = re.findall(r"```(?:bash|console)\n(.*)", section)
    return [line.removeprefix("$ ").split(" && ")[-1] for line in lines]


def told():
    """The lines that the README shows of the answer, and says in words."""
    section = (ROOT / "README.md").read_text().partition("## Ask something")[2].partition("\n## ")[0]
    return " ".join(section.split())


BISECT = "nsa-harness bisect --axis n_layers"
SHOWN = {
    BISECT: "no failing value",
    f"{BISECT} --fault 'backward-deadlock@n_layers>=5'": "n_layers=5 hangs (deadlock) in backward",
}


def test_the_readme_has_these_commands_and_says_these_answers():
    assert commands() == list(SHOWN)
    assert all(words in told() for words in SHOWN.values())


@pytest.mark.long
@pytest.mark.parametrize("command", SHOWN)
def test_a_command_answers_what_the_readme_says(command, tmp_path):
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "nsa-harness"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m harness "$@"\n')
    program.chmod(0o755)
    paths = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "CUDA_VISIBLE_DEVICES": ""}
    ran = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env={**os.environ, **paths}, capture_output=True, text=True, check=False
    )
    assert SHOWN[command].lower() in " ".join(ran.stdout.lower().split()), ran.stdout + ran.stderr
