"""reentrant-unused: reentrant recomputation, and DDP told to look for unused parameters; nothing else is wrong."""

from __future__ import annotations

from harness.core.verdict import Kind
from harness.specimens.catalog import Needs, Specimen
from harness.specimens.clean import do_nothing

SPECIMEN = Specimen(
    name="reentrant-unused",
    strike=do_nothing,
    expect=Kind.CRASH,
    cause="ready-twice",
    step=0,
    needs=Needs.GLOO,
    world=2,
    settings=(
        ("train.checkpointing", "reentrant"),
        ("parallel.find_unused_parameters", True),
        ("parallel.allow_known_bad", True),
    ),
    expect_phase="backward",
    expect_frame="has been marked as ready twice",
    imitates="the combination that torch itself does not support, with every block bound as it should be",
)
