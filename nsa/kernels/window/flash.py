"""Window branch by the flash kernel inside torch, which knows sliding windows; fp16 and bf16 on a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from nsa.kernels.flash import flash_attention
from nsa.kernels.scale import scale_of
from nsa.kernels.sdpa import HALF_TYPES, same_width

if TYPE_CHECKING:
    from torch import Tensor

    from nsa.kernels.registry import Site


def refuses(site: Site) -> str | None:
    """Why torch's flash kernel cannot serve this site, if it cannot."""
    if site.device.type != "cuda":
        return "torch's flash kernel with a window runs on a GPU only"
    if site.dtype not in HALF_TYPES:
        return f"torch's flash kernel takes fp16 or bf16, not {site.dtype}"
    if max(site.d_k, site.d_v) > 256:
        return f"torch's flash kernel takes head widths up to 256, not {max(site.d_k, site.d_v)}"
    if site.sdpa == "no-flash":
        return "kernels.sdpa = 'no-flash'"
    return None


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

    Raises:
        ValueError: keys beyond the last query; the kernel aligns the two ends.
    """
    T, S, E = q_BTHD.shape[1], k_BSGD.shape[1], v_BSGE.shape[3]
    if offset + T != k_offset + S:
        raise ValueError(f"queries end at {offset + T} and keys at {k_offset + S}; cut the keys to the queries' end")
    q, k, v = same_width(q_BTHD, k_BSGD, v_BSGE)
    cu = None if cu_seqlens is None else cu_seqlens.to(torch.int32)
    return flash_attention(q, k, v, cu, scale_of(q_BTHD, scale), w)[0][..., :E]
