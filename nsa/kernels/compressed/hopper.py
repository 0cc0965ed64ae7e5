"""Compressed branch on Hopper GPUs in Gluon: the tiles of the ``tiles`` backend by wgmma and TMA."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsa.kernels.compressed import tiles
from nsa.kernels.hopper.triton import BLOCKS, attend, refuses
from nsa.kernels.hopper_sites import yields
from nsa.kernels.scale import scale_of
from nsa.kernels.tiled.triton import FEWEST_QUERIES

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

    Packed documents, a few queries behind a cache and a scale that is not positive run as in the ``tiles`` backend.
    """
    scale = scale_of(q_BTHD, scale)
    if cu_seqlens is not None or (offset and q_BTHD.shape[1] < FEWEST_QUERIES) or scale <= 0:
        where = {"scale": scale, "offset": offset, "cu_seqlens": cu_seqlens}
        return tiles.compressed(q_BTHD, kc_BCGD, vc_BCGE, layout, **where)
    sizes = (layout.l, layout.d)
    return attend(q_BTHD, kc_BCGD, vc_BCGE, kind=BLOCKS, sizes=sizes, scale=scale, offset=offset)
