"""skipped-collective: of two ranks, one leaves out an all-reduce."""

from __future__ import annotations

from harness.core.verdict import Kind
from harness.specimens.catalog import Needs, Scene, Specimen


def average_unless_rank_1(scene: Scene) -> None:
    """Average a number over all ranks, except that rank 1 does not take part."""
    import torch
    import torch.distributed as dist

    if scene.rank != 1:
        dist.all_reduce(torch.ones(1000))


SPECIMEN = Specimen(
    name="skipped-collective",
    strike=average_unless_rank_1,
    expect=Kind.HANG,
    cause="collective-mismatch",
    needs=Needs.GLOO,
    world=2,
    phase="data",
    expect_rank=1,
    imitates="a metric that is averaged inside a condition which is not the same on all ranks",
)
