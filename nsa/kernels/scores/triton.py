# ruff: noqa: ANN001, ANN201, ANN202 - a kernel's arguments are pointers and numbers whose types the launch decides
"""Block selection in Triton: Eq. 8-10 in one pass over the compressed keys, Eq. 11 in a second over block scores.

Between the two lies one fp32 number (two when compression blocks overlap) per query, kv head and selection block,
for a chunk of queries at a time; no per-head probability reaches memory. Ranking compares the bits of fp32 scores,
the lower block number first among equals, so equal inputs give equal blocks whatever the launch.

Shapes: B batch, T queries, H = G * group query heads, D head size, C compressed keys, J selection blocks, N = n.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl

from nsa.blocks import N_INITIAL, N_LOCAL, BlockLayout
from nsa.kernels.documents import block_documents, token_documents
from nsa.kernels.operators import operator
from nsa.kernels.prepared import Prepared, kept, places
from nsa.kernels.sizes import cdiv, pow2

if TYPE_CHECKING:
    from torch import Size, Tensor

    from nsa.kernels.registry import Site

SCORE_BYTES = 1 << 28  # block scores held at one time
ROWS = 128  # (query, head) rows per tile
COLUMNS = 64  # compressed keys per tile

LOG2E = tl.constexpr(1.4426950408889634)


def refuses(site: Site) -> str | None:
    """Why these kernels cannot serve this site, if they cannot."""
    if site.dtype not in (torch.bfloat16, torch.float16, torch.float32):
        return f"the kernels take bf16, fp16 or fp32, not {site.dtype}"
    return None


@triton.jit
def _store_scores(
    kc_rows, qt, lse, row_pos, score_ptr, score_row, mine, j0, first, C, n_slc, qk_scale, spill_stride, d,
    D: tl.constexpr, G: tl.constexpr, GP: tl.constexpr, BT: tl.constexpr, L: tl.constexpr, STRIDE: tl.constexpr,
    R: tl.constexpr, RP: tl.constexpr, BJ: tl.constexpr, SPILLS: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Score BJ blocks from ``j0`` on for BT tokens.

    Keys are the rows of the tile: the sum over a token's heads then runs along columns, which lie in few threads.
    """
    column = tl.arange(0, BJ * RP)
    i = (j0 + column // RP) * R + column % RP
    exists = (column % RP < R) & (first + i < C)
    kc = tl.load(
        kc_rows + ((first + i).to(tl.int64) * G)[:, None] * D + d[None, :],
        mask=exists[:, None] & (d < D)[None, :],
        other=0.0,
    )
    p = tl.exp2(tl.dot(kc, qt, input_precision="ieee") * qk_scale - lse[None, :])
    if MASKED:
        p = tl.where(exists[:, None] & ((i * STRIDE + (L - 1))[:, None] <= row_pos[None, :]), p, 0.0)
    p = tl.reshape(tl.sum(tl.reshape(p, [BJ * RP, BT, GP]), 2), [BJ, RP, BT])
    j = j0 + tl.arange(0, BJ)
    m = tl.arange(0, RP)
    for k in tl.static_range(SPILLS + 1):
        weight = tl.minimum(m + L // STRIDE, (k + 1) * R) - tl.maximum(m, k * R)
        weight = tl.maximum(weight, 0).to(tl.float32)
        part = tl.sum(p * weight[None, :, None], 1)
        tl.store(
            score_ptr + k * spill_stride + score_row[None, :] + j[:, None],
            part,
            mask=mine[None, :] & (j < n_slc)[:, None],
        )


@triton.jit
def block_scores_kernel(
    q_ptr, kc_ptr, lse_ptr, score_ptr, document_ptr, position_ptr, first_slot_ptr,
    t0, t1, T, C, offset, n_slc, qk_scale, spill_stride,
    D: tl.constexpr, BD: tl.constexpr, G: tl.constexpr, GROUP: tl.constexpr, GP: tl.constexpr, BT: tl.constexpr,
    L: tl.constexpr, STRIDE: tl.constexpr, L_SLC: tl.constexpr, N: tl.constexpr,
    R: tl.constexpr, RP: tl.constexpr, BJ: tl.constexpr, SPILLS: tl.constexpr, LOCAL: tl.constexpr,
    VARLEN: tl.constexpr,
):  # fmt: skip
    """Score the blocks that BT queries may choose freely.

    Selection block j owns the compressed keys jR .. jR + R - 1 (R = l_slc / d); those near its end also reach into
    the next blocks. ``score[k]`` collects what block j gives to block j + k, so that Eq. 9 is the sum over k of
    ``score[k][j - k]``; its weights are overlaps in strides.
    """
    bg = tl.program_id(1)
    b = bg // G
    g = bg % G
    row = tl.arange(0, BT * GP)
    row_t = t0 + tl.program_id(0) * BT + row // GP
    row_head = row % GP
    live = (row_t < t1) & (row_head < GROUP)
    d = tl.arange(0, BD)
    q_row = (b.to(tl.int64) * T + row_t) * (G * GROUP) + g * GROUP + row_head
    t = t0 + tl.program_id(0) * BT + tl.arange(0, BT)
    t_live = t < t1
    if VARLEN:
        row_pos = tl.load(position_ptr + row_t, mask=live, other=-1)
        pos = tl.load(position_ptr + t, mask=t_live, other=-1)
        doc_t = tl.load(document_ptr + t, mask=t_live, other=-1)
        doc_lo = tl.min(tl.where(t_live, doc_t, 2147483647), 0)
        doc_hi = tl.max(doc_t, 0)
    else:
        row_pos = tl.where(live, row_t + offset, -1)
        pos = tl.where(t_live, t + offset, -1)
        doc_t = tl.zeros_like(t)
        doc_lo = 0
        doc_hi = 0
    if tl.max(pos, 0) // L_SLC < N:
        return  # every block that these queries see is chosen
    q = tl.load(q_ptr + q_row[:, None] * D + d[None, :], mask=live[:, None] & (d < D)[None, :], other=0.0)
    qt = tl.trans(q)
    # A probability is exp2(s - lse): with lse = inf, heads that are padding add nothing.
    lse = tl.load(lse_ptr + q_row, mask=live, other=float("inf")) * LOG2E
    score_row = ((t - t0).to(tl.int64) * (tl.num_programs(1)) + bg) * n_slc
    for doc in range(doc_lo, doc_hi + 1):
        first = 0
        if VARLEN:
            first = tl.load(first_slot_ptr + doc)
        # Tokens of other documents get numbers too, which nobody stores.
        mine = t_live & (doc_t == doc)
        own = tl.max(tl.where(mine, pos, -1), 0) // L_SLC
        # Blocks whose compressed keys all these tokens see need no mask.
        earliest = tl.min(tl.where(mine, pos, 1073741824), 0)
        n_seen = 0
        if R == RP:
            n_seen = tl.maximum(earliest + 1 - L + STRIDE, 0) // STRIDE // (R * BJ) * BJ
        n_seen = tl.minimum(n_seen, (own - LOCAL + 1) // BJ * BJ)
        kc_rows = kc_ptr + (b.to(tl.int64) * C * G + g) * D
        for j0 in range(0, n_seen, BJ):
            _store_scores(
                kc_rows, qt, lse, row_pos, score_ptr, score_row, mine, j0, first, C, n_slc, qk_scale,
                spill_stride, d, D, G, GP, BT, L, STRIDE, R, RP, BJ, SPILLS, MASKED=False,
            )  # fmt: skip
        for j0 in range(tl.maximum(n_seen, 0), own - LOCAL + 1, BJ):
            _store_scores(
                kc_rows, qt, lse, row_pos, score_ptr, score_row, mine, j0, first, C, n_slc, qk_scale,
                spill_stride, d, D, G, GP, BT, L, STRIDE, R, RP, BJ, SPILLS, MASKED=True,
            )  # fmt: skip


@triton.jit
def top_blocks_kernel(
    score_ptr, index_ptr, position_ptr, t0, T, offset, n_slc, spill_stride,
    G: tl.constexpr, L_SLC: tl.constexpr, N: tl.constexpr, BN: tl.constexpr, BJ: tl.constexpr,
    SPILLS: tl.constexpr, INITIAL: tl.constexpr, LOCAL: tl.constexpr, VARLEN: tl.constexpr,
):  # fmt: skip
    """Take the forced blocks and the best others of one query and kv head; write them ascending, -1 padded."""
    t_local = tl.program_id(0)
    bg = tl.program_id(1)
    t = t0 + t_local
    slot = tl.arange(0, BN)
    out = index_ptr + (((bg // G).to(tl.int64) * T + t) * G + bg % G) * N + slot
    own = (t + offset) // L_SLC
    if VARLEN:
        own = tl.load(position_ptr + t) // L_SLC
    if own < N:
        tl.store(out, tl.where(slot <= own, slot, -1), mask=slot < N)
        return
    j = tl.arange(0, BJ)
    free = (j >= INITIAL) & (j <= own - LOCAL)
    row = (t_local.to(tl.int64) * tl.num_programs(1) + bg) * n_slc
    score = tl.zeros([BJ], tl.float32)
    for k in tl.static_range(SPILLS + 1):
        score += tl.load(score_ptr + k * spill_stride + row + j - k, mask=free & (j >= k), other=0.0)
    # Scores are not negative, so their bits order like integers; the low word prefers the lower block.
    key = (score.to(tl.int32, bitcast=True).to(tl.int64) << 32) | (2147483647 - j).to(tl.int64)
    key = tl.where(free, key, -1)
    chosen = tl.where(slot < INITIAL, slot, own - (slot - INITIAL))
    for i in range(INITIAL + LOCAL, N):
        best = tl.max(key, 0)
        chosen = tl.where(slot == i, 2147483647 - (best & 2147483647).to(tl.int32), chosen)
        key = tl.where(key == best, -1, key)
    chosen = tl.sort(tl.where(slot < N, chosen, 2147483647))
    tl.store(out, chosen, mask=slot < N)


@operator(
    "nsa::select_blocks_triton",
    schema="(Tensor q, Tensor kc, Tensor lse, int l, int d, int l_slc, int n, float scale, int offset, "
    "Tensor? cu_seqlens) -> Tensor",
)
def select_op(
    q: Tensor, kc: Tensor, lse: Tensor, l: int, d: int, l_slc: int, n: int, scale: float, offset: int,  # noqa: E741
    cu_seqlens: Tensor | None,
) -> Tensor:  # fmt: skip
    """Block numbers [B, T, G, n], as ``nsa.kernels.scores.op.SelectBlocks`` says."""
    B, T = q.shape[:2]
    index = q.new_empty(B, T, kc.shape[2], n, dtype=torch.int32)
    if index.numel() == 0:
        return index
    q, kc, lse = q.contiguous(), kc.contiguous(), lse.float().contiguous()
    document = position = first_slot = index
    if cu_seqlens is not None:
        tokens = token_documents(cu_seqlens, T)
        document, position = tokens.document_S.int(), tokens.position_S.int()
        layout = BlockLayout(l=l, d=d, l_slc=l_slc, n=n, w=1)
        first_slot = block_documents(cu_seqlens, T, layout).first_N.int()
    docs = (document, position, first_slot)
    sizes, how = (l, d, l_slc, n), (scale, offset, cu_seqlens is not None, SCORE_BYTES)
    work = _work(q.shape, kc.shape, sizes, how, places(q, kc, lse, *docs))
    score = q.new_empty(work.n_scores, dtype=torch.float32)
    if work.is_zero:
        score.zero_()
    for scores, top in work.launches:
        if scores is not None:
            scores(q, kc, lse, score, *docs)
        top(score, index, position)
    return index


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """The launches of one call, pairs of scores and ranking, a chunk of queries at a time; and the scores they hold."""

    n_scores: int
    is_zero: bool
    launches: tuple[tuple[Prepared | None, Prepared], ...]


@kept
def _work(
    q: Size, kc: Size, sizes: tuple[int, int, int, int], how: tuple[float, int, bool, int], where: tuple[Any, ...]
) -> _Work:
    (B, T, H, D), (C, G), (l, d, l_slc, n) = q, kc[1:3], sizes  # noqa: E741 - the paper's letter
    scale, offset, is_varlen, score_bytes = how
    n_slc = cdiv(offset + T, l_slc)
    strides, group = l_slc // d, H // G
    spills = (strides - 2 + l // d) // strides
    group_pow2, strides_pow2 = pow2(group), pow2(strides)
    tile_t = max(1, ROWS // group_pow2)
    tile_j = max(1, COLUMNS // strides_pow2)
    n_slc_pow2 = pow2(n_slc)
    needs_ranking = n_slc > n
    chunk = max(1, score_bytes // (4 * (spills + 1) * B * G * n_slc)) if needs_ranking else T
    chunk = min(T, cdiv(chunk, tile_t) * tile_t)
    spill = (chunk if needs_ranking else 0) * B * G * n_slc
    launches = []
    for t0 in range(0, T, chunk):
        t1, scores = min(t0 + chunk, T), None
        if needs_ranking and C > 0:
            scores = Prepared(
                block_scores_kernel, (cdiv(t1 - t0, tile_t), B * G),
                t0, t1, T, C, offset, n_slc, scale * LOG2E.value, spill,
                D=D, BD=max(16, pow2(D)), G=G, GROUP=group, GP=group_pow2, BT=tile_t,
                L=l, STRIDE=d, L_SLC=l_slc, N=n, R=strides, RP=strides_pow2, BJ=tile_j, SPILLS=spills,
                LOCAL=N_LOCAL, VARLEN=is_varlen, num_warps=4, num_stages=3 if where[1][0].itemsize == 2 else 1,
            )  # fmt: skip
        top = Prepared(
            top_blocks_kernel, (t1 - t0, B * G), t0, T, offset, n_slc, spill,
            G=G, L_SLC=l_slc, N=n, BN=pow2(n), BJ=n_slc_pow2, SPILLS=spills,
            INITIAL=N_INITIAL, LOCAL=N_LOCAL, VARLEN=is_varlen, num_warps=max(1, min(8, n_slc_pow2 // 1024)),
        )  # fmt: skip
        launches.append((scores, top))
    is_zero = needs_ranking and C == 0
    return _Work(n_scores=(spills + 1) * spill, is_zero=is_zero, launches=tuple(launches))


@select_op.register_fake
def _(
    q: Tensor, kc: Tensor, lse: Tensor, l: int, d: int, l_slc: int, n: int, scale: float, offset: int,  # noqa: E741
    cu_seqlens: Tensor | None,
) -> Tensor:  # fmt: skip
    return q.new_empty(q.shape[0], q.shape[1], kc.shape[2], n, dtype=torch.int32)


def select_blocks(
    q_BTHD: Tensor,
    kc_BCGD: Tensor,
    lse_BTH: Tensor,
    layout: BlockLayout,
    *,
    scale: float | None = None,
    offset: int = 0,
    cu_seqlens: Tensor | None = None,
) -> Tensor:
    """Contract: ``nsa.kernels.scores.op.SelectBlocks``; q and kc in bf16, fp16 or fp32."""
    return select_op(
        q_BTHD.detach(), kc_BCGD.detach(), lse_BTH.detach(), layout.l, layout.d, layout.l_slc, layout.n,
        q_BTHD.shape[-1] ** -0.5 if scale is None else scale, offset, cu_seqlens,
    )  # fmt: skip
