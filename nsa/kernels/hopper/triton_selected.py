# ruff: noqa: ANN001, ANN201 - a kernel's arguments are pointers and numbers whose types the launch decides
"""Selected attention on Hopper GPUs (NSA Eq. 1-2 over the blocks of Eq. 11-12), query-major, in Triton with TMA.

A program is one query and PACK of its group's heads, 16 of them to a warp: they are all the rows that share a list of
blocks, so no product is padded. The copy engine brings each block whole; softmax and the sum stay in registers. What
limits it is how fast keys and values leave the L2 cache, 32 KiB for a block of 64 keys at D = 128.

Blocks that every query is made to see, the first and its newest ones, are the same for neighbouring queries. Where the
list is known to have them, the tiles of ``triton_forward`` attend to them before, once for all the rows that share
them, and a program begins with what they found: three of 16 blocks less to bring.

Keys come as ``quarantine_kernel`` leaves them: a key that is not finite, or whose value is not, is a row of NaN and its
value zeros.

Shapes: B batch, T queries, S keys, G kv heads, H = G * GROUP query heads, D both head widths, N slots, L = l_slc.
"""

from __future__ import annotations

import triton
import triton.language as tl

LN2 = tl.constexpr(0.6931471805599453)
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def forward_kernel(
    desc_q, desc_k, desc_v, index_ptr, desc_o, lse_ptr, T, S, offset, qk_scale,
    D: tl.constexpr, G: tl.constexpr, GROUP: tl.constexpr, PACK: tl.constexpr, L: tl.constexpr, N: tl.constexpr,
    BN: tl.constexpr, INITIAL: tl.constexpr, LOCAL: tl.constexpr,
):  # fmt: skip
    """O and lse of PACK heads of one query; a query without a key gives o = 0, lse = -inf.

    Queries and o are [B * T * H, D] in boxes (PACK, D), keys and values [B * S, G * D] in (L, D); ``qk_scale`` is the
    scores' factor times log2(e), BN is N's power of two. With INITIAL and LOCAL, lists ascend, and o and lse come as
    those of the first INITIAL and the last LOCAL blocks that a query sees.
    """
    t = tl.program_id(0)
    b = tl.program_id(1) // G
    g = tl.program_id(1) % G
    last = tl.minimum(t + offset, S - 1)
    bt = b * T + t
    row = (bt * G + g) * GROUP + tl.program_id(2) * PACK
    index_ptr += (bt.to(tl.int64) * G + g) * N
    slot = tl.arange(0, BN)
    listed = tl.load(index_ptr + slot, mask=slot < N, other=-1)
    n_slots = tl.max(tl.where((listed >= 0) & (listed <= last // L), slot + 1, 0), 0)
    q = desc_q.load([row, 0])
    key_in = tl.arange(0, L)
    lse_ptr += row.to(tl.int64) + tl.arange(0, PACK)
    if LOCAL > 0:
        m = tl.load(lse_ptr) * LOG2E
        total = tl.where(m == float("-inf"), 0.0, 1.0)
        acc = desc_o.load([row, 0]).to(tl.float32)
    else:
        m = tl.full([PACK], float("-inf"), tl.float32)
        total = tl.zeros([PACK], tl.float32)
        acc = tl.zeros([PACK, D], tl.float32)
    for i in range(INITIAL, n_slots - LOCAL):
        block = tl.load(index_ptr + i)
        first = tl.maximum(block, 0) * L
        k = desc_k.load([b * S + first, g * D])
        s = tl.dot(q, k.T) * qk_scale
        v = desc_v.load([b * S + first, g * D])
        if LOCAL == 0:  # otherwise no key of these is ahead
            s = tl.where(((first + key_in <= last) & (block >= 0))[None, :], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        base = tl.where(m_new == float("-inf"), 0.0, m_new)
        p = tl.exp2(s - base[:, None])
        fade = tl.exp2(m - base)
        total = total * fade + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * fade[:, None])
        m = m_new
    is_empty = total == 0.0
    total = tl.where(is_empty, 1.0, total)
    desc_o.store([row, 0], (acc / total[:, None]).to(desc_o.dtype))
    lse = tl.where(is_empty, float("-inf"), (m + tl.log2(total)) * LN2)
    tl.store(lse_ptr, lse)
