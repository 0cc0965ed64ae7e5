"""late-binding: recomputation that looks its block up when it runs, and so recomputes the last block for every one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

from harness.core.verdict import Kind
from harness.specimens.catalog import Needs, Scene, Specimen

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from nsa.train.probe import TrainingState

    Forward = Callable[..., Tensor]


class LoopVariable:
    """The ``blk`` of ``for blk in blocks: x = checkpoint(lambda inp: blk(inp), x)``: after the loop, the last block."""

    def __init__(self) -> None:
        self.forward: Forward | None = None

    def call(self, x_BTX: Tensor, **options: Any) -> Tensor:
        """Whichever block the variable stands for now: in forward the one it was given, in backward the last."""
        return cast("Forward", self.forward)(x_BTX, **options)


def bind_late(scene: Scene) -> None:
    """Let every recomputed block look itself up by one variable; blocks that are not recomputed are left alone."""
    variable = LoopVariable()
    for block in cast("TrainingState", scene.state).blocks:
        forward = cast("Any", block).forward
        if isinstance(forward, partial) and forward.func.__name__ == "_recomputed":
            own, kind = forward.args
            late = partial(_in_the_loop, variable, own, partial(forward.func, variable.call, kind))
            setattr(block, "forward", late)  # noqa: B010 - a module's method, replaced on this one instance


def _in_the_loop(variable: LoopVariable, own: Forward, recomputed: Forward, x_BTX: Tensor, **options: Any) -> Tensor:
    variable.forward = own  # the loop has come to this block
    return recomputed(x_BTX, **options)


SPECIMEN = Specimen(
    name="late-binding",
    strike=bind_late,
    expect=Kind.CRASH,
    cause="ready-twice",
    step=0,
    needs=Needs.GLOO,
    world=2,
    settings=(("train.checkpointing", "reentrant"),),
    expect_phase="backward",
    imitates="a lambda over the loop's variable, given to torch.utils.checkpoint",
)
