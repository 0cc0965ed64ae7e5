"""Node: one machine, or container, that a part of a trial ran on; and PIDs that stay apart when nodes are joined.

A PID names a process only together with a boot and a PID namespace, and a monotonic time only together with the clock
that it was read from. Evidence that leaves its node is numbered on the way (``harness.reading.join``): node 0 keeps its
PIDs, every other one adds a multiple of :data:`PIDS`, more than any kernel gives.
"""

from __future__ import annotations

from dataclasses import dataclass

PIDS = 1 << 22
"""The kernel's own bound for PIDs: the PID 7 of node 2 is ``2 * PIDS + 7`` in joined evidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Who looked: ``boot`` is the kernel's boot id, ``pids`` the PID namespace, ``clock`` names the monotonic clock.

    Times of nodes with the same ``clock`` are one clock's. Else ``offset_s`` is what this node's clock shows more than
    the head's, and ``error_s`` how far that may be off; evidence is already in the head's time.
    """

    number: int
    host: str
    boot: str = ""
    pids: str = ""
    clock: str = ""
    offset_s: float = 0.0
    error_s: float = 0.0


def in_words(pid: int) -> str:
    """``4711``, and of another node than the first ``4711 of node 2``."""
    number, inner = divmod(pid, PIDS)
    return f"{inner} of node {number}" if number else str(pid)
