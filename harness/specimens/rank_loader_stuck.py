"""rank-loader-stuck: in one rank a DataLoader worker reads a file that does not answer; the others wait."""

from __future__ import annotations

from harness.core.verdict import Kind
from harness.specimens.catalog import LATER, Needs, Specimen
from harness.specimens.loaders import read_the_unreachable

SPECIMEN = Specimen(
    name="rank-loader-stuck",
    strike=read_the_unreachable,
    expect=Kind.HANG,
    cause="data-starvation",
    phase="data",
    needs=Needs.GLOO,
    world=2,
    at_rank=1,
    step=LATER,
    expect_frame="read_one",
    imitates="one rank's shard lies on a file system that does not answer",
)
