"""flaky-hang: deadlocks in three runs of ten."""

from __future__ import annotations

import threading

from harness.core.verdict import Kind
from harness.specimens.catalog import Scene, Specimen

RATE = 0.3


def acquire_twice_sometimes(scene: Scene) -> None:
    """With probability ``RATE``, take a lock twice."""
    lock = threading.Lock()
    lock.acquire()
    if scene.random() < RATE:
        lock.acquire()


SPECIMEN = Specimen(
    name="flaky-hang",
    strike=acquire_twice_sometimes,
    expect=Kind.HANG,
    cause="deadlock",
    flaky=True,
    or_else=(Kind.PASS,),
    expect_frame="acquire_twice_sometimes",
    imitates="a race",
)
