"""Locks that are taken twice: always, deaf to SIGTERM, or in three runs of ten."""

from __future__ import annotations

import signal
import threading

from harness.core.verdict import Kind
from harness.specimens.catalog import Scene, hang
from harness.specimens.family import detach_grandchild


@hang(
    cause="deadlock",
    expect_frame="acquire_twice",
    imitates="a callback that takes the lock its caller already holds",
)
def acquire_twice(scene: Scene) -> None:
    """Take a plain lock, then take it again."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


@hang(
    cause="deadlock",
    leaves_processes=True,
    expect_frame="acquire_twice_deaf_to_sigterm",
    imitates="a trainer whose SIGTERM handler only prints stacks, with data-loader workers in another session",
)
def acquire_twice_deaf_to_sigterm(scene: Scene) -> None:
    """Block in a way that only SIGKILL ends, with company that only SIGKILL ends."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    detach_grandchild(scene.trial_dir)
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


RATE = 0.3


@hang(
    cause="deadlock",
    flaky=True,
    or_else=(Kind.PASS,),
    expect_frame="acquire_twice_sometimes",
    imitates="a race",
)
def acquire_twice_sometimes(scene: Scene) -> None:
    """With probability ``RATE``, take a lock twice."""
    lock = threading.Lock()
    lock.acquire()
    if scene.random() < RATE:
        lock.acquire()
