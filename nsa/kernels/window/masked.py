"""Window branch as masked matrix products; runs everywhere, in every type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsa.kernels.masked import masked_attention
from nsa.kernels.scale import scale_of
from nsa.kernels.visibility import win_visible

if TYPE_CHECKING:
    from torch import Tensor


def window(
    q_BTHD: Tensor,
    k_BSGD: Tensor,
    v_BSGE: Tensor,
    *,
    w: int,
    scale: float | None = None,
    offset: int = 0,
    k_offset: int = 0,
    cu_seqlens: Tensor | None = None,
) -> Tensor:
    """Contract: ``nsa.kernels.window.op.WindowAttention``."""
    visible_11TS = win_visible(
        q_BTHD.shape[1],
        k_BSGD.shape[1],
        w,
        device=q_BTHD.device,
        offset=offset,
        k_offset=k_offset,
        cu_seqlens=cu_seqlens,
    )
    return masked_attention(q_BTHD, k_BSGD, v_BSGE, visible_11TS, scale_of(q_BTHD, scale))[0]
