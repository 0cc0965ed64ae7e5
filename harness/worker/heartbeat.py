"""Heartbeats: one line per mark of the trainer, each one write, so that they survive SIGKILL."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from nsa.train.probe import NullProbe, Phase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nsa.train.probe import Edge

_STATM = Path("/proc/self/statm")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class HeartbeatProbe(NullProbe):
    """Appends what the trainer announces to ``path``, with the machine's monotonic clock.

    A full disk must not end the training that is being watched: what cannot be written is counted and said once on
    standard error, and every later mark is tried again.
    """

    def __init__(self, path: Path, *, rank: int = 0) -> None:
        self.rank = rank
        self.phase: str | None = None
        self.steps_done = 0
        self.lost = 0
        self.lost_why: str | None = None
        self._seq = 0
        self._torn = False
        self._fd = self._open(path)

    def mark(self, *, phase: Phase, edge: Edge, step: int | None, detail: str | None = None) -> None:
        """Write where training is."""
        self.phase = str(phase)
        record: dict[str, object] = {"phase": str(phase), "edge": str(edge), "step": step, "detail": detail}
        if phase == Phase.FORWARD and (nodes := autograd_nodes()) is not None:
            record["nodes"] = nodes
        self._write(record)

    def step_done(self, *, step: int, facts: Mapping[str, float]) -> None:
        """Write that a step is complete, with its facts and what memory is like now."""
        self.steps_done += 1
        self._write({"event": "step", "step": step, "facts": {**memory_facts(), **facts}})

    def close(self) -> None:
        """Give the file back."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open(self, path: Path) -> int | None:
        try:
            return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            self._lose(error.strerror)
            return None

    def _write(self, record: dict[str, object]) -> None:
        self._seq += 1
        head = {"seq": self._seq, "t": time.monotonic(), "rank": self.rank, "pid": os.getpid()}
        line = json.dumps({**head, **record}).encode() + b"\n"
        if self._fd is None:
            self.lost += 1
            return
        if self._torn:
            line = b"\n" + line
        try:
            written = os.write(self._fd, line)
        except OSError as error:
            self._lose(error.strerror)
            return
        # A nearly full disk takes part of a line; the next one starts afresh.
        self._torn = written < len(line)
        if self._torn:
            self._lose("only part of a line was written")

    def _lose(self, why: str | None) -> None:
        self.lost += 1
        if self.lost_why is None:
            self.lost_why = why or "unknown error"
            sys.stderr.write(f"nsa-harness: heartbeats cannot be written: {self.lost_why}; training goes on unseen\n")
            sys.stderr.flush()


def autograd_nodes() -> int | None:
    """The number of nodes so far, None without torch or with gradients off. Costs 5 us, whatever the graph's size.

    Every node is numbered in the order in which its thread makes them, so a new one tells how many came before.
    """
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "is_grad_enabled") or not torch.is_grad_enabled():
        return None
    node = torch.zeros((), requires_grad=True).view(()).grad_fn
    return None if node is None else node._sequence_nr()


def memory_facts() -> dict[str, float]:
    """Resident memory; with CUDA in use also what torch's allocator holds, and how often it had to start over.

    Costs 10 us, with CUDA 0.1 ms. The allocator's counters are the host's own: the GPU is not waited for.
    """
    facts = {"rss_bytes": float(int(_STATM.read_text().split()[1]) * _PAGE_BYTES)}
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return facts
    stats = torch.cuda.memory_stats()
    return facts | {
        "gpu_allocated_bytes": float(stats.get("allocated_bytes.all.current", 0)),
        "gpu_reserved_bytes": float(stats.get("reserved_bytes.all.current", 0)),
        "gpu_alloc_retries": float(stats.get("num_alloc_retries", 0)),
    }
