"""Every command that a screen or a page prints can be run as it is printed, and ends as it is documented to end."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli.main import main
from harness.store import layout

pytestmark = pytest.mark.usefixtures("_without_figures")

PROGRAM = """
import argparse, threading, time

parser = argparse.ArgumentParser()
parser.add_argument("--layers", type=int, default=1)
parser.add_argument("--note", default="")
for name in ("crash", "hang", "sleep", "amp", "overlap"):
    parser.add_argument(f"--{name}", action="store_true")
options = parser.parse_args()
print("step 1", flush=True)
if options.hang:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
if options.sleep:
    time.sleep(60)
if options.crash or options.layers > 3 or (options.amp and options.overlap):
    raise ValueError("no room")
"""
PROGRAM_WORDS = (sys.executable, "-S", "train.py")
"""Without site-packages: a stranger's Python, and it starts at once."""

FILE = """
version: 1
name: depth
description: Which of depth and overlap does the crash need?
target: command
command: ["{python}", -S, train.py, "{overlap:--overlap}", "{amp:--amp}", --note, "it's"]
axes:
  overlap: {type: flag}
  amp: {type: flag}
strategy: full
"""

SEARCHES = frozenset({"bisect", "minimise", "explore", "matrix"})
FLAGS = ("{amp:--amp}", "{overlap:--overlap}", "--note", "it's {{here}}")
ASKED = {
    "run, PASS": (0, "run"),
    "run, CRASH": (1, "run", "--", "--crash"),
    "run, HANG": (1, "run", "--", "--hang", "--note", "two words"),
    "run, UNRESOLVED": (3, "run", "--limit", "2s", "--", "--sleep"),
    "run, until it fails": (1, "run", "--until-fail", "--env", "A=b c", "--", "--crash"),
    "run, three times": (0, "run", "--repeat", "3"),
    "bisect, CRASH": (0, "bisect", "--axis", "layers=1..4", "--certify", "2", "--", "--layers", "{layers}"),
    "bisect, PASS": (0, "bisect", "--axis", "layers=1..2", "--certify", "2", "--", "--layers", "{layers}"),
    "bisect, HANG": (0, "bisect", "--axis", "hang", "--certify", "2", "--", "{hang:--hang}"),
    "bisect, UNRESOLVED": (
        *(1, "bisect", "--axis", "layers=1..2", "--total", "1s", "--certify", "2"),
        *("--", "--sleep", "--layers", "{layers}"),
    ),
    "bisect, cut short": (3, "bisect", "--axis", "layers=1..9", "--max-trials", "2", "--", "--layers", "{layers}"),
    "matrix, PASS": (0, "matrix", "run", "--", "{amp:--amp}"),
    "matrix, CRASH": (1, "matrix", "run", "--", *FLAGS),
    "matrix, HANG": (1, "matrix", "run", "--", "{hang:--hang}", "{amp:--amp}"),
    "matrix, UNRESOLVED": (3, "matrix", "run", "--total", "1s", "--", "{sleep:--sleep}"),
    "matrix, cut short": (3, "matrix", "run", "--max-trials", "2", "--", *FLAGS),
    "matrix, of a file": (1, "matrix", "run", "depth.yaml"),
    "minimise, CRASH": (0, "minimise", "--certify", "2", "--", *FLAGS),
    "minimise, PASS": (4, "minimise", "--certify", "2", "--", "{amp:--amp}", "--note", "{{amp}}"),
    "minimise, HANG": (0, "minimise", "--certify", "2", "--", "{hang:--hang}"),
    "minimise, of a file": (0, "minimise", "depth.yaml", "--certify", "2"),
    "minimise, cut short": (3, "minimise", "--max-trials", "2", "--", *FLAGS),
    "explore, CRASH": (0, "explore", "--certify", "2", "--", *FLAGS),
    "explore, PASS": (0, "explore", "--certify", "2", "--", "{amp:--amp}"),
    "explore, cut short": (3, "explore", "--max-trials", "2", "--", *FLAGS),
}  # fmt: skip
"""Exit status and words of each question; what stands behind ``--`` is the program's."""

