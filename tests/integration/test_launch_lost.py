"""A trial whose supervisor or guard is killed: whatever of the two is left ends all of it."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.core.outcome import Cleanup, Exit, Survivor
from harness.core.ports import Executor
from harness.launch import procs
from harness.launch.forkserver import ForkserverExecutor
from harness.launch.handle import SupervisedHandle, readable
from harness.launch.local import LocalExecutor
from harness.testing.executors import PATIENCE_S, is_gone, running, stop, wait_exit, wait_gone

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


STRIPPED = """
import ctypes
def daemon():
    ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
    code = "import os, signal, sys; open(sys.argv[1], 'w').write(sys.argv[2] % os.getpid()); signal.pause()"
    os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", code, str(HERE / "ear"), '{"pid": %d}\\n'], {})
detached(daemon)
say(pid=os.getpid())
wait()
"""
"""A worker, and a daemon that has left its session, its environment and its parent-death signal behind."""


def above(process: procs.Process) -> procs.Process:
    found = procs.read(process.parent)
    assert found is not None
    return found


@pytest.mark.parametrize("program", [ESCAPED, STRIPPED], ids=["escaped", "stripped"])
def test_a_lost_supervisor_takes_the_worker_along_and_its_guard_ends_the_rest(
    executor: Executor, tmp_path: Path, program: str
):
    with running(executor, tmp_path / "lost", program) as (handle, ear):
        escaped, worker = sorted(ear.hear_processes(2), key=lambda process: process.pid == handle.pid)
        supervisor = above(worker)
        guard = above(supervisor)
        assert (supervisor.command, guard.command) == ("nsa-supervisor", "nsa-guard")
        assert procs.send(supervisor, signal.SIGKILL)
        wait_gone([supervisor, worker, escaped, guard])

        # Nobody was there to take the exit status: neither code nor signal, rather than a guess.
        assert wait_exit(handle) == Exit()
        assert handle.processes() == ()
        assert stop(handle, grace_s=60.0).gone


@pytest.mark.parametrize("program", [ESCAPED, STRIPPED], ids=["escaped", "stripped"])
def test_a_lost_guard_makes_the_supervisor_end_everything(executor: Executor, tmp_path: Path, program: str):
    with running(executor, tmp_path / "lost", program) as (handle, ear):
        members = ear.hear_processes(2)
        supervisor = above(next(process for process in members if process.pid == handle.pid))
        guard = above(supervisor)
        assert procs.send(guard, signal.SIGKILL)
        wait_gone([*members, supervisor, guard])
        assert stop(handle, grace_s=0.0).gone


@pytest.mark.parametrize("grouped", [True, False], ids=["control group", "token"])
def test_when_both_are_lost_the_controller_finds_what_is_left(
    executor: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, grouped: bool
):
    with running(executor, tmp_path / "lost", STRIPPED if grouped else ESCAPED) as (handle, ear):
        assert isinstance(handle, SupervisedHandle)
        if grouped and not handle._group:
            pytest.skip("no control group may be made here")
        if not grouped:
            monkeypatch.setattr(handle, "_group", "")
        escaped, worker = sorted(ear.hear_processes(2), key=lambda process: process.pid == handle.pid)
        supervisor = above(worker)
        guard = above(supervisor)
        for process in (supervisor, guard):  # frozen first, so that neither can act on the other's end
            assert procs.send(process, signal.SIGSTOP)
        for process in (guard, supervisor):
            assert procs.send(process, signal.SIGKILL)
        wait_gone([supervisor, guard, worker])
        assert [ref.pid for ref in handle.processes()] == [escaped.pid]
        cleanup = stop(handle, grace_s=0.0)
        assert (cleanup.ended, cleanup.gone) == (1, True)
        assert is_gone(escaped)


def test_a_controller_that_dies_with_a_message_unread_leaves_nothing(executor: Executor, tmp_path: Path):
    code = "detached(lambda: (say(pid=os.getpid()), wait())); say(pid=os.getpid()); wait()"
    with running(executor, tmp_path / "unread", code) as (handle, ear):
        assert isinstance(handle, SupervisedHandle)
        escaped, worker = sorted(ear.hear_processes(2), key=lambda process: process.pid == handle.pid)
        handle.signal(signal.SIGKILL)
        wait_gone([worker])
        assert readable(handle._control.fileno(), PATIENCE_S)  # how the worker ended, which nobody takes
        handle._control.close()
        wait_gone([escaped])
        handle._control, theirs = socket.socketpair()
        theirs.close()
        assert stop(handle, grace_s=0.0).gone


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
