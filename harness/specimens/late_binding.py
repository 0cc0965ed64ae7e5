"""late-binding: activation checkpointing over a loop variable, so that every recomputation runs the last block."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

from harness.core.verdict import Kind
from harness.specimens.catalog import Needs, Scene, Specimen

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

    from nsa.train.probe import TrainingState


class LoopVariable:
    """What ``for block in blocks: x = checkpoint(lambda x: block(x), x)`` shares between its passes: the variable."""

    def __init__(self, forwards: list[Callable[..., Tensor]]) -> None:
        self.forwards, self.block = forwards, 0

    def run_what_the_variable_names(self, x_BTX: Tensor, **options: Any) -> Tensor:
        """The lambda: it looks the block up when it is called, and recomputation calls it after the loop."""
        return self.forwards[self.block](x_BTX, **options)


def bind_late(scene: Scene) -> None:
    """Put a late-binding lambda in the place of every block that the trainer has recomputed in backward."""
    blocks = [cast("nn.Module", block) for block in cast("TrainingState", scene.state).blocks]
    installed = [vars(block).get("forward") for block in blocks]
    if not all(isinstance(forward, partial) for forward in installed):
        return  # nothing is recomputed, so nothing is looked up late
    recomputed = [cast("partial[Tensor]", forward) for forward in installed]
    loop = LoopVariable([forward.args[0] for forward in recomputed])
    for i, (block, forward) in enumerate(zip(blocks, recomputed, strict=True)):
        checkpointed = partial(forward.func, loop.run_what_the_variable_names, *forward.args[1:])
        vars(block)["forward"] = partial(_in_turn, loop, i, checkpointed)


def _in_turn(loop: LoopVariable, i: int, checkpointed: Callable[..., Tensor], x_BTX: Tensor, **options: Any) -> Tensor:
    """One pass of the loop."""
    loop.block = i
    return checkpointed(x_BTX, **options)


SPECIMEN = Specimen(
    name="late-binding",
    strike=bind_late,
    expect=Kind.CRASH,
    cause="ready-twice",
    phase="forward",
    step=0,
    needs=Needs.GLOO,
    world=2,
    settings=(("train.checkpointing", "reentrant"),),
    expect_phase="backward",
    expect_frame="blocks.1.mlp.fc2.weight",
    imitates="checkpoint(lambda x: block(x), x) in a for loop, as the origin had it",
)
