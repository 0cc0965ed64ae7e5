"""Who looks: this machine's name, its boot, its PID namespace, and which monotonic clock it reads."""

from __future__ import annotations

import socket

from harness.core.node import Node
from harness.observe.procfs import Files


def here(*, number: int = 0) -> Node:
    """This process's node. What the kernel does not tell is empty, and equals nobody's."""
    files = Files()
    boot = (files.text("sys/kernel/random/boot_id") or "").strip()
    return Node(
        number=number,
        host=socket.gethostname(),
        boot=boot,
        pids=files.link("self/ns/pid"),
        clock=f"{boot}/{files.link('self/ns/time')}" if boot else "",
    )


def same_clock(one: Node, other: Node) -> bool:
    """Whether the times of two nodes can be compared as they are."""
    return bool(one.clock) and one.clock == other.clock
