"""nan-loss: the loss becomes NaN."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from harness.core.verdict import Kind
from harness.specimens.catalog import Scene, Specimen

if TYPE_CHECKING:
    import torch

    from nsa.train.probe import TrainingState


def multiply_by_nan(loss: object) -> object:
    """The loss as a NaN that still has its graph."""
    return cast("torch.Tensor", loss) * float("nan")


def spoil_loss(scene: Scene) -> None:
    """Have the next loss spoilt before backward."""
    cast("TrainingState", scene.state).set_loss(multiply_by_nan)


SPECIMEN = Specimen(
    name="nan-loss",
    strike=spoil_loss,
    expect=Kind.NONFINITE,
    imitates="an overflow in attention scores, or a learning rate that is too high",
)
