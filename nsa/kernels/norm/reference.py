"""The sum and its norm in fp64."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def add_norm(x: Tensor, y: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Contract: ``nsa.kernels.norm.op.add_norm``; results in fp64."""
    total = x.double() + y.double()
    return total, norm(total, weight, eps)


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Contract: ``nsa.kernels.norm.op.norm``; the result in fp64."""
    x = x.double()
    return x * (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt() * weight.double()
