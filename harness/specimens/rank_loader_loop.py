"""rank-loader-loop: one rank never gets its next batch, because it looks for data that is not there."""

from __future__ import annotations

from harness.core.verdict import Kind
from harness.specimens.catalog import LATER, Needs, Scene, Specimen


def look_for_long_documents(scene: Scene) -> None:
    """Skip documents until one is long enough, in a shard where none is."""
    shard = [b"short"] * 1000
    position = 0
    while len(shard[position % len(shard)]) < 64:
        position += 1


SPECIMEN = Specimen(
    name="rank-loader-loop",
    strike=look_for_long_documents,
    expect=Kind.HANG,
    cause="infinite-loop",
    phase="data",
    needs=Needs.GLOO,
    world=2,
    at_rank=1,
    step=LATER,
    expect_frame="look_for_long_documents",
    imitates="a filter that rejects every document of one rank's shard",
)
