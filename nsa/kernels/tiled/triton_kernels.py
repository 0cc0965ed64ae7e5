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
    """Keys [lo, hi) that queries t_lo .. t_hi see, and [open_lo, open_hi) that each of them sees; all but hi by BN."""
    lo = 0
    open_lo = 0
    last_hi = _last_key(t_hi, offset, P1, P2, KIND)
    if KIND == WINDOW:
        lo = tl.maximum(t_lo + offset - P1 + 1, 0) // BN * BN
        open_lo = tl.cdiv(tl.maximum(last_hi - P1 + 1, 0), BN) * BN
    open_hi = tl.minimum(_last_key(t_lo, offset, P1, P2, KIND) + 1, S) // BN * BN
    hi = tl.minimum(last_hi + 1, S)
    open_lo = tl.minimum(open_lo, tl.maximum(tl.cdiv(hi, BN) * BN, lo))
    return lo, open_lo, tl.maximum(open_hi, open_lo), hi


@triton.jit
def _rows_of_keys(n_lo, n_hi, T, offset, P1: tl.constexpr, P2: tl.constexpr, KIND: tl.constexpr):
    """Queries [lo, hi) that see one of keys n_lo .. n_hi, and [open_lo, open_hi) that see each of them."""
    lo = n_lo - offset
    open_lo = n_hi - offset
    hi = T
    open_hi = T
    if KIND == WINDOW:
        hi = tl.minimum(n_hi + P1 - offset, T)
        open_hi = tl.minimum(n_lo + P1 - offset, T)
    elif KIND == BLOCKS:
        lo = n_lo * P2 + P1 - 1 - offset
        open_lo = n_hi * P2 + P1 - 1 - offset
    return tl.maximum(lo, 0), tl.maximum(open_lo, 0), open_hi, hi


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
def _rows(ptr, at, live, W: tl.constexpr, BW: tl.constexpr, IS_OPEN: tl.constexpr):
    """Rows of W numbers from offsets ``at``, as wide as BW; with IS_OPEN all of them are there, and no mask is paid."""
    column = tl.arange(0, BW)
    where = ptr + at[:, None] + column[None, :]
    if IS_OPEN:
        x = tl.load(where) if W == BW else tl.load(where, mask=(column < W)[None, :], other=0.0)
    else:
        x = tl.load(where, mask=live[:, None] & (column < W)[None, :], other=0.0)
    return x


