"""sigterm-immune: ignores SIGTERM, leaves a detached grandchild that does too, and then deadlocks."""

from __future__ import annotations

import signal
import threading

from harness.core.verdict import Kind
from harness.specimens.catalog import Scene, Specimen
from harness.specimens.family import detach_grandchild


def acquire_twice_deaf_to_sigterm(scene: Scene) -> None:
    """Block in a way that only SIGKILL ends, with company that only SIGKILL ends."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    detach_grandchild(scene.trial_dir)
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


SPECIMEN = Specimen(
    name="sigterm-immune",
    strike=acquire_twice_deaf_to_sigterm,
    expect=Kind.HANG,
    cause="deadlock",
    leaves_processes=True,
    expect_frame="acquire_twice_deaf_to_sigterm",
    imitates="a trainer whose SIGTERM handler only prints stacks, with data-loader workers in another session",
)
