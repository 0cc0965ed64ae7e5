"""infinite-loop: Python code inside backward runs and never gets anywhere."""

from __future__ import annotations

from harness.core.verdict import Kind
from harness.specimens.catalog import LATER, Scene, Specimen

TOTAL_S = 120.0
"""A busy machine may take long over its stacks, and without them a loop is not told from work."""


def spin_forever(scene: Scene) -> None:
    """Wait in a loop for a number that does not come."""
    turn = 0
    while turn >= 0:
        turn = (turn + 1) % 1000


SPECIMEN = Specimen(
    name="infinite-loop",
    strike=spin_forever,
    expect=Kind.HANG,
    cause="infinite-loop",
    phase="backward",
    inside_backward=True,
    step=LATER,
    total_s=TOTAL_S,
    expect_frame="spin_forever",
    imitates="a search for something that is not there, without a bound",
)
