"""Matrix files as a user runs them: real processes, real git, a controller that is killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("_without_figures")

COMMAND = (sys.executable, "-P", "-m", "harness")
LIMIT_S = 500  # a little less than a test has

PROGRAM = """
import sys
settings = dict(word.lstrip("-").split("=") for word in sys.argv[1:])
if int(settings["depth"]) >= 3 and settings["share"] == "true":
    sys.exit("depth and sharing do not go together")
print("done")
"""

MATRIX = """
version: 1
name: small
target: command
command: ["{python}", program.py]
axes:
  depth: {type: ordered, range: [1, 4], apply: {map: {1: {args: [--depth=1]}, 2: {args: [--depth=2]},
                                                        3: {args: [--depth=3]}, 4: {args: [--depth=4]}}}}
  share: {type: flag, apply: {map: {0: {args: [--share=false]}, 1: {args: [--share=true]}}}}
  other: {type: flag, apply: {env: OTHER}}
strategy: full
signatures:
  together: {verdict: crash, log: "do not go together"}
expect:
  - {when: {depth: ">=3", share: 1}, verdict: crash, signature: together, until: 2100-01-01, strict: true}
repeat: {certify: {passes: 3}}
budget: {wall: 10m}
searches:
  - {name: cause, kind: minimise, signature: together}
