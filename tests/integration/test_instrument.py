"""The instrument's own failures are INFRA: the trial is run again, and the answer is what it would have been."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from harness.core.errors import NoAnswerError, SpoiledError
from harness.launch import handle as handles
from harness.launch import procs
from harness.launch.forkserver import ForkserverExecutor
from harness.settings import processes_with
from harness.store import fsck
from harness.store.run_store import read_run
from harness.testing.executors import program, running, wait_exit

pytestmark = pytest.mark.usefixtures("_without_figures")

PROGRAM = """
import sys, threading, time
for step in range(6):
    print("step", step + 1, flush=True)
    time.sleep(0.3)
if int(sys.argv[1]) >= 2:
    raise RuntimeError("no room")
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(PROGRAM)
    return tmp_path


def supervisors(pid: int) -> list[procs.Process]:
    return [process for process in procs.below(pid) if process.command == "nsa-supervisor"]


def search(
    place: Path, *, harm: Callable[[procs.Process], object], value: int, options: tuple[str, ...] = ()
) -> tuple[int, list[str], object]:
    """A search of which the first supervisor of a trial at ``value`` is harmed: its code, the verdicts, the answer."""
    argv = ["bisect", "--axis", "x=1..3", "--certify", "2", "--progress", r"step (\d+)"]
    command = [sys.executable, "-P", "-m", "harness", *argv, *options, "--", sys.executable, "train.py", "{x}"]
    with subprocess.Popen(command, cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as controller:
        harmed: procs.Process | None = None
        while controller.poll() is None:
            time.sleep(0.05)
            at_value = [p for p in procs.below(controller.pid) if _argument(p.pid) == str(value)]
            if harmed is None and at_value and (found := supervisors(controller.pid)):
                time.sleep(0.3)
                harmed = found[0]
                harm(harmed)
    (folder,) = (place / "runs").iterdir()
    run = read_run(folder)
    assert harmed is not None
    kinds = [str(r.verdict.kind) for r in run.records if r.trial.point.get("x") == value]
    return (
        controller.returncode,
        kinds,
        (run.answer.boundary.last_good, run.answer.boundary.first_bad, run.answer.boundary.certified),
    )


def _argument(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return words[2].decode() if len(words) > 2 and words[1] == b"train.py" else ""


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("value", [1, 2])
def test_a_supervisor_that_is_killed_or_stopped_costs_a_trial_and_no_answer(place, number, value):
    code, kinds, answer = search(place, harm=lambda process: os.kill(process.pid, number), value=value)

    assert (code, answer) == (0, (1, 2, True))
    assert kinds[0] == "INFRA"
    assert set(kinds[1:]) == {"PASS" if value == 1 else "CRASH"}


def stop_now(pid: int) -> None:
    """Stop a process, and see it stopped."""
    os.kill(pid, signal.SIGSTOP)
    while (seen := procs.read(pid)) is not None and seen.state != "T":
        time.sleep(0.001)


def stand_still(processes: list[int], seconds: float) -> None:
    """Stop all of them, as a suspended machine would, and wake them again."""
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    for pid in processes:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.long
def test_a_suspended_machine_costs_a_trial_and_no_answer(place):
    def suspend(supervisor: procs.Process) -> None:
        controller = next(p for p in procs.everything().values() if p.pid == procs.read(supervisor.parent).parent)
        stand_still([controller.pid, *(process.pid for process in procs.below(controller.pid))], 8.0)

    # Longer than all of a trial may take: what was not watched is not SLOW.
    code, kinds, answer = search(place, harm=suspend, value=1, options=("--total", "6s"))

    assert (code, answer) == (0, (1, 2, True))
    assert kinds[0] == "INFRA"
    assert set(kinds[1:]) == {"PASS"}


@pytest.mark.slow
def test_one_program_passes_though_the_harness_was_suspended_meanwhile(place):
    argv = [sys.executable, "-P", "-m", "harness", "run", "--", sys.executable, "train.py", "1"]
    with subprocess.Popen(argv, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as controller:
        while not supervisors(controller.pid):
            time.sleep(0.05)
        time.sleep(0.3)
        stand_still([controller.pid], 6.0)
        said = controller.stdout.read().decode()

    assert controller.returncode == 0, said
    assert "PASS" in said


JUMPING = """
import datetime, itertools, runpy, sys, time
jumps = itertools.cycle((0, 86400 * 400, -86400 * 400, 3600))
class Jumping(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return super().now(tz) + datetime.timedelta(seconds=next(jumps))
import harness.clock
harness.clock.datetime = Jumping
real = time.time
time.time = lambda: real() + next(jumps)
sys.argv[0] = "nsa-harness"
runpy.run_module("harness", run_name="__main__")
"""


@pytest.mark.slow
def test_a_clock_that_jumps_by_a_year_changes_nothing(place):
    argv = ["bisect", "--axis", "x=1..3", "--certify", "2", "--progress", r"step (\d+)", "--", sys.executable]
    command = [sys.executable, "-P", "-c", JUMPING, *argv, "train.py", "{x}"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    (folder,) = (place / "runs").iterdir()
    run = read_run(folder)
    found = run.answer.boundary

    assert done.returncode == 0, done.stdout + done.stderr
    assert (found.last_good, found.first_bad, found.certified) == (1, 2, True)
    assert {str(record.verdict.kind) for record in run.records} == {"PASS", "CRASH"}
    assert fsck.problems(folder) == []


def server(executor: ForkserverExecutor) -> int:
    (one,) = executor._servers.values()
    return one._process.pid


def test_a_fork_server_that_is_stopped_is_replaced(tmp_path):
    with closing(ForkserverExecutor(python=sys.executable, preload=())) as executor:
        with running(executor, tmp_path / "one", "sys.exit(3)") as (handle, _):
            assert wait_exit(handle).code == 3
        stopped = server(executor)
        stop_now(stopped)
        with running(executor, tmp_path / "two", "sys.exit(4)") as (handle, _):
            assert wait_exit(handle).code == 4
        assert server(executor) != stopped


def test_a_fork_server_that_is_stuck_is_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(handles, "START_LIMIT_S", 1.0)
    with closing(ForkserverExecutor(python=sys.executable, preload=())) as executor:
        with running(executor, tmp_path / "one", "sys.exit(3)") as (handle, _):
            assert wait_exit(handle).code == 3
        stuck = server(executor)
        # What it forks next is read by nobody: the request lies in a socket to which the server does not come back.
        monkeypatch.setattr(executor._servers[next(iter(executor._servers))], "alive", lambda: True)
        stop_now(stuck)
        with pytest.raises(NoAnswerError, match="did not start"):
            executor.start(program(tmp_path / "two", "sys.exit(4)"))
        with running(executor, tmp_path / "three", "sys.exit(5)") as (handle, _):
            assert wait_exit(handle).code == 5
        assert server(executor) != stuck


TRAPS = {
    "pipe": "os.mkfifo(place / 'heartbeat_rank5.jsonl')",
    "marks": "os.truncate(os.open(place / 'heartbeat_rank7.jsonl', os.O_CREAT | os.O_RDWR), 8 << 30)",
    "result": "os.truncate(os.open(place / 'result_rank0.json', os.O_CREAT | os.O_RDWR), 20 << 30)",
    "folders": "[(place / name).mkdir() for name in ('evidence.json', 'result_rank0.json', 'ranks.jsonl')]",
    "device": "(place / 'result_rank0.json').symlink_to('/dev/zero')",
}


@pytest.mark.parametrize("trap", TRAPS)
@pytest.mark.parametrize("ends", [True, pytest.param(False, marks=pytest.mark.long)])
def test_what_a_program_puts_into_its_folder_does_not_stop_the_controller(place, trap, ends):
    wait = "" if ends else "\nimport time\nwhile True:\n    print('step', flush=True)\n    time.sleep(0.2)"
    (place / "traps.py").write_text(
        "import os, pathlib\nplace = pathlib.Path(os.environ['NSA_HARNESS_TRIAL_DIR'])\n"
        f"print('step', flush=True)\n{TRAPS[trap]}{wait}\n"
    )
    argv = ["run", "--limit", "20s", "--", sys.executable, "traps.py"]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "harness", *argv], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 6, done.stdout + done.stderr
    assert "in the trial's folder" in " ".join(done.stdout.split())
    assert "Traceback" not in done.stderr
    assert [pid for pid, value in processes_with("NSA_HARNESS_TRIAL_DIR") if str(place) in value] == []


def test_what_a_program_raises_because_it_is_ended_is_not_its_crash(place):
    (place / "stuck.py").write_text(
        "import signal, threading\n"
        "def end(*_):\n    raise AssertionError('ended from outside')\n"
        "signal.signal(signal.SIGTERM, end)\nprint('begins', flush=True)\nthreading.Event().wait()\n"
    )
    argv = ["run", "--limit", "20s", "--", sys.executable, "stuck.py"]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "harness", *argv], capture_output=True, text=True, timeout=60, check=False
    )
    assert "UNRESOLVED (cut-off-in-silence)" in done.stdout, done.stdout + done.stderr  # it may be a service
    assert "AssertionError" not in done.stdout


def test_a_trap_is_taken_out_of_the_way_once(tmp_path):
    os.mkfifo(tmp_path / "result_rank0.json")
    with pytest.raises(SpoiledError, match=r"result_rank0\.json in the trial's folder is no file"):
        handles.refuse_traps(tmp_path)
    handles.refuse_traps(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["result_rank0.json.refused"]


def test_all_traps_are_taken_out_of_the_way_before_one_is_told(tmp_path):
    for name in ("evidence.json", "result_rank0.json", "ranks.jsonl"):
        (tmp_path / name).mkdir()
    with pytest.raises(SpoiledError, match="is no file"):
        handles.refuse_traps(tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "evidence.json.refused", "ranks.jsonl.refused", "result_rank0.json.refused",
    ]  # fmt: skip


def test_a_file_that_gets_its_name_meanwhile_is_no_trap(tmp_path, monkeypatch):
    real = os.scandir

    class Scan:
        def __init__(self, folder):
            self.entries = real(folder)

        def __enter__(self):
            listed = list(self.entries)
            (tmp_path / "result_rank0.json.new").rename(tmp_path / "result_rank0.json")
            return iter(listed)

        def __exit__(self, *_):
            self.entries.close()

    (tmp_path / "result_rank0.json.new").write_text("{}")
    monkeypatch.setattr(handles.os, "scandir", Scan)
    handles.refuse_traps(tmp_path)


def test_a_supervisor_that_cannot_begin_says_why_in_a_line(place):
    limit = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12)); import runpy; "
    code = f"{limit}import sys; sys.argv[0] = 'nsa-harness'; runpy.run_module('harness', run_name='__main__')"
    argv = ["bisect", "--axis", "x=1..2", "--", sys.executable, "train.py", "{x}"]
    done = subprocess.run([sys.executable, "-P", "-c", code, *argv], capture_output=True, text=True, check=False)

    assert done.returncode == 6, done.stdout + done.stderr
    assert "Too many open files" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
