"""straggler: one rank is so much slower than the others that the time runs out."""

from __future__ import annotations

from harness.core.verdict import Kind
from harness.specimens.catalog import Needs, Specimen
from harness.specimens.rank_slow_steps import compute_more

TOTAL_S = 9.0
"""Enough for three steps after the two in which DDP arranges itself; with few more a busy machine lets it end."""

STALL_S = 20.0

SPECIMEN = Specimen(
    name="straggler",
    strike=compute_more,
    expect=Kind.SLOW,
    cause="straggler",
    every_step=True,
    needs=Needs.GLOO,
    world=2,
    at_rank=1,
    settings=(("train.steps", 60),),
    stall_s=STALL_S,
    total_s=TOTAL_S,
    look_alike=True,
    imitates="a rank on a throttled GPU or a busy host, with a job limit that was set for the others",
)
