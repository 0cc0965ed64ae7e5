"""``import nsa_harness``: the commands as functions, and a guard around a block of one's own program."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import subprocess
import sys
import time

import pytest

import nsa_harness as nh
from nsa_harness import ask, beside

API = """\
Bisected(*, verdict: 'str', answer: 'str', claim: 'str', place: 'str', folder: 'Path', status: 'int', report: \
'Mapping[str, Any]', finding: 'str', first_bad: 'float | str | None', last_good: 'float | str | None', certified: \
'bool') -> None
Guard(*, after_s: 'float', runs: 'str | os.PathLike[str] | None') -> 'None'
HarnessError
Ran(*, verdict: 'str', answer: 'str', claim: 'str', place: 'str', folder: 'Path', status: 'int', report: \
'Mapping[str, Any]', kinds: 'tuple[str, ...]') -> None
Result(*, verdict: 'str', answer: 'str', claim: 'str', place: 'str', folder: 'Path', status: 'int', report: \
'Mapping[str, Any]') -> None
UsageError
Watched(*, verdict: 'str', answer: 'str', claim: 'str', place: 'str', folder: 'Path', status: 'int', report: \
'Mapping[str, Any]', kind: 'str', cause: 'str', because: 'str') -> None
bisect(axis: 'str', *, command: 'Sequence[str]' = (), fault: 'str | None' = None, settings: 'Mapping[str, object] | \
None' = None, env: 'Mapping[str, str] | None' = None, bad: 'Sequence[str]' = (), success: 'Sequence[str]' = (), \
startup_s: 'float | None' = None, stall_s: 'float | None' = None, total_s: 'float | None' = None, certify: 'int | \
None' = None, max_trials: 'int | None' = None, budget_s: 'float | None' = None, runs: 'str | os.PathLike[str] | \
None' = None, quiet: 'bool' = False) -> 'Bisected'
configs(file: 'str | os.PathLike[str]') -> 'SearchStrategy[dict[str, Any]]'
expect_long(name: 'str', seconds: 'float') -> 'Iterator[None]'
guard(*, after_s: 'float' = 60.0, runs: 'str | os.PathLike[str] | None' = None) -> 'Guard'
run(command: 'Sequence[str]', *, env: 'Mapping[str, str] | None' = None, success: 'Sequence[str]' = (), startup_s: \
'float | None' = None, stall_s: 'float | None' = None, limit_s: 'float | None' = None, repeat: 'int | None' = None, \
until_fail: 'bool' = False, runs: 'str | os.PathLike[str] | None' = None, quiet: 'bool' = False) -> 'Ran'
watch(pid: 'int', *, runs: 'str | os.PathLike[str] | None' = None, quiet: 'bool' = False) -> 'Watched'
"""
"""What others may rely on. A change here is a change for them: say so in changelog.d/."""

DEADLOCK = """\
import threading
import nsa_harness as nh

def wait_here():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()

with nh.guard(after_s=1):
    wait_here()
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def signature(name: str) -> str:
    found = getattr(nh, name)
    if isinstance(found, type) and issubclass(found, Exception):
        return name
    return f"{name}{inspect.signature(found)}"


def test_the_public_names_and_their_parameters_are_as_published():
    assert "".join(f"{signature(name)}\n" for name in sorted(nh.__all__)) == API


def test_importing_it_brings_nothing_of_the_instrument_into_the_program():
    code = "import sys; import nsa_harness; print([m for m in sys.modules if m.split('.')[0] in ('harness', 'click')])"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


def test_a_run_that_passes_says_so_and_shows_its_report_in_a_notebook(tmp_path, capfd):
    found = nh.run([sys.executable, "-c", "print('step 1')"], runs=tmp_path / "runs")

    assert found.passed
    assert found.kinds == ("PASS",)
    assert found.status == 0
    assert found.folder.parent == tmp_path / "runs"
    assert "<iframe" in found._repr_html_()
    assert "&lt;!doctype html" in found._repr_html_().lower()
    assert "run directory" in capfd.readouterr().err


def test_bisect_gives_the_boundary():
    found = nh.bisect("n=1..3", command=[sys.executable, "-c", "raise SystemExit({n} > 2)"], certify=2, quiet=True)

    assert (found.first_bad, found.last_good, found.finding, found.certified) == (3, 2, "threshold", True)
    assert "n=3 crashes" in str(found)


def test_watch_tells_a_job_that_hangs(tmp_path):
    program = tmp_path / "dead.py"
    program.write_text("import threading\nlock = threading.Lock()\nlock.acquire()\nprint(flush=True)\nlock.acquire()\n")
    with subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE) as job:
        try:
            assert job.stdout is not None
            job.stdout.readline()
            found = nh.watch(job.pid, quiet=True)
        finally:
            job.kill()

    assert found.hangs
    assert "dead.py:5" in found.place


