# ruff: noqa: ANN001, ANN201, ANN202 - a kernel's arguments are pointers and numbers whose types the launch decides
"""Triton kernels of the selected branch (NSA Eq. 1-2 over the blocks of Eq. 11-12).

Two loop orders, one meaning. *Query-major* is the paper's Fig. 3: one program per query and kv head, keys streamed;
it reads 32 KiB of keys and values per pair at D = 128 whatever the group. *KV-major* keeps one block's keys and
values on chip and streams the queries that chose it; a tile is BM consecutive rows of (pair, head of the group), so
every group size fills the tensor cores, and a pair costs a few rows of 256 bytes. Partial results go to one slot per
pair and are summed in slot order: no atomics, bitwise reproducible.

Shapes as in ``triton_csr``; L = l_slc, BL, BD, BE its, D's and E's next power of two. All offsets into tensors are
int64. Softmax runs in base 2: ``qk_scale = scale * log2(e)``.
"""

from __future__ import annotations

import triton
import triton.language as tl

LN2 = tl.constexpr(0.6931471805599453)
LOG2E = tl.constexpr(1.4426950408889634)
# A partial of the forward pass is a convex combination of rows of V; above this it is scaled into fp16's range.
HALF_SAFE = tl.constexpr(32768.0)


@triton.jit
def _item(item_bucket, item_start, start, launch, n_buckets, max_items, SEG: tl.constexpr):
    """Give this program's bucket (``n_buckets`` when it has nothing to do) and its range of pairs."""
    pid = tl.program_id(0)
    bucket = tl.load(item_bucket + launch * max_items + pid)
    real = bucket < n_buckets
    first = tl.load(item_start + launch * (n_buckets + 1) + bucket, mask=real, other=0)
    at = launch * n_buckets + bucket
    lo = tl.load(start + at, mask=real, other=0) + (pid - first) * SEG
    hi = tl.minimum(tl.load(start + at + 1, mask=real, other=0), lo + SEG)
    return bucket, lo, hi


@triton.jit
def _block_rows(block, S, block_lo, block_hi, L: tl.constexpr, VARLEN: tl.constexpr):
    """Give the key rows [lo, hi) of a block."""
    if VARLEN:
        lo = tl.load(block_lo + block)
        hi = tl.load(block_hi + block)
    else:
        lo = block * L
        hi = tl.minimum(lo + L, S)
    return lo, hi


@triton.jit
def _finite(x):
    """Replace what is not finite by zero, so that a masked key cannot turn 0 * NaN into NaN."""
    return tl.where(tl.abs(x.to(tl.float32)) < float("inf"), x, 0.0).to(x.dtype)


@triton.jit
def _taint(x):
    """Per key 0, or NaN where its row is not finite: added to the scores, it reaches exactly who sees the key."""
    bad = tl.max((tl.abs(x.to(tl.float32)) < float("inf")).to(tl.int32) ^ 1, 1)
    return tl.where(bad > 0, float("nan"), 0.0)


