"""Window branch in Triton, over tiles of (token, head) rows: no copies around it, no piece computed twice.

Packed documents run as in the ``flash`` backend where that can, else as in ``masked``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from nsa.kernels.scale import scale_of
from nsa.kernels.tiled.triton import WINDOW, attend
from nsa.kernels.tiled.triton import refuses_library as refuses
from nsa.kernels.tiled.triton import yields_library as yields
from nsa.kernels.window import flash, masked

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from torch import Tensor

    from nsa.kernels.registry import Site

__all__ = ["bind", "refuses", "window", "yields"]


def bind(call: Callable[..., Any], site: Site) -> Callable[..., Any]:
    """Fix who takes packed documents, at build time."""
    return partial(call, documents=flash.window if flash.refuses(site) is None else masked.window)


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
    """Contract: ``nsa.kernels.window.op.WindowAttention``; ``documents`` is who attends within packed documents."""
    scale = scale_of(q_BTHD, scale)
    if cu_seqlens is not None:
        return documents(q_BTHD, k_BSGD, v_BSGE, w=w, scale=scale, cu_seqlens=cu_seqlens)
    return attend(q_BTHD, k_BSGD, v_BSGE, kind=WINDOW, sizes=(w, 0), scale=scale, offset=offset - k_offset)[0]
