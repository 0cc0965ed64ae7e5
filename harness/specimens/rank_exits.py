"""rank-exits: one of four ranks leaves with exit status 0, as if it were done."""

from __future__ import annotations

import os

from harness.core.verdict import Kind
from harness.specimens.catalog import Needs, Scene, Specimen


def leave_the_others(scene: Scene) -> None:
    """Exit 0 at once, without a result."""
    os._exit(0)


SPECIMEN = Specimen(
    name="rank-exits",
    strike=leave_the_others,
    expect=Kind.CRASH,
    cause="exit-early",
    needs=Needs.GLOO,
    world=4,
    at_rank=2,
    imitates="one rank's shard of the data is shorter, and its loop simply ends",
)
