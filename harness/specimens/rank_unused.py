"""rank-unused: one rank's forward leaves out a block, so its parameters get no gradient there."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from harness.core.verdict import Kind
from harness.specimens.catalog import Needs, Scene, Specimen

if TYPE_CHECKING:
    from torch import Tensor

    from nsa.train.probe import TrainingState


def leave_out_last_block(scene: Scene) -> None:
    """Let the last block return its input in this rank, from now on."""
    block = cast("TrainingState", scene.state).blocks[-1]
    setattr(block, "forward", pass_on)  # noqa: B010 - a module's method, replaced on this one instance


def pass_on(x_BTX: Tensor, **_options: object) -> Tensor:
    """The input as it is, with its gradient."""
    return x_BTX * 1.0


SPECIMEN = Specimen(
    name="rank-unused",
    strike=leave_out_last_block,
    expect=Kind.HANG,
    cause="unused-parameter",
    needs=Needs.GLOO,
    world=2,
    at_rank=1,
    expect_phase="backward",
    imitates="a layer that is skipped at random, with a seed of its own on every rank",
)
