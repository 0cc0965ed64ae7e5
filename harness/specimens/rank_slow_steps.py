"""rank-slow-steps: one rank is slower than the others in every step, and all get there. It is no hang."""

from __future__ import annotations

import time

from harness.core.verdict import Kind
from harness.specimens.catalog import Needs, Scene, Specimen

WORK_S = 1.5


def compute_more(scene: Scene) -> None:
    """Compute for ``WORK_S`` seconds what the step does not need."""
    import torch

    end_s = time.monotonic() + WORK_S
    square = torch.randn(128, 128)
    while time.monotonic() < end_s:
        square = torch.linalg.qr(square @ square.T + torch.eye(128)).Q


SPECIMEN = Specimen(
    name="rank-slow-steps",
    strike=compute_more,
    expect=Kind.PASS,
    every_step=True,
    needs=Needs.GLOO,
    world=2,
    at_rank=1,
    look_alike=True,
    imitates="a rank on a throttled GPU or a busy host",
)
