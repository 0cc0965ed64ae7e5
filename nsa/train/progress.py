"""Hooks that tell the probes how far forward and backward have come, block by block.

One hook on each block's output (forward) and one on its input's gradient (backward): both are called where
the work is anyway in Python or at a tensor boundary, so they cost microseconds per block.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from nsa.train.probe import Edge, Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor, nn

    from nsa.train.probe import Probe


class Announcer:
    """Tells several probes as one, and remembers the phase."""

    def __init__(self, probes: Sequence[Probe]) -> None:
        self.probes = tuple(probes)
        self.phase: Phase | None = None
        self.step: int | None = None

    def begin(self, phase: Phase, step: int | None) -> None:
        """A phase begins."""
        self.phase, self.step = phase, step
        self._mark(phase, Edge.BEGIN, None)

    def end(self) -> None:
        """The current phase ends."""
        if self.phase is not None:
            self._mark(self.phase, Edge.END, None)
        self.phase = None

    def progress(self, detail: str) -> None:
        """Something inside the current phase is done."""
        if self.phase is not None:
            self._mark(self.phase, Edge.PROGRESS, detail)

    def _mark(self, phase: Phase, edge: Edge, detail: str | None) -> None:
        for probe in self.probes:
            probe.mark(phase=phase, edge=edge, step=self.step, detail=detail)


class BlockProgress:
    """Announces ``blocks.<i>`` when a block has finished its forward and when it has finished its backward.

    It is also where callbacks get inside the autograd engine: ``pending`` run when the last block has finished
    its backward, while the engine still has all the others before it.
    """

    def __init__(self, blocks: Sequence[nn.Module], announcer: Announcer) -> None:
        self.announcer = announcer
        self.pending: list[Callable[[], None]] = []
        for i, block in enumerate(blocks):
            block.register_forward_pre_hook(partial(self._entered, i))
            block.register_forward_hook(partial(self._left, i))

    def _entered(self, i: int, _block: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        # Under activation checkpointing a block runs again in backward; only its first run counts.
        if self.announcer.phase is Phase.FORWARD and inputs[0].requires_grad:
            inputs[0].register_hook(partial(self._backward_done, i))

    def _left(self, i: int, _block: nn.Module, _inputs: object, _output: object) -> None:
        if self.announcer.phase is Phase.FORWARD:
            self.announcer.progress(f"blocks.{i}")

    def _backward_done(self, i: int, _grad: Tensor) -> None:
        self.announcer.progress(f"blocks.{i}")
        while self.pending:
            self.pending.pop(0)()


class ModuleBackward:
    """Announces a module when the gradient of its output is there: ``backward of blocks.11.mlp``, in the order it runs.

    The modules are the decoder's own and its blocks' own. The hooks are on tensors, so they neither change the graph
    nor wait for the device; of a block that is recomputed they see the run that backward passes through.
    """

    def __init__(self, model: nn.Module, announcer: Announcer) -> None:
        self.announcer = announcer
        for name, module in model.named_modules():
            if name and name.count(".") in (0, 2) and name != "blocks":
                module.register_forward_hook(partial(self._ran, name))

    def _ran(self, name: str, _module: nn.Module, _inputs: object, output: object) -> None:
        result = output[-1] if isinstance(output, tuple) else output  # a norm of a sum gives that sum, too
        if isinstance(result, torch.Tensor) and result.requires_grad:
            result.register_hook(partial(self._begins, name))

    def _begins(self, name: str, _grad: Tensor) -> None:
        self.announcer.progress(f"backward of {name}")


class GradientArrivals:
    """Announces every parameter's gradient as it comes: ``gradient 17 of 195: blocks.11.mlp.fc1.weight``.

    Nothing is read from the gradients, so the device is not waited for.
    """

    def __init__(self, model: nn.Module, announcer: Announcer) -> None:
        self.announcer = announcer
        self._arrived, self._expected = 0, 0
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                self._expected += 1
                parameter.register_post_accumulate_grad_hook(partial(self._here, name))

    def begin(self) -> None:
        """Count from one again: a backward pass begins."""
        self._arrived = 0

    def _here(self, name: str, _parameter: Tensor) -> None:
        self._arrived += 1
        self.announcer.progress(f"gradient {self._arrived} of {self._expected}: {name}")
