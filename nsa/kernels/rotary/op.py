"""The rotation as an operator of torch's library: the formula on a CPU, one kernel on a GPU.

Dense attention turns its heads by the same operator, so it is no choice of ``kernels``: a GPU runs Triton where Triton
is installed, decided when this module is loaded.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from nsa.kernels.operators import Operator
from nsa.kernels.rotary import torch as plain

if TYPE_CHECKING:
    from torch import Tensor


def rotate_heads(
    q_BTHD: Tensor, k_BTGD: Tensor, cos_T1D: Tensor, sin_T1D: Tensor, *, n_plain: int = 0
) -> tuple[Tensor, Tensor]:
    """Turn pairs (i, i + D/2) of every head by their row's angle; differentiable in q and k.

    Args:
        q_BTHD: queries, fp64, fp32, bf16 or fp16.
        k_BTGD: keys of the same rows; there may be none (G = 0).
        cos_T1D: cosines, in the type that is computed in; T may be 1 for one row.
        sin_T1D: sines, negative in the first half of D.
        n_plain: so many of the first key heads are copied as they are.

    Returns:
        Both, contiguous, rounded once to their own types; gradients are turned back by the same angles.
    """
    return _OPERATOR(q_BTHD, k_BTGD, cos_T1D, sin_T1D, n_plain, 1)


def _on_gpu(*args: Any) -> tuple[Tensor, Tensor]:
    # Triton takes half a second to import, which only a program with a GPU should pay.
    return importlib.import_module("nsa.kernels.rotary.triton").rotate(*args)


def _fake(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, n_plain: int, sign: int) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, _, cos, sin, ctx.n_plain, ctx.sign = inputs
    ctx.save_for_backward(cos, sin)


def _backward(ctx: Any, dq: Tensor, dk: Tensor) -> tuple[Tensor | None, ...]:
    return *_OPERATOR(dq, dk, *ctx.saved_tensors, ctx.n_plain, -ctx.sign), None, None, None, None


_OPERATOR = Operator(
    "rotate",
    "(Tensor q, Tensor k, Tensor cos, Tensor sin, int n_plain, int sign) -> (Tensor, Tensor)",
    {"CPU": plain.rotate, "CUDA": _on_gpu if find_spec("triton") else plain.rotate},
)
_OPERATOR.register_fake(_fake)
_OPERATOR.register_autograd(_backward, setup_context=_save, is_linear=True)
