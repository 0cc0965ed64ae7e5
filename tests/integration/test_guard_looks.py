"""What a guard's look says of a parent that sleeps, and looks again, above children that hang or only have no work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.guard import jobs
from harness.guard.guard import look_into
from harness.guard.policy import may_end
from harness.observe.job import ProcTree

PROGRAM = """
import multiprocessing, subprocess, sys, threading, time

def hang():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()

if __name__ == "__main__":
    fork = multiprocessing.get_context("fork")
    if sys.argv[1] == "hangs":
        child = fork.Process(target=hang)
        child.start()
        print("started", flush=True)
        while child.exitcode is None:
            time.sleep(0.5)
    else:
        with fork.Pool(2) as pool:
            pool.map(abs, range(2))
            print("started", flush=True)
            while True:
                time.sleep(0.5)
"""


@pytest.fixture
def started(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    running: list[subprocess.Popen[str]] = []

    def start(what):
        argv = [sys.executable, str(tmp_path / "train.py"), what]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True)
        running.append(process)
        assert process.stdout.readline() == "started\n"
        return process

    yield start
    for process in running:
        os.killpg(process.pid, signal.SIGKILL)  # a session of its own: its children are in it
        process.wait()
        process.stdout.close()


def test_a_child_that_hangs_is_told_and_children_without_work_are_not(tmp_path, started):
    hangs, idle = started("hangs"), started("idle")
    (child,) = ProcTree().children(hangs.pid)

    def look(process):
        return look_into(jobs.job_of(process.pid), looks=tmp_path / "looks", runs=tmp_path / "runs")

    with ThreadPoolExecutor(2) as pool:
        hung, fine = pool.map(look, (hangs, idle))
    assert hung.hangs
    assert hung.cause in ("deadlock", "unseen-wait")  # the latter without native frames
    assert f"process {child}" in hung.because
    assert f"process {hangs.pid} (python) waits for it" in hung.because
    assert not may_end(hung), "its parent may look at it, and end it"
    assert not fine.hangs, fine.because
