"""exit-abort: a thread of gloo wants the interpreter when there is none any more, and C++ ends the process."""

from __future__ import annotations

import atexit
import ctypes
import sys
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from harness.specimens.catalog import Scene, crash

if TYPE_CHECKING:
    import torch

PATIENCE = timedelta(seconds=60)
TAKEN_APART_S = 5.0
"""How long taking the interpreter apart lasts, at most: the thread needs a few milliseconds of it."""


class _Keepsake:
    """What the interpreter lets go of first when it takes modules apart; then the last peer of the collective comes."""

    def __init__(self, group: Any, tensor: torch.Tensor) -> None:
        self.group, self.tensor, self.sleep = group, tensor, time.sleep

    def __del__(self) -> None:
        self.work = self.group.allreduce([self.tensor])
        self.sleep(TAKEN_APART_S)


_kept: list[object] = []


@crash(
    cause="exit-abort",
    phase="optim",
    step=3,
    expect_phase="exit",
    imitates="a process group that outlives destroy_process_group, and whose thread wants the GIL at the very end",
)
def leave_a_collective_open(scene: Scene) -> None:
    """Hand over an all_reduce with a Python callback, let the interpreter end, and only then have the peer come."""
    import torch
    from torch.distributed import HashStore, ProcessGroupGloo

    store, groups = HashStore(), dict[int, Any]()

    def join(rank: int) -> None:
        groups[rank] = ProcessGroupGloo(store, rank, 2, PATIENCE)

    both = [threading.Thread(target=join, args=(rank,)) for rank in (0, 1)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    work = groups[1].allreduce([torch.ones(4)])
    _kept.extend((work, work.get_future().then(id), groups[1]))
    sys.last_value = _Keepsake(groups[0], torch.ones(4))  # pyrefly: ignore[bad-assignment]
    atexit.register(_end_the_interpreter)


def _end_the_interpreter() -> None:
    """What a fresh interpreter does at its end, and one that was forked to save time leaves out."""
    atexit.unregister(_end_the_interpreter)
    ctypes.pythonapi.Py_FinalizeEx()
