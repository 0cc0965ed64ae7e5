"""The audit of who is looked at: it finds a look at a stranger, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil
import pytest

from bench.strangers.__main__ import put_to_sleep
from bench.strangers.audit import strangers_seen

OURS = [
    '11 execve("/usr/bin/py-spy", ["py-spy", "dump", "--pid", "12"], 0x7f /* 20 vars */) = 0',
    '11 openat(AT_FDCWD, "/proc/12/stat", O_RDONLY|O_CLOEXEC) = 3',
    '11 openat(AT_FDCWD, "/proc/self/stat", O_RDONLY|O_CLOEXEC) = 3',
    "11 kill(12, SIGTERM) = 0",
    "12 kill(0, SIGTERM) = 0",
    "12 +++ exited with 0 +++",
]


def test_looks_at_processes_of_the_trial_are_no_looks_at_strangers():
    assert strangers_seen("\n".join(OURS)) == []


@pytest.mark.parametrize(
    "call",
    [
        'openat(AT_FDCWD, "/proc/99/stat", O_RDONLY|O_CLOEXEC) = 3',
        'readlink("/proc/99/exe", 0x7f, 4096) = -1 ENOENT (No such file or directory)',
        "kill(99, SIGTERM) = 0",
        "kill(-99, SIGKILL) = -1 ESRCH (No such process)",
        "ptrace(PTRACE_SEIZE, 99, NULL, 0) = 0",
        "process_vm_readv(99, [{iov_base=0x7f, iov_len=8}], 1, [{iov_base=0x7f, iov_len=8}], 1, 0) = 8",
        'execve("/usr/bin/py-spy", ["py-spy", "dump", "--nonblocking", "--pid", "99"], 0x7f /* 20 vars */) = 0',
    ],
)
def test_a_look_at_a_stranger_is_found(call):
    assert strangers_seen("\n".join([*OURS, f"11 {call}"])) == [f"11 {call}"]


def test_a_tree_is_put_to_sleep_as_a_whole_and_wakes_again(monkeypatch):
    seen, resume = [], psutil.Process.resume
    monkeypatch.setattr(psutil.Process, "resume", lambda one: seen.append(one.status()) or resume(one))
    code = "import subprocess; subprocess.run(['sleep', '3'])"
    with subprocess.Popen([sys.executable, "-c", code], text=True) as process:
        while not psutil.Process(process.pid).children():
            time.sleep(0.01)
        put_to_sleep(process, after_s=0.1, for_s=0.5)
        assert process.wait(20) == 0
    assert seen == ["stopped", "stopped"]
