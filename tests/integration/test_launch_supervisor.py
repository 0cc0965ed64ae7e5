"""What the supervisor says on its socket, and what it does while nobody listens."""

from __future__ import annotations

import select
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.core.outcome import Exit
from harness.launch import local
from harness.launch.handle import SupervisedHandle
from harness.launch.local import LocalExecutor
from harness.store import layout
from harness.testing.executors import PATIENCE_S, running, stop, wait_exit


@pytest.fixture
def executor() -> Iterator[LocalExecutor]:
    made = LocalExecutor(python=sys.executable)
    yield made
    made.close()


def test_it_is_not_alone_while_anything_of_the_trial_lives(executor: LocalExecutor, tmp_path: Path):
    code = "detached(lambda: (say(pid=os.getpid()), wait()))"
    with running(executor, tmp_path / "t", code) as (handle, ear):
        ear.hear()
        wait_exit(handle)

        assert isinstance(handle, SupervisedHandle)
        assert handle._ask(end=False) is False
        assert stop(handle, grace_s=PATIENCE_S).ended == 1


def test_a_signal_is_timed_from_when_the_trial_was_asked_for(
    executor: LocalExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def late(*args: object, **options: object) -> SupervisedHandle:
        executor._clock.sleep(0.5)
        return begin(*args, **options)

    begin = local.begin
    monkeypatch.setattr(local, "begin", late)
    with running(executor, tmp_path / "t", "say(pid=os.getpid()); wait()") as (handle, ear):
        ear.hear()
        ((sent_s, name, _),) = stop(handle, grace_s=PATIENCE_S).signals

    assert name == "SIGTERM"
    assert sent_s >= 0.5


def test_output_is_on_disk_while_the_trial_still_runs(executor: LocalExecutor, tmp_path: Path):
    folder = tmp_path / "t"
    code = """
sys.stdout.write("x" * 600 + "the end of it")
sys.stdout.flush()
say(pid=os.getpid())
wait()
"""
    with running(executor, folder, code, max_output_bytes=1000) as (_, ear):
        ear.hear()
        tail = layout.output_tail(folder, "stdout")
        clock = executor._clock
        until_s = clock.now() + PATIENCE_S
        while not (tail.exists() and tail.read_text().endswith("the end of it")):
            assert clock.now() < until_s
            clock.sleep(0.002)
        assert layout.output(folder, "stdout").read_text() == "x" * 500


def test_a_worker_never_waits_for_a_reader_of_its_output(executor: LocalExecutor, tmp_path: Path):
    code = """
for _ in range(200):
    os.write(1, bytes(1 << 20))
sys.exit(6)
"""
    with running(executor, tmp_path / "t", code) as (handle, _):
        # The controller looks away: it reads nothing until the worker has written 200 MB and left.
        assert isinstance(handle, SupervisedHandle)
        assert select.select([handle._worker_fd], [], [], PATIENCE_S)[0]
        assert wait_exit(handle) == Exit(code=6)


def test_a_process_that_keeps_changing_its_pid_is_caught(executor: LocalExecutor, tmp_path: Path):
    code = """
def comet():
    first = True
    while True:
        if os.fork():
            os._exit(0)
        if first:
            say(pid=os.getpid())
            first = False
        os.sched_yield()
detached(comet)
wait()
"""
    with running(executor, tmp_path / "t", code) as (handle, ear):
        ear.hear()
        assert stop(handle, grace_s=0.0).gone
