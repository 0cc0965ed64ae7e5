# ruff: noqa: ANN001, ANN201 - a kernel's arguments are pointers and numbers whose types the launch decides
"""Block scores and the choice of blocks for Hopper GPUs (NSA Eq. 8 to 11), in Triton with TMA.

A program of the first pass keeps one tile of compressed keys and adds the probabilities of a group's heads, one after
the other, in registers: what spreads over the threads of a tile, the sum over neighbouring keys, is done once for a
group, not once for a head. Eq. 8 needs no maximum, for the compressed branch's lse is known.

The second pass ranks the fp32 scores of a query by their bits as 32-bit integers, which a warp compares in one
instruction, in 13 rounds of a maximum and the lowest block that has it.

Shapes: B batch, T queries, G kv heads, H = G * GROUP query heads, D head width, C compressed keys, J selection blocks.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LARGEST = tl.constexpr(2147483647)


@triton.jit
def lse_by_head_kernel(lse_ptr, out_ptr, T, H: tl.constexpr, BT: tl.constexpr, BH: tl.constexpr):
    """The lse of [B, T, H] as [B, H, T] in base 2; inf for a query that sees no key, so that its weights are zero."""
    b = tl.program_id(1).to(tl.int64)
    t = tl.program_id(0) * BT + tl.arange(0, BT)
    head = tl.program_id(2) * BH + tl.arange(0, BH)
    live = (t < T)[:, None] & (head < H)[None, :]
    lse = tl.load(lse_ptr + (b * T + t)[:, None] * H + head[None, :], mask=live, other=0.0) * LOG2E
    lse = tl.where(lse == float("-inf"), float("inf"), lse)
    tl.store(out_ptr + (b * H + head)[None, :] * T + t[:, None], lse, mask=live)


@triton.jit
def scores_kernel(
    desc_q, desc_k, lse_ptr, score_ptr, t_begin, t_end, T, C, offset, n_slc, qk_scale, spill_stride,
    D: tl.constexpr, G: tl.constexpr, GROUP: tl.constexpr, BT: tl.constexpr, BC: tl.constexpr,
    L: tl.constexpr, STRIDE: tl.constexpr, L_SLC: tl.constexpr, N: tl.constexpr, SPILLS: tl.constexpr,
    LOCAL: tl.constexpr,
):  # fmt: skip
    """Score BC / R blocks for BT queries of one kv head; R = l_slc / d compressed keys begin in a block.

    Queries are [B * T, H * D] in boxes (BT, D), keys [B * C, G * D] in (BC, D); ``lse_ptr``: of ``lse_by_head_kernel``.
    ``score[k]`` collects what block j gives to block j + k, as in ``nsa.kernels.scores.triton``.
    """
    R: tl.constexpr = L_SLC // STRIDE
    b = tl.program_id(2) // G
    g = tl.program_id(2) % G
    t0 = t_begin + tl.program_id(1) * BT
    c0 = tl.program_id(0) * BC
    own = (tl.minimum(t0 + BT, t_end) - 1 + offset) // L_SLC
    if (own < N) | (c0 // R > own - LOCAL):
        return  # all blocks that these queries see are chosen, or none of this tile's is free to choose
    t = t0 + tl.arange(0, BT)
    k = desc_k.load([b * C + c0, g * D])
    p = tl.zeros([BT, BC], tl.float32)
    lse_ptr += (b.to(tl.int64) * (G * GROUP) + g * GROUP) * T + t
    for head in range(GROUP):
        q = desc_q.load([b * T + t0, (g * GROUP + head) * D])
        lse = tl.load(lse_ptr + head * T, mask=t < T, other=float("inf"))
        p += tl.exp2(tl.dot(q, k.T) * qk_scale - lse[:, None])
    # The mask also keeps away what a box holds beyond the last key, and weights of keys that are not finite.
    if ((c0 + BC - 1) * STRIDE + L - 1 > t0 + offset) | (c0 + BC > C):
        c = c0 + tl.arange(0, BC)
        seen = (c * STRIDE + (L - 1))[None, :] <= (t + offset)[:, None]
        p = tl.where(seen & (c < C)[None, :], p, 0.0)
    p = tl.reshape(p, [BT, BC // R, R])
    m = tl.arange(0, R)
    j = c0 // R + tl.arange(0, BC // R)
    row = ((t - t_begin).to(tl.int64) * tl.num_programs(2) + tl.program_id(2)) * n_slc
    for i in tl.static_range(SPILLS + 1):
        weight = tl.minimum(m + L // STRIDE, (i + 1) * R) - tl.maximum(m, i * R)
        weight = tl.maximum(weight, 0).to(tl.float32)
        part = tl.sum(p * weight[None, None, :], 2)
        tl.store(
            score_ptr + i * spill_stride + row[:, None] + j[None, :], part,
            mask=(t < t_end)[:, None] & (j < n_slc)[None, :],
        )  # fmt: skip


@triton.jit
def choose_kernel(
    score_ptr, index_ptr, t_begin, t_first, t_past, T, offset, n_slc, spill_stride,
    G: tl.constexpr, L_SLC: tl.constexpr, N: tl.constexpr, BN: tl.constexpr, BJ: tl.constexpr, ROWS: tl.constexpr,
    SPILLS: tl.constexpr, INITIAL: tl.constexpr, LOCAL: tl.constexpr,
):  # fmt: skip
    """The forced blocks and the best others of ROWS queries of one kv head, ascending, -1 at the end.

    Queries t_first .. t_past - 1, none with more than BJ blocks; ``score_ptr`` begins with query t_begin. A score that
    is not a number ranks first.
    """
    bg = tl.program_id(1)
    t = t_first + tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    live = t < t_past
    own = (t + offset) // L_SLC
    slot = tl.arange(0, BN)
    out = index_ptr + (((bg // G).to(tl.int64) * T + t) * G + bg % G) * N
    if (t_first + tl.program_id(0) * ROWS + ROWS - 1 + offset) // L_SLC < N:
        all_seen = tl.where(slot[None, :] <= own[:, None], slot[None, :], -1)
        tl.store(out[:, None] + slot[None, :], all_seen, mask=live[:, None] & (slot < N)[None, :])
        return
    j = tl.arange(0, BJ)
    free = (j >= INITIAL)[None, :] & (j[None, :] <= (own - LOCAL)[:, None]) & (live & (own >= N))[:, None]
    row = ((t - t_begin).to(tl.int64) * tl.num_programs(1) + bg) * n_slc
    score = tl.zeros([ROWS, BJ], tl.float32)
    for k in tl.static_range(SPILLS + 1):
        score += tl.load(
            score_ptr + k * spill_stride + row[:, None] + (j - k)[None, :], mask=free & (j >= k)[None, :], other=0.0
        )
    key = tl.where(score >= 0.0, score.to(tl.int32, bitcast=True), LARGEST)
    key = tl.where(free, key, -1)
    chosen = tl.where(slot[None, :] < INITIAL, slot[None, :], own[:, None] - (slot - INITIAL)[None, :])
    for i in range(INITIAL + LOCAL, N):
        best = tl.max(key, 1)
        at = tl.min(tl.where(key == best[:, None], j[None, :], LARGEST), 1)
        chosen = tl.where(slot[None, :] == i, at[:, None], chosen)
        key = tl.where(j[None, :] == at[:, None], -1, key)
    # A query with n blocks or fewer among others that have more takes them all.
    chosen = tl.where((own >= N)[:, None], chosen, tl.where(slot[None, :] <= own[:, None], slot[None, :], LARGEST))
    chosen = tl.where((slot < N)[None, :], chosen, LARGEST)
    # Its place is how many are smaller; among empty ones, that come last, how many stand before it.
    before = (chosen[:, None, :] < chosen[:, :, None]) | (
        (chosen[:, None, :] == chosen[:, :, None]) & (slot[None, None, :] < slot[None, :, None])
    )
    place = tl.sum(before.to(tl.int32), 2)
    tl.store(out[:, None] + place, tl.where(chosen == LARGEST, -1, chosen), mask=live[:, None] & (place < N))
