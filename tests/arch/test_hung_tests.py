"""A test that hangs is ended, named, and does not take the others along; in C, where no signal reaches, the run is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from lean_pytest import LEAN

ROOT = Path(__file__).parents[2]

HANGS = """
import ctypes, threading

def test_that_waits_for_ever():
    threading.Event().wait()

def test_that_comes_after():
    pass

def test_that_holds_the_lock_of_the_interpreter():
    lock = ctypes.create_string_buffer(64)
    ctypes.PyDLL(None).pthread_mutex_lock(lock)
    ctypes.PyDLL(None).pthread_mutex_lock(lock)
"""


def pytest_of(tmp_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "test_hangs.py").write_text(HANGS)
    config = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path), "-p", "no:cacheprovider"]
    argv = [sys.executable, "-m", "pytest", "-v", *LEAN, *config, *options, str(tmp_path)]
    return subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)


def test_a_hung_test_fails_by_its_name_and_the_next_one_runs(tmp_path: Path):
    done = pytest_of(tmp_path, "-k", "waits or after", "-o", "timeout=0.5")

    assert done.returncode == 1
    assert "FAILED test_hangs.py::test_that_waits_for_ever - Failed: Timeout" in done.stdout
    assert "threading.Event().wait()" in done.stdout
    assert "1 failed, 1 passed" in done.stdout


def test_a_test_that_hangs_in_c_ends_the_run_and_shows_where(tmp_path: Path):
    done = pytest_of(tmp_path, "-k", "lock", "-o", "timeout=0.2", "-o", "faulthandler_timeout=0.5")

    assert done.returncode == 1
    assert "in test_that_holds_the_lock_of_the_interpreter" in done.stderr
