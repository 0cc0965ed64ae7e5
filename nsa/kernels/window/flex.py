"""Window branch by torch's flex_attention, compiled: a block-sparse band on a GPU.

Compiled anew for every pair of lengths, so it suits training at one length, not decoding; ``auto`` never takes it.
"""

from __future__ import annotations

from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from nsa.kernels.documents import token_documents
from nsa.kernels.quarantine import quarantined, seen_in_window, spoiled

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from nsa.kernels.registry import Site

TILE = 128
"""Queries and keys of a tile of the block mask."""
_numbers = count()


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
    k_BSGD, v_BSGE, bad_BSG = quarantined(k_BSGD, v_BSGE)
    o_BHTE = _compiled(q_BTHD.shape, k_BSGD.shape, v_BSGE.shape, q_BTHD.dtype)(
        q_BTHD.transpose(1, 2),
        k_BSGD.transpose(1, 2),
        v_BSGE.transpose(1, 2),
        block_mask=block_mask,
        scale=scale,
        enable_gqa=q_BTHD.shape[2] != k_BSGD.shape[2],
        kernel_options={"BACKEND": "TRITON"},
    )
    return spoiled(o_BHTE.transpose(1, 2), seen_in_window(bad_BSG, T, w, offset - k_offset, cu_seqlens))


@cache
def _compiled(*shape: object) -> Callable[..., Any]:
    # One compilation per shape: torch 2.11 finds no kernel for fp32 once lengths are symbols. And code of its own for
    # each: after eight compilations of the same code torch would run it as it is, with a score for every pair.
    def attention(*args: Any, **how: Any) -> Any:
        return flex_attention(*args, **how)

    attention.__code__ = attention.__code__.replace(co_name=f"window_{next(_numbers)}")
    return torch.compile(attention, dynamic=False, fullgraph=True)


@cache
def _band(n_queries: int, n_keys: int, w: int, shift: int, device: torch.device) -> BlockMask:
    def is_visible(b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
        distance = query + shift - key
        return (distance >= 0) & (distance < w)

    touched, whole = _tiles(n_queries, n_keys, w, shift, device)
    return _block_mask(touched & ~whole, whole, is_visible, (n_queries, n_keys))


def _band_in_documents(cu_seqlens: Tensor, n_tokens: int, w: int) -> BlockMask:
    document_S = token_documents(cu_seqlens, n_tokens).document_S

    def is_visible(b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
        distance = query - key
        return (distance >= 0) & (distance < w) & (document_S[query] == document_S[key])

    touched, _ = _tiles(n_tokens, n_tokens, w, 0, cu_seqlens.device)
    return _block_mask(touched, torch.zeros_like(touched), is_visible, (n_tokens, n_tokens))


def _tiles(n_queries: int, n_keys: int, w: int, shift: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Which tiles of the score matrix the band touches and which lie wholly in it; torch would look at every score."""
    query_I1 = torch.arange(-(-n_queries // TILE), device=device)[:, None] * TILE
    key_J = torch.arange(-(-n_keys // TILE), device=device) * TILE
    nearest, farthest = query_I1 + shift - key_J - (TILE - 1), query_I1 + shift - key_J + (TILE - 1)
    is_cut = (query_I1 + TILE > n_queries) | (key_J + TILE > n_keys)
    return (farthest >= 0) & (nearest < w), (nearest >= 0) & (farthest < w) & ~is_cut


def _block_mask(partly: Tensor, whole: Tensor, is_visible: Callable[..., Tensor], shape: tuple[int, int]) -> BlockMask:
    listed = [
        x[None, None]
        for tiles in (partly, whole)
        for x in (tiles.sum(1).int(), tiles.int().argsort(dim=1, descending=True, stable=True).int())
    ]
    return BlockMask.from_kv_blocks(*listed, BLOCK_SIZE=TILE, mask_mod=is_visible, seq_lengths=shape)
