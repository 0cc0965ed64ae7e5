# ruff: noqa: ANN001, ANN201, ANN202 - a kernel's arguments are pointers and numbers whose types the launch decides
"""Block scores and the choice of blocks for Hopper GPUs (NSA Eq. 8 to 11), in Triton with TMA.

A program of the first pass keeps one tile of compressed keys and adds the probabilities of a group's heads, one after
the other, in registers: what spreads over the threads of a tile, the sum over neighbouring keys, is done once for a
group, not once for a head. Eq. 8 needs no maximum, for the compressed branch's lse is known.

The second pass ranks the fp32 scores of a query by their bits as 32-bit integers, which a warp compares in one
instruction: 13 rounds go from one to the next smaller, and the blocks that reach the last are read off bit by bit.

Shapes: B batch, T queries, G kv heads, H = G * GROUP query heads, D head width, C compressed keys, J selection blocks.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LARGEST = tl.constexpr(2147483647)
NO_NUMBER = tl.constexpr(2147483646)
"""The rank of a score that is none: above infinity, below ``LARGEST``."""


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
def _ranks(
    score_ptr, j, own, is_ranked, row, spill_stride, SPILLS: tl.constexpr, INITIAL: tl.constexpr, LOCAL: tl.constexpr
):
    """[ROWS, blocks]: scores of blocks ``j`` as integers of their order, -1 of blocks that are not free."""
    free = (j >= INITIAL)[None, :] & (j[None, :] <= (own - LOCAL)[:, None]) & is_ranked[:, None]
    at = score_ptr + row[:, None] + j[None, :]
    score = tl.load(at, mask=free, other=0.0)
    for k in tl.static_range(1, SPILLS + 1):
        score += tl.load(at + (k * spill_stride - k), mask=free & (j >= k)[None, :], other=0.0)
    rank = tl.where(score >= 0.0, score.to(tl.int32, bitcast=True), NO_NUMBER)
    return tl.where(free, rank, -1)


@triton.jit
def _below(rank, least):
    """The largest of each row's ranks that is smaller than ``least``."""
    return tl.max(tl.where(rank < least[:, None], rank, -1), 1)


@triton.jit
def _words(taken, ROWS: tl.constexpr, BJ: tl.constexpr, BITS: tl.constexpr):
    """[ROWS, BJ / BITS]: the blocks that are taken as bits, BITS of them to a word."""
    bit = tl.where(taken, 1, 0) << (tl.arange(0, BJ) % BITS)[None, :]
    return tl.sum(tl.reshape(bit, [ROWS, BJ // BITS, BITS]), 2)


@triton.jit
def choose_kernel(
    score_ptr, index_ptr, t_begin, t_first, t_past, T, offset, n_slc, spill_stride,
    G: tl.constexpr, L_SLC: tl.constexpr, N: tl.constexpr, BN: tl.constexpr, BJ: tl.constexpr, ROWS: tl.constexpr,
    SPILLS: tl.constexpr, INITIAL: tl.constexpr, LOCAL: tl.constexpr,
):  # fmt: skip
    """The forced blocks and the best others of ROWS queries of one kv head, ascending, -1 at the end.

    Queries t_first .. t_past - 1, none with more than BJ blocks; ``score_ptr`` begins with query t_begin. A score that
    is not a number ranks first, and of equal ones that of the lower block.
    """
    bg = tl.program_id(1)
    t = t_first + tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    live = t < t_past
    own = (t + offset) // L_SLC
    slot = tl.arange(0, BN)
    out = index_ptr + (((bg // G).to(tl.int64) * T + t) * G + bg % G) * N
    all_seen = tl.where(slot[None, :] <= own[:, None], slot[None, :], -1)
    mine = live[:, None] & (slot < N)[None, :]
    if (t_first + tl.program_id(0) * ROWS + ROWS - 1 + offset) // L_SLC < N:
        tl.store(out[:, None] + slot[None, :], all_seen, mask=mine)
        return
    K: tl.constexpr = N - INITIAL - LOCAL
    HALF: tl.constexpr = BJ // 2
    BITS: tl.constexpr = min(32, max(1, BJ // 32))  # a word for every thread of a warp
    WORDS: tl.constexpr = BJ // BITS
    is_ranked = live & (own >= N)  # one with n blocks or fewer among others that have more takes them all
    j = tl.arange(0, HALF)
    row = ((t - t_begin).to(tl.int64) * tl.num_programs(1) + bg) * n_slc
    first = _ranks(score_ptr, j, own, is_ranked, row, spill_stride, SPILLS, INITIAL, LOCAL)
    second = _ranks(score_ptr, j + HALF, own, is_ranked, row, spill_stride, SPILLS, INITIAL, LOCAL)
    # The K-th largest of the better ones of pairs of blocks is the K-th largest of all, unless both of a pair reach it
    # or two are equal: then more than K do, and it is looked for among all.
    better = tl.maximum(first, second)
    least = tl.full([ROWS], LARGEST, tl.int32)
    for _ in range(K):
        least = _below(better, least)
    of_first = first >= least[:, None]
    of_second = second >= least[:, None]
    n_taken = tl.sum(of_first.to(tl.int32) + of_second.to(tl.int32), 1)
    if tl.max(tl.where(is_ranked, n_taken, 0), 0) > K:
        least = tl.full([ROWS], LARGEST, tl.int32)
        n_taken = tl.zeros([ROWS], tl.int32)
        for _ in range(K):
            least = tl.where(n_taken < K, tl.maximum(_below(first, least), _below(second, least)), least)
            reached = (first >= least[:, None]).to(tl.int32) + (second >= least[:, None]).to(tl.int32)
            n_taken = tl.sum(reached, 1)
        # Of those that are equal to it the lower blocks are taken.
        equal = (first == least[:, None]).to(tl.int32)
        equal_too = (second == least[:, None]).to(tl.int32)
        n_first = tl.sum(equal, 1)
        room = K - n_taken + n_first + tl.sum(equal_too, 1)
        of_first = (first > least[:, None]) | ((equal > 0) & (tl.cumsum(equal, 1) <= room[:, None]))
        room -= n_first
        of_second = (second > least[:, None]) | ((equal_too > 0) & (tl.cumsum(equal_too, 1) <= room[:, None]))
    words = tl.join(_words(of_first, ROWS, HALF, BITS), _words(of_second, ROWS, HALF, BITS))
    word = tl.arange(0, WORDS)
    # Gathered as they are, which lays a word to a thread: without it every thread goes through all of them.
    words = tl.gather(tl.reshape(words, [ROWS, WORDS]), tl.zeros([ROWS, WORDS], tl.int32) + word[None, :], 1)
    begin = ((word % 2) * HALF + (word // 2) * BITS)[None, :]
    chosen = tl.where(slot[None, :] < INITIAL, slot[None, :], own[:, None] - (N - 1 - slot)[None, :])
    for i in range(INITIAL, INITIAL + K):
        lowest = (words & -words).to(tl.uint32, bitcast=True).to(tl.float32)  # a power of two: its exponent is the bit
        block = begin + (lowest.to(tl.int32, bitcast=True) >> 23) - 127
        block = tl.min(tl.where(words != 0, block, LARGEST), 1)
        chosen = tl.where(slot[None, :] == i, block[:, None], chosen)
        words = tl.where(begin == (block // BITS * BITS)[:, None], words & (words - 1), words)
    tl.store(out[:, None] + slot[None, :], tl.where(is_ranked[:, None], chosen, all_seen), mask=mine)