@triton.jit
def _rows(pairs, lo, r, n_rows, first_t, offset, t0, bg_local, bg_chunk,
          G: tl.constexpr, GROUP: tl.constexpr, N: tl.constexpr):  # fmt: skip
    """For rows ``r`` of an item: query row of q, slot row of the scratch, position (-1 when r is past the end).

    ``first_t`` is b * T: subtracting it is cheaper than a division by T in every row of every tile.
    """
    live = r < n_rows
    pair = tl.load(pairs + lo + r // GROUP, mask=live, other=0)
    head = r % GROUP
    t = pair // (N * G) - first_t
    q_row = (pair // N).to(tl.int64) * GROUP + head
    slot = (((t - t0).to(tl.int64) * bg_chunk + bg_local) * N + pair % N) * GROUP + head
    return live, q_row, slot, tl.where(live, t + offset, -1)


@triton.jit
def kv_major_forward_kernel(
    q_ptr, k_ptr, v_ptr, o_slot_ptr, lse_slot_ptr, v_scale_ptr,
    pairs, start, item_start, item_bucket, block_lo, block_hi,
    launch, bg0, t0, n_buckets, max_items, n_blocks, bg_chunk, T, S, offset, qk_scale,
    D: tl.constexpr, E: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr, L: tl.constexpr, BL: tl.constexpr,
    G: tl.constexpr, GROUP: tl.constexpr, N: tl.constexpr, SEG: tl.constexpr, BM: tl.constexpr,
    VARLEN: tl.constexpr,
):  # fmt: skip
    """One block, the queries of one item: a normalised partial output and its base-2 lse per (pair, head)."""
    bucket, lo, hi = _item(item_bucket, item_start, start, launch, n_buckets, max_items, SEG)
    if bucket >= n_buckets:
        return
    bg_local = bucket // n_blocks
    bg = bg0 + bg_local
    b = bg // G
    g = bg % G
    key_lo, key_hi = _block_rows(bucket % n_blocks, S, block_lo, block_hi, L, VARLEN)
    key = key_lo + tl.arange(0, BL)
    d = tl.arange(0, BD)
    e = tl.arange(0, BE)
    kv_row = ((b.to(tl.int64) * S + key) * G + g)[:, None]
    k = tl.load(k_ptr + kv_row * D + d[None, :], mask=(key < key_hi)[:, None] & (d < D)[None, :], other=0.0)
    v = tl.load(v_ptr + kv_row * E + e[None, :], mask=(key < key_hi)[:, None] & (e < E)[None, :], other=0.0)
    taint = _taint(v)
    v = _finite(v)
    v_max = tl.max(tl.max(tl.abs(v.to(tl.float32)), 1), 0)
    v_scale = tl.where(v_max > HALF_SAFE, HALF_SAFE / v_max, 1.0)
    # Every item of a block writes the same value.
    tl.store(v_scale_ptr + bucket, v_scale)
    kt = tl.trans(k)
    n_rows = (hi - lo) * GROUP
    for r0 in range(0, n_rows, BM):
        r = r0 + tl.arange(0, BM)
        live, q_row, slot, pos = _rows(pairs, lo, r, n_rows, b * T, offset, t0, bg_local, bg_chunk, G, GROUP, N)
        q = tl.load(q_ptr + q_row[:, None] * D + d[None, :], mask=live[:, None] & (d < D)[None, :], other=0.0)
        s = tl.dot(q, kt, input_precision="ieee") * qk_scale + taint[None, :]
        s = tl.where((key[None, :] <= pos[:, None]) & (key < key_hi)[None, :], s, float("-inf"))
        # A listed row sees the block's first key, so its maximum is finite; rows past the end get zero.
        m = tl.where(live, tl.max(s, 1), 0.0)
        p = tl.exp2(s - m[:, None])
        total = tl.where(live, tl.sum(p, 1), 1.0)
        o = tl.dot(p.to(v.dtype), v, input_precision="ieee") * (v_scale / total)[:, None]
        tl.store(
            o_slot_ptr + slot[:, None] * E + e[None, :],
            o.to(o_slot_ptr.dtype.element_ty),
            mask=live[:, None] & (e < E)[None, :],
        )
        tl.store(lse_slot_ptr + slot, m + tl.log2(total), mask=live)


@triton.jit
def _seen(index_ptr, pair, mask, t, S, offset, doc_start, doc_block, L: tl.constexpr, VARLEN: tl.constexpr):
    """Whether a pair has a visible key (the rule of ``pair_keys_kernel``), and its block number in the row."""
    block = tl.load(index_ptr + pair, mask=mask, other=-1)
    start = 0
    first_block = 0
    if VARLEN:
        start = tl.load(doc_start + t)
        first_block = tl.load(doc_block + t)
    seen = (block >= 0) & (block <= (tl.minimum(t + offset, S - 1) - start) // L) & (t + offset >= start)
    return seen, block + first_block


@triton.jit
def combine_slots_kernel(
    index_ptr, o_slot_ptr, lse_slot_ptr, v_scale_ptr, o_ptr, lse_ptr, doc_start, doc_block,
    bg0, t0, n_blocks, bg_chunk, T, S, offset,
    E: tl.constexpr, BE: tl.constexpr, L: tl.constexpr, G: tl.constexpr, GROUP: tl.constexpr, BG: tl.constexpr,
    N: tl.constexpr, BN: tl.constexpr, VARLEN: tl.constexpr,
):  # fmt: skip
    """Merge a query's partial outputs by their lse, in slot order; a query without a key gives o = 0, lse = -inf."""
    t_local = tl.program_id(0)
    bg_local = tl.program_id(1)
    t = t0 + t_local
    bg = bg0 + bg_local
    bt = (bg // G).to(tl.int64) * T + t
    pair0 = (bt * G + bg % G) * N
    slot0 = (t_local.to(tl.int64) * bg_chunk + bg_local) * N
    head = tl.program_id(2) * BG + tl.arange(0, BG)
    e = tl.arange(0, BE)
    n = tl.arange(0, BN)
    seen, _ = _seen(index_ptr, pair0 + n, n < N, t, S, offset, doc_start, doc_block, L, VARLEN)
    lse = tl.load(
        lse_slot_ptr + (slot0 + n)[:, None] * GROUP + head[None, :],
        mask=seen[:, None] & (head < GROUP)[None, :],
        other=float("-inf"),
    )
    top = tl.max(lse, 0)
    m = tl.where(top == float("-inf"), 0.0, top)
    total = tl.sum(tl.exp2(lse - m[None, :]), 0)
    acc = tl.zeros([BG, BE], tl.float32)
    for i in range(N):
        seen_i, block = _seen(index_ptr, pair0 + i, t_local >= 0, t, S, offset, doc_start, doc_block, L, VARLEN)
        row = (slot0 + i) * GROUP + head
        here = seen_i & (head < GROUP)
        lse_i = tl.load(lse_slot_ptr + row, mask=here, other=float("-inf"))
        v_scale = tl.load(v_scale_ptr + bg_local * n_blocks + block, mask=seen_i, other=1.0)
        o_i = tl.load(o_slot_ptr + row[:, None] * E + e[None, :], mask=here[:, None] & (e < E)[None, :], other=0.0)
        acc += (tl.exp2(lse_i - m) / v_scale)[:, None] * o_i.to(tl.float32)
    none = total == 0.0
    acc = acc / tl.where(none, 1.0, total)[:, None]
    row = bt * (G * GROUP) + (bg % G) * GROUP + head
    tl.store(
        o_ptr + row[:, None] * E + e[None, :],
        acc.to(o_ptr.dtype.element_ty),
        mask=(head < GROUP)[:, None] & (e < E)[None, :],
    )
    lse_out = tl.where(none, float("-inf"), (m + tl.log2(tl.where(none, 1.0, total))) * LN2)
    tl.store(lse_ptr + row, lse_out, mask=head < GROUP)


@triton.jit
def query_major_forward_kernel(
    q_ptr, k_ptr, v_ptr, index_ptr, o_ptr, lse_ptr, doc_start, doc_block, T, S, offset, qk_scale,
    D: tl.constexpr, E: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr, L: tl.constexpr, BL: tl.constexpr,
    G: tl.constexpr, GROUP: tl.constexpr, BG: tl.constexpr, N: tl.constexpr, VARLEN: tl.constexpr,
):  # fmt: skip
    """One query, BG heads of one kv head: online softmax over the chosen blocks (the paper's Fig. 3)."""
    t = tl.program_id(0)
    bg = tl.program_id(1)
    b = bg // G
    g = bg % G
    bt = b.to(tl.int64) * T + t
    pair0 = (bt * G + g) * N
    head = tl.program_id(2) * BG + tl.arange(0, BG)
    d = tl.arange(0, BD)
    e = tl.arange(0, BE)
    row = bt * (G * GROUP) + g * GROUP + head
    q = tl.load(q_ptr + row[:, None] * D + d[None, :], mask=(head < GROUP)[:, None] & (d < D)[None, :], other=0.0)
    start = 0
    if VARLEN:
        start = tl.load(doc_start + t)
    last = tl.minimum(t + offset, S - 1)
    m = tl.full([BG], float("-inf"), tl.float32)
    total = tl.zeros([BG], tl.float32)
    acc = tl.zeros([BG, BE], tl.float32)
    for i in range(N):
        block = tl.load(index_ptr + pair0 + i)
        seen = (block >= 0) & (block <= (last - start) // L) & (t + offset >= start)
        key_in = tl.arange(0, BL)
        key = start + block * L + key_in
        # The mask also keeps a value that is not yet visible, NaN included, away from the dot below.
        visible = seen & (key <= last) & (key_in < L)
        kv_row = (b.to(tl.int64) * S + key) * G + g
        kt = tl.load(k_ptr + kv_row[None, :] * D + d[:, None], mask=visible[None, :] & (d < D)[:, None], other=0.0)
        v = tl.load(v_ptr + kv_row[:, None] * E + e[None, :], mask=visible[:, None] & (e < E)[None, :], other=0.0)
        s = tl.where(visible[None, :], tl.dot(q, kt, input_precision="ieee") * qk_scale, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)
        p = tl.exp2(s - m_safe[:, None])
        shrink = tl.exp2(m - m_safe)
        total = total * shrink + tl.sum(p, 1)
        acc = acc * shrink[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = m_new
    none = total == 0.0
    acc = acc / tl.where(none, 1.0, total)[:, None]
    tl.store(
        o_ptr + row[:, None] * E + e[None, :],
        acc.to(o_ptr.dtype.element_ty),
        mask=(head < GROUP)[:, None] & (e < E)[None, :],
    )
    lse = tl.where(none, float("-inf"), (m + tl.log2(tl.where(none, 1.0, total))) * LN2)
    tl.store(lse_ptr + row, lse, mask=head < GROUP)


@triton.jit
def delta_kernel(
    o_ptr, do_ptr, dlse_ptr, delta_ptr, dgate_ptr, n_rows,
    E: tl.constexpr, BE: tl.constexpr, BM: tl.constexpr, HAS_DLSE: tl.constexpr, GATED: tl.constexpr,
):  # fmt: skip
    """Write delta = sum(do * o) - dlse per (token, head); with it dS = P * (dP - delta).

    With GATED do is the gradient of the gated sum, and delta that of the slc branch's gate, the second of three.
    """
    row = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    e = tl.arange(0, BE)
    mask = (row < n_rows)[:, None] & (e < E)[None, :]
    o = tl.load(o_ptr + row[:, None] * E + e[None, :], mask=mask, other=0.0).to(tl.float32)
    do = tl.load(do_ptr + row[:, None] * E + e[None, :], mask=mask, other=0.0).to(tl.float32)
    delta = tl.sum(o * do, 1)
    if HAS_DLSE:
        delta -= tl.load(dlse_ptr + row, mask=row < n_rows, other=0.0)
    tl.store(delta_ptr + row, delta, mask=row < n_rows)
    if GATED:
        tl.store(dgate_ptr + row * 3 + 1, delta.to(dgate_ptr.dtype.element_ty), mask=row < n_rows)


@triton.jit
def kv_major_backward_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, gate_ptr, dq_slot_ptr, dk_part_ptr, dv_part_ptr,
    pairs, start, item_start, item_bucket, block_lo, block_hi,
    launch, bg0, t0, n_buckets, max_items, n_blocks, bg_chunk, T, S, offset, scale,
    D: tl.constexpr, E: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr, L: tl.constexpr, BL: tl.constexpr,
    G: tl.constexpr, GROUP: tl.constexpr, N: tl.constexpr, SEG: tl.constexpr, BM: tl.constexpr,
    VARLEN: tl.constexpr, GATED: tl.constexpr,
):  # fmt: skip
    """One block, the queries of one item: dQ per pair to its slot, dK and dV of the item in fp32.

    With GATED do is the gradient of the gated sum, and the slc branch's gates, the second of three, weigh its rows.
    """
    bucket, lo, hi = _item(item_bucket, item_start, start, launch, n_buckets, max_items, SEG)
    if bucket >= n_buckets:
        return
    bg_local = bucket // n_blocks
    bg = bg0 + bg_local
    b = bg // G
    g = bg % G
    key_lo, key_hi = _block_rows(bucket % n_blocks, S, block_lo, block_hi, L, VARLEN)
    key_in = tl.arange(0, BL)
    key = key_lo + key_in
    d = tl.arange(0, BD)
    e = tl.arange(0, BE)
    kv_row = ((b.to(tl.int64) * S + key) * G + g)[:, None]
    k = tl.load(k_ptr + kv_row * D + d[None, :], mask=(key < key_hi)[:, None] & (d < D)[None, :], other=0.0)
    v = tl.load(v_ptr + kv_row * E + e[None, :], mask=(key < key_hi)[:, None] & (e < E)[None, :], other=0.0)
    # A hidden key that is not finite must not reach dQ through 0 * NaN; who sees it gets NaN through its score.
    taint = _taint(k)
    k = _finite(k)
    kt = tl.trans(k)
    vt = tl.trans(v)
    dk = tl.zeros([BL, BD], tl.float32)
    dv = tl.zeros([BL, BE], tl.float32)
    n_rows = (hi - lo) * GROUP
    for r0 in range(0, n_rows, BM):
        r = r0 + tl.arange(0, BM)
        live, q_row, slot, pos = _rows(pairs, lo, r, n_rows, b * T, offset, t0, bg_local, bg_chunk, G, GROUP, N)
        q = tl.load(q_ptr + q_row[:, None] * D + d[None, :], mask=live[:, None] & (d < D)[None, :], other=0.0)
        do = tl.load(do_ptr + q_row[:, None] * E + e[None, :], mask=live[:, None] & (e < E)[None, :], other=0.0)
        lse = tl.load(lse_ptr + q_row, mask=live, other=0.0) * LOG2E
        delta = tl.load(delta_ptr + q_row, mask=live, other=0.0)
        s = tl.dot(q, kt, input_precision="ieee") * (scale * LOG2E) + taint[None, :]
        visible = (key[None, :] <= pos[:, None]) & (key < key_hi)[None, :]
        p = tl.exp2(s - lse[:, None])
        if GATED:
            p *= tl.load(gate_ptr + q_row * 3 + 1, mask=live, other=0.0).to(tl.float32)[:, None]
        p = tl.where(visible, p, 0.0)
        dp = tl.dot(do, vt, input_precision="ieee")
        ds = tl.where(visible, p * (dp - delta[:, None]), 0.0).to(q.dtype)
        dv += tl.dot(tl.trans(p.to(do.dtype)), do, input_precision="ieee")
        dk += tl.dot(tl.trans(ds), q, input_precision="ieee")
        dq = tl.dot(ds, k, input_precision="ieee") * scale
        tl.store(
            dq_slot_ptr + slot[:, None] * D + d[None, :],
            dq.to(dq_slot_ptr.dtype.element_ty),
            mask=live[:, None] & (d < D)[None, :],
        )
    part = (tl.program_id(0).to(tl.int64) * L + key_in)[:, None]
    in_block = (key_in < L)[:, None]
    tl.store(dk_part_ptr + part * D + d[None, :], dk * scale, mask=in_block & (d < D)[None, :])
    tl.store(dv_part_ptr + part * E + e[None, :], dv, mask=in_block & (e < E)[None, :])


@triton.jit
def _sum_items(
    part_ptr, acc_ptr, out_ptr, item_start, block_lo, block_hi, launch, bg0, n_buckets, n_blocks, S, first_column,
    D: tl.constexpr, WIDE: tl.constexpr, L: tl.constexpr, BL: tl.constexpr, G: tl.constexpr,
    FIRST: tl.constexpr, LAST: tl.constexpr, VARLEN: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Four at a time, so that they are on their way together: the first block, which all queries choose, has many."""
    bucket = tl.program_id(0)
    bg = bg0 + bucket // n_blocks
    key_lo, key_hi = _block_rows(bucket % n_blocks, S, block_lo, block_hi, L, VARLEN)
    key_in = tl.arange(0, BL)
    key = key_lo + key_in
    d = first_column + tl.arange(0, WIDE)
    mask = (key < key_hi)[:, None] & (d < D)[None, :]
    row = (((bg // G).to(tl.int64) * S + key) * G + bg % G)[:, None] * D + d[None, :]
    acc = tl.zeros([BL, WIDE], tl.float32)
    if not FIRST:
        acc += tl.load(acc_ptr + row, mask=mask, other=0.0)
    at = item_start + launch * (n_buckets + 1) + bucket
    end = tl.load(at + 1) * PARTS
    mine = (key_in < L)[:, None] & (d < D)[None, :]
    for i in range(tl.load(at) * PARTS, end, 4):
        part = part_ptr + (key_in.to(tl.int64) + i * L)[:, None] * D + d[None, :]
        first = tl.load(part, mask=mine, other=0.0)
        second = tl.load(part + L * D, mask=mine & (i + 1 < end), other=0.0)
        third = tl.load(part + 2 * L * D, mask=mine & (i + 2 < end), other=0.0)
        fourth = tl.load(part + 3 * L * D, mask=mine & (i + 3 < end), other=0.0)
        acc = acc + first + second + third + fourth
    if LAST:
        tl.store(out_ptr + row, acc.to(out_ptr.dtype.element_ty), mask=mask)
    else:
        tl.store(acc_ptr + row, acc, mask=mask)


@triton.jit
def sum_items_kernel(
    dk_part_ptr, dv_part_ptr, dk_acc_ptr, dv_acc_ptr, dk_ptr, dv_ptr, item_start, block_lo, block_hi,
    launch, bg0, n_buckets, n_blocks, S,
    D: tl.constexpr, E: tl.constexpr, WIDE: tl.constexpr, L: tl.constexpr, BL: tl.constexpr, G: tl.constexpr,
    FIRST: tl.constexpr, LAST: tl.constexpr, VARLEN: tl.constexpr, PARTS: tl.constexpr = 1,
):  # fmt: skip
    """Sum a block's items, each of PARTS, in order onto what earlier launches left; the last writes the gradients.

    The grid's second axis: WIDE columns of dk each, then of dv.
    """
    OF_K: tl.constexpr = (D + WIDE - 1) // WIDE
    which = tl.program_id(1)
    if which < OF_K:
        _sum_items(
            dk_part_ptr, dk_acc_ptr, dk_ptr, item_start, block_lo, block_hi, launch, bg0, n_buckets, n_blocks, S,
            which * WIDE, D, WIDE, L, BL, G, FIRST, LAST, VARLEN, PARTS,
        )  # fmt: skip
    else:
        _sum_items(
            dv_part_ptr, dv_acc_ptr, dv_ptr, item_start, block_lo, block_hi, launch, bg0, n_buckets, n_blocks, S,
            (which - OF_K) * WIDE, E, WIDE, L, BL, G, FIRST, LAST, VARLEN, PARTS,
        )  # fmt: skip


@triton.jit
def sum_slots_kernel(
    index_ptr, slot_ptr, out_ptr, doc_start, doc_block, bg0, t0, bg_chunk, T, S, offset,
    D: tl.constexpr, BD: tl.constexpr, L: tl.constexpr, G: tl.constexpr, GROUP: tl.constexpr, BG: tl.constexpr,
    N: tl.constexpr, VARLEN: tl.constexpr, ADDS: tl.constexpr,
):  # fmt: skip
    """Sum a query's dQ slots in slot order; a query without a key gives zero. With ADDS onto what is there.

    Unrolled, so that the slots of a query are on their way together.
    """
    t_local = tl.program_id(0)
    bg_local = tl.program_id(1)
    t = t0 + t_local
    bg = bg0 + bg_local
    bt = (bg // G).to(tl.int64) * T + t
    pair0 = (bt * G + bg % G) * N
    slot0 = (t_local.to(tl.int64) * bg_chunk + bg_local) * N
    head = tl.program_id(2) * BG + tl.arange(0, BG)
    d = tl.arange(0, BD)
    acc = tl.zeros([BG, BD], tl.float32)
    mine = (head < GROUP)[:, None] & (d < D)[None, :]
    out_ptr += (bt * (G * GROUP) + (bg % G) * GROUP + head)[:, None] * D + d[None, :]
    if ADDS:
        acc += tl.load(out_ptr, mask=mine, other=0.0).to(tl.float32)
    for i in tl.static_range(N):
        seen, _ = _seen(index_ptr, pair0 + i, t_local >= 0, t, S, offset, doc_start, doc_block, L, VARLEN)
        row = (slot0 + i) * GROUP + head
        acc += tl.load(slot_ptr + row[:, None] * D + d[None, :], mask=mine & seen, other=0.0).to(tl.float32)
    tl.store(out_ptr, acc.to(out_ptr.dtype.element_ty), mask=mine)
