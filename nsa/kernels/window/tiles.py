"""Window branch in Triton, over tiles of (token, head) rows: no copies around it, no piece computed twice.

Not yet measured on a GPU; ``auto`` does not take it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsa.kernels.scale import scale_of
from nsa.kernels.tiled.triton import WINDOW, attend, refuses
from nsa.kernels.window import masked

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["refuses", "window"]


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
    """Contract: ``nsa.kernels.window.op.WindowAttention``; packed documents run as in the ``masked`` backend."""
    scale = scale_of(q_BTHD, scale)
    if cu_seqlens is not None:
        return masked.window(q_BTHD, k_BSGD, v_BSGE, w=w, scale=scale, cu_seqlens=cu_seqlens)
    return attend(q_BTHD, k_BSGD, v_BSGE, kind=WINDOW, sizes=(w, 0), scale=scale, offset=offset - k_offset)[0]