def test_a_question_that_makes_no_sense_is_a_usage_error_in_the_commands_own_words():
    with pytest.raises(nh.UsageError, match=r"axis 'n' has no place in the command"):
        nh.bisect("n", command=["true"], quiet=True)
    with pytest.raises(nh.UsageError, match="list of words"):
        nh.run("python train.py")
    with pytest.raises(nh.UsageError, match="there is no process"):
        nh.watch(2**22 + 1, quiet=True)


def test_a_command_that_cannot_answer_is_an_error_with_its_last_words(monkeypatch):
    monkeypatch.setattr(ask, "command_line", lambda *words: [sys.executable, "-c", "raise SystemExit('gone: ' * 2)"])
    monkeypatch.setattr(ask, "INTERNAL", 1)

    with pytest.raises(nh.HarnessError, match="gone: gone:"):
        nh.run(["true"], quiet=True)


def test_a_guarded_block_that_hangs_is_told_from_outside_with_its_line(tmp_path):
    program = tmp_path / "guarded.py"
    program.write_text(DEADLOCK)
    began_s = time.monotonic()
    with subprocess.Popen([sys.executable, str(program)], stderr=subprocess.PIPE, text=True) as job:
        try:
            assert job.stderr is not None
            said = job.stderr.readline() + job.stderr.readline()
            assert job.poll() is None  # nothing was ended
        finally:
            job.kill()

    assert said.startswith("nsa-harness: this hangs: ")
    assert "guarded.py:7" in said
    assert "report.md" in said
    assert time.monotonic() - began_s < 120


def test_a_guarded_block_is_told_where_the_folder_of_runs_cannot_be_written_to(tmp_path):
    program = tmp_path / "guarded.py"
    program.write_text(DEADLOCK)
    env = {**os.environ, "NSA_HARNESS_RUNS": "/proc/no-such-folder", "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, str(program)], stderr=subprocess.PIPE, text=True, env=env) as job:
        try:
            assert job.stderr is not None
            cannot, kept, hangs, report = (job.stderr.readline() for _ in range(4))
        finally:
            job.kill()

    assert cannot.startswith("nsa-harness: cannot write /proc/no-such-folder")
    assert kept.startswith(f"reports are kept in {tmp_path}")
    assert hangs.startswith("nsa-harness: this hangs: ")
    assert report.startswith(f"report: {kept.split()[-1]}")


def test_a_block_that_is_over_in_time_is_not_looked_at(tmp_path):
    with nh.guard(after_s=60, runs=tmp_path / "runs") as guard:
        pass

    assert not guard.hung
    assert guard.looks == ()
    assert not (tmp_path / "runs").exists()


@pytest.fixture
def quick_looks(tmp_path, monkeypatch):
    """Looks that take no time and see nothing wrong, so that only when they are taken is asked."""
    run = tmp_path / "run"
    run.mkdir()
    (run / "report.json").write_text(json.dumps(dict.fromkeys(("verdict", "answer", "claim", "place"), "")))
    said = {"run": str(run), "verdict": {"kind": "SLOW", "cause": "", "because": ""}}
    (tmp_path / "start.py").write_text(f"print({json.dumps(said)!r})")
    shutil.copy(beside.__file__, tmp_path / "beside.py")
    monkeypatch.setattr(beside, "__file__", str(tmp_path / "beside.py"))


def test_nobody_looks_before_what_is_expected_to_take_long_is_over(quick_looks):
    with nh.guard(after_s=0.5) as guard:
        with nh.expect_long("evaluation", 60):
            time.sleep(2)
            during = guard.looks
        until_s = time.monotonic() + 60
        while not guard.looks and time.monotonic() < until_s:
            time.sleep(0.05)

    assert during == ()
    assert [look.kind for look in guard.looks][:1] == ["SLOW"]
    assert not guard.hung


def test_a_guard_puts_its_reports_where_the_environment_says_and_tells_a_hang_once(monkeypatch, tmp_path, capsys):
    commands = []

    def look(command, **_):
        commands.append(command[4:])
        said = {"verdict": {"kind": "HANG", "because": "it waits", "signature": "HANG deadlock"}, "run": "mine/1"}
        return subprocess.CompletedProcess(command, 1, json.dumps(said), "")

    monkeypatch.setattr(beside.subprocess, "run", look)
    told = set()
    for number, runs in enumerate(("", "here")):
        beside._look(7, tmp_path / f"look-{number}.json", runs, told)
    assert commands == [["--json", "7"], ["--json", "--runs", "here", "7"]]
    assert capsys.readouterr().err.count("this hangs") == 1
    assert len(list(tmp_path.glob("look-*.json"))) == 2


def test_a_guard_takes_no_time_that_is_none():
    with pytest.raises(ValueError, match="not 0"):
        nh.guard(after_s=0)
    with pytest.raises(ValueError, match="'save' cannot take -1 seconds"), nh.expect_long("save", -1):
        pass
