"""``import nsa_harness``: the commands as functions, and a guard around a block of one's own program."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

import nsa_harness as nh
from harness.testing.executors import await_
from nsa_harness import ask, beside, block

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
    assert found.place == ""
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
    with pytest.raises(nh.UsageError, match="-3 is not in the range"):
        nh.watch(-3, quiet=True)
    with pytest.raises(nh.HarnessError, match="Choose a place in a folder that is there with runs=, and say it again"):
        nh.run(["true"], runs="/proc/x", quiet=True)


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
def looks_say(tmp_path, monkeypatch):
    """Looks that are a program of the test's, which is given; they begin as soon as a block is guarded next."""

    def say(code: str) -> None:
        (tmp_path / "start.py").write_text(code)
        shutil.copy(beside.__file__, tmp_path / "beside.py")
        monkeypatch.setattr(beside, "__file__", str(tmp_path / "beside.py"))
        monkeypatch.setattr(beside, "START", tmp_path / "start.py")

    block._Process.leave()
    yield say
    block._Process.leave()


@pytest.fixture
def quick_looks(tmp_path, looks_say):
    """Looks that take no time and see nothing wrong, so that only when they are taken is asked."""
    run = tmp_path / "run"
    run.mkdir()
    (run / "report.json").write_text(json.dumps(dict.fromkeys(("verdict", "answer", "claim", "place"), "")))
    said = {"run": str(run), "verdict": {"kind": "SLOW", "cause": "", "because": ""}}
    looks_say(f"print({json.dumps(said)!r})")


def besides(pid: int) -> list[int]:
    """The processes that look at the blocks of process ``pid``."""
    found = []
    for folder in Path("/proc").iterdir():
        words = []
        with suppress(OSError):
            words = (folder / "cmdline").read_text().split("\0") if folder.name.isdecimal() else []
        if len(words) > 3 and words[2].endswith("beside.py") and words[3] == str(pid):
            found.append(int(folder.name))
    return found


def looked_at(guard: nh.Guard) -> bool:
    until_s = time.monotonic() + 60
    while not guard.looks and time.monotonic() < until_s:
        time.sleep(0.05)
    return bool(guard.looks)


def test_nobody_looks_before_what_is_expected_to_take_long_is_over(quick_looks):
    with nh.guard(after_s=0.5) as guard:
        with nh.expect_long("evaluation", 60):
            time.sleep(2)
            during = guard.looks
        assert looked_at(guard)

    assert during == ()
    assert [look.kind for look in guard.looks][:1] == ["SLOW"]
    assert not guard.hung


def test_the_end_of_an_expectation_leaves_that_around_it(quick_looks):
    with nh.guard(after_s=0.2) as guard, nh.expect_long("evaluation", 60):
        with nh.expect_long("batch", 0.1):
            pass
        time.sleep(2)
        assert guard.looks == ()


def test_what_one_thread_expects_keeps_nobody_from_looking_at_the_block_of_another(quick_looks):
    expects, is_over = threading.Event(), threading.Event()

    def evaluate():
        with nh.expect_long("evaluation", 600):
            expects.set()
            is_over.wait()

    with nh.guard(after_s=0.2) as guard:
        thread = threading.Thread(target=evaluate)
        thread.start()
        expects.wait()
        seen = looked_at(guard)
        is_over.set()
        thread.join()
    assert seen


def test_one_process_looks_at_all_blocks_and_ends_with_the_program_though_a_fork_of_it_lives_on(tmp_path):
    program = tmp_path / "forks.py"
    program.write_text("""\
import os, sys
import nsa_harness as nh

for _ in range(3):
    with nh.guard(after_s=60), nh.guard(after_s=30):
        if os.fork() == 0:
            sys.stdin.read()  # as a worker that outlives the block
            os._exit(0)
print(flush=True)
input()
""")
    command = [sys.executable, str(program)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        job.stdout.readline()
        assert len(besides(job.pid)) == 1
        job.kill()
        await_(lambda: not besides(job.pid), "it outlives the program")


def test_a_forked_child_that_leaves_the_block_ends_nothing_of_its_parents(quick_looks, tmp_path):
    program = tmp_path / "forks.py"
    program.write_text("""\
import os, sys, time
import nsa_harness as nh
from nsa_harness import beside

beside.__file__ = sys.argv[1]
with nh.guard(after_s=1) as guard:
    until_s = time.monotonic() + 60
    while not guard.looks and time.monotonic() < until_s:
        time.sleep(0.05)
    if os.fork() == 0:
        sys.exit()
    os.wait()
    again = guard.looks
    while len(guard.looks) < 2 and time.monotonic() < until_s:
        time.sleep(0.05)
print(len(again), len(guard.looks))
""")
    done = subprocess.run([sys.executable, program, beside.__file__], capture_output=True, text=True, check=True)

    assert (done.stdout, done.stderr) == ("1 2\n", "")


def test_a_process_beside_that_is_killed_ends_no_block_and_is_started_again(tmp_path):
    program = tmp_path / "trains.py"
    program.write_text("""\
import signal
import nsa_harness as nh

signal.signal(signal.SIGPIPE, signal.SIG_DFL)
with nh.guard(after_s=60):
    print(flush=True)
    input()
    for _ in range(2):
        with nh.expect_long("evaluation", 600):
            pass
with nh.guard(after_s=60):
    print("trained", flush=True)
    input()
""")
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, str(program)], **pipes, text=True) as job:
        job.stdout.readline()
        (lost,) = besides(job.pid)
        os.kill(lost, signal.SIGKILL)
        await_(lambda: not besides(job.pid), "it lives on")
        job.stdin.write("\n")
        job.stdin.flush()
        assert job.stdout.readline() == "trained\n"
        assert len(besides(job.pid)) == 1
        _, errors = job.communicate("\n")

    assert job.returncode == 0
    assert errors == f"{block.LOST}\n"