@triton.jit
def _scores_of_tile(
    q, k_ptr, taint_ptr, n0, S, last, word, qk_scale,
    D: tl.constexpr, BD: tl.constexpr, G: tl.constexpr, KIND: tl.constexpr, P1: tl.constexpr, BN: tl.constexpr,
    IS_OPEN: tl.constexpr,
):  # fmt: skip
    """Scores of rows against keys n0 .., -inf where hidden; and the keys, where they stand, and which there are."""
    key = n0 + tl.arange(0, BN)
    inside = key < S
    at = key.to(tl.int64) * G
    k = _rows(k_ptr, at * D, inside, D, BD, IS_OPEN)
    taint = tl.load(taint_ptr + at) if IS_OPEN else tl.load(taint_ptr + at, mask=inside, other=0.0)
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * qk_scale + taint[None, :]
    if KIND == BITS:
        listed = ((word >> (n0 // P1)) & 1) > 0
        if IS_OPEN:
            s = tl.where(listed[:, None], s, float("-inf"))
    if not IS_OPEN:
        seen = _visible(last[:, None], key[None, :], P1, KIND) & inside[None, :]
        if KIND == BITS:
            seen = seen & listed[:, None]
        s = tl.where(seen, s, float("-inf"))
    return s, k, at, inside


@triton.jit
def _forward_tile(
    q, k_ptr, v_ptr, taint_ptr, n0, S, last, word, qk_scale, m, total, acc,
    D: tl.constexpr, E: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr, G: tl.constexpr, KIND: tl.constexpr,
    P1: tl.constexpr, BN: tl.constexpr, IS_OPEN: tl.constexpr,
):  # fmt: skip
    """One more tile of keys in the running softmax."""
    s, _, at, inside = _scores_of_tile(
        q, k_ptr, taint_ptr, n0, S, last, word, qk_scale, D, BD, G, KIND, P1, BN, IS_OPEN
    )
    v = _rows(v_ptr, at * E, inside, E, BE, IS_OPEN)
    m_new = tl.maximum(m, tl.max(s, 1))
    base = tl.where(m_new == float("-inf"), 0.0, m_new)
    p = tl.exp2(s - base[:, None])
    fade = tl.exp2(m - base)
    total = total * fade + tl.sum(p, 1)
    acc = acc * fade[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
    return m_new, total, acc


@triton.jit
def _tile_of(n_tiles, n_bg, KIND: tl.constexpr, IS_LAST_LONGEST: tl.constexpr):
    """Which tile, batch and kv head this program has: the longest tiles of all heads begin first, none ends last."""
    pid = tl.program_id(0)
    tile = pid // n_bg
    if IS_LAST_LONGEST and KIND != WINDOW:
        tile = n_tiles - 1 - tile
    return tile, pid % n_bg


@triton.jit
def forward_kernel(
    q_ptr, k_ptr, v_ptr, taint_ptr, bits_ptr, o_ptr, lse_ptr, T, S, offset, qk_scale, n_tiles, n_bg, q_b, q_t, q_h,
    D: tl.constexpr, E: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr, G: tl.constexpr, GROUP: tl.constexpr,
    KIND: tl.constexpr, P1: tl.constexpr, P2: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """O and lse of BM rows of one kv head; a row without a key gets o = 0, lse = -inf.

    Keys that some rows do not see come first, with masks; those that every row sees follow without.
    """
    tile, bg = _tile_of(n_tiles, n_bg, KIND, IS_LAST_LONGEST=True)
    b = (bg // G).to(tl.int64)
    g = bg % G
    first = tile * BM
    row = first + tl.arange(0, BM)
    live = row < T * GROUP
    t = row // GROUP
    head = g * GROUP + row % GROUP
    last = tl.where(live, _last_key(t, offset, P1, P2, KIND), -1)
    e = tl.arange(0, BE)
    q = _rows(q_ptr, b * q_b + t.to(tl.int64) * q_t + head * q_h, live, D, BD, IS_OPEN=False)
    word = last.to(tl.int64)
    if KIND == BITS:
        word = tl.load(bits_ptr + (b * T + t) * G + g, mask=live, other=0)
    lo, open_lo, open_hi, hi = _keys_of_rows(
        first // GROUP, tl.minimum((first + BM - 1) // GROUP, T - 1), S, offset, P1, P2, KIND, BN
    )
    k_ptr += (b * S * G + g) * D
    v_ptr += (b * S * G + g) * E
    taint_ptr += b * S * G + g
    m = tl.full([BM], float("-inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, BE], tl.float32)
    before = (open_lo - lo) // BN
    for i in range(before + tl.cdiv(tl.maximum(hi - open_hi, 0), BN)):
        n0 = tl.where(i < before, lo + i * BN, open_hi + (i - before) * BN)
        m, total, acc = _forward_tile(
            q, k_ptr, v_ptr, taint_ptr, n0, S, last, word, qk_scale, m, total, acc,
            D, E, BD, BE, G, KIND, P1, BN, IS_OPEN=False,
        )  # fmt: skip
    for n0 in range(open_lo, open_hi, BN):
        m, total, acc = _forward_tile(
            q, k_ptr, v_ptr, taint_ptr, n0, S, last, word, qk_scale, m, total, acc,
            D, E, BD, BE, G, KIND, P1, BN, IS_OPEN=True,
        )  # fmt: skip
    is_empty = total == 0.0
    total = tl.where(is_empty, 1.0, total)
    o = acc / total[:, None]
    lse = tl.where(is_empty, float("-inf"), (m + tl.log2(total)) * LN2)
    out = (b * T + t) * (G * GROUP) + head
    tl.store(o_ptr + out[:, None] * E + e[None, :], o.to(o_ptr.dtype.element_ty), mask=live[:, None] & (e < E)[None, :])
    tl.store(lse_ptr + out, lse, mask=live)


@triton.jit
def _dq_tile(
    q, do, k_ptr, v_ptr, taint_ptr, n0, S, last, word, qk_scale, lse, delta, dq,
    D: tl.constexpr, E: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr, G: tl.constexpr, KIND: tl.constexpr,
    P1: tl.constexpr, BN: tl.constexpr, IS_OPEN: tl.constexpr,
):  # fmt: skip
    """DQ with what one more tile of keys adds to it."""
    s, k, at, inside = _scores_of_tile(
        q, k_ptr, taint_ptr, n0, S, last, word, qk_scale, D, BD, G, KIND, P1, BN, IS_OPEN
    )
    v = _rows(v_ptr, at * E, inside, E, BE, IS_OPEN)
    dp = tl.dot(do, tl.trans(v), input_precision="ieee")
    ds = tl.exp2(s - lse[:, None]) * (dp - delta[:, None])
    if (KIND == BITS) or (not IS_OPEN):
        ds = tl.where(s == float("-inf"), 0.0, ds)  # hidden: its row may have met what is not finite elsewhere
    return dq + tl.dot(ds.to(k.dtype), k, input_precision="ieee")


@triton.jit
def dq_kernel(
    q_ptr, k_ptr, v_ptr, taint_ptr, bits_ptr, o_ptr, lse_ptr, do_ptr, delta_ptr, dq_ptr,
    T, S, offset, scale, n_tiles, n_bg, q_b, q_t, q_h,
    D: tl.constexpr, E: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr, G: tl.constexpr, GROUP: tl.constexpr,
    KIND: tl.constexpr, P1: tl.constexpr, P2: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """DQ of BM rows, and their delta = sum(do * o) for the other pass; tiles in the forward's order."""
    tile, bg = _tile_of(n_tiles, n_bg, KIND, IS_LAST_LONGEST=True)
    b = (bg // G).to(tl.int64)
    g = bg % G
    first = tile * BM
    row = first + tl.arange(0, BM)
    live = row < T * GROUP
    t = row // GROUP
    head = g * GROUP + row % GROUP
    last = tl.where(live, _last_key(t, offset, P1, P2, KIND), -1)
    out = (b * T + t) * (G * GROUP) + head
    q = _rows(q_ptr, b * q_b + t.to(tl.int64) * q_t + head * q_h, live, D, BD, IS_OPEN=False)
    do = _rows(do_ptr, out * E, live, E, BE, IS_OPEN=False)
    o = _rows(o_ptr, out * E, live, E, BE, IS_OPEN=False)
    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)
    tl.store(delta_ptr + out, delta, mask=live)
    lse = _base(tl.load(lse_ptr + out, mask=live, other=0.0))
    word = last.to(tl.int64)
    if KIND == BITS:
        word = tl.load(bits_ptr + (b * T + t) * G + g, mask=live, other=0)
    lo, open_lo, open_hi, hi = _keys_of_rows(
        first // GROUP, tl.minimum((first + BM - 1) // GROUP, T - 1), S, offset, P1, P2, KIND, BN
    )
    k_ptr += (b * S * G + g) * D
    v_ptr += (b * S * G + g) * E
    taint_ptr += b * S * G + g
    dq = tl.zeros([BM, BD], tl.float32)
    before = (open_lo - lo) // BN
    for i in range(before + tl.cdiv(tl.maximum(hi - open_hi, 0), BN)):
        n0 = tl.where(i < before, lo + i * BN, open_hi + (i - before) * BN)
        dq = _dq_tile(
            q, do, k_ptr, v_ptr, taint_ptr, n0, S, last, word, scale * LOG2E, lse, delta, dq,
            D, E, BD, BE, G, KIND, P1, BN, IS_OPEN=False,
        )  # fmt: skip
    for n0 in range(open_lo, open_hi, BN):
        dq = _dq_tile(
            q, do, k_ptr, v_ptr, taint_ptr, n0, S, last, word, scale * LOG2E, lse, delta, dq,
            D, E, BD, BE, G, KIND, P1, BN, IS_OPEN=True,
        )  # fmt: skip
    d = tl.arange(0, BD)
    q_mask = live[:, None] & (d < D)[None, :]
    tl.store(dq_ptr + out[:, None] * D + d[None, :], (dq * scale).to(dq_ptr.dtype.element_ty), mask=q_mask)


@triton.jit
def _dkdv_tile(
    k, v, taint, key, q_ptr, do_ptr, lse_ptr, delta_ptr, bits_ptr, r0, hi, block, S, offset, qk_scale, g, q_t, q_h,
    dk, dv,
    D: tl.constexpr, E: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr, G: tl.constexpr, GROUP: tl.constexpr,
    KIND: tl.constexpr, P1: tl.constexpr, P2: tl.constexpr, BM: tl.constexpr, IS_OPEN: tl.constexpr,
):  # fmt: skip
    """DK and dV with what one more tile of rows adds to them.

    Where a block is not listed, its row's lse is taken for infinite: a weight of zero, without a mask for each score.
    """
    row = r0 + tl.arange(0, BM)
    live = row < hi
    t = row // GROUP
    head = g * GROUP + row % GROUP
    out = t.to(tl.int64) * (G * GROUP) + head
    q = _rows(q_ptr, t.to(tl.int64) * q_t + head * q_h, live, D, BD, IS_OPEN)
    do = _rows(do_ptr, out * E, live, E, BE, IS_OPEN)
    if IS_OPEN:
        lse = tl.load(lse_ptr + out) * LOG2E
        delta = tl.load(delta_ptr + out)
    else:
        lse = _base(tl.load(lse_ptr + out, mask=live, other=0.0))
        delta = tl.load(delta_ptr + out, mask=live, other=0.0)
    if KIND == BITS:
        if IS_OPEN:
            word = tl.load(bits_ptr + t.to(tl.int64) * G + g)
        else:
            word = tl.load(bits_ptr + t.to(tl.int64) * G + g, mask=live, other=0)
        listed = ((word >> block) & 1) > 0
        if IS_OPEN:
            lse = tl.where(listed, lse, float("inf"))
            delta = tl.where(listed, delta, 0.0)
    s = tl.dot(k, tl.trans(q), input_precision="ieee") * qk_scale + taint[:, None]
    p = tl.exp2(s - lse[None, :])
    dp = tl.dot(v, tl.trans(do), input_precision="ieee")
    ds = p * (dp - delta[None, :])
    if not IS_OPEN:
        last = tl.where(live, _last_key(t, offset, P1, P2, KIND), -1)
        seen = _visible(last[None, :], key[:, None], P1, KIND) & (key < S)[:, None]
        if KIND == BITS:
            seen = seen & listed[None, :]
        p = tl.where(seen, p, 0.0)
        ds = tl.where(seen, ds, 0.0)
    dv += tl.dot(p.to(do.dtype), do, input_precision="ieee")
    dk += tl.dot(ds.to(q.dtype), q, input_precision="ieee")
    return dk, dv


@triton.jit
def dkdv_kernel(
    q_ptr, k_ptr, v_ptr, taint_ptr, bits_ptr, lse_ptr, do_ptr, delta_ptr, dk_ptr, dv_ptr,
    T, S, offset, scale, n_tiles, n_bg, part_rows, q_b, q_t, q_h,
    D: tl.constexpr, E: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr, G: tl.constexpr, GROUP: tl.constexpr,
    KIND: tl.constexpr, P1: tl.constexpr, P2: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    PARTS: tl.constexpr,
):  # fmt: skip
    """DK and dV of BN keys of one kv head, from all its queries and heads, or from one of PARTS runs of them.

    Keys are the rows of the products: what is summed over queries never has to be transposed. Rows that do not see
    all of the keys come first, with masks.
    """
    tile, bg = _tile_of(n_tiles, n_bg, KIND, IS_LAST_LONGEST=False)
    b = (bg // G).to(tl.int64)
    g = bg % G
    n0 = tile * BN
    key = n0 + tl.arange(0, BN)
    inside = key < S
    at = (b * S + key) * G + g
    k = _rows(k_ptr, at * D, inside, D, BD, IS_OPEN=False)
    v = _rows(v_ptr, at * E, inside, E, BE, IS_OPEN=False)
    taint = tl.load(taint_ptr + at, mask=inside, other=0.0)
    t_lo, t_open_lo, t_open_hi, t_hi = _rows_of_keys(n0, tl.minimum(n0 + BN, S) - 1, T, offset, P1, P2, KIND)
    lo = t_lo * GROUP
    hi = t_hi * GROUP
    open_lo = lo + tl.cdiv(tl.maximum(t_open_lo * GROUP - lo, 0), BM) * BM
    if PARTS > 1:
        run = tl.cdiv(tl.cdiv(tl.maximum(hi - lo, 0), BM), PARTS) * BM
        lo = lo + tl.program_id(1) * run
        hi = tl.minimum(lo + run, hi)
    if KIND == BITS:
        # A tainted key spoils whose blocks list it, row by row: all rows are masked then.
        is_tainted = tl.max((taint != taint).to(tl.int32), 0) > 0
        open_lo = tl.where(is_tainted, hi, open_lo)
    rounded = lo + tl.cdiv(tl.maximum(hi - lo, 0), BM) * BM
    open_lo = tl.minimum(tl.maximum(open_lo, lo), rounded)
    open_lo = lo + tl.cdiv(open_lo - lo, BM) * BM
    open_hi = open_lo + tl.maximum(tl.minimum(t_open_hi * GROUP, hi) - open_lo, 0) // BM * BM
    q_ptr += b * q_b
    do_ptr += b * T * (G * GROUP) * E
    lse_ptr += b * T * (G * GROUP)
    delta_ptr += b * T * (G * GROUP)
    bits_ptr += b * T * G
    dk = tl.zeros([BN, BD], tl.float32)
    dv = tl.zeros([BN, BE], tl.float32)
    before = (open_lo - lo) // BM
    for i in range(before + tl.cdiv(tl.maximum(hi - open_hi, 0), BM)):
        r0 = tl.where(i < before, lo + i * BM, open_hi + (i - before) * BM)
        dk, dv = _dkdv_tile(
            k, v, taint, key, q_ptr, do_ptr, lse_ptr, delta_ptr, bits_ptr, r0, hi, n0 // P1, S, offset, scale * LOG2E,
            g, q_t, q_h, dk, dv, D, E, BD, BE, G, GROUP, KIND, P1, P2, BM, IS_OPEN=False,
        )  # fmt: skip
    for r0 in range(open_lo, open_hi, BM):
        dk, dv = _dkdv_tile(
            k, v, taint, key, q_ptr, do_ptr, lse_ptr, delta_ptr, bits_ptr, r0, hi, n0 // P1, S, offset, scale * LOG2E,
            g, q_t, q_h, dk, dv, D, E, BD, BE, G, GROUP, KIND, P1, P2, BM, IS_OPEN=True,
        )  # fmt: skip
    d = tl.arange(0, BD)
    e = tl.arange(0, BE)
    at += tl.program_id(1).to(tl.int64) * part_rows
    k_mask = inside[:, None] & (d < D)[None, :]
    tl.store(dk_ptr + at[:, None] * D + d[None, :], (dk * scale).to(dk_ptr.dtype.element_ty), mask=k_mask)
    v_mask = inside[:, None] & (e < E)[None, :]
    tl.store(dv_ptr + at[:, None] * E + e[None, :], dv.to(dv_ptr.dtype.element_ty), mask=v_mask)


@triton.jit
def _sum_parts(part_ptr, out_ptr, n, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    position = at
    for _ in range(PARTS):
        total += tl.load(part_ptr + position, mask=at < n, other=0.0)
        position += n
    tl.store(out_ptr + at, total.to(out_ptr.dtype.element_ty), mask=at < n)


@triton.jit
def sum_parts_kernel(
    dk_part_ptr, dv_part_ptr, dk_ptr, dv_ptr, n_k, n_v, PARTS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Sum the parts of the gradients of keys and of values, each in their order; the grid's second axis says which."""
    if tl.program_id(1) == 0:
        _sum_parts(dk_part_ptr, dk_ptr, n_k, PARTS, BLOCK)
    else:
        _sum_parts(dv_part_ptr, dv_ptr, n_v, PARTS, BLOCK)
