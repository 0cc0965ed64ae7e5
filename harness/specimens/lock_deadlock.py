"""lock-deadlock: a thread takes a lock that it holds already."""

from __future__ import annotations

import threading

from harness.core.verdict import Kind
from harness.specimens.catalog import Scene, Specimen


def acquire_twice(scene: Scene) -> None:
    """Take a plain lock, then take it again."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


SPECIMEN = Specimen(
    name="lock-deadlock",
    strike=acquire_twice,
    expect=Kind.HANG,
    cause="deadlock",
    expect_frame="acquire_twice",
    imitates="a callback that takes the lock its caller already holds",
)
