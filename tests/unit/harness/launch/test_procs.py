from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from harness.launch import procs
from harness.launch.procs import Process


def row(pid: int, parent: int, *, state: str = "S", threads: int = 1) -> Process:
    return Process(pid=pid, started=pid, parent=parent, state=state, threads=threads, command=f"p{pid}")


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    code = "import sys; print('(odd) name', flush=True); sys.stdin.read()"
    env = {procs.TOKEN: "a token"}
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_descendants_are_found_through_dead_parents_and_never_the_root():
    table = {p.pid: p for p in (row(1, 0), row(10, 1), row(11, 10, state="Z"), row(12, 11), row(20, 1), row(21, 20))}

    assert [p.pid for p in procs.descendants(10, table)] == [12]
    assert {p.pid for p in procs.descendants(1, table)} == {10, 12, 20, 21}


@pytest.mark.parametrize(
    ("state", "threads", "dead"), [("Z", 1, True), ("Z", 3, False), ("X", 0, True), ("S", 1, False), ("T", 1, False)]
)
def test_a_zombie_whose_other_threads_run_is_alive(state: str, threads: int, *, dead: bool):
    assert row(5, 1, state=state, threads=threads).dead is dead


def test_a_process_whose_main_thread_has_ended_waits_where_its_last_thread_does():
    code = (
        "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)"
    )
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", code]) as process:
        late_s = time.monotonic() + 20
        while (row := procs.read(process.pid)) is None or row.state != "Z":
            assert time.monotonic() < late_s
            time.sleep(0.01)
        assert procs.waiting(row)[0] == "S"
        assert "sleep" in procs.waiting(row)[1] or not procs.waiting(row)[1]  # a kernel may hide it
        process.kill()


def test_read_gives_the_parent_and_none_for_a_pid_nobody_has(child: subprocess.Popen[bytes]):
    found = procs.read(child.pid)

    assert found is not None
    assert found.parent == os.getpid()
    assert found.state in "SRD"
    assert procs.read(2**22 + 1) is None


def test_only_the_very_token_is_found(child: subprocess.Popen[bytes]):
    found = procs.read(child.pid)
    assert found is not None

    assert procs.carrying("a token", [found]) == [found]
    assert procs.carrying("a toke", [found]) == []


def test_a_signal_does_not_reach_a_later_process_with_the_same_pid(child: subprocess.Popen[bytes]):
    found = procs.read(child.pid)
    assert found is not None

    assert not procs.send(found._replace(started=found.started - 1), signal.SIGKILL)
    assert child.poll() is None
    assert procs.send(found, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    assert not procs.send(found, signal.SIGKILL)


@pytest.mark.parametrize("gone", [FileNotFoundError, ProcessLookupError])
@pytest.mark.parametrize("act", ["open", "read"])
def test_a_process_that_goes_while_it_is_looked_at_is_gone(monkeypatch, gone: type[OSError], act: str):
    def goes(*_: object) -> None:
        raise gone

    monkeypatch.setattr(os, act, goes)

    assert procs.read(os.getpid()) is None
    assert procs.carrying("token", [row(os.getpid(), 1)]) == []
