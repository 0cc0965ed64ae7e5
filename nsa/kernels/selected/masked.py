"""Selected branch as dense attention under a mask: fastest while the sequence is short, O(T S) mask bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsa.kernels.masked import masked_attention
from nsa.kernels.scale import scale_of
from nsa.kernels.visibility import slc_visible

if TYPE_CHECKING:
    from torch import Tensor


def selected(
    q_BTHD: Tensor,
    k_BSGD: Tensor,
    v_BSGE: Tensor,
    index_BTGN: Tensor,
    *,
    l_slc: int,
    scale: float | None = None,
    offset: int = 0,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Contract: ``nsa.kernels.selected.op.SelectedAttention``."""
    visible_BGTS = slc_visible(index_BTGN, k_BSGD.shape[1], l_slc=l_slc, offset=offset, cu_seqlens=cu_seqlens)
    return masked_attention(q_BTHD, k_BSGD, v_BSGE, visible_BGTS, scale_of(q_BTHD, scale))
