"""Loops: one that never gets anywhere, and one that would, only not in time."""

from __future__ import annotations

import time

from harness.core.verdict import Kind
from harness.specimens.catalog import LATER, Scene, hang, specimen
from harness.specimens.family import compute_until

TOTAL_S = 120.0
"""A busy machine may take long over its stacks, and without them a loop is not told from work."""


@hang(
    cause="infinite-loop",
    phase="backward",
    inside_backward=True,
    step=LATER,
    total_s=TOTAL_S,
    expect_frame="spin_forever",
    imitates="a search for something that is not there, without a bound",
)
def spin_forever(scene: Scene) -> None:
    """Wait in a loop for a number that does not come."""
    turn = 0
    while turn >= 0:
        turn = (turn + 1) % 1000


STEP_S = 6.0
ENDED_S = 7.0
"""Enough for start-up and one slow step of many: a busy machine needs seconds to look at it before it is ended."""


@specimen(
    expect=Kind.SLOW,
    look_alike=True,
    every_step=True,
    settings=(("train.steps", 20),),
    stall_s=20.0,
    total_s=ENDED_S,
    imitates="a Python loop over tokens where one tensor operation would do",
)
def crawl(scene: Scene) -> None:
    """Compute for ``STEP_S`` seconds what the step does not need."""
    compute_until(time.monotonic() + STEP_S)
