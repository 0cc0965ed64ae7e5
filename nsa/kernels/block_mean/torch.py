"""The means in plain torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def means(x_BSGD: Tensor, length: int, stride: int) -> Tensor:
    """Contract: ``nsa.kernels.block_mean.op.block_mean``."""
    B, S, G, D = x_BSGD.shape
    if length > S:
        return x_BSGD.new_empty(B, 0, G, D)
    return x_BSGD.unfold(1, length, stride).mean(-1).contiguous()


def spread(dy_BCGD: Tensor, length: int, stride: int, n_tokens: int) -> Tensor:
    """Gradient of the rows: every row gets its share of every block that it lies in."""
    B, C, G, D = dy_BCGD.shape
    shape = (B, n_tokens, G, D)
    if C == 0:
        return dy_BCGD.new_zeros(shape)
    share_BCGDL = (dy_BCGD / length).unsqueeze(-1).expand(B, C, G, D, length)
    return torch.ops.aten.unfold_backward(share_BCGDL, shape, 1, length, stride)
