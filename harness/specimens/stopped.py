"""stopped: the process is stopped by a signal and nobody continues it."""

from __future__ import annotations

import os
import signal

from harness.core.verdict import Kind
from harness.specimens.catalog import LATER, Scene, Specimen


def stop_myself(scene: Scene) -> None:
    """Send SIGSTOP to this process."""
    os.kill(os.getpid(), signal.SIGSTOP)


SPECIMEN = Specimen(
    name="stopped",
    strike=stop_myself,
    expect=Kind.HANG,
    cause="stopped",
    step=LATER,
    imitates="a scheduler that suspends a job, a debugger that was left attached, or Ctrl-Z",
)
