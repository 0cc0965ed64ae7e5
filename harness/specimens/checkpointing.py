"""Reentrant activation checkpointing under DDP: what it does to a loop variable, and what torch does not support."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from harness.specimens.catalog import Needs, Scene, crash
from harness.specimens.healthy import do_nothing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import Tensor, nn


class LoopVariable:
    """What ``for block in blocks: x = checkpoint(lambda x: block(x), x)`` shares between its passes: the variable."""

    def __init__(self, forwards: list[Callable[..., Tensor]]) -> None:
        self.forwards, self.block = forwards, 0

    def run_what_the_variable_names(self, x_BTX: Tensor, **options: Any) -> Tensor:
        """The lambda: it looks the block up when it is called, and recomputation calls it after the loop."""
        return self.forwards[self.block](x_BTX, **options)


@crash(
    cause="ready-twice",
    step=0,
    needs=Needs.GLOO,
    world=2,
    settings=(("train.checkpointing", "reentrant"),),
    expect_phase="backward",
    expect_frame="blocks.1.mlp.fc2.weight",
    imitates="checkpoint(lambda x: block(x), x) in a for loop, as the origin had it",
)
def bind_late(scene: Scene) -> None:
    """Put a late-binding lambda in the place of every block that the trainer has recomputed in backward."""
    loop = LoopVariable([])
    recomputed: list[tuple[nn.Module, partial[Tensor]]] = []
    for block in cast("Iterable[nn.Module]", scene.state.blocks):
        forward = vars(block).get("forward")
        if not isinstance(forward, partial):
            return  # nothing is recomputed, so nothing is looked up late
        loop.forwards.append(forward.args[0])
        recomputed.append((block, cast("partial[Tensor]", forward)))
    for i, (block, forward) in enumerate(recomputed):
        checkpointed = partial(forward.func, loop.run_what_the_variable_names, *forward.args[1:])
        vars(block)["forward"] = partial(_in_turn, loop, i, checkpointed)


def _in_turn(loop: LoopVariable, i: int, checkpointed: Callable[..., Tensor], x_BTX: Tensor, **options: Any) -> Tensor:
    """One pass of the loop."""
    loop.block = i
    return checkpointed(x_BTX, **options)


REENTRANT_UNUSED = replace(
    bind_late,
    strike=do_nothing.strike,
    settings=(
        ("train.checkpointing", "reentrant"),
        ("parallel.find_unused_parameters", True),
        ("parallel.allow_known_bad", True),
    ),
    expect_frame="has been marked as ready twice",
    imitates="the combination that torch itself does not support, with every block bound as it should be",
)
