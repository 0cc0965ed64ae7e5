"""Selected branch of short sequences in Triton: dense tiles under a mask of one bit per query and block.

Up to 64 blocks, neighbouring queries together choose nearly all of them; one pass over all keys then moves fewer bytes
than a list of pairs, and needs no sorting. What is no work for tiles runs as in the ``triton`` backend: packed
documents, whose blocks lie anywhere, a few queries behind a cache, and sequences longer than the model was built for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsa.kernels.scale import scale_of
from nsa.kernels.selected.triton import selected_attention
from nsa.kernels.tiled import triton as tiled
from nsa.kernels.tiled.triton import yields

if TYPE_CHECKING:
    from torch import Tensor

    from nsa.kernels.registry import Site

__all__ = ["refuses", "selected", "yields"]

MOST_BLOCKS = 64


def refuses(site: Site) -> str | None:
    """Why these kernels cannot serve this site, if they cannot."""
    l_slc, n_blocks = site.layout.l_slc, site.layout.n_slc(site.seq_len)
    if l_slc < 16 or l_slc & (l_slc - 1):
        return f"a tile has 16, 32 or 64 keys of one block, and l_slc is {l_slc}"
    if n_blocks > MOST_BLOCKS:
        return f"a query's blocks are bits of one word, {MOST_BLOCKS} at most, and there are {n_blocks}"
    return tiled.refuses(site)


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
    """Contract: ``nsa.kernels.selected.op.SelectedAttention``, but lse is not differentiable."""
    scale = scale_of(q_BTHD, scale)
    is_few, is_long = q_BTHD.shape[1] < tiled.FEWEST_QUERIES, k_BSGD.shape[1] > MOST_BLOCKS * l_slc
    if cu_seqlens is not None or (offset and is_few) or is_long:
        where = {"offset": offset, "cu_seqlens": cu_seqlens}
        return selected_attention(q_BTHD, k_BSGD, v_BSGE, index_BTGN, l_slc=l_slc, scale=scale, **where)
    bits_BTG = tiled.block_bits(index_BTGN)
    how = {"kind": tiled.BITS, "sizes": (l_slc, 0), "scale": scale, "offset": offset}
    return tiled.attend(q_BTHD, k_BSGD, v_BSGE, bits_BTG=bits_BTG, **how)
