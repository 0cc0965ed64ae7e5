"""Compressed branch as masked matrix products; runs everywhere, in every type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsa.kernels.masked import masked_attention
from nsa.kernels.scale import scale_of
from nsa.kernels.visibility import cmp_visible

if TYPE_CHECKING:
    from torch import Tensor

    from nsa.blocks import BlockLayout


def compressed(
    q_BTHD: Tensor,
    kc_BCGD: Tensor,
    vc_BCGE: Tensor,
    layout: BlockLayout,
    *,
    scale: float | None = None,
    offset: int = 0,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Contract: ``nsa.kernels.compressed.op.CompressedAttention``."""
    visible_11TC = cmp_visible(
        q_BTHD.shape[1], kc_BCGD.shape[1], layout, device=q_BTHD.device, offset=offset, cu_seqlens=cu_seqlens
    )
    return masked_attention(q_BTHD, kc_BCGD, vc_BCGE, visible_11TC, scale_of(q_BTHD, scale))
