"""rank-backward-lock: one rank's backward waits for a lock; the others wait for its gradients."""

from __future__ import annotations

import threading

from harness.core.verdict import Kind
from harness.specimens.catalog import Needs, Scene, Specimen


def acquire_in_one_rank(scene: Scene) -> None:
    """Take a lock twice inside the autograd engine."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


SPECIMEN = Specimen(
    name="rank-backward-lock",
    strike=acquire_in_one_rank,
    expect=Kind.HANG,
    cause="deadlock",
    phase="backward",
    inside_backward=True,
    needs=Needs.GLOO,
    world=2,
    at_rank=1,
    expect_frame="acquire_in_one_rank",
    imitates="a gradient hook that shares a lock with a logging thread, on one rank",
)
