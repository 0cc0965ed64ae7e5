"""Window branch by the optional flash-attn package."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from nsa.kernels.flash_attn import package, refusal
from nsa.kernels.quarantine import quarantined, seen_in_window, spoiled
from nsa.kernels.scale import scale_of
from nsa.kernels.sdpa import same_width

if TYPE_CHECKING:
    from torch import Tensor

    from nsa.kernels.registry import Site


def refuses(site: Site) -> str | None:
    """Why flash-attn cannot serve this site, if it cannot."""
    return refusal(site)


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
    """Contract: ``nsa.kernels.window.op.WindowAttention``; the last query must stand at the last key.

    flash-attn counts the keys before the query: a window of w keys, the query's own included, is (w - 1, 0).

    Raises:
        ValueError: keys beyond the last query; the kernel aligns the two ends.
    """
    T, S, E = q_BTHD.shape[1], k_BSGD.shape[1], v_BSGE.shape[3]
    if offset + T != k_offset + S:
        raise ValueError(f"queries end at {offset + T} and keys at {k_offset + S}; cut the keys to the queries' end")
    k_BSGD, v_BSGE, bad_BSG = quarantined(k_BSGD, v_BSGE)
    q, k, v = same_width(q_BTHD, k_BSGD, v_BSGE)
    scale = scale_of(q_BTHD, scale)
    how = {"softmax_scale": scale, "causal": True, "window_size": (w - 1, 0)}
    if cu_seqlens is None:
        o_BTHE = package().flash_attn_func(q, k, v, **how)
    else:
        cu = cu_seqlens.to(torch.int32)
        o_BTHE = package().flash_attn_varlen_func(q[0], k[0], v[0], cu, cu, T, S, **how)[None]
    return spoiled(o_BTHE[..., :E], seen_in_window(bad_BSG, T, w, offset - k_offset, cu_seqlens))
