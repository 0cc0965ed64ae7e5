"""Block selection on Hopper GPUs in Triton with TMA: heads in a loop, ranking in 32-bit numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsa.kernels.devices import is_hopper
from nsa.kernels.scale import scale_of
from nsa.kernels.scores.triton import select_blocks
from nsa.kernels.scores.triton_hopper import HALF_TYPES, WIDTHS, select_op, uneven

if TYPE_CHECKING:
    from torch import Tensor

    from nsa.blocks import BlockLayout
    from nsa.kernels.registry import Site

FEWEST_QUERIES = 64
"""With fewer behind a cache a tile is mostly empty."""
FASTER_FROM = 4096
"""Tokens from which on they take a GPU less time than ``triton``, with 4 to 64 heads; at 2,048 not with all of them."""


def refuses(site: Site) -> str | None:
    """Why these kernels cannot serve this site, if they cannot."""
    if not is_hopper(site.device):
        return "these kernels are for a GPU of compute capability 9.0 (H100, H200)"
    if site.dtype not in HALF_TYPES:
        return f"the kernels take bf16 or fp16, not {site.dtype}"
    if site.d_k not in WIDTHS:
        return f"the kernels take a head width of 64 or 128, not {site.d_k}"
    return uneven(site.layout.d, site.layout.l_slc)


def yields(site: Site) -> str | None:
    """Why ``auto`` passes these kernels over here, though they could run."""
    if site.seq_len < FASTER_FROM:
        return f"faster from {FASTER_FROM} tokens on, and there are {site.seq_len}"
    return None


def select(
    q_BTHD: Tensor,
    kc_BCGD: Tensor,
    lse_BTH: Tensor,
    layout: BlockLayout,
    *,
    scale: float | None = None,
    offset: int = 0,
    cu_seqlens: Tensor | None = None,
) -> Tensor:
    """Contract: ``nsa.kernels.scores.op.SelectBlocks`` (Eq. 8 to 11); q and kc in bf16 or fp16, heads of 64 or 128.

    Packed documents and a few queries behind a cache run as in the ``triton`` backend.

    Raises:
        ValueError: shapes, types or blocks that do not fit together or the kernels.
    """
    scale = scale_of(q_BTHD, scale)
    if cu_seqlens is not None or (offset and q_BTHD.shape[1] < FEWEST_QUERIES):
        return select_blocks(
            q_BTHD, kc_BCGD, lse_BTH, layout, scale=scale, offset=offset, cu_seqlens=cu_seqlens
        )  # fmt: skip
    sizes = (layout.l, layout.d, layout.l_slc, layout.n)
    return select_op(q_BTHD.detach(), kc_BCGD.detach(), lse_BTH.detach(), *sizes, scale, offset)
