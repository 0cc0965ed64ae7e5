"""rank-nan: the loss becomes NaN in one rank only."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from harness.core.verdict import Kind
from harness.specimens.catalog import Needs, Scene, Specimen
from harness.specimens.nan_loss import multiply_by_nan

if TYPE_CHECKING:
    from nsa.train.probe import TrainingState


def spoil_one_loss(scene: Scene) -> None:
    """Have this rank's next loss spoilt before backward."""
    cast("TrainingState", scene.state).set_loss(multiply_by_nan)


SPECIMEN = Specimen(
    name="rank-nan",
    strike=spoil_one_loss,
    expect=Kind.NONFINITE,
    needs=Needs.GLOO,
    world=2,
    at_rank=1,
    expect_phase="reduce",
    imitates="a corrupt document in one rank's shard",
)
