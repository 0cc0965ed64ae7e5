"""A trial whose supervisor or guard is killed: whatever of the two is left ends all of it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from harness.core.errors import NoAnswerError
from harness.core.outcome import Cleanup, Exit, Survivor
from harness.core.ports import Executor
from harness.launch import handle as handles
from harness.launch import local, procs
from harness.launch.forkserver import ForkserverExecutor
from harness.launch.handle import SupervisedHandle, _live_process, readable
from harness.launch.local import _HOME, LocalExecutor
from harness.testing.executors import PATIENCE_S, Ear, is_gone, program, running, stop, wait_exit, wait_gone

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


GUARD_LOST_EARLY = """
import os, sys
sys.path.append(sys.argv[1])
from harness.launch import supervisor
read_all = supervisor._read_all
def after_the_guard(fd):
    said, guard = read_all(fd), os.getppid()
    os.kill(guard, 9)
    while os.getppid() == guard:
        pass
    return said
supervisor._read_all = after_the_guard
supervisor.main(int(sys.argv[2]))
"""


def test_the_guard_that_is_named_is_never_the_stranger_who_takes_its_place(tmp_path: Path):
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-I", "-S", "-c", GUARD_LOST_EARLY, _HOME, str(theirs.fileno())]
    guard = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], start_new_session=True)
    theirs.close()
    request = {
        "argv": ["sleep", "60"], "env": {}, "entry": None, "cwd": str(tmp_path), "token": "t", "output": [],
        "max_output_bytes": 1, "max_address_space_bytes": None, "descriptors": [], "controller": 0,
    }  # fmt: skip
    request["output"] = [(str(tmp_path / name), str(tmp_path / f"{name}.tail")) for name in ("out", "err")]
    ours.sendall(json.dumps(request).encode() + b"\n")
    line, descriptors, _, _ = socket.recv_fds(ours, 1 << 16, 3)
    said = json.loads(line)

    assert guard.wait() == -signal.SIGKILL
    assert said["guard"] == guard.pid
    assert readable(descriptors[1], PATIENCE_S)
    wait_gone([process for pid in (said["pid"], said["supervisor"]) if (process := procs.read(pid)) is not None])
    ours.close()
    for descriptor in descriptors:
        os.close(descriptor)


STOPPED_EARLY = """
import os, sys
sys.path.append(sys.argv[1])
import signal
from harness.launch import supervisor
read_all = supervisor._read_all
def stopped(fd):
    said = read_all(fd)
    if {who!r} == "guard":
        os.kill(os.getppid(), signal.SIGSTOP)
    os.kill(os.getpid(), signal.SIGSTOP)
    return said
supervisor._read_all = stopped
supervisor.main(int(sys.argv[2]))
"""


@pytest.mark.parametrize("who", ["guard", "supervisor"])
def test_a_supervisor_that_is_stopped_before_it_says_anything_leaves_nothing(tmp_path: Path, monkeypatch, who: str):
    monkeypatch.setattr(local, "BOOT", STOPPED_EARLY.format(who=who))
    monkeypatch.setattr(handles, "START_LIMIT_S", 5.0)
    monkeypatch.setattr(local, "ANSWER_LIMIT_S", 0.1)
    folder = tmp_path / "t"
    folder.mkdir()
    with closing(LocalExecutor(python=sys.executable)) as executor, closing(Ear(folder)) as ear:
        with pytest.raises(NoAnswerError, match="did not start"):
            executor.start(program(folder, STRIPPED))
        wait_gone(ear.hear_processes(2))


def test_a_supervisor_whose_first_word_is_lost_is_told_and_leaves_nothing(tmp_path: Path, monkeypatch):
    silent = "from harness.launch import supervisor; supervisor._introduce = lambda *_, **__: None; from"
    monkeypatch.setattr(local, "BOOT", local.BOOT.replace("from", silent, 1))
    executor = LocalExecutor(python=sys.executable)
    with closing(executor), pytest.raises(NoAnswerError, match="did not say which processes"):
        executor.start(program(tmp_path / "t", "sys.exit(3)"))


def test_a_controller_that_dies_while_its_supervisor_is_stopped_leaves_nothing(tmp_path: Path):
    (tmp_path / "t.py").write_text("import time\nprint('step 1', flush=True)\ntime.sleep(1000)\n")
    argv = [sys.executable, "-P", "-m", "harness", "run", "--", sys.executable, "t.py"]
    with subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as controller:
        while len(below := procs.below(controller.pid)) < 3:
            assert controller.poll() is None
        (supervisor,) = (process for process in below if process.parent == below[0].pid)
        assert procs.send(supervisor, signal.SIGSTOP)
        controller.kill()
    wait_gone(below)


def test_a_process_is_known_only_while_its_descriptor_says_that_it_lives():
    ended = os.posix_spawn("/bin/true", ["true"], {})
    pidfd = os.pidfd_open(ended)
    os.waitpid(ended, 0)

    # Its PID, as far as anybody can tell, may be ours by now.
    assert _live_process(os.getpid(), pidfd) is None
    os.close(pidfd)


def test_term_to_a_supervisor_ends_its_trial(executor: Executor, tmp_path: Path):
    with running(executor, tmp_path / "ended", ESCAPED) as (handle, ear):
        escaped, worker = sorted(ear.hear_processes(2), key=lambda process: process.pid == handle.pid)
        supervisor = procs.read(worker.parent)
        assert supervisor is not None
        assert procs.send(supervisor, signal.SIGTERM)
        wait_gone([escaped, worker, supervisor])

        wait_exit(handle)
        assert stop(handle, grace_s=0.0).signals == ()
