"""rank-never-joins: one rank does not come to the rendezvous."""

from __future__ import annotations

import threading

from harness.core.verdict import Kind
from harness.specimens.catalog import Needs, Scene, Specimen

STARTUP_S = 5.0


def wait_before_joining(scene: Scene) -> None:
    """Wait for an event that nobody sets, before the process group exists."""
    threading.Event().wait()


SPECIMEN = Specimen(
    name="rank-never-joins",
    strike=wait_before_joining,
    expect=Kind.HANG,
    cause="deadlock",
    phase="start",
    needs=Needs.GLOO,
    world=2,
    at_rank=1,
    startup_s=STARTUP_S,
    expect_frame="wait_before_joining",
    imitates="a node that waits for a file system or a licence before it starts",
)
