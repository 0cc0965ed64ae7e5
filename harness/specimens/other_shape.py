"""other-shape: the ranks make the same call with tensors of different sizes."""

from __future__ import annotations

from harness.core.verdict import Kind
from harness.specimens.catalog import Needs, Scene, Specimen


def reduce_ragged(scene: Scene) -> None:
    """All-reduce as many numbers as this rank happens to have."""
    import torch
    import torch.distributed as dist

    dist.all_reduce(torch.ones(8 * (scene.rank + 1)))


SPECIMEN = Specimen(
    name="other-shape",
    strike=reduce_ragged,
    expect=Kind.CRASH,
    cause="collective-mismatch",
    needs=Needs.GLOO,
    world=2,
    imitates="averaging per-sample values where the last batch is shorter on one rank",
)
