"""Who sees what, as boolean masks: one function per branch, shared by the reference and the masked backends.

Masks are [B, G, T, keys], with size 1 where all batch rows or all heads agree. Query ``t`` stands at absolute
position ``offset + t`` of its document; with ``cu_seqlens`` documents are packed, B is 1, and offset is 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from nsa.kernels.documents import block_documents, token_documents

if TYPE_CHECKING:
    from torch import Tensor

    from nsa.blocks import BlockLayout


def cmp_visible(
    n_queries: int, n_blocks: int, layout: BlockLayout, *, device: torch.device, offset: int, cu_seqlens: Tensor | None
) -> Tensor:
    """[1, 1, T, C]: a query sees a compression block once the block's last token is not ahead of it (Eq. 7)."""
    if cu_seqlens is None:
        position_T = torch.arange(offset, offset + n_queries, device=device)
        last_C = torch.arange(n_blocks, device=device) * layout.d + layout.l - 1
        return (last_C[None, :] <= position_T[:, None])[None, None]
    tokens = token_documents(cu_seqlens, n_queries)
    blocks = block_documents(cu_seqlens, n_queries, layout)
    last_C = blocks.number_C * layout.d + layout.l - 1
    is_same_TC = tokens.document_S[:, None] == blocks.document_C[None, :]
    return (is_same_TC & (last_C[None, :] <= tokens.position_S[:, None]))[None, None]


def slc_visible(index_BTGN: Tensor, n_keys: int, *, l_slc: int, offset: int, cu_seqlens: Tensor | None) -> Tensor:
    """[B, G, T, S]: a query sees the keys of its selected blocks up to itself (Eq. 12)."""
    B, T, G, _ = index_BTGN.shape
    n_blocks = -(-n_keys // l_slc)
    slot_BTGN = torch.where(index_BTGN < 0, n_blocks, index_BTGN).to(torch.int64)
    is_chosen_BTGJ = torch.zeros(B, T, G, n_blocks + 1, dtype=torch.bool, device=index_BTGN.device)
    is_chosen_BTGJ.scatter_(3, slot_BTGN, value=True)
    key_S = torch.arange(n_keys, device=index_BTGN.device)
    if cu_seqlens is None:
        position_T = torch.arange(offset, offset + T, device=index_BTGN.device)
        block_TS = (key_S // l_slc)[None, :].expand(T, n_keys)
        is_past_TS = key_S[None, :] <= position_T[:, None]
    else:
        tokens = token_documents(cu_seqlens, n_keys)
        block_TS = (tokens.position_S // l_slc)[None, :].expand(T, n_keys)
        is_same_TS = tokens.document_S[:, None] == tokens.document_S[None, :]
        is_past_TS = is_same_TS & (tokens.position_S[None, :] <= tokens.position_S[:, None])
    is_listed_BTGS = is_chosen_BTGJ.gather(3, block_TS[None, :, None, :].expand(B, T, G, n_keys))
    return (is_listed_BTGS & is_past_TS[None, :, None, :]).transpose(1, 2)


def win_visible(
    n_queries: int,
    n_keys: int,
    w: int,
    *,
    device: torch.device,
    offset: int,
    k_offset: int,
    cu_seqlens: Tensor | None,
) -> Tensor:
    """[1, 1, T, S]: a query sees exactly the last w keys, its own included. Key ``s`` stands at k_offset + s."""
    if cu_seqlens is None:
        position_T = torch.arange(offset, offset + n_queries, device=device)
        position_S = torch.arange(k_offset, k_offset + n_keys, device=device)
        distance_TS = position_T[:, None] - position_S[None, :]
        return ((distance_TS >= 0) & (distance_TS < w))[None, None]
    tokens = token_documents(cu_seqlens, n_keys)
    distance_TS = tokens.position_S[:, None] - tokens.position_S[None, :]
    is_same_TS = tokens.document_S[:, None] == tokens.document_S[None, :]
    return (is_same_TS & (distance_TS >= 0) & (distance_TS < w))[None, None]
