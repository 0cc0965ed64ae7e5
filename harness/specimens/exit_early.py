"""exit-early: the process says that all went well, before it is done."""

from __future__ import annotations

import os

from harness.core.verdict import Kind
from harness.specimens.catalog import Scene, Specimen


def leave_with_status_zero(scene: Scene) -> None:
    """Exit 0 at once, without a result."""
    os._exit(0)


SPECIMEN = Specimen(
    name="exit-early",
    strike=leave_with_status_zero,
    expect=Kind.CRASH,
    cause="exit-early",
    imitates="a script that swallows its error and returns",
)