GOES_ON = frozenset({0, 1, 3})

IN_CI = frozenset(
    {
        "run, CRASH", "run, HANG", "run, until it fails", "bisect, CRASH", "bisect, UNRESOLVED", "matrix, CRASH",
        "matrix, of a file", "minimise, CRASH", "explore, CRASH", "explore, cut short",
    }
)  # fmt: skip
"""Each verb and each kind of answer once; the others are long."""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("harness.machine.code_fingerprint", lambda: "0+same")  # also while the sources are edited
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "depth.yaml").write_text(FILE)
    return tmp_path


def ask(*words: str):
    return CliRunner().invoke(main, words, prog_name="nsa-harness")


def commands_in(text: str) -> set[tuple[str, ...]]:
    """Every command of ours in what a terminal or a page says: at the start of a line, behind a colon, or as code."""
    whole = re.sub(r" \\\n\s*", " ", text)
    lines = re.findall(r"(?:^\s*|: )(nsa-harness .+)$", whole, re.MULTILINE)
    return {tuple(shlex.split(line)) for line in [*lines, *re.findall(r"`(nsa-harness [^`]+)`", whole)]}


def programs_in(text: str) -> set[tuple[str, ...]]:
    """Every command line of the program that a terminal ends with."""
    whole = re.sub(r" \\\n\s*", " ", text)
    return {
        tuple(shlex.split(line)) for line in re.findall(rf"^  ({re.escape(sys.executable)} .+)$", whole, re.MULTILINE)
    }


def first_asked(name: str) -> tuple[int, str, Path]:
    status, *words = ASKED[name]
    own = words.index("--") if "--" in words else len(words)
    program = () if "depth.yaml" in words else ("--", *PROGRAM_WORDS, *words[own + 1 :])
    done = ask(*words[:own], *program)
    assert done.exit_code == status, done.output
    (run_dir,) = Path("runs").iterdir()
    return status, done.output, run_dir


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in IN_CI else pytest.mark.long) for name in ASKED]
)
def test_every_command_that_is_printed_can_be_run(place, name):
    status, output, run_dir = first_asked(name)
    page = layout.report(run_dir).read_text()
    steps = json.loads(layout.report(run_dir, "json").read_text())["next_steps"]
    commands = {*commands_in(output), *commands_in(page), *(tuple(s["command"]) for s in steps if s["command"])}

    assert any(command[1] == ASKED[name][1] for command in commands)
    for _, *words in commands:
        verb = words[0]
        is_long = verb in SEARCHES and "--resume" not in words
        own = words.index("--") if "--" in words else len(words)
        done = ask(*words[:own], *(["--dry-run"] if is_long else []), *words[own:])
        ends = {0} if is_long or verb == "report" else {status}
        if "--resume" in words:
            ends = GOES_ON  # with twice the limit, which may be enough for an answer
        assert done.exit_code in ends, (words, done.output)
    for line in programs_in(output):
        with pytest.raises((subprocess.CalledProcessError, subprocess.TimeoutExpired)):
            subprocess.run(line, check=True, timeout=3, capture_output=True)


def test_what_is_to_reproduce_an_answer_of_earlier_trials_runs_them_anew(place):
    words = ("bisect", "--axis", "layers=1..4", "--certify", "2", "--reuse")
    program = ("--", *PROGRAM_WORDS, "--layers", "{layers}")
    assert ask(*words, *program).exit_code == 0
    again = ask(*words, *program)
    assert "No trial was run" in again.output

    ((_, *printed),) = (command for command in commands_in(again.output) if command[1] == "bisect")

    assert "--reuse" not in printed
    assert "nothing is left to run" not in ask(printed[0], "--dry-run", *printed[1:]).output
