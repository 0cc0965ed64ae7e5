"""Decoder blocks that are replayed as CUDA graphs: one launch where there were a hundred, in forward and in backward.

A block is captured once, at the start, for the run's one shape, by ``torch.cuda.make_graphed_callables``. A replay runs
no Python, so what belongs around a block stays outside of its graph: hooks, which call the graph as the block's own
``forward``. What is read from inside a block is the graph's own memory, which every replay writes again.

Three traps of torch's, each with its guard here:

- A replay hands out its gradients in memory that the next one overwrites, and torch takes them for ``.grad`` as they
  are: of two micro-batches the second would count twice (pytorch issue 181723). ``own_gradients`` copies them before.
- The outputs of a capture keep the parameters' gradient accumulators, and with them the stream of the capture. DDP
  would fill its buckets on that stream beside the current one, and waits for one of them only. So they are let go.
- A second forward writes over what the first has kept for its backward, and nobody would notice: the backward of a
  forward that is not the last one is an error.

Autocast is captured as torch asks: without the copies of weights that it keeps, so that every replay makes its own.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from nsa.attention.rope import turns
from nsa.attention.stats import AttentionWatch, watch_attention
from nsa.train.precision import arithmetic

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from nsa.attention.rope import Turns
    from nsa.config import RunConfig, TrainConfig
    from nsa.model.transformer import Decoder


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """What the graphs of a model's blocks share with the run.

    Attributes:
        parameters: whose gradients replays hand out.
        watch: gates and selections of the last replay, one record per sparse attention layer.
    """

    parameters: tuple[nn.Parameter, ...]
    watch: AttentionWatch

    def own_gradients(self) -> None:
        """Copy gradients out of the graphs' memory, so that another replay can be added to them."""
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter.grad = parameter.grad.clone()


def capture_blocks(config: RunConfig, model: Decoder, *, n_rows: int) -> Captured | None:
    """Replay every block of ``model`` from now on where gradients follow, as ``train.cuda_graphs`` says.

    Call it when the weights are where they stay, and before a wrapper of the model: torch asks so.

    Args:
        config: the run.
        model: on its GPU.
        n_rows: sequences in a micro-batch of this rank.

    Returns:
        None where ``train.cuda_graphs`` is off.
    """
    if config.train.cuda_graphs == "off":
        return None
    weight, blocks = model.embed.weight, tuple(model.blocks)
    shape = (n_rows, config.train.seq_len, config.model.dim)
    model.turn = turns(model.config, weight.new_empty(shape))
    bare = tuple(_Bare(block, model.turn, config.train) for block in blocks)
    samples = tuple((weight.new_zeros(shape).requires_grad_(),) for _ in bare)
    gc.collect()  # what an earlier run has left on the device must not be freed in the middle of a capture
    with watch_attention(model) as watch:
        try:
            replays: Any = torch.cuda.make_graphed_callables(bare, samples)
        except RuntimeError as error:
            error.add_note(
                "while the decoder blocks were captured as CUDA graphs. A kernel that waits for the device cannot be; "
                "set train.cuda_graphs = 'off', or other kernels"
            )
            raise
    for block, part, replay in zip(blocks, bare, replays, strict=True):
        part.let_go()
        block.forward = _Replayed(block.forward, replay, shape)
    return Captured(parameters=tuple(p for block in blocks for p in block.parameters()), watch=watch)


class _Bare(nn.Module):
    """A block without its hooks, with the angles of the positions from 0 on, in the run's arithmetic."""

    def __init__(self, block: nn.Module, turn: Turns, config: TrainConfig) -> None:
        super().__init__()
        self.block, self.turn, self.config = block, turn, config
        self.output: Tensor | None = None

    def forward(self, x_BTX: Tensor) -> Tensor:
        """The block's output, of which the history is kept until the next one."""
        self.let_go()
        with arithmetic(self.config, keeps_casts=False):
            output = type(self.block).forward(self.block, x_BTX, turn=self.turn)
        self.output = output
        return output

    def let_go(self) -> None:
        """Forget how the last output came about; its backward is done or captured."""
        if self.output is not None:
            self.output.detach_()
            self.output = None


class _Replayed:
    """A block's ``forward``: the graph's where gradients follow, for whole sequences; else the block's own."""

    def __init__(
        self, forward: Callable[..., Tensor], replay: Callable[[Tensor], Tensor], shape: tuple[int, ...]
    ) -> None:
        self.forward, self.replay, self.shape = forward, replay, shape
        self.n_replays = 0

    def __call__(
        self, x_BTX: Tensor, *, cu_seqlens: Tensor | None = None, cache: Any = None, turn: Turns | None = None
    ) -> Tensor:
        """The block's output; ``turn`` is what the graph has, because the model keeps it."""
        is_packed = cu_seqlens is not None or (turn is not None and turn.lengths is not None)
        if not torch.is_grad_enabled() or is_packed or cache is not None:
            return self.forward(x_BTX, cu_seqlens=cu_seqlens, cache=cache, turn=turn)
        if tuple(x_BTX.shape) != self.shape:
            raise ValueError(
                f"train.cuda_graphs: the blocks were captured for {self.shape} and got {tuple(x_BTX.shape)} to train "
                "on; every micro-batch must have the same shape, or train.cuda_graphs = 'off'"
            )
        self.n_replays += 1
        output = self.replay(x_BTX)
        output.register_hook(partial(self._check, self.n_replays))
        return output

    def _check(self, number: int, _grad: Tensor) -> None:
        if number != self.n_replays:
            raise RuntimeError(
                f"train.cuda_graphs: backward of a block's forward {number} after forward {self.n_replays}, which has "
                "written over what the first had kept; call backward after every forward, or train.cuda_graphs = 'off'"
            )