def test_a_look_at_a_block_that_is_over_is_ended_and_leaves_nothing(looks_say, tmp_path, capfd):
    looks_say("""\
import json, os, pathlib, sys, time
run = pathlib.Path("runs", time.strftime("%Y%m%d-%H%M%S-watch", time.gmtime()))
run.mkdir(parents=True)
(run / "journal.jsonl").touch()
lock = open(run / "lock", "w")
pathlib.Path("begun").write_text(str(os.getpid()))
try:
    time.sleep(300)
finally:
    print(json.dumps({"run": str(run), "verdict": {"kind": "HANG", "because": "?", "signature": "?"}}))
""")
    with nh.guard(after_s=0.1) as guard:
        await_(lambda: (tmp_path / "begun").exists() and (tmp_path / "begun").read_text(), "nobody looks")
    await_(lambda: not list((tmp_path / "runs").iterdir()), "its run is kept")

    assert not Path("/proc", (tmp_path / "begun").read_text()).exists()
    assert guard.looks == ()
    assert "hangs" not in capfd.readouterr().err


def test_a_guard_puts_its_reports_where_the_block_began_and_tells_a_hang_once(looks_say, tmp_path, capfd):
    looks_say("""\
import json, os, sys
said = {"kind": "HANG", "because": "it waits", "signature": "HANG deadlock"}
print(json.dumps({"verdict": said, "run": "mine/1", "asked": [os.getcwd(), *sys.argv[1:]]}))
""")
    place = tmp_path / "place"
    place.mkdir()
    asked = []
    for number, runs in enumerate(("", "here")):
        one = beside.Block(number, 1.0, runs, str(place))
        for _ in range(2):
            beside.Look(7, {one}, tmp_path).thread.join()
        looks = [json.loads(file.read_text()) for file in tmp_path.glob(f"look-{number}-*.json")]
        asked += [json.loads(look["said"])["asked"] for look in looks]

    watch = [str(place), "watch", "--json"]
    assert asked == [[*watch, "7"]] * 2 + [[*watch, "--runs", "here", "7"]] * 2
    assert capfd.readouterr().err.count("this hangs") == 2  # once a block


@pytest.mark.parametrize("after_s", [0, -1, float("nan"), "60", None])
def test_a_guard_takes_a_time_that_is_one(after_s):
    with pytest.raises(nh.UsageError, match=f"not {after_s!r}"):
        nh.guard(after_s=after_s)


@pytest.mark.parametrize("seconds", [-1, float("nan"), "60", None])
def test_what_takes_long_takes_a_time_that_is_one(seconds):
    with pytest.raises(nh.UsageError, match=f"'save' cannot take {seconds!r} seconds"), nh.expect_long("save", seconds):
        pass


def test_a_guard_that_has_no_folder_says_so_before_its_block_begins(looks_say, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))

    with pytest.raises(nh.HarnessError, match="missing"), nh.guard(after_s=60):
        pytest.fail("the block began")


def test_a_look_that_is_dropped_takes_no_run_with_it_that_was_there_before(tmp_path):
    """A look may have the lock of another run open for a moment: to see whether anybody works in it."""
    since = "20261128-120000"
    names = ["20261128-115959-watch", "20261128-120001-bisect", "20261128-120001-watch"]
    for last in (2, 3):
        files = []
        for name in names[:last]:
            (tmp_path / name).mkdir(exist_ok=True)
            files.append((tmp_path / name / "lock").open("w"))
        expected = tmp_path / names[2] if last == 3 else None
        assert beside._run_of(os.getpid(), since=since) == expected
        for file in files:
            file.close()
