"""nsa-harness watch on real jobs that somebody else started: judged in seconds, explained, and left as they are."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli.main import main
from harness.core.evidence import SourceFailure
from harness.launch import procs
from harness.observe import attach, runner
from harness.observe import job as job_finder
from harness.observe.stacks.pyspy import PySpy
from harness.store.run_store import read_run
from harness.testing.executors import wait_gone

PROGRAM = """
import os, sys, threading, time
rank, kinds = int(os.environ.get("RANK", 0)), sys.argv[1].split(",")
def take_a_lock_twice():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
def read_a_gate():
    return open(sys.argv[2] + str(rank)).read()
def sum_up():
    n = 0
    while n >= 0:
        n += len(str(n))
def count():
    n = 0
    while True:
        n += 1
def write():
    log = open(sys.argv[2] + ".log", "w")
    while True:
        print("step", file=log, flush=True)
        time.sleep(0.05)
os.write(1, f"rank {rank} {os.getpid()}\\n".encode())
{"write": write, "lock": take_a_lock_twice, "gate": read_a_gate, "count": count, "work": sum_up}[kinds[rank]]()
"""


class Job:
    """Ranks below a shell, each of which does what its kind says; a gate is opened only by the test."""

    def __init__(self, folder: Path, stack: ExitStack, kinds: str) -> None:
        (folder / "train.py").write_text(PROGRAM)
        world = len(kinds.split(","))
        for rank in range(world):
            os.mkfifo(folder / f"gate{rank}")
        rows = [f'RANK={r} WORLD_SIZE={world} LOCAL_RANK={r} LOCAL_WORLD_SIZE={world} "$@" & ' for r in range(world)]
        command = [sys.executable, str(folder / "train.py"), kinds, str(folder / "gate")]
        self.shell = stack.enter_context(
            subprocess.Popen(
                ["bash", "-c", f"{''.join(rows)}wait", "job", *command],
                stdout=subprocess.PIPE,
                text=True,
                cwd=folder,
                start_new_session=True,
            )
        )
        stack.callback(self.kill)
        lines = [self.shell.stdout.readline().split() for _ in range(world)]
        self.pids = {int(rank): int(pid) for _, rank, pid in lines}

    def kill(self) -> None:
        if self.shell.poll() is None:
            os.killpg(self.shell.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill it, and return when the last rank is gone: below a dead shell it is process 1 that takes note."""
        ranks = [procs.read(pid) for pid in self.pids.values()]
        self.kill()
        self.shell.wait()
        wait_gone(ranks)

    def states(self) -> list[str]:
        return [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in self.pids.values()]


@pytest.fixture
def job(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["nsa-harness", "watch", "PID"])  # what "again:" says, whatever pytest was asked
    with ExitStack() as stack:

        def start(kinds: str) -> Job:
            made = Job(tmp_path, stack, kinds)
            answer = PySpy().sample(pid=made.pids[0], rank=0, t_s=0.0, native=False, number=1, trial_dir=tmp_path)
            if "ptrace refused" in (reason := getattr(answer, "reason", "")):
                pytest.skip(reason)
            return made

        yield start


def watch(*argv: object):
    return CliRunner().invoke(main, ["watch", *map(str, argv)], prog_name="nsa-harness")


def test_a_process_that_waits_for_itself_is_a_hang_and_is_left_running(job, tmp_path):
    it = job("lock")
    done = watch(it.pids[0])

    assert done.exit_code == 1, done.output
    lines = done.stdout.splitlines()
    assert lines[0].startswith("HANG (deadlock): take_a_lock_twice (")
    assert "take_a_lock_twice (train.py:7)" in done.stdout
    assert f"kill {it.pids[0]}" in done.stdout
    assert [line for line in lines if len(line) > 80 and str(tmp_path) not in line] == []
    assert not {"T", "t", "Z"} & set(it.states())

    (folder,) = (tmp_path / "runs").iterdir()
    assert "take_a_lock_twice" in (folder / "report.md").read_text()
    again = CliRunner().invoke(main, ["classify", str(folder)])
    assert (again.exit_code, again.stdout.split()[-1]) == (0, "same"), again.output


def test_a_job_that_works_is_no_hang(job):
    it = job("work")
    done = watch(it.shell.pid)

    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("no hang was seen")
    assert "works in sum_up (" in " ".join(done.stdout.split())


def test_a_job_that_writes_and_sleeps_in_turns_is_not_called_silent(job, tmp_path):
    it = job("write")
    done = watch(it.pids[0])

    assert "watched for" in done.stderr
    assert "silent" not in done.output
    (folder,) = (tmp_path / "runs").iterdir()
    tree = (folder / "report.md").read_text().partition("## Decision tree")[2]
    assert "Did it make progress while it was watched?\n   ├─ not known: of a job that it did not start" in tree
    assert " bytes of I/O)" in tree


def test_a_rank_in_a_lock_is_a_hang_though_another_works(job):
    it = job("work,lock")
    done = watch(it.shell.pid)

    assert done.exit_code == 1, done.output
    assert "rank 1" in done.stdout
    assert "take_a_lock_twice (" in " ".join(done.stdout.split())


def test_what_somebody_else_may_end_is_not_called_a_hang(job):
    it = job("gate")
    done = watch(it.pids[0])

    assert done.exit_code == 3, done.output
    assert done.stdout.startswith("inconclusive: it may go on, or not")
    with open(f"gate{0}", "w") as gate:  # noqa: PTH123 - opening it is what the job waits for
        gate.write("go")
    assert it.shell.wait() == 0


