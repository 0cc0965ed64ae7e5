"""Window branch on Hopper GPUs in Gluon: the tiles of the ``tiles`` backend by wgmma and TMA."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsa.kernels.hopper.triton import WINDOW, attend, refuses
from nsa.kernels.hopper_sites import yields
from nsa.kernels.scale import scale_of
from nsa.kernels.tiled.triton import FEWEST_QUERIES
from nsa.kernels.window import masked, tiles
from nsa.kernels.window.tiles import bind

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

__all__ = ["bind", "refuses", "window", "yields"]


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
    documents: Callable[..., Tensor] = masked.window,
) -> Tensor:
    """Contract: ``nsa.kernels.window.op.WindowAttention``; ``documents`` is who attends within packed documents.

    Packed documents, a few queries behind a cache and a scale that is not positive run as in the ``tiles`` backend.
    """
    scale, shift = scale_of(q_BTHD, scale), offset - k_offset
    if cu_seqlens is not None or (shift and q_BTHD.shape[1] < FEWEST_QUERIES) or scale <= 0:
        where = {"offset": offset, "k_offset": k_offset, "cu_seqlens": cu_seqlens, "documents": documents}
        return tiles.window(q_BTHD, k_BSGD, v_BSGE, w=w, scale=scale, **where)
    return attend(q_BTHD, k_BSGD, v_BSGE, kind=WINDOW, sizes=(w, 0), scale=scale, offset=shift)[0]
