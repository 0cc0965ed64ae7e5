"""gpus(n) and ports(n) under pytest, each session a process of its own.

No driver is asked: the GPUs are names in CUDA_VISIBLE_DEVICES, which is all that a lease is about.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lean_pytest import LEAN_ENVIRON
from lease_log import NOTE, taken

TWO_WORKERS = (
    NOTE
    + """
@pytest.mark.parametrize("n", [1, 1, 2] * 8)
def test_alone(gpus, n):
    mine = gpus(n)
    note("+", mine.names)
    assert mine.env == {"CUDA_VISIBLE_DEVICES": ",".join(mine.names)}
    assert mine.devices == tuple(f"cuda:{'57'.index(name)}" for name in mine.names)
    time.sleep(0.05)
    note("-", mine.names)
"""
)

KILLED = """
import os, signal, time

LOG = os.environ["LEASE_LOG"]

def test_is_killed(gpus):
    mine = gpus(2)
    with open(LOG, "a") as file:
        file.write(f"{os.getpid()}\\n")
    time.sleep(300)
"""

OTHERS = """
import pytest

def test_gets_them(gpus):
    assert gpus(2).names == ("5", "7")

def test_is_skipped(gpus):
    gpus(3)

def test_asks_twice(gpus):
    gpus(1)
    with pytest.raises(RuntimeError, match="once in a test"):
        gpus(1)

def test_ports(ports):
    assert len(set(ports(2) + ports(2))) == 4
"""


DOCUMENTED = (Path(__file__).resolve().parents[2] / "docs" / "pytest.md").read_text().split("```python\n")[2]


def session(folder: Path, text: str, *arguments: str) -> subprocess.Popen[str]:
    (folder / "test_it.py").write_text(text)
    env = {
        **os.environ,
        **LEAN_ENVIRON,
        "CUDA_VISIBLE_DEVICES": "5,7",
        "NSA_HARNESS_LEASES": str(folder.parent / "leases"),
        "LEASE_LOG": str(folder.parent / "log"),
    }
    argv = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *arguments, "test_it.py"]
    return subprocess.Popen(argv, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for_a_waiter(tmp_path: Path) -> None:
    """Return when somebody has taken his turn on a GPU and waits for it."""
    ends_s = time.monotonic() + 60.0
    turn = tmp_path / "leases" / "turn-gpu-7"
    while time.monotonic() < ends_s:
        if turn.exists():
            with turn.open() as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return
        time.sleep(0.05)
    raise AssertionError("nobody waits")


def place(tmp_path: Path, name: str) -> Path:
    (tmp_path / name).mkdir()
    return tmp_path / name


@pytest.mark.long
def test_two_xdist_workers_on_two_gpus_never_share_a_lease_and_one_of_them_is_killed(tmp_path):
    with session(place(tmp_path, "a"), TWO_WORKERS, "-n", "2") as running:
        log = tmp_path / "log"
        ends_s = time.monotonic() + 120.0
        while time.monotonic() < ends_s and (not log.exists() or log.read_text().count("+") < 6):
            time.sleep(0.02)
        victim = int(log.read_text().splitlines()[-1].split()[1])
        os.kill(victim, signal.SIGKILL)
        before = len(log.read_text().splitlines())
        said = running.communicate(timeout=120)[0]
    assert "1 failed, 23 passed" in said or "24 passed" in said, said  # the one it ran, unless it was between two tests
    pairs = taken(log.read_text().splitlines(), killed=str(victim), before=before)
    assert len({pid for pid, _ in pairs}) >= 2


def test_a_session_that_is_killed_leaves_its_gpus_to_the_next_one(tmp_path):
    with session(place(tmp_path, "a"), KILLED) as first:
        ends_s = time.monotonic() + 60.0
        while time.monotonic() < ends_s and not (tmp_path / "log").exists():
            time.sleep(0.02)
        with session(place(tmp_path, "b"), OTHERS, "-k", "gets") as second:
            wait_for_a_waiter(tmp_path)
            first.kill()
            first.communicate()
            assert "1 passed" in second.communicate(timeout=60)[0]


def test_what_cannot_be_had_is_skipped_with_its_reason(tmp_path):
    said = session(place(tmp_path, "a"), OTHERS).communicate(timeout=60)[0]
    assert "3 passed, 1 skipped" in said, said
    assert "needs 3 GPUs, 2 are visible here" in said


def test_the_documented_test_runs(tmp_path):
    said = session(place(tmp_path, "a"), DOCUMENTED.partition("```")[0]).communicate(timeout=60)[0]
    assert "1 passed" in said, said


def test_a_controller_and_a_session_share(tmp_path):
    """A session waits for what a controller's claim has, and gets it when that is killed."""
    code = (
        "import sys, time; from pathlib import Path; from harness.launch.claims import Claims;"
        "Claims(Path(sys.argv[1]), identity=str, sleep=time.sleep).gpus(1, among=('7',)); print(1, flush=True);"
        "time.sleep(300)"
    )
    controller = subprocess.Popen([sys.executable, "-c", code, tmp_path / "leases"], stdout=subprocess.PIPE, text=True)
    with controller:
        controller.stdout.readline()
        with session(place(tmp_path, "a"), OTHERS, "-k", "gets") as waits:
            wait_for_a_waiter(tmp_path)
            controller.kill()
            assert "1 passed" in waits.communicate(timeout=60)[0]
