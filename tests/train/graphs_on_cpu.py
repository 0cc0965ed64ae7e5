"""What torch makes of a block and a CUDA graph, on a CPU: memory that every replay writes again, and no hook inside."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch
from rank_work import gradients

from nsa.train import graphs, trainer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from nsa.config import RunConfig


class Captures:
    """Takes the place of ``torch.cuda.make_graphed_callables``."""

    def __init__(self) -> None:
        self.outputs: list[Tensor] = []
        self.n_replays = 0

    def __call__(self, callables: tuple[Any, ...], samples: tuple[tuple[Tensor], ...]) -> tuple[Any, ...]:
        return tuple(self._captured(call, x) for call, (x,) in zip(callables, samples, strict=True))

    def _captured(self, call: Any, x: Tensor) -> Any:
        assert not call._forward_hooks, "torch refuses hooks"
        parameters = tuple(call.parameters())
        surface = (x, *parameters)
        for _ in range(2):  # to warm up, and to capture
            y = call(x)
            torch.autograd.grad(y, surface, torch.empty_like(y))
        self.outputs.append(y)
        static_y, static_grads = y.detach(), [torch.empty_like(one) for one in surface]
        forward, block, turn = type(call.block).forward, call.block, call.turn

        class Replay(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, new_x: Tensor, *_parameters: Tensor) -> Tensor:
                self.n_replays += 1
                with torch.no_grad():
                    x.copy_(new_x)
                    static_y.data.copy_(forward(block, x, turn=turn))  # unseen by autograd, as a replay is
                return static_y.detach()

            @staticmethod
            def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, ...]:
                with torch.enable_grad():
                    found = torch.autograd.grad(forward(block, x, turn=turn), surface, dy)
                for static, grad in zip(static_grads, found, strict=True):
                    static.data.copy_(grad)
                return tuple(static.detach() for static in static_grads)

        return lambda new_x: Replay.apply(new_x, *parameters)


@contextmanager
def replayed() -> Iterator[Captures]:
    """Blocks of runs inside are captured, as ``train.cuda_graphs`` asks for on a GPU."""

    def capture(config: RunConfig, model: Any, *, n_rows: int) -> Any:
        on_gpu = config.with_values({"train.device": "cuda", "train.cuda_graphs": "blocks"})
        return graphs.capture_blocks(on_gpu, model, n_rows=n_rows)

    captures = Captures()
    with patch.object(torch.cuda, "make_graphed_callables", captures), patch.object(trainer, "capture_blocks", capture):
        yield captures


def replayed_gradients(rank: int, changes: dict[str, Any]) -> tuple[tuple[float, ...], list[dict[str, Any]]]:
    """The losses and gradients of a run whose blocks are all replayed."""
    with replayed() as captures:
        found = gradients(rank, changes)
    assert captures.n_replays > 0
    return found
