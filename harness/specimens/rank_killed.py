"""rank-killed: one rank is ended by SIGKILL in the middle of training."""

from __future__ import annotations

import os
import signal

from harness.core.verdict import Kind
from harness.specimens.catalog import Needs, Scene, Specimen


def kill_myself(scene: Scene) -> None:
    """Send SIGKILL to this rank."""
    os.kill(os.getpid(), signal.SIGKILL)


SPECIMEN = Specimen(
    name="rank-killed",
    strike=kill_myself,
    expect=Kind.CRASH,
    cause="SIGKILL",
    needs=Needs.GLOO,
    world=2,
    at_rank=1,
    imitates="a rank that the kernel, a scheduler or a colleague ended",
)
