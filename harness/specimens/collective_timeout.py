"""collective-timeout: the process group gives up before anybody looks; its message names the rank that waited."""

from __future__ import annotations

import threading

from harness.core.verdict import Kind
from harness.specimens.catalog import Needs, Scene, Specimen


def wait_for_nothing(scene: Scene) -> None:
    """Wait for an event that nobody sets."""
    threading.Event().wait()


SPECIMEN = Specimen(
    name="collective-timeout",
    strike=wait_for_nothing,
    expect=Kind.CRASH,
    cause="collective-timeout",
    phase="data",
    needs=Needs.GLOO,
    world=2,
    at_rank=1,
    settings=(("parallel.timeout_s", 2.0),),  # a busy machine takes more than one second for a healthy first step
    imitates="a short timeout of the process group, and one rank that waits for its data",
)
