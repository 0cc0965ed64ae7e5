# ruff: noqa: ANN001, ANN201, ANN202 - a kernel's arguments are pointers and numbers whose types the launch decides
"""Triton kernels of attention over tiles: one forward, and a backward of two passes in a fixed order, for three masks.

A tile's rows are BM consecutive (token, head of the group): a group of six wastes nothing, keys and values are read
once for all its heads, and a key's gradients come from one program, in order: no atomics, no copy per head.

A query at row t stands at key t + offset. KIND says which keys it sees. WINDOW: the last P1, its own included. BLOCKS:
compressed keys whose P1 = l tokens, P2 = d apart, are complete. BITS: those up to its own, where bit s // P1 (l_slc) of
its word is set.

Shapes: B batch, T queries, S keys, G kv heads, H = G * GROUP query heads, D and E head widths; BD, BE their next powers
of two. Keys and values are contiguous; queries have strides of their own. Softmax runs in base 2.
"""

from __future__ import annotations

import triton
import triton.language as tl

LN2 = tl.constexpr(0.6931471805599453)
LOG2E = tl.constexpr(1.4426950408889634)
WINDOW = tl.constexpr(0)
BLOCKS = tl.constexpr(1)
BITS = tl.constexpr(2)


@triton.jit
def clean_kernel(
    k_ptr, v_ptr, k_out_ptr, v_out_ptr, taint_ptr, n_rows, S, k_b, k_s, k_g, v_b, v_s, v_g,
    D: tl.constexpr, E: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr, G: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """Copy keys and values, zero where either is not finite; the taint is NaN there and 0 elsewhere.

    A hidden key's weight is zero, and zero times NaN is NaN; the taint, added to scores, reaches exactly who sees it.
    """
    row = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    live = row < n_rows
    g = row % G
    s = (row // G) % S
    b = row // G // S
    d = tl.arange(0, BD)
    e = tl.arange(0, BE)
    k_mask = live[:, None] & (d < D)[None, :]
    v_mask = live[:, None] & (e < E)[None, :]
    k = tl.load(k_ptr + (b * k_b + s * k_s + g * k_g)[:, None] + d[None, :], mask=k_mask, other=0.0)
    v = tl.load(v_ptr + (b * v_b + s * v_s + g * v_g)[:, None] + e[None, :], mask=v_mask, other=0.0)
    k_bad = tl.max((tl.abs(k.to(tl.float32)) < float("inf")).to(tl.int32) ^ 1, 1)
    v_bad = tl.max((tl.abs(v.to(tl.float32)) < float("inf")).to(tl.int32) ^ 1, 1)
    bad = (k_bad | v_bad) > 0
    tl.store(taint_ptr + row, tl.where(bad, float("nan"), 0.0), mask=live)
    tl.store(k_out_ptr + row[:, None] * D + d[None, :], tl.where(bad[:, None], 0.0, k), mask=k_mask)
    tl.store(v_out_ptr + row[:, None] * E + e[None, :], tl.where(bad[:, None], 0.0, v), mask=v_mask)


@triton.jit
def bits_kernel(index_ptr, bits_ptr, n_rows, N: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr):
    """One 64-bit word per query and kv head: bit j is set if block j is listed."""
    row = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    slot = tl.arange(0, BN)
    mask = (row < n_rows)[:, None] & (slot < N)[None, :]
    block = tl.load(index_ptr + row[:, None] * N + slot[None, :], mask=mask, other=-1)
    is_listed = (block >= 0) & (block < 64)
    one = tl.full([BM, BN], 1, tl.int64)
    word = tl.where(is_listed, one << tl.where(is_listed, block, 0).to(tl.int64), 0)
    tl.store(bits_ptr + row, tl.sum(word, 1), mask=row < n_rows)  # listed once each, so the sum is the union


@triton.jit
def _last_key(t, offset, P1: tl.constexpr, P2: tl.constexpr, KIND: tl.constexpr):
    """The last key that a query at row ``t`` may see, -1 if none."""
    last = t + offset
    if KIND == BLOCKS:
        last = tl.maximum(last + 1 - P1 + P2, 0) // P2 - 1
    return last


@triton.jit
def _keys_of_rows(
    t_lo, t_hi, S, offset, P1: tl.constexpr, P2: tl.constexpr, KIND: tl.constexpr, BN: tl.constexpr
):  # fmt: skip
    """Keys [lo, hi) that queries t_lo .. t_hi see; lo is a multiple of BN."""
    lo = 0
    if KIND == WINDOW:
        lo = tl.maximum(t_lo + offset - P1 + 1, 0) // BN * BN
    return lo, tl.minimum(_last_key(t_hi, offset, P1, P2, KIND) + 1, S)


@triton.jit
def _rows_of_keys(n_lo, n_hi, T, offset, P1: tl.constexpr, P2: tl.constexpr, KIND: tl.constexpr):
    """Queries [lo, hi) that see one of keys n_lo .. n_hi."""
    hi = T
    if KIND == WINDOW:
        lo = n_lo - offset
        hi = tl.minimum(n_hi + P1 - offset, T)
    elif KIND == BLOCKS:
        lo = n_lo * P2 + P1 - 1 - offset
    else:
        lo = n_lo - offset
    return tl.maximum(lo, 0), hi


@triton.jit
def _visible(last, key, P1: tl.constexpr, KIND: tl.constexpr):
    """Whether a query whose last key is ``last`` sees the key by its position; the two broadcast."""
    seen = key <= last
    if KIND == WINDOW:
        seen = seen & (key > last - P1)
    return seen


@triton.jit
def _base(lse):
    """An lse in base 2; 0 for a row without a key, which has no weight to compute."""
    return tl.where(lse == float("-inf"), 0.0, lse) * LOG2E


@triton.jit
def forward_kernel(
    q_ptr, k_ptr, v_ptr, taint_ptr, bits_ptr, o_ptr, lse_ptr, T, S, offset, qk_scale, q_b, q_t, q_h,
    D: tl.constexpr, E: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr, G: tl.constexpr, GROUP: tl.constexpr,
    KIND: tl.constexpr, P1: tl.constexpr, P2: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """O and lse of BM rows of one kv head; a row without a key gets o = 0, lse = -inf."""
    b = (tl.program_id(1) // G).to(tl.int64)
    g = tl.program_id(1) % G
    first = tl.program_id(0) * BM
    row = first + tl.arange(0, BM)
    live = row < T * GROUP
    t = row // GROUP
    head = g * GROUP + row % GROUP
    last = tl.where(live, _last_key(t, offset, P1, P2, KIND), -1)
    d = tl.arange(0, BD)
    e = tl.arange(0, BE)
    q_at = b * q_b + t.to(tl.int64) * q_t + head * q_h
    q = tl.load(q_ptr + q_at[:, None] + d[None, :], mask=live[:, None] & (d < D)[None, :], other=0.0)
    if KIND == BITS:
        word = tl.load(bits_ptr + (b * T + t) * G + g, mask=live, other=0)
    lo, hi = _keys_of_rows(first // GROUP, tl.minimum((first + BM - 1) // GROUP, T - 1), S, offset, P1, P2, KIND, BN)
    k_rows = k_ptr + (b * S * G + g) * D
    v_rows = v_ptr + (b * S * G + g) * E
    taints = taint_ptr + b * S * G + g
    m = tl.full([BM], float("-inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, BE], tl.float32)
    for n0 in range(lo, hi, BN):
        key = n0 + tl.arange(0, BN)
        at = key.to(tl.int64) * G
        k = tl.load(k_rows + (at * D)[:, None] + d[None, :], mask=(key < S)[:, None] & (d < D)[None, :], other=0.0)
        v = tl.load(v_rows + (at * E)[:, None] + e[None, :], mask=(key < S)[:, None] & (e < E)[None, :], other=0.0)
        taint = tl.load(taints + at, mask=key < S, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * qk_scale + taint[None, :]
        seen = _visible(last[:, None], key[None, :], P1, KIND) & (key < S)[None, :]
        if KIND == BITS:
            seen = seen & (((word >> (n0 // P1)) & 1) > 0)[:, None]
        s = tl.where(seen, s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        base = tl.where(m_new == float("-inf"), 0.0, m_new)
        p = tl.exp2(s - base[:, None])
        fade = tl.exp2(m - base)
        total = total * fade + tl.sum(p, 1)
        acc = acc * fade[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = m_new
    is_empty = total == 0.0
    total = tl.where(is_empty, 1.0, total)
    o = acc / total[:, None]
    lse = tl.where(is_empty, float("-inf"), (m + tl.log2(total)) * LN2)
    out = (b * T + t) * (G * GROUP) + head
    tl.store(o_ptr + out[:, None] * E + e[None, :], o.to(o_ptr.dtype.element_ty), mask=live[:, None] & (e < E)[None, :])
    tl.store(lse_ptr + out, lse, mask=live)


@triton.jit
def dq_kernel(
    q_ptr, k_ptr, v_ptr, taint_ptr, bits_ptr, o_ptr, lse_ptr, do_ptr, delta_ptr, dq_ptr,
    T, S, offset, scale, q_b, q_t, q_h,
    D: tl.constexpr, E: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr, G: tl.constexpr, GROUP: tl.constexpr,
    KIND: tl.constexpr, P1: tl.constexpr, P2: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """DQ of BM rows, and their delta = sum(do * o) for the other pass."""
    b = (tl.program_id(1) // G).to(tl.int64)
    g = tl.program_id(1) % G
    first = tl.program_id(0) * BM
    row = first + tl.arange(0, BM)
    live = row < T * GROUP
    t = row // GROUP
    head = g * GROUP + row % GROUP
    last = tl.where(live, _last_key(t, offset, P1, P2, KIND), -1)
    d = tl.arange(0, BD)
    e = tl.arange(0, BE)
    q_at = b * q_b + t.to(tl.int64) * q_t + head * q_h
    out = (b * T + t) * (G * GROUP) + head
    q_mask = live[:, None] & (d < D)[None, :]
    o_mask = live[:, None] & (e < E)[None, :]
    q = tl.load(q_ptr + q_at[:, None] + d[None, :], mask=q_mask, other=0.0)
    do = tl.load(do_ptr + out[:, None] * E + e[None, :], mask=o_mask, other=0.0)
    o = tl.load(o_ptr + out[:, None] * E + e[None, :], mask=o_mask, other=0.0)
    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)
    tl.store(delta_ptr + out, delta, mask=live)
    lse = _base(tl.load(lse_ptr + out, mask=live, other=0.0))
    if KIND == BITS:
        word = tl.load(bits_ptr + (b * T + t) * G + g, mask=live, other=0)
    lo, hi = _keys_of_rows(first // GROUP, tl.minimum((first + BM - 1) // GROUP, T - 1), S, offset, P1, P2, KIND, BN)
    k_rows = k_ptr + (b * S * G + g) * D
    v_rows = v_ptr + (b * S * G + g) * E
    taints = taint_ptr + b * S * G + g
    dq = tl.zeros([BM, BD], tl.float32)
    for n0 in range(lo, hi, BN):
        key = n0 + tl.arange(0, BN)
        at = key.to(tl.int64) * G
        k = tl.load(k_rows + (at * D)[:, None] + d[None, :], mask=(key < S)[:, None] & (d < D)[None, :], other=0.0)
        v = tl.load(v_rows + (at * E)[:, None] + e[None, :], mask=(key < S)[:, None] & (e < E)[None, :], other=0.0)
        taint = tl.load(taints + at, mask=key < S, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * (scale * LOG2E) + taint[None, :]
        dp = tl.dot(do, tl.trans(v), input_precision="ieee")
        seen = _visible(last[:, None], key[None, :], P1, KIND) & (key < S)[None, :]
        if KIND == BITS:
            seen = seen & (((word >> (n0 // P1)) & 1) > 0)[:, None]
        ds = tl.where(seen, tl.exp2(s - lse[:, None]) * (dp - delta[:, None]), 0.0)
        dq += tl.dot(ds.to(k.dtype), k, input_precision="ieee")
    tl.store(dq_ptr + out[:, None] * D + d[None, :], (dq * scale).to(dq_ptr.dtype.element_ty), mask=q_mask)


@triton.jit
def dkdv_kernel(
    q_ptr, k_ptr, v_ptr, taint_ptr, bits_ptr, lse_ptr, do_ptr, delta_ptr, dk_ptr, dv_ptr,
    T, S, offset, scale, part_rows, q_b, q_t, q_h,
    D: tl.constexpr, E: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr, G: tl.constexpr, GROUP: tl.constexpr,
    KIND: tl.constexpr, P1: tl.constexpr, P2: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    PARTS: tl.constexpr,
):  # fmt: skip
    """DK and dV of BN keys of one kv head, from all its queries and heads, or from one of PARTS runs of them.

    Keys are the rows of the products: what is summed over queries never has to be transposed.
    """
    b = (tl.program_id(1) // G).to(tl.int64)
    g = tl.program_id(1) % G
    n0 = tl.program_id(0) * BN
    key = n0 + tl.arange(0, BN)
    inside = key < S
    d = tl.arange(0, BD)
    e = tl.arange(0, BE)
    at = (b * S + key) * G + g
    k = tl.load(k_ptr + at[:, None] * D + d[None, :], mask=inside[:, None] & (d < D)[None, :], other=0.0)
    v = tl.load(v_ptr + at[:, None] * E + e[None, :], mask=inside[:, None] & (e < E)[None, :], other=0.0)
    taint = tl.load(taint_ptr + at, mask=inside, other=0.0)
    t_lo, t_hi = _rows_of_keys(n0, tl.minimum(n0 + BN, S) - 1, T, offset, P1, P2, KIND)
    lo = t_lo * GROUP
    hi = t_hi * GROUP
    if PARTS > 1:
        run = tl.cdiv(tl.cdiv(tl.maximum(hi - lo, 0), BM), PARTS) * BM
        lo = lo + tl.program_id(2) * run
        hi = tl.minimum(lo + run, hi)
    dk = tl.zeros([BN, BD], tl.float32)
    dv = tl.zeros([BN, BE], tl.float32)
    for r0 in range(lo, hi, BM):
        row = r0 + tl.arange(0, BM)
        live = row < hi
        t = row // GROUP
        head = g * GROUP + row % GROUP
        last = tl.where(live, _last_key(t, offset, P1, P2, KIND), -1)
        q_at = b * q_b + t.to(tl.int64) * q_t + head * q_h
        out = (b * T + t) * (G * GROUP) + head
        q = tl.load(q_ptr + q_at[:, None] + d[None, :], mask=live[:, None] & (d < D)[None, :], other=0.0)
        do = tl.load(do_ptr + out[:, None] * E + e[None, :], mask=live[:, None] & (e < E)[None, :], other=0.0)
        lse = _base(tl.load(lse_ptr + out, mask=live, other=0.0))
        delta = tl.load(delta_ptr + out, mask=live, other=0.0)
        s = tl.dot(k, tl.trans(q), input_precision="ieee") * (scale * LOG2E) + taint[:, None]
        seen = _visible(last[None, :], key[:, None], P1, KIND) & inside[:, None]
        if KIND == BITS:
            word = tl.load(bits_ptr + (b * T + t) * G + g, mask=live, other=0)
            seen = seen & (((word >> (n0 // P1)) & 1) > 0)[None, :]
        p = tl.where(seen, tl.exp2(s - lse[None, :]), 0.0)
        dp = tl.dot(v, tl.trans(do), input_precision="ieee")
        ds = tl.where(seen, p * (dp - delta[None, :]), 0.0)
        dv += tl.dot(p.to(do.dtype), do, input_precision="ieee")
        dk += tl.dot(ds.to(q.dtype), q, input_precision="ieee")
    at += tl.program_id(2).to(tl.int64) * part_rows
    k_mask = inside[:, None] & (d < D)[None, :]
    tl.store(dk_ptr + at[:, None] * D + d[None, :], (dk * scale).to(dk_ptr.dtype.element_ty), mask=k_mask)
    v_mask = inside[:, None] & (e < E)[None, :]
    tl.store(dv_ptr + at[:, None] * E + e[None, :], dv.to(dv_ptr.dtype.element_ty), mask=v_mask)


@triton.jit
def sum_parts_kernel(part_ptr, out_ptr, n, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """Sum the parts of a gradient in their order."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    position = at
    for _ in range(PARTS):
        total += tl.load(part_ptr + position, mask=at < n, other=0.0)
        position += n
    tl.store(out_ptr + at, total.to(out_ptr.dtype.element_ty), mask=at < n)
