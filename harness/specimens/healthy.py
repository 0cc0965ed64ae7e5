"""Programs that pass: one that nothing is planted in, one with a long step, a flood of output, a child left behind."""

from __future__ import annotations

import sys
import time

from harness.core.verdict import Kind
from harness.specimens.catalog import Scene, specimen
from harness.specimens.family import detach_grandchild


@specimen(expect=Kind.PASS, imitates="a healthy training run")
def do_nothing(scene: Scene) -> None:
    """Leave the trainer alone."""


WORK_S = 6.0
"""Twice the stall limit, half of what a busy silence is watched for."""


@specimen(
    expect=Kind.PASS,
    look_alike=True,
    stall_s=3.0,
    imitates="a compilation, an evaluation or a checkpoint in the middle of training",
)
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


FLOOD_BYTES = 24_000_000


@specimen(
    expect=Kind.PASS,
    imitates="a debug print inside the innermost loop",
)
def print_without_end(scene: Scene) -> None:
    """Write ``FLOOD_BYTES`` to stdout, line by line in larger pieces."""
    line = "step 1 loss 5.5452 " + "." * 80 + "\n"
    piece = line * 1000
    for _ in range(FLOOD_BYTES // len(piece) + 1):
        sys.stdout.write(piece)
    sys.stdout.flush()


@specimen(
    expect=Kind.PASS,
    leaves_processes=True,
    imitates="a helper process that is never shut down and keeps the output pipe open",
)
def leave_a_grandchild(scene: Scene) -> None:
    """Start something that outlives the training."""
    detach_grandchild(scene.trial_dir)
