"""Block means as an operator of torch's library: views and a sum on a CPU, one kernel each way on a GPU.

Cutting rows into overlapping blocks and averaging those takes five launches backward, and unfolding gradients is slow.
"""

from __future__ import annotations

import importlib
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from nsa.kernels.block_mean import torch as plain
from nsa.kernels.operators import Operator

if TYPE_CHECKING:
    from torch import Tensor


def block_mean(x_BSGD: Tensor, length: int, stride: int) -> Tensor:
    """Mean of rows c * stride to c * stride + length - 1 for every complete block c; differentiable.

    Args:
        x_BSGD: rows of a sequence.
        length: rows in a block (l), a multiple of ``stride``.
        stride: from one block's first row to the next one's (d).

    Returns:
        y_BCGD in x's type, contiguous, summed in fp32 or wider; without blocks (C = 0) x's gradient is zero.
    """
    return _MEANS(x_BSGD, length, stride)


def _means_on_gpu(*args: Any) -> Tensor:
    return _on_gpu().means(*args)


def _spread_on_gpu(*args: Any) -> Tensor:
    return _on_gpu().spread(*args)


@cache
def _on_gpu() -> Any:
    return importlib.import_module("nsa.kernels.block_mean.triton")


def _fake_means(x: Tensor, length: int, stride: int) -> Tensor:
    B, S, G, D = x.shape
    return x.new_empty(B, max(0, (S - length) // stride + 1), G, D)


def _fake_spread(dy: Tensor, length: int, stride: int, n_tokens: int) -> Tensor:
    B, _, G, D = dy.shape
    return dy.new_empty(B, n_tokens, G, D)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, ctx.length, ctx.stride = inputs
    ctx.n_tokens = x.shape[1]


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    return _SPREAD(dy, ctx.length, ctx.stride, ctx.n_tokens), None, None


def _save_spread(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, ctx.length, ctx.stride, _ = inputs


def _spread_backward(ctx: Any, dx: Tensor) -> tuple[Tensor | None, ...]:
    return _MEANS(dx, ctx.length, ctx.stride), None, None, None


_HAS_TRITON = find_spec("triton") is not None

_SPREAD = Operator(
    "block_spread",
    "(Tensor dy, int length, int stride, int n_tokens) -> Tensor",
    {"CPU": plain.spread, "CUDA": _spread_on_gpu if _HAS_TRITON else plain.spread},
)
_SPREAD.register_fake(_fake_spread)
_MEANS = Operator(
    "block_mean",
    "(Tensor x, int length, int stride) -> Tensor",
    {"CPU": plain.means, "CUDA": _means_on_gpu if _HAS_TRITON else plain.means},
)
_MEANS.register_fake(_fake_means)
_MEANS.register_autograd(_backward, setup_context=_save, is_linear=True)
_SPREAD.register_autograd(_spread_backward, setup_context=_save_spread, is_linear=True)
