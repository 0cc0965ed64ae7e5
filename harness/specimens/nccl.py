"""Two GPUs, NCCL: ranks that do not call the same operations, or one that is locked, stopped, killed or late.

The first are right on gloo, too, where every wait is the host's.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any

from harness.core.verdict import Kind
from harness.specimens.backward_deadlock import acquire_forever
from harness.specimens.catalog import Needs, Scene, specimen
from harness.specimens.endings import be_killed
from harness.specimens.gpu import launch_endless
from harness.specimens.waits import stop_myself

STRIKES_AT = 2
"""The step at which the odd rank does otherwise; until then all ranks do the same, which becomes their habit."""

HOST: tuple[tuple[str, bool | int | str], ...] = (
    ("model.attention", "dense"),
    ("model.n_layers", 12),
    ("train.batch_size", 2),
    ("train.steps", 40),
    ("train.trace_grads", True),
)
"""The trainer that all specimens on two GPUs are planted in: the same, so that its healthy runs are run once."""

SMALL: tuple[tuple[str, bool | int], ...] = (("train.batch_size", 2), ("train.trace_grads", True))
"""The same on a CPU, in less than a second."""

ODD_RANK = 1
USUAL, OTHER = 1000, 1 << 21
"""Elements of the tensor that all ranks sum up in every step, and of the one that the odd rank brings."""

TWO_GPUS: dict[str, Any] = {"needs": Needs.NCCL, "world": 2, "stall_s": 3.0, "settings": HOST}
on_two_gpus = partial(specimen, **TWO_GPUS)


@on_two_gpus(
    expect=Kind.HANG,
    cause="collective-mismatch",
    every_step=True,
    step=0,
    expect_rank=ODD_RANK,
    imitates="an all_reduce inside an if that is false on one rank",
)
def sum_unless_odd(scene: Scene) -> None:
    """Sum a tensor over all ranks in every step; the odd rank leaves it out once."""
    if not _odd(scene):
        _sum(scene, USUAL)


@on_two_gpus(
    expect=Kind.HANG,
    cause="collective-mismatch",
    every_step=True,
    step=0,
    expect_rank=ODD_RANK,
    imitates="an all_reduce of a tensor whose size depends on the rank's own data",
)
def sum_another_shape(scene: Scene) -> None:
    """Sum a tensor over all ranks in every step; the odd rank once brings a larger one."""
    _sum(scene, OTHER if _odd(scene) else USUAL)


@on_two_gpus(
    expect=Kind.HANG,
    cause="unused-parameter",
    at_rank=ODD_RANK,
    expect_phase="backward",
    imitates="a branch of the model that one rank does not take: DDP on the others waits for its gradients",
)
def leave_out_parameters(scene: Scene) -> None:
    """Let the loss depend on one parameter only, so that the others get no gradient on this rank."""
    state = scene.state

    def of_one_parameter(loss: Any) -> Any:
        first = next(iter(state.model.parameters()))
        return loss.detach() + 0.0 * first.sum()

    state.set_loss(of_one_parameter)


def _odd(scene: Scene) -> bool:
    return scene.rank == ODD_RANK and scene.step == STRIKES_AT


def _sum(scene: Scene, size: int) -> None:
    import torch
    import torch.distributed as dist

    dist.all_reduce(torch.ones(size, device=scene.device))


SKIP_ON_CPU = replace(sum_unless_odd, needs=Needs.GLOO, settings=SMALL)


SPIN = replace(
    launch_endless,
    phase="backward",
    at_rank=ODD_RANK,
    expect_phase="optim",
    **TWO_GPUS,
    imitates="a kernel that never ends on one rank: the other waits inside NCCL, and both GPUs read 100 %",
)


UNUSED_ON_CPU = replace(leave_out_parameters, needs=Needs.GLOO, settings=SMALL)


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
