"""slow-loop: every step takes far longer than it should; it would get there, only not in time."""

from __future__ import annotations

import time

from harness.core.verdict import Kind
from harness.specimens.catalog import Scene, Specimen

STEP_S = 6.0
STALL_S = 20.0
TOTAL_S = 7.0
"""Enough for start-up and one slow step of many: a busy machine needs seconds to look at it before it is ended."""


def crawl(scene: Scene) -> None:
    """Compute for ``STEP_S`` seconds what the step does not need."""
    import torch

    end_s = time.monotonic() + STEP_S
    square = torch.randn(192, 192)
    while time.monotonic() < end_s:
        square = torch.linalg.qr(square @ square.T + torch.eye(192)).Q


SPECIMEN = Specimen(
    name="slow-loop",
    strike=crawl,
    expect=Kind.SLOW,
    look_alike=True,
    every_step=True,
    settings=(("train.steps", 20),),
    stall_s=STALL_S,
    total_s=TOTAL_S,
    imitates="a Python loop over tokens where one tensor operation would do",
)
