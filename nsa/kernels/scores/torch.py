"""Block selection in plain torch, a chunk of queries at a time; one opaque operator for torch.compile.

Shape letters: C compression blocks, J selection blocks, N selected slots, R query heads per group.
"""

from __future__ import annotations

from collections.abc import Sequence  # noqa: TC003 - torch.library reads the annotations

import torch
from torch import Tensor

from nsa.blocks import N_INITIAL, N_LOCAL, BlockLayout
from nsa.kernels.documents import block_documents, token_documents
from nsa.kernels.masked import SCORES_AT_ONCE
from nsa.kernels.operators import operator
from nsa.kernels.scale import scale_of
from nsa.kernels.visibility import cmp_visible


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
    """Contract: ``nsa.kernels.scores.op.SelectBlocks``."""
    sizes = [layout.l, layout.d, layout.l_slc, layout.n, layout.w]
    scale = scale_of(q_BTHD, scale)
    return _select_blocks(q_BTHD.detach(), kc_BCGD.detach(), lse_BTH.detach(), cu_seqlens, sizes, scale, offset)


def stride_weights(layout: BlockLayout, like: Tensor) -> Tensor:
    """Weights of Eq. 9 over the compression blocks that touch one selection block, first to last.

    Selection block j takes blocks j l_slc/d - (l/d - 1) onward, each with the strides they share
    (``BlockLayout.overlap``): for l=32, d=16, l_slc=64 these are 1 2 2 2 1. Computed where ``like`` is, so that
    nothing is copied from the host.
    """
    per_cmp, per_slc = layout.l // layout.d, layout.l_slc // layout.d
    rising = torch.arange(1, per_cmp + per_slc, device=like.device)
    return torch.minimum(rising, rising.flip(0)).clamp(max=min(per_cmp, per_slc)).to(like.dtype)


def block_scores(p_cmp: Tensor, n_blocks: int, layout: BlockLayout) -> Tensor:
    """Spread compression-block probabilities over selection blocks (Eq. 9): [..., C] to [..., J].

    Not normalised: overlapping blocks count once per shared stride. Written as products and sums, not as a
    matrix product or a convolution, so that no setting can lower its precision.
    """
    weights = stride_weights(layout, p_cmp)
    before = layout.l // layout.d - 1
    per_block = layout.l_slc // layout.d
    needed = (n_blocks - 1) * per_block + len(weights)
    after = max(0, needed - before - p_cmp.shape[-1])
    padded = torch.nn.functional.pad(p_cmp, (before, after))[..., :needed]
    return (padded.unfold(-1, len(weights), per_block) * weights).sum(-1)


def top_blocks(score_BTGJ: Tensor, position_T: Tensor, layout: BlockLayout) -> Tensor:
    """The n best visible blocks of each row, forced blocks first, lower number on ties (Eq. 11).

    Returns:
        index_BTGN: int32, ascending, -1 at the end.
    """
    n_blocks = score_BTGJ.shape[-1]
    block_J = torch.arange(n_blocks, device=score_BTGJ.device)
    own_T1 = (position_T // layout.l_slc)[:, None]
    is_forced_TJ = (block_J < N_INITIAL) | (block_J > own_T1 - N_LOCAL)
    is_visible_TJ = block_J <= own_T1
    ranked = score_BTGJ.masked_fill(is_forced_TJ[None, :, None], torch.inf)
    ranked = ranked.masked_fill(~is_visible_TJ[None, :, None], -torch.inf)
    value, block = ranked.sort(dim=-1, descending=True, stable=True)
    kept = block[..., : layout.n].masked_fill(value[..., : layout.n] == -torch.inf, n_blocks).sort(dim=-1).values
    kept = torch.nn.functional.pad(kept, (0, layout.n - kept.shape[-1]), value=n_blocks)
    return kept.masked_fill(kept == n_blocks, -1).to(torch.int32)


@operator("nsa::select_blocks")
def _select_blocks(
    q_BTHD: Tensor,
    kc_BCGD: Tensor,
    lse_BTH: Tensor,
    cu_seqlens: Tensor | None,
    sizes: Sequence[int],
    scale: float,
    offset: int,
) -> Tensor:
    layout = _layout(sizes)
    B, T, H, _ = q_BTHD.shape
    C, G = kc_BCGD.shape[1:3]
    visible_TC = cmp_visible(T, C, layout, device=q_BTHD.device, offset=offset, cu_seqlens=cu_seqlens)[0, 0]
    position_T = torch.arange(offset, offset + T, device=q_BTHD.device)
    slot_TC = None
    if cu_seqlens is not None:
        position_T = token_documents(cu_seqlens, T).position_S
        slot_TC = _slots_of_own_document(cu_seqlens, T, C, layout)
    n_blocks = layout.n_slc(offset + T)
    kc_BG1DC = kc_BCGD.to(lse_BTH.dtype).permute(0, 2, 3, 1)[:, :, None]
    index_BTGN = q_BTHD.new_empty(B, T, G, layout.n, dtype=torch.int32)
    step = max(1, SCORES_AT_ONCE // max(1, B * H * C))
    for start in range(0, T, step):
        rows = slice(start, start + step)
        q_BGRTD = q_BTHD[:, rows].to(lse_BTH.dtype).unflatten(2, (G, -1)).permute(0, 2, 3, 1, 4)
        s_BGRTC = (q_BGRTD @ kc_BG1DC) * scale
        lse_BGRT = lse_BTH[:, rows].unflatten(2, (G, -1)).permute(0, 2, 3, 1)
        p_BGRTC = (s_BGRTC - lse_BGRT[..., None]).exp().masked_fill(~visible_TC[rows], 0.0)
        p_BGTC = p_BGRTC.sum(2)
        if slot_TC is not None:
            p_BGTC = torch.nn.functional.pad(p_BGTC, (0, 1)).gather(3, slot_TC[rows].expand(p_BGTC.shape))
        score_BGTJ = block_scores(p_BGTC, n_blocks, layout)
        index_BTGN[:, rows] = top_blocks(score_BGTJ.transpose(1, 2), position_T[rows], layout)
    return index_BTGN


def _slots_of_own_document(cu_seqlens: Tensor, n_tokens: int, n_slots: int, layout: BlockLayout) -> Tensor:
    """[T, C]: the packed slot of the own document's block 0, 1, ...; ``n_slots`` where there is none."""
    document_T = token_documents(cu_seqlens, n_tokens).document_S
    blocks = block_documents(cu_seqlens, n_tokens, layout)
    slot_TC = blocks.first_N[document_T, None] + torch.arange(n_slots, device=cu_seqlens.device)
    owner_TC = torch.nn.functional.pad(blocks.document_C, (0, 1), value=-1)[slot_TC.clamp(max=n_slots)]
    return torch.where(owner_TC == document_T[:, None], slot_TC, n_slots)


@_select_blocks.register_fake
def _(
    q_BTHD: Tensor,
    kc_BCGD: Tensor,
    lse_BTH: Tensor,
    cu_seqlens: Tensor | None,
    sizes: Sequence[int],
    scale: float,
    offset: int,
) -> Tensor:
    return q_BTHD.new_empty(q_BTHD.shape[0], q_BTHD.shape[1], kc_BCGD.shape[2], sizes[3], dtype=torch.int32)


def _layout(sizes: Sequence[int]) -> BlockLayout:
    l, d, l_slc, n, w = sizes  # noqa: E741 - the paper's letter
    return BlockLayout(l=l, d=d, l_slc=l_slc, n=n, w=w)
