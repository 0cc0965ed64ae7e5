"""Several ranks on gloo that do not make the same calls."""

from __future__ import annotations

from functools import partial

from harness.core.verdict import Kind
from harness.specimens.catalog import Needs, Scene, specimen

on_gloo = partial(specimen, needs=Needs.GLOO, world=2)


@on_gloo(
    expect=Kind.HANG,
    cause="collective-mismatch",
    phase="data",
    expect_rank=1,
    imitates="a metric that is averaged inside a condition which is not the same on all ranks",
)
def average_unless_rank_1(scene: Scene) -> None:
    """Average a number over all ranks, except that rank 1 does not take part."""
    import torch
    import torch.distributed as dist

    if scene.rank != 1:
        dist.all_reduce(torch.ones(1000))


@on_gloo(
    expect=Kind.HANG,
    cause="collective-mismatch",
    world=4,
    expect_rank=2,
    imitates="a debugging line that synchronises, on the rank that someone looked at",
)
def reduce_on_rank_2(scene: Scene) -> None:
    """All-reduce in one rank only."""
    import torch
    import torch.distributed as dist

    if scene.rank == 2:
        dist.all_reduce(torch.ones(10))


@on_gloo(
    expect=Kind.HANG,
    cause="collective-mismatch",
    imitates="branches of one condition that ranks decide differently",
)
def reduce_or_broadcast(scene: Scene) -> None:
    """All-reduce on even ranks, broadcast from a later one on odd ranks."""
    import torch
    import torch.distributed as dist

    numbers = torch.ones(100)
    if scene.rank % 2 == 0:
        dist.all_reduce(numbers)
    else:
        dist.broadcast(numbers, src=0)


@on_gloo(
    expect=Kind.CRASH,
    cause="collective-mismatch",
    imitates="averaging per-sample values where the last batch is shorter on one rank",
)
def reduce_ragged(scene: Scene) -> None:
    """All-reduce as many numbers as this rank happens to have."""
    import torch
    import torch.distributed as dist

    dist.all_reduce(torch.ones(8 * (scene.rank + 1)))
