"""other-collective: two ranks make different calls at the same place."""

from __future__ import annotations

from harness.core.verdict import Kind
from harness.specimens.catalog import Needs, Scene, Specimen


def reduce_or_broadcast(scene: Scene) -> None:
    """All-reduce on even ranks, broadcast from a later one on odd ranks."""
    import torch
    import torch.distributed as dist

    numbers = torch.ones(100)
    if scene.rank % 2 == 0:
        dist.all_reduce(numbers)
    else:
        dist.broadcast(numbers, src=0)


SPECIMEN = Specimen(
    name="other-collective",
    strike=reduce_or_broadcast,
    expect=Kind.HANG,
    cause="collective-mismatch",
    needs=Needs.GLOO,
    world=2,
    imitates="branches of one condition that ranks decide differently",
)
