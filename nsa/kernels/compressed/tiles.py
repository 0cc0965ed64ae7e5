"""Compressed branch in Triton, over tiles of (token, head) rows: queries stay where they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsa.kernels.compressed import masked
from nsa.kernels.scale import scale_of
from nsa.kernels.tiled.triton import BLOCKS, FEWEST_QUERIES, attend
from nsa.kernels.tiled.triton import refuses_library as refuses
from nsa.kernels.tiled.triton import yields_library as yields

if TYPE_CHECKING:
    from torch import Tensor

    from nsa.blocks import BlockLayout

__all__ = ["compressed", "refuses", "yields"]


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
    """Contract: ``nsa.kernels.compressed.op.CompressedAttention``, but lse is not differentiable.

    Packed documents and a few queries behind a cache run as in the ``masked`` backend.
    """
    scale = scale_of(q_BTHD, scale)
    if cu_seqlens is not None or (offset and q_BTHD.shape[1] < FEWEST_QUERIES):
        return masked.compressed(q_BTHD, kc_BCGD, vc_BCGE, layout, scale=scale, offset=offset, cu_seqlens=cu_seqlens)
    sizes = (layout.l, layout.d)
    return attend(q_BTHD, kc_BCGD, vc_BCGE, kind=BLOCKS, sizes=sizes, scale=scale, offset=offset)
