"""The sum and its norm in plain torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn.functional import rms_norm

if TYPE_CHECKING:
    from torch import Tensor


def add_norm(x: Tensor, y: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Contract: ``nsa.kernels.norm.op.add_norm``."""
    total = x + y
    return total, norm(total, weight, eps)


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Contract: ``nsa.kernels.norm.op.norm``."""
    return rms_norm(x, weight.shape, weight, eps)
