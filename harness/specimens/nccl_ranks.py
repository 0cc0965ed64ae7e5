"""Two GPUs, NCCL: one rank is locked, stopped, killed or late; and a job that is only slow."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from harness.core.verdict import Kind
from harness.specimens.backward_deadlock import acquire_forever
from harness.specimens.endings import be_killed
from harness.specimens.nccl_collectives import HOST, ODD_RANK, TWO_GPUS, on_two_gpus
from harness.specimens.waits import stop_myself

if TYPE_CHECKING:
    from harness.specimens.catalog import Scene

LATE_S = 2.5
WORK_S = 1.5

slow_on_two_gpus = partial(
    on_two_gpus, expect=Kind.SLOW, every_step=True, step=0, stall_s=None, total_s=36.0, look_alike=True
)


LOCK = replace(
    acquire_forever,
    at_rank=ODD_RANK,
    **TWO_GPUS,
    imitates="a gradient hook on one rank that waits for a lock which never comes back",
)

STOPPED = replace(
    stop_myself,
    at_rank=ODD_RANK,
    **TWO_GPUS,
    imitates="one rank stopped by a signal: a debugger, a scheduler, a suspended container",
)

KILLED = replace(
    be_killed,
    phase="backward",
    at_rank=ODD_RANK,
    **TWO_GPUS,
    imitates="one rank killed from outside while the others go on to wait for it",
)


@slow_on_two_gpus(
    cause="straggler",
    at_rank=ODD_RANK,
    imitates="one rank whose own work takes many times longer than the others': all wait for it in every step",
)
def compute_for_long(scene: Scene) -> None:
    """Compute on the CPU for ``LATE_S`` seconds while the others have long arrived."""
    import torch

    end_s = time.monotonic() + LATE_S
    while time.monotonic() < end_s:
        torch.randn(200, 200).matmul(torch.randn(200, 200)).softmax(dim=-1)


@slow_on_two_gpus(
    settings=(*HOST, ("model.n_layers", 12)),
    imitates="twelve layers on two GPUs, healthy, with a limit too short for them",
)
def work_in_every_step(scene: Scene) -> None:
    """Do ``WORK_S`` seconds of real work on host and device."""
    import torch

    end_s = time.monotonic() + WORK_S
    square = torch.randn(512, 512, device=scene.device)
    while time.monotonic() < end_s:
        square = torch.nn.functional.normalize(square @ square.T)
    _ = float(square.sum())
