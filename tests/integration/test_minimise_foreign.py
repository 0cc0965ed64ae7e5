"""minimise, explore and matrix run with a stranger's command line: flags, variables, words, its own minimal command."""

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
from harness.store.run_store import read_run

pytestmark = pytest.mark.usefixtures("_without_figures")

FLAGS = ("amp", "compile", "fused", "ckpt", "overlap", "pin", "static", "zero")

HANGS = """
import argparse, threading
parser = argparse.ArgumentParser()
for name in "amp compile fused ckpt overlap pin static zero".split():
    parser.add_argument("--" + name, action="store_true")
asked = parser.parse_args()
for step in range(3):
    print("step", step + 1, flush=True)
    if step == 1 and asked.ckpt and asked.overlap:
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
"""

RAISES = """
import os, sys
assert set(sys.argv[1:]) <= {"--mode", "single", "ddp", "--amp", "--pin"}, sys.argv
if os.environ.get("CKPT") == "1" and "ddp" in sys.argv:
    raise RuntimeError("checkpointing and ddp do not go together")
"""


REFUSES = """
import argparse, sys
parser = argparse.ArgumentParser()
for name in ("overlap", "zero", "shard", "fused", "offload"):
    parser.add_argument("--" + name, action="store_true")
asked = parser.parse_args()
if asked.zero and not asked.shard:
    parser.error("--zero requires --shard")
if asked.fused and asked.offload:
    parser.error("--fused excludes --offload")
if asked.overlap and asked.zero:
    raise RuntimeError("overlap and zero do not go together")
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hangs.py").write_text(HANGS)
    (tmp_path / "raises.py").write_text(RAISES)
    (tmp_path / "refuses.py").write_text(REFUSES)
    return tmp_path


def harness(*argv: object):
    return CliRunner().invoke(main, [*map(str, argv)], prog_name="nsa-harness")


def own_line(text: str) -> str:
    """The program's own command line, as the last part of an answer has it."""
    _, _, last = text.partition("the program's own command line that fails")
    lines = [line.strip() for line in last.splitlines() if line.startswith("  ") and not line.startswith("    ")]
    return " ".join(line.removesuffix("\\") for line in lines)


def run_of(place: Path):
    (folder,) = (place / "runs").iterdir()
    return read_run(folder)


ON_AND_OFF = tuple(f"{{{name}:--{name}}}" for name in ("overlap", "zero", "shard", "fused", "offload"))


def test_a_corner_that_the_program_refuses_ends_the_search_with_what_to_ask_instead(place: Path):
    done = harness("minimise", "--certify", 2, "--", sys.executable, "refuses.py", *ON_AND_OFF)

    assert done.exit_code == 4, done.output
    words = " ".join(done.output.split())
    assert "the cell that was to fail never ran, 3 of 3 times: exit status 2" in words
    assert "its command line was refused: --fused excludes --offload" in words
    assert "next: Ask with cells that the program accepts" in words
    assert "own command line that fails" not in words

    cell = "--bad-cell=overlap=1,zero=1,shard=1,fused=1"
    done = harness("minimise", cell, "--certify", 2, "--", sys.executable, "refuses.py", *ON_AND_OFF)

    assert done.exit_code in (0, 1), done.output
    assert own_line(done.stdout) == f"{sys.executable} refuses.py --overlap --zero --shard"


RAISING = (
    "--axis", "mode=single,ddp", "--certify", 3,
    "--", "CKPT={ckpt:1}", sys.executable, "raises.py", "--mode", "{mode}", "{amp:--amp}", "{pin:--pin}",
)  # fmt: skip


def test_the_minimal_command_of_a_stranger_is_printed_last_and_really_fails(place: Path):
    done = harness("minimise", *RAISING)

    assert done.exit_code == 0, done.output
    line = own_line(done.stdout)
    assert line == f"CKPT=1 {sys.executable} raises.py --mode ddp"
    assert re.search(r"passes without CKPT=1: (\d+) of \1\n", done.stdout)
    assert re.search(r"passes with --mode single: (\d+) of \1\n", done.stdout)
    assert "2 of 2 when tried again" in " ".join(done.stdout.split())
    assert subprocess.run(line, shell=True, capture_output=True, check=False).returncode == 1
    again = [record for record in run_of(place).records if record.trial.role == "again"]
    assert [str(record.verdict) for record in again] == ["CRASH (RuntimeError)"] * 2
    assert again == list(run_of(place).records[-2:])

    (folder,) = (place / "runs").iterdir()
    replayed = harness("replay", folder)
    assert (replayed.exit_code, "differ" in replayed.stdout) == (0, False), replayed.output
    resumed = harness("minimise", "--resume", folder)
    assert own_line(resumed.stdout) == line
    assert len(run_of(place).records) == len(read_run(folder).records)
    assert line in re.sub(r"\s*\\\n\s*", " ", (folder / "report.md").read_text())
    short = harness("report", folder, "--format", "short").stdout
    assert line in re.sub(r"\s*\\\n\s*", " ", short)


