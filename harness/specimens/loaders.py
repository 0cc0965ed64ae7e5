"""Data loaders: a worker that dies, one that nobody notices to be dead, one that starves, and one that is only slow."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from typing import TYPE_CHECKING, cast

from harness.core.verdict import Kind
from harness.specimens.catalog import LATER, Scene, crash, hang, specimen

if TYPE_CHECKING:
    from multiprocessing.queues import Queue
    from pathlib import Path

SLOW_S = 5.0
"""Longer than the least limit that is learned."""


class Samples:
    """A dataset of one sample, read in a worker."""

    def __init__(self, folder: Path) -> None:
        self.pipe = folder / "samples.fifo"

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> int:
        return index


class Killed(Samples):
    """Reading it gets the worker killed, as the kernel does when memory runs out."""

    def __getitem__(self, index: int) -> int:
        """Not return."""
        os.kill(os.getpid(), signal.SIGKILL)
        return index


class Unreachable(Samples):
    """Four samples, of which the first is on a file system that does not answer: a FIFO that nobody writes to."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        """Not return, for the first one."""
        if index == 0:
            os.mkfifo(self.pipe)
            return len(self.pipe.read_bytes())
        return index


class Remote(Samples):
    """Reading it takes long."""

    def __getitem__(self, index: int) -> int:
        """The sample, after a while."""
        time.sleep(SLOW_S)
        return index


def read_one(samples: Samples, *, workers: int = 1) -> None:
    """The first sample, through torch's DataLoader and without a time limit."""
    from torch.utils.data import DataLoader, Dataset

    dataset = cast("Dataset[int]", samples)  # a DataLoader asks no more of one than they have
    next(iter(DataLoader(dataset, num_workers=workers, multiprocessing_context="fork")))


@crash(
    cause="loader-worker-dead",
    phase="data",
    expect_frame="lose_a_worker",
    imitates="a DataLoader worker that the kernel kills for its memory",
)
def lose_a_worker(scene: Scene) -> None:
    """Read from a worker that is killed while it reads."""
    read_one(Killed(scene.trial_dir))


@hang(
    cause="data-starvation",
    phase="data",
    step=LATER,
    imitates="DataLoader workers on a file system that no longer answers",
)
def read_the_unreachable(scene: Scene) -> None:
    """Read from two workers, of which one waits for ever and the other has done its part."""
    read_one(Unreachable(scene.trial_dir), workers=2)


@specimen(
    expect=Kind.PASS,
    look_alike=True,
    phase="data",
    step=LATER,
    imitates="samples that come from far away",
)
def read_from_afar(scene: Scene) -> None:
    """Read from a worker that takes its time."""
    read_one(Remote(scene.trial_dir))


def die_before_putting(queue: Queue[int]) -> None:
    """A worker that is killed before it hands over its sample."""
    os.kill(os.getpid(), signal.SIGKILL)
    queue.put(0)


@hang(
    cause="loader-worker-dead",
    phase="data",
    step=LATER,
    expect_frame="get_from_the_dead",
    imitates="a hand-written loader that waits for a worker without asking whether it lives",
)
def get_from_the_dead(scene: Scene) -> None:
    """Wait for what a killed worker was to put into a queue, as hand-written loaders do."""
    context = multiprocessing.get_context("fork")
    queue: Queue[int] = context.Queue()
    context.Process(target=die_before_putting, args=(queue,), daemon=True).start()
    queue.get()