def test_two_ranks_that_hang_alike_are_one_sentence_and_json_has_it_too(job):
    it = job("lock,lock")
    done = watch(it.pids[1], "--json")

    verdict = json.loads(done.stdout)["verdict"]
    assert (done.exit_code, verdict["kind"], verdict["cause"], verdict["rank"]) == (1, "HANG", "deadlock", None)
    assert verdict["because"].startswith("ranks 0 and 1 hang alike: ")


def test_a_job_that_nobody_may_look_into_is_not_judged(job, monkeypatch):
    refused = SourceFailure(id="failure-1", source="py-spy", reason="ptrace refused (scope 2)", not_allowed=True)
    it = job("lock")
    monkeypatch.setattr("harness.observe.stacks.pyspy.PySpy.sample", lambda *_, **__: refused)
    monkeypatch.setattr("harness.observe.stacks.pystack.PyStack.sample", lambda *_, **__: refused)
    done = watch(it.pids[0])

    assert done.exit_code == 6, done.output
    assert "HANG" not in done.stdout
    assert done.stdout.startswith("inconclusive: nobody could look into it  (watched for ")
    assert "py-spy could not look: ptrace refused" in done.stdout
    assert "in a container add --cap-add SYS_PTRACE" in " ".join(done.stdout.split())
    assert "look again later" not in done.stdout


def test_a_job_that_a_signal_has_stopped_is_said_to_be_stopped_and_how_it_goes_on(job):
    it = job("work")
    os.kill(it.pids[0], signal.SIGSTOP)
    done = watch(it.pids[0])

    assert done.exit_code == 3, done.output
    assert done.stdout.startswith("it is stopped (state T)  (watched for ")
    words = " ".join(done.stdout.split())
    assert "it is stopped (state T) in sum_up" in words
    assert "works" not in words
    assert f"It goes on with: kill -CONT {it.pids[0]}" in words


def test_following_ends_when_the_job_does(job, monkeypatch, tmp_path):
    it = job("gate")
    rests = []

    class Clock(wall_clock()):
        def now(self):
            return super().now() + sum(rests)

        def sleep(self, seconds):
            if seconds == 30.0:  # the rest between two looks: the job ends meanwhile
                rests.append(seconds)
                it.end()
                return
            super().sleep(seconds)

    monkeypatch.setattr("harness.clock.WallClock", Clock)
    done = watch(it.pids[0], "--follow")

    assert rests == [30.0]
    assert done.exit_code == 3
    assert "again:" not in done.stdout
    assert "watching on every 30 s: inconclusive: it may go on, or not" in done.stderr
    words = " ".join(done.stdout.split())
    assert "the job has ended since, how nobody saw; this is its last look" in words
    assert "look at its exit status and its output" in words
    (run_dir,) = (tmp_path / "runs").iterdir()
    assert read_run(run_dir).seconds > 30.0  # of all looks and the rests between them, not of the last look


@pytest.mark.parametrize("when", ["before the table is read", "while it is looked at"])
def test_a_job_that_ends_as_the_next_look_begins_leaves_the_look_before_as_the_answer(job, monkeypatch, when):
    it, looks = job("gate"), []

    class Clock(wall_clock()):
        def sleep(self, seconds):
            if seconds != 30.0:
                super().sleep(seconds)

    def ending(step):
        def ends_first(*args, **kwargs):
            looks.append(step)
            if len(looks) == 2:
                it.end()
            return step(*args, **kwargs)

        return ends_first

    monkeypatch.setattr("harness.clock.WallClock", Clock)
    if when == "before the table is read":
        monkeypatch.setattr(job_finder, "find_job", ending(job_finder.find_job))
    else:
        monkeypatch.setattr(attach.Looker, "run", ending(attach.Looker.run))
    done = watch(it.pids[0], "--follow")

    assert len(looks) == 2
    assert done.exit_code == 3, done.output
    assert done.stdout.startswith("inconclusive: it may go on, or not")


@pytest.mark.parametrize(
    ("kinds", "owner", "step", "last_seen"),
    [
        ("lock", attach.Looker, "run", ""),  # before anything was seen of it
        ("lock", runner.Runner, "ask", "take_a_lock_twice"),
        ("gate", runner.Runner, "finish", "read_a_gate"),  # all looks were taken
    ],
)
def test_a_job_that_ends_under_our_eyes_is_said_to_have_ended(job, monkeypatch, kinds, owner, step, last_seen):
    it = job(kinds)
    goes_on = getattr(owner, step)

    def ends_first(*args, **kwargs):
        it.end()
        return goes_on(*args, **kwargs)

    monkeypatch.setattr(owner, step, ends_first)
    done = watch(it.pids[0])

    assert done.exit_code == 3, done.output
    assert done.stdout.startswith("inconclusive: it ended while it was watched")
    said = " ".join(done.stdout.split())
    assert "ended while" in said.partition("report:")[0]
    assert last_seen in said
    assert "again:" not in said
    assert "it may also be" not in said


def wall_clock():
    from harness.clock import WallClock

    return WallClock


def test_no_such_process_is_wrong_use():
    done = watch(2**22 + 5)

    assert done.exit_code == 2
    assert "there is no process" in done.output
