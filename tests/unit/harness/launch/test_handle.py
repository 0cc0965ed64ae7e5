"""Waiting for a descriptor, however large its number."""

from __future__ import annotations

import fcntl
import os

from harness.launch.handle import readable


def test_a_descriptor_above_the_reach_of_select_can_be_waited_for():
    read, write = os.pipe()
    high = fcntl.fcntl(read, fcntl.F_DUPFD, 1500)
    try:
        assert not readable(high, 0.0)
        os.write(write, b"x")
        assert readable(high, 5.0)
    finally:
        for fd in (read, write, high):
            os.close(fd)


def test_a_pidfd_is_readable_when_its_process_has_ended():
    pid = os.posix_spawn("/bin/true", ["true"], {})
    pidfd = os.pidfd_open(pid)
    try:
        assert readable(pidfd, 10.0)
    finally:
        os.waitpid(pid, 0)
        os.close(pidfd)
