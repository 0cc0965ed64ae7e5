"""What a killed tree leaves in shared memory and temporary folders is taken away, and nobody else's is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.launch import litter, procs
from harness.launch.litter import orphans, sweep, traces
from harness.launch.local import LocalExecutor
from harness.testing.executors import running, stop, wait_gone

pytestmark = pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no shared memory here")

LEAVES = """
import mmap, socket
me = f"/dev/shm/torch_{os.getpid()}_1_0"
name = f"/dev/shm/other_{os.getpid()}"
for path in (me, name):
    with open(path, "wb") as file:
        file.write(b"x" * 4096)
memory = mmap.mmap(os.open(name, os.O_RDWR), 4096)
place = os.path.join(PLACE, "pymp-abc123")
os.mkdir(place)
listener = socket.socket(socket.AF_UNIX)
listener.bind(os.path.join(place, "listener"))
open(os.path.join(PLACE, "checkpoint"), "w").close()
say(pid=os.getpid())
wait()
"""


@pytest.fixture
def executor():
    made = LocalExecutor(python=sys.executable)
    yield made
    made.close()


def shared(pid: int) -> list[str]:
    """The names that ``LEAVES`` takes; another process's number may begin with the same digits."""
    return [name for name in (f"torch_{pid}_1_0", f"other_{pid}") if (Path("/dev/shm") / name).exists()]


def test_what_an_ended_tree_used_is_removed_and_its_own_files_stay(executor, tmp_path):
    with running(executor, tmp_path / "trial", LEAVES.replace("PLACE", repr(str(tmp_path)))) as (handle, ear):
        (worker,) = ear.hear_processes(1)
        cleanup = stop(handle, grace_s=0.0)

    assert shared(worker.pid) == []
    assert not (tmp_path / "pymp-abc123").exists()
    assert (tmp_path / "checkpoint").exists()
    assert len(cleanup.removed) == 3
    assert cleanup.gone


def test_a_supervisor_that_is_alone_clears_up_as_well(executor, tmp_path):
    with running(executor, tmp_path / "trial", LEAVES.replace("PLACE", repr(str(tmp_path)))) as (handle, ear):
        (worker,) = ear.hear_processes(1)
        found = procs.read(worker.parent)
        assert procs.send(found, signal.SIGTERM)
        wait_gone([worker, found])
        stop(handle, grace_s=0.0)

    assert shared(worker.pid) == []
    assert not (tmp_path / "pymp-abc123").exists()


def test_what_another_process_uses_is_left(tmp_path):
    path = f"/dev/shm/torch_{os.getpid()}_2_0"
    with open(path, "wb") as file:  # noqa: PTH123
        file.write(b"x" * 4096)
        child = subprocess.Popen(
            [sys.executable, "-c", "import sys; f = open(sys.argv[1]); print('up', flush=True); input()", path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with child:
            child.stdout.readline()
            assert traces([child.pid]) == {path}
            file.close()
            assert sweep([path]) == ()
            child.stdin.close()
    assert sweep([path]) == (path,)


def test_files_of_processes_that_are_gone_are_named_by_doctor(monkeypatch, tmp_path):
    monkeypatch.setattr(litter, "SHARED", f"{tmp_path}/")
    for pid in (os.getpid(), 2**22 + 9):
        (tmp_path / f"torch_{pid}_7_0").touch()

    assert orphans() == (f"{tmp_path}/torch_{2**22 + 9}_7_0",)
