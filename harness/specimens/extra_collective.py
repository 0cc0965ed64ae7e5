"""extra-collective: one rank of four makes a call that the others do not."""

from __future__ import annotations

from harness.core.verdict import Kind
from harness.specimens.catalog import Needs, Scene, Specimen


def reduce_on_rank_2(scene: Scene) -> None:
    """All-reduce in one rank only."""
    import torch
    import torch.distributed as dist

    if scene.rank == 2:
        dist.all_reduce(torch.ones(10))


SPECIMEN = Specimen(
    name="extra-collective",
    strike=reduce_on_rank_2,
    expect=Kind.HANG,
    cause="collective-mismatch",
    needs=Needs.GLOO,
    world=4,
    expect_rank=2,
    imitates="a debugging line that synchronises, on the rank that someone looked at",
)
