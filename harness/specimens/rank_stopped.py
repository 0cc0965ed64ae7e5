"""rank-stopped: one rank is stopped by a signal, and the others wait for it."""

from __future__ import annotations

import os
import signal

from harness.core.verdict import Kind
from harness.specimens.catalog import LATER, Needs, Scene, Specimen


def stop_this_rank(scene: Scene) -> None:
    """Send SIGSTOP to this rank."""
    os.kill(os.getpid(), signal.SIGSTOP)


SPECIMEN = Specimen(
    name="rank-stopped",
    strike=stop_this_rank,
    expect=Kind.HANG,
    cause="stopped",
    step=LATER,
    needs=Needs.GLOO,
    world=2,
    at_rank=1,
    imitates="a node whose job was suspended",
)
