"""A trial whose supervisor is killed from outside: the worker dies with it, and the rest is found by its token."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.core.outcome import Cleanup, Exit, Survivor
from harness.core.ports import Executor
from harness.launch import procs
from harness.launch.forkserver import ForkserverExecutor
from harness.launch.local import LocalExecutor
from harness.testing.executors import is_gone, running, stop, wait_exit, wait_gone

ESCAPED = "detached(lambda: (say(pid=os.getpid()), wait())); say(pid=os.getpid()); wait()"


@pytest.fixture(params=["local", "forkserver"])
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    made = (
        LocalExecutor(python=sys.executable)
        if request.param == "local"
        else ForkserverExecutor(python=sys.executable, preload=())
    )
    yield made
    made.close()


def test_a_lost_supervisor_takes_the_worker_along_and_leaves_nothing(executor: Executor, tmp_path: Path):
    with running(executor, tmp_path / "lost", ESCAPED) as (handle, ear):
        escaped, worker = sorted(ear.hear_processes(2), key=lambda process: process.pid == handle.pid)
        supervisor = procs.read(worker.parent)
        assert supervisor is not None
        assert supervisor.command == "nsa-supervisor"
        assert procs.send(supervisor, signal.SIGKILL)
        wait_gone([supervisor, worker])

        # Nobody was there to take the exit status: neither code nor signal, rather than a guess.
        assert wait_exit(handle) == Exit()
        assert [ref.pid for ref in handle.processes()] == [escaped.pid]
        cleanup = stop(handle, grace_s=60.0)
        assert (cleanup.ended, cleanup.gone) == (1, True)
        assert is_gone(escaped)


def test_a_trial_that_cannot_be_ended_is_reported_and_its_supervisor_leaves(
    executor: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    survivor = Survivor(pid=1, state="D", command="stuck")
    monkeypatch.setattr("harness.launch.handle.end_tree", lambda **_: Cleanup(survivors=(survivor,)))
    with running(executor, tmp_path / "stuck", "say(pid=os.getpid()); wait()") as (handle, ear):
        (worker,) = ear.hear_processes(1)
        supervisor = procs.read(worker.parent)
        assert supervisor is not None
        cleanup = stop(handle, grace_s=0.0)

        assert cleanup.survivors == (survivor,)
        assert is_gone(supervisor)
        wait_gone([worker])  # a real one would stay; this one can die with its supervisor


def test_term_to_a_supervisor_ends_its_trial(executor: Executor, tmp_path: Path):
    with running(executor, tmp_path / "ended", ESCAPED) as (handle, ear):
        escaped, worker = sorted(ear.hear_processes(2), key=lambda process: process.pid == handle.pid)
        supervisor = procs.read(worker.parent)
        assert supervisor is not None
        assert procs.send(supervisor, signal.SIGTERM)
        wait_gone([escaped, worker, supervisor])

        wait_exit(handle)
        assert stop(handle, grace_s=0.0).signals == ()
