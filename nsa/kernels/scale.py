"""The factor on attention scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def scale_of(q_BTHD: Tensor, scale: float | None) -> float:
    """``scale``, or 1 / sqrt(D) if None."""
    return float(q_BTHD.shape[-1]) ** -0.5 if scale is None else scale
