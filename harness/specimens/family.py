"""Processes that get away: forked twice, in a session of their own, deaf to SIGTERM."""

from __future__ import annotations

import os
import signal


def detach_grandchild() -> None:
    """Leave a grandchild behind that is nobody's child, has its own session, and ignores SIGTERM and SIGHUP."""
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            wait_for_no_signal()
        os._exit(0)
    os.waitpid(child, 0)


def wait_for_no_signal() -> None:
    """Sleep in the kernel for ever; what wakes it is ignored."""
    while True:
        signal.pause()
