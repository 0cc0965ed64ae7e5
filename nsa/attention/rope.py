"""Rotary position embedding, per head: the product of a query and a key depends on their distance only."""

from __future__ import annotations

import torch
from torch import Tensor


def rotate(x_BTHD: Tensor, position_T: Tensor, *, base: float, scale: float = 1.0) -> Tensor:
    """Turn pairs (i, i + D/2) of every head by an angle proportional to the position.

    Args:
        x_BTHD: queries or keys; D is even.
        position_T: position of each row in its document (any real type).
        base: base of the frequencies, base^(-2i/D).
        scale: positions are divided by this (linear position interpolation).

    Returns:
        The rotated tensor, in x's type; angles are computed in fp32 (fp64 for fp64).
    """
    half = x_BTHD.shape[-1] // 2
    real = torch.float64 if x_BTHD.dtype == torch.float64 else torch.float32
    frequency_F = base ** (-torch.arange(half, device=x_BTHD.device, dtype=real) / half)
    angle_T1F = (position_T.to(real) / scale)[:, None, None] * frequency_F
    cos, sin = angle_T1F.cos(), angle_T1F.sin()
    a, b = x_BTHD.to(real).chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x_BTHD.dtype)