@pytest.mark.long
def test_explore_ends_with_it_too(place: Path):
    done = harness("explore", "--stop-after-first", *RAISING)

    assert "--mode ddp" in own_line(done.stdout), done.output
    assert own_line(done.stdout).startswith("CKPT=1 ")


def test_every_combination_of_a_command_is_run_as_it_was_written(place: Path):
    done = harness("matrix", "run", "--json", *(word for word in RAISING if word not in ("--certify", 3)))

    assert done.exit_code == 1, done.output
    cells = json.loads(done.stdout)["run"]["answer"]["cells"]
    assert len(cells) == 16
    assert {cell["name"] for cell in cells if cell["failure"]} == {
        "mode=ddp,ckpt=true", "mode=ddp,ckpt=true,amp=true", "mode=ddp,ckpt=true,pin=true",
        "mode=ddp,ckpt=true,amp=true,pin=true",
    }  # fmt: skip


def test_flags_of_a_file_are_words_that_are_there_or_not(place: Path):
    (place / "m.yaml").write_text(
        f"""
version: 1
name: m
target: command
command: ["{sys.executable}", raises.py, --mode, "{{mode}}", "{{amp:--amp}}"]
axes:
  mode: {{type: categorical, values: [single, ddp]}}
  amp: {{type: flag}}
  pin: {{type: flag, apply: {{arg: --pin}}}}
"""
    )
    none = harness("matrix", "run", "m.yaml", "--strategy", "list")
    assert (none.exit_code, "--strategy" in none.output) == (5, True)

    done = harness("matrix", "run", "m.yaml")  # all of its cells: nothing else says what is run
    assert done.exit_code == 0, done.output
    assert len(run_of(place).records) == 8


@pytest.mark.long
def test_two_of_eight_flags_that_hang_together_are_found_in_few_hangs(place: Path):
    flags = [f"{{{name}:--{name}}}" for name in FLAGS]
    done = harness("minimise", "--total", "60s", "--certify", 6, "--", sys.executable, "hangs.py", *flags)

    assert done.exit_code == 0, done.output
    assert shlex.split(own_line(done.stdout))[1:] == ["hangs.py", "--ckpt", "--overlap"]
    assert re.search(r"passes without --overlap: ([6-9]) of \1\n", done.stdout)
    hangs = [record for record in run_of(place).records if record.verdict.kind == "HANG"]
    assert len(hangs) < 15
    assert [record.trial.role for record in hangs[-2:]] == ["again", "again"]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("minimise", "--", "x"), "nothing to vary: write --axis layers=1..12"),
        (("minimise", "--", "x", "{mode}"), "{mode}, but mode has no value: vary it with --axis"),
        (
            ("minimise", "--set", "amp=1", "--", "x", "{amp:--amp}"),
            "every place is held by --set; vary one, e.g. --axis amp",
        ),
        (("minimise", "--set", "amp=maybe", "--axis", "a=1,2", "--", "x", "{amp:-a}", "{a}"), "amp is a flag"),
        (("minimise", "--axis", "mode=ddp", "--", "x", "{mode}"), "'ddp' is one word"),
        (("minimise", "--axis", "mode=1..4,auto", "--", "x", "{mode}"), "and the word 'auto'; list all of its values"),
        (("minimise", "--axis", "mood=a,b", "--", "x", "{mode}"), "axis 'mood' has no place in the command; did you"),
        (("minimise", "--fault", "crash", "--", "x", "{a:-a}"), "--fault speaks of our own trainer"),
        (("minimise", "--executor", "forkserver", "--", "x", "{a:-a}"), "leave --executor out"),
        (("minimise", "--success", "x", "--axis", "n_layers=1,2"), "--success needs a command behind --"),
        (("minimise", "--", "HOME={home:1}", "x"), "HOME is set in this shell"),
        (("minimise", "m.yaml", "--", "x"), "a file and a command behind -- are two questions"),
        (("bisect", "--axis", "n=1,2", "--", "x", "{n}", "{a:-a}"), "give --set a=1 or --set a=0"),
        (("explore", "--steps", "3", "m.yaml"), "--steps is for a question without a file"),
        (("matrix", "run"), "name a matrix file, axes with --axis, or --resume a run"),
    ],
)
def test_wrong_use_is_said_before_anything_runs(place: Path, argv: tuple[str, ...], said: str):
    done = harness(*argv)

    assert done.exit_code == 2, done.output
    assert said in " ".join(done.output.split())
    assert not (place / "runs").exists()
