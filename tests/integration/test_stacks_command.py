"""nsa-harness stacks on real jobs: it finds every rank from any PID, says where they are, and harms nobody."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli.main import main
from harness.launch import procs
from harness.observe import survey
from harness.observe.proc import Proc
from harness.observe.stacks import dumper
from harness.observe.stacks.pyspy import PySpy
from harness.testing.executors import wait_gone

PROGRAM = """
import os, sys
def hear(gate):
    return open(gate).read()
def wait_for_peers(gate):
    return hear(gate)
def next_batch(gate):
    return hear(gate)
rank = os.environ["RANK"]
os.write(1, f"rank {rank} {os.getpid()}\\n".encode())  # in one piece: the ranks share the pipe
heard = (next_batch if rank == "2" else wait_for_peers)(sys.argv[1] + rank)
os.write(1, f"rank {rank} heard {heard}\\n".encode())
"""
WORLD = 3


class Job:
    """Three ranks below a shell, each in front of a pipe that only the test opens."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        (folder / "train.py").write_text(PROGRAM)
        for rank in range(WORLD):
            os.mkfifo(folder / f"gate{rank}")
        rows = [f'RANK={r} WORLD_SIZE={WORLD} "$@" & ' for r in range(WORLD)]
        shell = ["bash", "-c", f"{''.join(rows)}wait", "job"]
        self.shell = stack.enter_context(
            subprocess.Popen(
                [*shell, sys.executable, str(folder / "train.py"), str(folder / "gate")],
                stdout=subprocess.PIPE,
                text=True,
                cwd=folder,
                start_new_session=True,
            )
        )
        stack.callback(self.kill)
        lines = [self.shell.stdout.readline().split() for _ in range(WORLD)]
        self.pids = {int(rank): int(pid) for _, rank, pid in lines}
        # Opening the writing end returns when the rank has come to its own end, where it then reads.
        self.gates = [stack.enter_context((folder / f"gate{r}").open("w", buffering=1)) for r in range(WORLD)]

    def kill(self) -> None:
        if self.shell.poll() is None:
            os.killpg(self.shell.pid, signal.SIGKILL)

    def answers(self, ranks: tuple[int, ...] = tuple(range(WORLD))) -> list[str]:
        """What the ranks say once they are let go on."""
        for rank in ranks:
            self.gates[rank].write("go")
            self.gates[rank].close()
        return sorted(self.shell.stdout.readline().strip() for _ in ranks)


@pytest.fixture
def job(tmp_path):
    with ExitStack() as stack:
        made = Job(tmp_path, stack)
        answer = PySpy().sample(pid=made.pids[0], rank=0, t_s=0.0, native=False, number=1, trial_dir=tmp_path)
        if "ptrace refused" in (reason := getattr(answer, "reason", "")):
            pytest.skip(reason)
        yield made


def stacks(*argv: object):
    return CliRunner().invoke(main, ["stacks", *map(str, argv)], prog_name="nsa-harness")


@pytest.mark.parametrize("start", ["the shell", "a rank"])
def test_the_job_is_found_grouped_and_left_as_it_was(job, start):
    pid = job.shell.pid if start == "the shell" else job.pids[1]
    done = stacks(pid)

    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0] == f"3 ranks below process {job.shell.pid} (bash)"
    assert max(map(len, lines)) <= 80
    assert lines[2].startswith("  rank 2 ")
    assert "hear (train.py:4)" in lines[2]
    assert any(line.startswith("  2 of 3 ranks (0, 1) ") for line in lines)
    assert sum(line.lstrip().startswith("=> hear (") for line in lines) == 2
    for rank, number in job.pids.items():
        assert any(line.split()[:2] == [str(rank), str(number)] for line in lines)
    assert job.answers() == [f"rank {rank} heard go" for rank in range(WORLD)]
    assert job.shell.wait() == 0


def test_a_job_that_ends_under_our_eyes_is_said_to_have_ended(job, monkeypatch):
    dump, ranks = survey.Survey._dump, [procs.read(pid) for pid in job.pids.values()]

    def ends_first(*args, **kwargs):
        job.kill()
        wait_gone(ranks)
        return dump(*args, **kwargs)

    monkeypatch.setattr(survey.Survey, "_dump", ends_first)
    done = stacks(job.shell.pid, "--samples", 1)

    assert done.exit_code == 1, done.output
    assert "all 3 ranks ended while they were looked at" in " ".join(done.stdout.split())