"""


def harness(*argv: str, cwd: Path, check: int | None = 0) -> str:
    done = subprocess.run([*COMMAND, *argv], cwd=cwd, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert check is None or done.returncode == check, done.stdout + done.stderr
    return done.stdout


def git(*argv: str, cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    who = ("-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "init.defaultBranch=main")
    return subprocess.run(["git", *who, *argv], cwd=cwd, capture_output=True, text=True, check=check, timeout=LIMIT_S)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "small.yaml").write_text(MATRIX)
    return tmp_path


def events(cwd: Path, name: str) -> list[dict]:
    (path,) = cwd.glob("runs/*/journal.jsonl")
    return [row["data"] for row in map(json.loads, path.read_text().splitlines()) if row["event"] == name]


def keys(cwd: Path) -> list[str]:
    return [row["record"]["trial"]["key"] for row in events(cwd, "record")]


def test_cells_that_fail_as_expected_are_fine_and_others_are_not(here: Path):
    harness("matrix", "run", "small.yaml", "--only", "depth=2|3", "--jobs", "2", cwd=here, check=0)
    (end,) = events(here, "end")
    assert {row["name"]: row["failure"] for row in end["answer"]["cells"] if row["failure"]} == {
        "depth=3,share=true": "CRASH (together)",
        "depth=3,share=true,other=true": "CRASH (together)",
    }
    assert all(row["met"] == "as expected" for row in end["answer"]["cells"])

    (here / "program.py").write_text("import sys; sys.exit('something else')")
    harness("matrix", "run", "small.yaml", "--cell", "depth=3,share=1", "--runs", "other", cwd=here, check=1)
    harness("matrix", "run", "small.yaml", "--only", "depth=4", "--tag", "nightly", cwd=here, check=5)


@pytest.mark.long
def test_killed_in_the_middle_it_goes_on_and_repeats_no_trial(here: Path):
    argv = [*COMMAND, "minimise", "small.yaml"]
    with subprocess.Popen(argv, cwd=here, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        next(line for line in running.stderr if line.startswith("  6  "))
        running.send_signal(signal.SIGKILL)
    before = keys(here)
    assert len(before) >= 6

    harness("minimise", "--resume", cwd=here, check=0)
    assert keys(here)[: len(before)] == before
    assert len(set(keys(here))) == len(keys(here))
    (end,) = events(here, "end")
    (cause,) = end["answer"]["minimised"]["causes"]
    assert [(need["axis"], need["value"]) for need in cause["needs"]] == [("depth", 3), ("share", True)]
    assert "decisions are the same" in harness("replay", cwd=here)


@pytest.fixture
def history(tmp_path: Path) -> list[str]:
    """A repository of six commits whose program is broken from the fourth on."""
    git("init", "--quiet", cwd=tmp_path)
    for number in range(1, 7):
        code = "import sys; sys.exit('broken')" if number >= 4 else "print('fine')"
        (tmp_path / "program.py").write_text(f"# {number}\n{code}\n")
        git("add", "program.py", cwd=tmp_path)
        git("commit", "--quiet", "-m", f"number {number}", cwd=tmp_path)
    return git("log", "--reverse", "--format=%H", cwd=tmp_path).stdout.split()


def test_the_first_bad_commit_is_found_in_worktrees_of_its_own(tmp_path: Path, history: list[str]):
    (tmp_path / "when.yaml").write_text(
        "version: 1\nname: when\ntarget: command\ncommand: ['{python}', program.py]\n"
        f"axes: {{commit: {{type: ordered, values: {history!r}, apply: {{commit: '{{value}}'}}}}}}\n"
        "repeat: {certify: {passes: 2}}\nsearches: [{name: since, kind: bisect, axis: commit}]\n"
    )
    harness("matrix", "run", "when.yaml::since", cwd=tmp_path, check=0)
    (end,) = events(tmp_path, "end")
    boundary = end["answer"]["boundary"]
    assert (boundary["last_good"], boundary["first_bad"]) == (history[2], history[3])
    codes = [row["record"]["trial"]["code"] for row in events(tmp_path, "record")]
    assert {code.split()[1] for code in codes} <= set(history)
    assert all(code.startswith("commit ") and " under " in code for code in codes)
    assert git("worktree", "list", cwd=tmp_path).stdout.count("\n") == 1, "the worktrees are gone"
    assert git("status", "--porcelain", "--", "program.py", cwd=tmp_path).stdout == ""


@pytest.mark.long
def test_git_bisect_run_finds_it_too(tmp_path: Path, history: list[str]):
    (tmp_path / "one.yaml").write_text(
        "version: 1\nname: one\ntarget: command\ncommand: ['{python}', program.py]\n"
        "axes: {other: {type: flag, apply: {env: OTHER}}}\n"
    )
    git("bisect", "start", "HEAD", history[0], cwd=tmp_path)
    done = git("bisect", "run", *COMMAND, "trial", "one.yaml", cwd=tmp_path)
    assert f"{history[3]} is the first bad commit" in done.stdout


def test_an_interpreter_for_each_value(here: Path):
    other = here / "python-other"
    other.write_text(f'#!/bin/sh\nexport OTHER_PYTHON=1\nexec {sys.executable} "$@"\n')
    other.chmod(0o755)
    (here / "program.py").write_text("import os, sys; sys.exit('no' if os.environ.get('OTHER_PYTHON') else 0)")
    (here / "two.yaml").write_text(
        "version: 1\nname: two\ntarget: command\ncommand: ['{python}', program.py]\nstrategy: full\n"
        "axes: {torch: {type: categorical, values: [own, other],"
        f" apply: {{map: {{own: {{}}, other: {{python: {other}}}}}}}}}}}\n"
    )
    harness("matrix", "run", "two.yaml", cwd=here, check=1)
    (end,) = events(here, "end")
    assert [row["seen"][0][0] for row in end["answer"]["cells"]] == ["PASS", "CRASH (exit-1)"]


@pytest.mark.long
def test_our_own_mistakes_are_never_a_bad_commit(here: Path):
    for argv in (["small.yaml::dept=3"], ["none.yaml"], ["small.yaml", "--signature", "x"], ["--nope"]):
        harness("trial", *argv, cwd=here, check=128)
    (here / "program.py").write_text("import sys; sys.exit('another failure')")
    harness("trial", "small.yaml", "--signature", "together", cwd=here, check=125)
    (here / "program.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    harness("trial", "small.yaml", cwd=here, check=1)


@pytest.mark.long
def test_commits_are_an_axis_of_the_command_line_too(tmp_path: Path, history: list[str]):
    axis = f"--axis=commit={history[0]}..HEAD"
    harness("bisect", axis, "--certify", "2", "--", sys.executable, "program.py", cwd=tmp_path, check=0)
    (end,) = events(tmp_path, "end")
    boundary = end["answer"]["boundary"]
    assert (boundary["last_good"], boundary["first_bad"]) == (history[2][:12], history[3][:12])
    assert "every question is answered" in harness("status", cwd=tmp_path)
    (own,) = end["answer"]["commands"]
    assert own["next_to"][0]["change"] == f"with commit={history[2][:12]}"
    (tmp_path / "program.py").write_text("print('as it is now')")
    pasted = subprocess.run(["bash", "-c", " ".join(own["line"])], cwd=tmp_path, capture_output=True, text=True)
    assert pasted.returncode == 1
    assert pasted.stdout.startswith("HEAD is now at")
    assert "as it is now" not in pasted.stdout
    assert (tmp_path / "program.py").read_text() == "print('as it is now')"
