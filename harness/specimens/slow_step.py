"""slow-step: one step does real work for longer than the stall limit, and then training goes on."""

from __future__ import annotations

import time

from harness.core.verdict import Kind
from harness.specimens.catalog import Scene, Specimen

STALL_S = 3.0
WORK_S = 6.0
"""Twice the stall limit, half of what a busy silence is watched for."""


def work_for_long(scene: Scene) -> None:
    """Compute different things with torch for ``WORK_S`` seconds, without a word."""
    import torch

    end_s = time.monotonic() + WORK_S
    size = 64
    while time.monotonic() < end_s:
        square = torch.randn(size, size)
        torch.linalg.svdvals(square)
        torch.sort(square.flatten())
        (square @ square).softmax(dim=-1)
        size = size + 16 if size < 384 else 64


SPECIMEN = Specimen(
    name="slow-step",
    strike=work_for_long,
    expect=Kind.PASS,
    look_alike=True,
    stall_s=STALL_S,
    imitates="a compilation, an evaluation or a checkpoint in the middle of training",
)
