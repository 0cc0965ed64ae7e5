"""What several specimens do: work in torch, start helpers, and processes that get away (forked twice, deaf to TERM)."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, cast

from harness.launch import prctl

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PID_FILE = "grandchild.pid"


def detach_grandchild(folder: Path) -> None:
    """Leave a grandchild behind that is nobody's child, has its own session, and ignores SIGTERM and SIGHUP.

    Its PID is in ``folder`` when this returns, so that anybody can see whether it is gone in the end.
    """
    child = os.fork()
    if child == 0:
        os.setsid()
        grandchild = os.fork()
        if grandchild == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            wait_for_no_signal()
        (folder / PID_FILE).write_text(str(grandchild))
        os._exit(0)
    os.waitpid(child, 0)


def wait_for_no_signal() -> None:
    """Sleep in the kernel for ever; what wakes it is ignored."""
    while True:
        signal.pause()


def helper(work: Callable[[], None]) -> int:
    """Run ``work`` in a child process and end it there; its PID. It dies with the process that it was forked from."""
    parent = os.getpid()
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        prctl.die_with_parent(signal.SIGKILL, parent=parent)
        work()
        code = 0
    finally:
        os._exit(code)


def compute_until(end_s: float) -> None:
    """Do real work in torch until the monotonic clock says ``end_s``."""
    import torch

    square = torch.randn(192, 192)
    while time.monotonic() < end_s:
        square = cast("torch.Tensor", torch.linalg.qr(square @ square.T + torch.eye(192)).Q)  # untyped in torch