def test_native_frames_of_all_threads_harm_nobody_either(job):
    done = stacks(job.pids[0], "--native", "--all-threads", "--samples", 1)

    assert done.exit_code == 0, done.output
    assert "wait_for_peers" in done.stdout
    assert job.answers() == [f"rank {rank} heard go" for rank in range(WORLD)]


def test_a_stopped_rank_is_named_seen_and_stays_stopped(job):
    os.kill(job.pids[1], signal.SIGSTOP)
    while Proc().states(job.pids[1]) != "T":  # the signal was sent; the kernel stops it when it next runs
        continue

    done = stacks(job.shell.pid, "--native", "--samples", 1)

    assert done.exit_code == 0, done.output
    assert "rank 1 is stopped (state T) in hear (train.py:4)" in " ".join(done.stdout.split())
    assert Proc().states(job.pids[1]) == "T"
    os.kill(job.pids[1], signal.SIGCONT)
    assert job.answers() == [f"rank {rank} heard go" for rank in range(WORLD)]


def test_a_rank_that_ended_is_named_and_the_exit_code_says_so(job):
    ended = os.pidfd_open(job.pids[2])
    os.kill(job.pids[2], signal.SIGKILL)
    select.select([ended], [], [])
    os.close(ended)

    done = stacks(job.pids[0], "--samples", 1, "--json")

    assert done.exit_code == 1, done.output
    data = json.loads(done.stdout)
    assert data["groups"][0]["ranks"] == [2]
    assert "ended" in data["groups"][0]["sentence"]
    assert data["groups"][1]["ranks"] == [0, 1]
    assert data["groups"][1]["frames"][data["groups"][1]["telling"]]["function"] == "hear"
    assert [row["rank"] for row in data["ranks"]] == [0, 1, 2]
    assert job.answers((0, 1)) == ["rank 0 heard go", "rank 1 heard go"]


def test_without_a_dumper_nothing_is_read_and_the_exit_code_says_so(job, monkeypatch):
    monkeypatch.setattr(dumper, "find_tool", lambda name: None)

    done = stacks(job.pids[0], "--samples", 1)

    assert done.exit_code == 6, done.output
    assert "could not be seen: py-spy is not installed" in " ".join(done.stdout.split())
    assert job.answers() == [f"rank {rank} heard go" for rank in range(WORLD)]


def test_a_pid_that_nobody_has_is_wrong_use():
    done = stacks(2**22 + 1)

    assert done.exit_code == 2
    assert "there is no process" in done.stderr
    assert "torchrun" in done.stderr


TORCH = """
import os, sys, torch, torch.distributed as dist
def train_step(total):
    dist.all_reduce(total)
def next_batch(gate):
    return open(gate).read()
dist.init_process_group("gloo")
os.write(1, b"up\\n")
if dist.get_rank() == 1:
    next_batch(sys.argv[1])
total = torch.ones(1)
train_step(total)
os.write(1, f"sum {int(total)}\\n".encode())
dist.destroy_process_group()
"""


@pytest.mark.long
def test_a_rank_in_a_collective_and_one_that_reads_are_told_apart_below_torchrun(tmp_path):
    (tmp_path / "trainer.py").write_text(TORCH)
    os.mkfifo(tmp_path / "gate")
    argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    with subprocess.Popen(
        [*argv, str(tmp_path / "trainer.py"), str(tmp_path / "gate")], stdout=subprocess.PIPE, text=True
    ) as torchrun:
        try:
            assert [torchrun.stdout.readline() for _ in range(2)] == ["up\n", "up\n"]
            with (tmp_path / "gate").open("w") as gate:
                # Rank 0 comes to its collective in its own time: look until it is there.
                places = [""]
                while not places[0].startswith("all_reduce"):
                    data = json.loads(stacks(torchrun.pid, "--samples", 1, "--json").stdout)
                    places = [row["where"] for row in data["ranks"]]
                gate.write("go")
            assert places == ["all_reduce at trainer.py:4 (train_step)", "next_batch (trainer.py:6)"]
            assert [torchrun.stdout.readline() for _ in range(2)] == ["sum 2\n", "sum 2\n"]
            assert torchrun.wait() == 0
        finally:
            torchrun.terminate()
