"""Window branch by torch's flex_attention, compiled: a block-sparse band on a GPU.

Compiled anew for every pair of lengths, so it suits training at one length, not decoding; ``auto`` never takes it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from nsa.kernels.documents import token_documents

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from nsa.kernels.registry import Site


def refuses(site: Site) -> str | None:
    """Why flex_attention cannot serve this site, if it cannot."""
    if site.device.type != "cuda":
        return "flex_attention has no backward on a CPU"
    if site.d_k < 16 or site.d_v < 16:
        return f"flex_attention needs head widths of 16 or more, not {min(site.d_k, site.d_v)}"
    if site.sdpa == "flash-only":
        return "flex_attention is no flash kernel, and kernels.sdpa = 'flash-only'"
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
    """Contract: ``nsa.kernels.window.op.WindowAttention``."""
    T, S = q_BTHD.shape[1], k_BSGD.shape[1]
    if cu_seqlens is None:
        block_mask = _band(T, S, w, offset - k_offset, q_BTHD.device)
    else:
        block_mask = _band_in_documents(cu_seqlens, T, w)
    o_BHTE = _compiled()(
        q_BTHD.transpose(1, 2),
        k_BSGD.transpose(1, 2),
        v_BSGE.transpose(1, 2),
        block_mask=block_mask,
        scale=scale,
        enable_gqa=q_BTHD.shape[2] != k_BSGD.shape[2],
        kernel_options={"BACKEND": "TRITON"},
    )
    return o_BHTE.transpose(1, 2)


@cache
def _compiled() -> Callable[..., Any]:
    # One compilation per shape: torch 2.11 finds no kernel for fp32 once lengths are symbols.
    return torch.compile(flex_attention, dynamic=False)


@cache
def _band(n_queries: int, n_keys: int, w: int, shift: int, device: torch.device) -> BlockMask:
    def is_visible(b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
        distance = query + shift - key
        return (distance >= 0) & (distance < w)

    return create_block_mask(is_visible, None, None, n_queries, n_keys, device=device)


def _band_in_documents(cu_seqlens: Tensor, n_tokens: int, w: int) -> BlockMask:
    document_S = token_documents(cu_seqlens, n_tokens).document_S

    def is_visible(b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
        distance = query - key
        return (distance >= 0) & (distance < w) & (document_S[query] == document_S[key])

    return create_block_mask(is_visible, None, None, n_tokens, n_tokens, device=cu_seqlens.device)
