"""Who looks: this machine's name, its boot, its PID namespace, and which monotonic clock it reads."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from harness.core.node import Node


def here(*, number: int = 0) -> Node:
    """This process's node. What the kernel does not tell is empty, and equals nobody's."""
    boot = _text("/proc/sys/kernel/random/boot_id")
    return Node(
        number=number,
        host=socket.gethostname(),
        boot=boot,
        pids=_link("/proc/self/ns/pid"),
        clock=f"{boot}/{_link('/proc/self/ns/time')}" if boot else "",
    )


def same_clock(one: Node, other: Node) -> bool:
    """Whether the times of two nodes can be compared as they are."""
    return bool(one.clock) and one.clock == other.clock


def _text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115 - "pid:[4026531836]" is no path
    except OSError:
        return ""
