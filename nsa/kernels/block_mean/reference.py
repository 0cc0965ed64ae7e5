"""The means in fp64, block by block."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def block_mean(x_BSGD: Tensor, length: int, stride: int) -> Tensor:
    """Contract: ``nsa.kernels.block_mean.op.block_mean``; result in fp64."""
    S, x_BSGD = x_BSGD.shape[1], x_BSGD.double()
    means = [x_BSGD[:, first : first + length].mean(1) for first in range(0, S - length + 1, stride)]
    return torch.stack(means, 1) if means else x_BSGD[:, :0]
