# ruff: noqa: ANN001, ANN201, ANN202 - a kernel's arguments are pointers and numbers whose types the launch decides
"""The four kernels of a decoding step; ``nsa.kernels.decode.triton`` launches them.

1. ``append_kernel``: turn the queries, put the new keys and values where they belong, and, where a compression block
   ends with the new token, multiply it by a part of phi's weights in each of several programs.
2. ``compressed_kernel``: the compressed keys of a kv head divided over several programs, beside others that take the
   window. Weights are summed per selection block on the way, relative to the largest score so far in the program.
3. ``rank_kernel``: its programs know every maximum and sum of a head, so each turns the block sums of a slice of blocks
   into scores and keeps the slice's best; others add the parts of the two branches and gate them.
4. ``selected_kernel``: every program ranks what the slices kept, and takes its share of the chosen blocks; the last
   program of a head to end adds the parts.

Ranks are counted, not sorted: a block's rank is how many are better, which threads count side by side, where the best
of thirteen rounds of a maximum would wait for each other thirteen times.

"The last to end" is counted by an atomic addition behind a barrier; what it then computes has a fixed order, so that
bits do not depend on who was last. Scores are in powers of two: log2(e) is part of the scale.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _is_bad(x, mask, axis: tl.constexpr):
    """1 where something along the axis is not finite; NaN is not less than anything."""
    return tl.max(tl.where(mask & ~(tl.abs(x.to(tl.float32)) < float("inf")), 1, 0), axis)


@triton.jit
def _turned_rows(x_at, cos, sin, mask, HALF: tl.constexpr):
    """Both halves of turned heads, and whether a head has something that is not finite."""
    a = tl.load(x_at, mask=mask, other=0.0)
    c = tl.load(x_at + HALF, mask=mask, other=0.0)
    bad = tl.maximum(_is_bad(a, mask, 1), _is_bad(c, mask, 1))
    a, c = a.to(tl.float32), c.to(tl.float32)
    return a * cos - c * sin, c * cos + a * sin, bad


@triton.jit
def _keep(k_at, v_at, lo, hi, v, bad, k_mask, v_mask, HALF: tl.constexpr):
    """Store a key and its value; NaN and zeros where one of them is not finite."""
    lo = tl.where(bad[:, None] > 0, float("nan"), lo).to(k_at.dtype.element_ty)
    hi = tl.where(bad[:, None] > 0, float("nan"), hi).to(k_at.dtype.element_ty)
    tl.store(k_at, lo, mask=k_mask)
    tl.store(k_at + HALF, hi, mask=k_mask)
    tl.store(v_at, tl.where(bad[:, None] > 0, 0.0, v).to(v_at.dtype.element_ty), mask=v_mask)


@triton.jit
def _keep_turned(
    k_in, v_in, k_at, v_at, cos, sin, k_mask, v_mask, HALF: tl.constexpr
):  # fmt: skip
    lo, hi, k_bad = _turned_rows(k_in, cos, sin, k_mask, HALF)
    v = tl.load(v_in, mask=v_mask, other=0.0)
    _keep(k_at, v_at, lo, hi, v.to(tl.float32), tl.maximum(k_bad, _is_bad(v, v_mask, 1)), k_mask, v_mask, HALF)


@triton.jit
def _append_keys(
    k_ptr, v_ptr, cos, sin, table_ptr, k_slc_ptr, v_slc_ptr, k_win_ptr, v_win_ptr, k_raw_ptr, v_raw_ptr,
    b, p, n_row_pages, SHARED: tl.constexpr, G: tl.constexpr, GB: tl.constexpr, D: tl.constexpr, HALF: tl.constexpr,
    BHALF: tl.constexpr, E: tl.constexpr, BE: tl.constexpr, L_SLC: tl.constexpr, RW: tl.constexpr, RU: tl.constexpr,
):  # fmt: skip
    """The new keys and values of one row, all kv heads."""
    g = tl.arange(0, GB)
    i = tl.arange(0, BHALF)
    e = tl.arange(0, BE)
    k_mask = (g < G)[:, None] & (i < HALF)[None, :]
    v_mask = (g < G)[:, None] & (e < E)[None, :]
    heads: tl.constexpr = G if SHARED else 3 * G
    step: tl.constexpr = 0 if SHARED else G
    k_in = k_ptr + ((b * heads + g) * D)[:, None] + i[None, :]
    v_in = v_ptr + ((b * heads + g) * E)[:, None] + e[None, :]
    raw = (b * G + g) * RU + p % RU
    tl.store(k_raw_ptr + (raw * D)[:, None] + i[None, :], tl.load(k_in, mask=k_mask), mask=k_mask)
    tl.store(k_raw_ptr + (raw * D)[:, None] + HALF + i[None, :], tl.load(k_in + HALF, mask=k_mask), mask=k_mask)
    tl.store(v_raw_ptr + (raw * E)[:, None] + e[None, :], tl.load(v_in, mask=v_mask), mask=v_mask)
    page = tl.load(table_ptr + b * n_row_pages + p // L_SLC).to(tl.int64)
    slc = (page * G + g) * L_SLC + p % L_SLC
    _keep_turned(
        k_in + step * D, v_in + step * E, k_slc_ptr + (slc * D)[:, None] + i[None, :],
        v_slc_ptr + (slc * E)[:, None] + e[None, :], cos, sin, k_mask, v_mask, HALF,
    )  # fmt: skip
    win = (b * G + g).to(tl.int64) * RW + p % RW
    _keep_turned(
        k_in + 2 * step * D, v_in + 2 * step * E, k_win_ptr + (win * D)[:, None] + i[None, :],
        v_win_ptr + (win * E)[:, None] + e[None, :], cos, sin, k_mask, v_mask, HALF,
    )  # fmt: skip


@triton.jit
def _phi_part(
    new_ptr, raw_ptr, pe_ptr, fc1_ptr, fc2_ptr, part_ptr, r, is_due, p, chunk, n_rows,
    HEADS: tl.constexpr, G: tl.constexpr, W: tl.constexpr, BW: tl.constexpr, L: tl.constexpr, BL: tl.constexpr,
    RU: tl.constexpr, HC: tl.constexpr, BK: tl.constexpr, N_CHUNKS: tl.constexpr, MLP: tl.constexpr,
):  # fmt: skip
    """What HC hidden units give to a compressed row, and HC columns of the block's mean, for rows whose block ends.

    ``part`` is [N_CHUNKS + 1, rows, W] in fp32, the mean last; without an MLP [1, rows, W].
    """
    element = raw_ptr.dtype.element_ty
    col = chunk * HC + tl.arange(0, HC)
    j = tl.arange(0, BL)
    new_row = ((r // G) * HEADS + r % G) * W
    raw_row = r[:, None] * RU + (p[:, None] - (L - 1) + j[None, :]) % RU
    old = (is_due[:, None] & (j < L - 1)[None, :])[:, :, None] & (col < W)[None, None, :]
    x = tl.load(raw_ptr + (raw_row * W)[:, :, None] + col[None, None, :], mask=old, other=0.0)
    due_col = is_due[:, None] & (col < W)[None, :]
    last = tl.load(new_ptr + new_row[:, None] + col[None, :], mask=due_col, other=0.0)
    x = tl.where((j == L - 1)[None, :, None], last[:, None, :], x).to(tl.float32)
    if MLP:
        pe = tl.load(pe_ptr + j[:, None] * W + col[None, :], mask=(j < L)[:, None] & (col < W)[None, :], other=0.0)
        x = (x + pe.to(tl.float32)[None, :, :]).to(element).to(tl.float32)
    mean_at = part_ptr + ((N_CHUNKS if MLP else 0) * n_rows + r)[:, None] * W + col[None, :]
    tl.store(mean_at, tl.sum(x, 1) / L, mask=due_col)
    if MLP:
        hidden = tl.zeros([r.shape[0], HC], tl.float32)
        for k0 in range(0, L * W, BK):
            at = k0 + tl.arange(0, BK)
            token = at // W
            rows = r[:, None] * RU + (p[:, None] - (L - 1) + token[None, :]) % RU
            is_old = is_due[:, None] & (token < L - 1)[None, :]
            is_new = is_due[:, None] & (token == L - 1)[None, :]
            y = tl.load(raw_ptr + rows * W + (at % W)[None, :], mask=is_old, other=0.0).to(tl.float32)
            y += tl.load(new_ptr + new_row[:, None] + (at % W)[None, :], mask=is_new, other=0.0).to(tl.float32)
            y += tl.load(pe_ptr + at, mask=at < L * W, other=0.0).to(tl.float32)[None, :]
            fc1 = tl.load(
                fc1_ptr + col[:, None] * (L * W) + at[None, :],
                mask=(col < W)[:, None] & (at < L * W)[None, :],
                other=0.0,
            )
            hidden = tl.dot(y.to(element), tl.trans(fc1), hidden, input_precision="ieee")
        hidden = hidden.to(element).to(tl.float32)
        hidden = (hidden / (1.0 + tl.exp(-hidden))).to(element)
        e = tl.arange(0, BW)
        fc2 = tl.load(fc2_ptr + e[None, :] * W + col[:, None], mask=(col < W)[:, None] & (e < W)[None, :], other=0.0)
        out = tl.dot(hidden, fc2, input_precision="ieee")
        out_at = part_ptr + (chunk * n_rows + r)[:, None] * W + e[None, :]
        tl.store(out_at, out, mask=is_due[:, None] & (e < W)[None, :])


@triton.jit
def append_kernel(
    q_ptr, k_ptr, v_ptr, cos_ptr, sin_ptr, position_ptr, table_ptr, q_out_ptr,
    k_slc_ptr, v_slc_ptr, k_win_ptr, v_win_ptr, k_raw_ptr, v_raw_ptr,
    pe_k_ptr, fc1_k_ptr, fc2_k_ptr, pe_v_ptr, fc1_v_ptr, fc2_v_ptr, part_k_ptr, part_v_ptr, B, n_row_pages,
    SHARED: tl.constexpr, H: tl.constexpr, G: tl.constexpr, GB: tl.constexpr, D: tl.constexpr, HALF: tl.constexpr,
    BHALF: tl.constexpr, BD: tl.constexpr, E: tl.constexpr, BE: tl.constexpr, BM: tl.constexpr,
    L: tl.constexpr, BL: tl.constexpr, STRIDE: tl.constexpr, L_SLC: tl.constexpr, RW: tl.constexpr, RU: tl.constexpr,
    BR: tl.constexpr, HC: tl.constexpr, BK: tl.constexpr, CHUNKS_K: tl.constexpr, CHUNKS_V: tl.constexpr,
    MLP: tl.constexpr,
):  # fmt: skip
    """Programs: per row one for its keys, ceil(H / BM) for its queries; then phi's, per chunk and BR rows."""
    per_row: tl.constexpr = (H + BM - 1) // BM + 1
    program = tl.program_id(0)
    if program < B * per_row:
        b, part = program // per_row, program % per_row
        p = tl.load(position_ptr + b)
        i = tl.arange(0, BHALF)
        angle = p.to(tl.int64) * D + i
        cos = tl.load(cos_ptr + angle, mask=i < HALF, other=0.0)[None, :]
        sin = tl.load(sin_ptr + angle + HALF, mask=i < HALF, other=0.0)[None, :]
        if part == 0:
            _append_keys(
                k_ptr, v_ptr, cos, sin, table_ptr, k_slc_ptr, v_slc_ptr, k_win_ptr, v_win_ptr, k_raw_ptr, v_raw_ptr,
                b, p, n_row_pages, SHARED, G, GB, D, HALF, BHALF, E, BE, L_SLC, RW, RU,
            )  # fmt: skip
        else:
            h = (part - 1) * BM + tl.arange(0, BM)
            mask = (h < H)[:, None] & (i < HALF)[None, :]
            at = ((b * H + h) * D)[:, None] + i[None, :]
            lo, hi, bad = _turned_rows(q_ptr + at, cos, sin, mask, HALF)
            lo = tl.where(bad[:, None] > 0, float("nan"), lo).to(q_out_ptr.dtype.element_ty)
            hi = tl.where(bad[:, None] > 0, float("nan"), hi).to(q_out_ptr.dtype.element_ty)
            tl.store(q_out_ptr + at, lo, mask=mask)
            tl.store(q_out_ptr + at + HALF, hi, mask=mask)
    else:
        at = program - B * per_row
        chunk = at % (CHUNKS_K + CHUNKS_V)
        r = (at // (CHUNKS_K + CHUNKS_V)) * BR + tl.arange(0, BR)
        p_rows = tl.load(position_ptr + r // G, mask=r < B * G, other=0)
        is_due = (r < B * G) & (p_rows + 1 >= L) & ((p_rows + 1 - L) % STRIDE == 0)
        if tl.max(is_due.to(tl.int32), 0) > 0:
            heads: tl.constexpr = G if SHARED else 3 * G
            if chunk < CHUNKS_K:
                _phi_part(
                    k_ptr, k_raw_ptr, pe_k_ptr, fc1_k_ptr, fc2_k_ptr, part_k_ptr, r, is_due, p_rows, chunk, B * G,
                    heads, G, D, BD, L, BL, RU, HC, BK, CHUNKS_K, MLP,
                )  # fmt: skip
            else:
                _phi_part(
                    v_ptr, v_raw_ptr, pe_v_ptr, fc1_v_ptr, fc2_v_ptr, part_v_ptr, r, is_due, p_rows,
                    chunk - CHUNKS_K, B * G, heads, G, E, BE, L, BL, RU, HC, BK, CHUNKS_V, MLP,
                )  # fmt: skip


@triton.jit
def _phi_row(part_ptr, r, n_rows, e, mask, W: tl.constexpr, N_CHUNKS: tl.constexpr, CB: tl.constexpr, MLP: tl.constexpr, element: tl.constexpr):  # fmt: skip  # noqa: E501
    """Columns ``e`` of a compressed row from its parts, added in their order and rounded as torch does."""
    mean = tl.load(part_ptr + ((N_CHUNKS if MLP else 0) * n_rows + r) * W + e, mask=mask, other=0.0)
    mean = mean.to(element).to(tl.float32)
    if MLP:
        c = tl.arange(0, CB)
        parts = tl.load(
            part_ptr + ((c * n_rows + r) * W)[:, None] + e[None, :], mask=(c < N_CHUNKS)[:, None] & mask[None, :],
            other=0.0,
        )  # fmt: skip
        mean = (mean + tl.sum(parts, 0).to(element).to(tl.float32)).to(element).to(tl.float32)
    return mean


@triton.jit
def _finish_block(
    part_k_ptr, part_v_ptr, cos_ptr, sin_ptr, kc_ptr, vc_ptr, r, p, c, n_rows, max_blocks,
    D: tl.constexpr, HALF: tl.constexpr, BHALF: tl.constexpr, E: tl.constexpr, BE: tl.constexpr, CHUNKS_K: tl.constexpr, CHUNKS_V: tl.constexpr, CB: tl.constexpr, MLP: tl.constexpr,  # noqa: E501
):  # fmt: skip
    """Put compressed block ``c``, which ends with token ``p``, into its place; its angle is that token's."""
    element: tl.constexpr = kc_ptr.dtype.element_ty
    i = tl.arange(0, BHALF)
    e = tl.arange(0, BE)
    a = _phi_row(part_k_ptr, r, n_rows, i, i < HALF, D, CHUNKS_K, CB, MLP, element)
    z = _phi_row(part_k_ptr, r, n_rows, HALF + i, i < HALF, D, CHUNKS_K, CB, MLP, element)
    v = _phi_row(part_v_ptr, r, n_rows, e, e < E, E, CHUNKS_V, CB, MLP, element)
    bad = tl.maximum(tl.maximum(_is_bad(a, i < HALF, 0), _is_bad(z, i < HALF, 0)), _is_bad(v, e < E, 0))
    angle = p.to(tl.int64) * D + i
    cos = tl.load(cos_ptr + angle, mask=i < HALF, other=0.0)
    sin = tl.load(sin_ptr + angle + HALF, mask=i < HALF, other=0.0)
    row = r.to(tl.int64) * max_blocks + c
    lo = tl.where(bad > 0, float("nan"), a * cos - z * sin).to(element)
    hi = tl.where(bad > 0, float("nan"), z * cos + a * sin).to(element)
    tl.store(kc_ptr + row * D + i, lo, mask=i < HALF)
    tl.store(kc_ptr + row * D + HALF + i, hi, mask=i < HALF)
    tl.store(vc_ptr + row * E + e, tl.where(bad > 0, 0.0, v).to(element), mask=e < E)


@triton.jit
def _queries(q_ptr, b, g, G: tl.constexpr, GROUP: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, BD: tl.constexpr):
    """[GP, BD]: the queries of one kv head."""
    h = tl.arange(0, GP)
    d = tl.arange(0, BD)
    at = ((b * G + g) * GROUP + h) * D
    return tl.load(q_ptr + at[:, None] + d[None, :], mask=(h < GROUP)[:, None] & (d < D)[None, :], other=0.0)


@triton.jit
def _rows(ptr, live, W: tl.constexpr, BW: tl.constexpr):
    """[rows, BW]: one row from each pointer, zeros where it is not live."""
    i = tl.arange(0, BW)
    return tl.load(ptr[:, None] + i[None, :], mask=live[:, None] & (i < W)[None, :], other=0.0)


@triton.jit
def _attend_tile(q, k, v, m, total, acc, live, qk_scale):
    """One tile of keys: the new maximum, sum and output, and the weights relative to that maximum."""
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * qk_scale
    s = tl.where(live[None, :], s, -float("inf"))
    largest = tl.maximum(m, tl.max(s, 1))
    # A row of NaN has no largest score: whatever it is compared with, it stays NaN.
    base = tl.where(largest == -float("inf"), 0.0, largest)
    w = tl.exp2(s - base[:, None])
    shrink = tl.exp2(m - base)
    total = total * shrink + tl.sum(w, 1)
    acc = tl.dot(w.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
    return largest, total, acc, w, base


@triton.jit
def _keep_part(m, total, acc, acc_ptr, m_ptr, total_ptr, part, GP: tl.constexpr, E: tl.constexpr, BE: tl.constexpr):
    """Store a program's maximum, sum and output."""
    h = tl.arange(0, GP)
    e = tl.arange(0, BE)
    tl.store(m_ptr + part * GP + h, m)
    tl.store(total_ptr + part * GP + h, total)
    tl.store(acc_ptr + (part * GP + h).to(tl.int64)[:, None] * E + e[None, :], acc, mask=(e < E)[None, :])


@triton.jit
def _block_sums(w, base, sums_ptr, bases_ptr, bg, tile, max_tiles, spill_stride, is_wanted, GP: tl.constexpr, BC: tl.constexpr, R: tl.constexpr, OVERLAP: tl.constexpr, SPILLS: tl.constexpr):  # fmt: skip  # noqa: E501
    """Sum a tile's weights over the selection blocks that they belong to: its own, and the next ones in reach.

    ``sums`` is [SPILLS + 1, B * G, GP, blocks], ``bases`` [B * G, GP, tiles].
    """
    BJ: tl.constexpr = BC // R
    h = tl.arange(0, GP)
    j = tl.arange(0, BJ)
    i = tl.arange(0, R)
    w = tl.reshape(w, [GP, BJ, R])
    at = sums_ptr + (((bg * GP + h) * max_tiles + tile) * BJ)[:, None] + j[None, :]
    for k in tl.static_range(SPILLS + 1):
        overlap = tl.maximum(tl.minimum(i + OVERLAP, (k + 1) * R) - tl.maximum(i, k * R), 0).to(tl.float32)
        tl.store(at + k * spill_stride, tl.sum(w * overlap[None, None, :], 2), mask=is_wanted & (h < GP)[:, None])
    tl.store(bases_ptr + (bg * GP + h) * max_tiles + tile, base, mask=is_wanted & (h < GP))


@triton.jit
def _largest_and_sum(m_ptr, total_ptr, first, n, GP: tl.constexpr, PB: tl.constexpr, CACHE: tl.constexpr):
    """Over parts ``first`` to ``first + n``: what each counts for, the largest score, and the sum over all."""
    s = tl.arange(0, PB)
    h = tl.arange(0, GP)
    at = (first + s)[:, None] * GP + h[None, :]
    live = (s < n)[:, None]
    m = tl.load(m_ptr + at, mask=live, other=-float("inf"), cache_modifier=CACHE)
    total = tl.load(total_ptr + at, mask=live, other=0.0, cache_modifier=CACHE)
    largest = tl.max(m, 0)
    base = tl.where(largest == -float("inf"), 0.0, largest)
    factor = tl.exp2(m - base[None, :])
    return factor, base, tl.sum(total * factor, 0)


@triton.jit
def _slice_scores(
    sums_ptr, bases_ptr, lse, bg, j, free, n_scored, max_tiles, spill_stride,
    GP: tl.constexpr, BJ: tl.constexpr, SPILLS: tl.constexpr,
):  # fmt: skip
    """The scores of blocks ``j``, over all heads: their own sums, and what the blocks before them spill into them."""
    h = tl.arange(0, GP)
    score = tl.zeros([j.shape[0]], tl.float32)
    for k in tl.static_range(SPILLS + 1):
        source = j - k
        live = (free & (source >= 0) & (source < n_scored))[None, :]
        row = bg * GP + h[:, None]
        sums = tl.load(sums_ptr + k * spill_stride + row * (max_tiles * BJ) + source[None, :], mask=live, other=0.0)
        base = tl.load(bases_ptr + row * max_tiles + source[None, :] // BJ, mask=live, other=-float("inf"))
        score += tl.sum(tl.where(live, sums * tl.exp2(base - lse[:, None]), 0.0), 0)
    return score


@triton.jit
def _n_better(rival, rival_block, key, block):
    """For each block how many rivals are better; the lower number among equals."""
    rival, rival_block = rival[:, None], rival_block[:, None]
    key, block = key[None, :], block[None, :]
    return tl.sum(((rival > key) | ((rival == key) & (rival_block < block))).to(tl.int32), 0)


@triton.jit
def _chosen(
    best_ptr, bests, table_ptr, bg, own, n_slices,
    N: tl.constexpr, BN: tl.constexpr, JS: tl.constexpr, CB: tl.constexpr, CR: tl.constexpr,
    INITIAL: tl.constexpr, LOCAL: tl.constexpr,
):  # fmt: skip
    """[BN]: the forced blocks and the best others of those that the slices kept, and their pages.

    ``best`` is [3, B * G, n_slices, BN]: a block's score by its bits, its number and its page. Where a row has no more
    than N blocks it takes them all.
    """
    slot = tl.arange(0, BN)
    is_all = own < N
    forced = tl.where(is_all | (slot < INITIAL), slot, own - (slot - INITIAL))
    is_forced = (slot < INITIAL + LOCAL) | is_all
    block = tl.where(is_forced, forced, 0)
    page = tl.load(table_ptr + block, mask=is_forced & (slot < tl.minimum(own + 1, N)), other=0)
    if own >= N:
        n_kept = ((own - LOCAL) // JS + 1) * BN
        first = bg * n_slices * BN
        rank = tl.zeros([CB], tl.int32)
        c = tl.arange(0, CB)
        key = tl.load(best_ptr + first + c, mask=c < n_kept, other=-1)
        number = tl.load(best_ptr + bests + first + c, mask=c < n_kept, other=2147483647)
        where_to = tl.load(best_ptr + 2 * bests + first + c, mask=c < n_kept, other=0)
        for begin in range(0, n_kept, CR):
            i = begin + tl.arange(0, CR)
            rival = tl.load(best_ptr + first + i, mask=i < n_kept, other=-1)
            rival_number = tl.load(best_ptr + bests + first + i, mask=i < n_kept, other=2147483647)
            rank += _n_better(rival, rival_number, key, number)
        mine = (rank[:, None] + INITIAL + LOCAL == slot[None, :]) & (c < n_kept)[:, None]
        block += tl.sum(tl.where(mine, number[:, None], 0), 0)
        page += tl.sum(tl.where(mine, where_to[:, None], 0), 0)
    return block, page


@triton.jit
def compressed_kernel(
    q_ptr, kc_ptr, vc_ptr, k_win_ptr, v_win_ptr, part_k_ptr, part_v_ptr, cos_ptr, sin_ptr, position_ptr,
    acc_ptr, m_ptr, total_ptr, sums_ptr, bases_ptr, max_blocks, max_tiles, spill_stride, qk_scale,
    G: tl.constexpr, GROUP: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, HALF: tl.constexpr, BHALF: tl.constexpr,
    BD: tl.constexpr, E: tl.constexpr, BE: tl.constexpr, L: tl.constexpr, STRIDE: tl.constexpr,
    R: tl.constexpr, WIDTH: tl.constexpr, RW: tl.constexpr, BC: tl.constexpr, SPILLS: tl.constexpr,
    SPLITS: tl.constexpr, WINDOWS: tl.constexpr, PARTS: tl.constexpr,
    CHUNKS_K: tl.constexpr, CHUNKS_V: tl.constexpr, CB: tl.constexpr, MLP: tl.constexpr,
):  # fmt: skip
    """Programs per row and kv head: SPLITS for compressed keys, WINDOWS for the window."""
    split = tl.program_id(0)
    bg = tl.program_id(1)
    p = tl.load(position_ptr + bg // G)
    # One loop serves both kinds of program: memory for tiles on their way is then taken once.
    is_cmp = split < SPLITS
    n_blocks = tl.maximum(p + 1 - L + STRIDE, 0) // STRIDE
    first = 0
    last = n_blocks
    share = split
    n_shares = SPLITS
    k_rows = kc_ptr + bg.to(tl.int64) * max_blocks * D
    v_rows = vc_ptr + bg.to(tl.int64) * max_blocks * E
    if split >= SPLITS:
        first = tl.maximum(p - (WIDTH - 1), 0)
        last = p + 1
        share = split - SPLITS
        n_shares = WINDOWS
        k_rows = k_win_ptr + bg.to(tl.int64) * (RW * D)
        v_rows = v_win_ptr + bg.to(tl.int64) * (RW * E)
    lo = first // BC
    n_tiles = (last + BC - 1) // BC
    per = (n_tiles - lo + n_shares - 1) // n_shares
    lo += share * per
    hi = tl.minimum(lo + per, n_tiles)
    is_due = (p + 1 >= L) & ((p + 1 - L) % STRIDE == 0)
    if is_cmp & is_due & (hi == n_tiles) & (lo < hi):
        _finish_block(
            part_k_ptr, part_v_ptr, cos_ptr, sin_ptr, kc_ptr, vc_ptr, bg, p, n_blocks - 1,
            tl.num_programs(1), max_blocks, D, HALF, BHALF, E, BE, CHUNKS_K, CHUNKS_V, CB, MLP,
        )  # fmt: skip
        tl.debug_barrier()
    m = tl.full([GP], -float("inf"), tl.float32)
    total = tl.zeros([GP], tl.float32)
    acc = tl.zeros([GP, BE], tl.float32)
    for tile in range(lo, hi):
        key = tile * BC + tl.arange(0, BC)
        # The window lies in a ring, whose length is a multiple of the tile's.
        row = tl.where(is_cmp, tile * BC, tile * BC % RW) + tl.arange(0, BC)
        live = (key >= first) & (key < last)
        k = _rows(k_rows + row * D, live, D, BD)
        v = _rows(v_rows + row * E, live, E, BE)
        # Behind the keys: most programs have one tile, and would wait for the queries before they ask for it.
        q = _queries(q_ptr, bg // G, bg % G, G, GROUP, GP, D, BD)
        m, total, acc, w, base = _attend_tile(q, k, v, m, total, acc, live, qk_scale)
        _block_sums(
            w, base, sums_ptr, bases_ptr, bg, tile, max_tiles, spill_stride, is_cmp, GP, BC, R, L // STRIDE, SPILLS
        )
    _keep_part(m, total, acc, acc_ptr, m_ptr, total_ptr, bg * PARTS + split, GP, E, BE)


@triton.jit
def rank_kernel(
    position_ptr, table_ptr, gate_ptr, acc_ptr, m_ptr, total_ptr, sums_ptr, bases_ptr, best_ptr, both_ptr,
    n_row_pages, n_slices, max_tiles, spill_stride, bests,
    G: tl.constexpr, GROUP: tl.constexpr, GP: tl.constexpr, E: tl.constexpr, BE: tl.constexpr, L: tl.constexpr,
    STRIDE: tl.constexpr, L_SLC: tl.constexpr, R: tl.constexpr, N: tl.constexpr, BN: tl.constexpr, BC: tl.constexpr,
    JS: tl.constexpr, SPILLS: tl.constexpr, INITIAL: tl.constexpr, LOCAL: tl.constexpr, SPLITS: tl.constexpr,
    SB: tl.constexpr, WINDOWS: tl.constexpr, WB: tl.constexpr, PARTS: tl.constexpr, MERGES: tl.constexpr,
):  # fmt: skip
    """Programs per row and kv head: n_slices keep the best of JS blocks each; MERGES add columns of other branches."""
    bg = tl.program_id(1)
    b = bg // G
    h = tl.arange(0, GP)
    first_part = bg * PARTS
    part = tl.program_id(0)
    p = tl.load(position_ptr + b)
    if part < n_slices:
        own = p // L_SLC
        if (own >= N) & (part * JS <= own - LOCAL):
            n_tiles = (tl.maximum(p + 1 - L + STRIDE, 0) // STRIDE + BC - 1) // BC
            j = part * JS + tl.arange(0, JS)
            free = (j >= INITIAL) & (j <= own - LOCAL)
            page = tl.load(table_ptr + b * n_row_pages + j, mask=free, other=0)
            _, base, total = _largest_and_sum(m_ptr, total_ptr, first_part, SPLITS, GP, SB, "")
            # Heads that are padding have queries of zeros, and their weights must not count.
            lse = tl.where(h < GROUP, base + tl.log2(total), float("inf"))
            score = _slice_scores(
                sums_ptr, bases_ptr, lse, bg, j, free, n_tiles * (BC // R), max_tiles, spill_stride, GP, BC // R, SPILLS
            )
            # Scores are not negative, so their bits order like integers; what is no number ranks by its bits, too.
            key = tl.where(free, score.to(tl.int32, bitcast=True) & 2147483647, -1)
            rank = _n_better(key, j, key, j)
            at = best_ptr + (bg * n_slices + part) * BN + rank
            tl.store(at, key, mask=rank < BN)
            tl.store(at + bests, j, mask=rank < BN)
            tl.store(at + 2 * bests, page, mask=rank < BN)
    else:
        e = (part - n_slices) * (BE // MERGES) + tl.arange(0, BE // MERGES)
        gate_at = gate_ptr + (bg * GROUP + h) * 3
        live = h < GROUP
        cmp = _weighted(acc_ptr, m_ptr, total_ptr, first_part, SPLITS, e, GP, E, SB, "")
        o = cmp * tl.load(gate_at, mask=live, other=0.0).to(tl.float32)[:, None]
        win = _weighted(acc_ptr, m_ptr, total_ptr, first_part + SPLITS, WINDOWS, e, GP, E, WB, "")
        o += win * tl.load(gate_at + 2, mask=live, other=0.0).to(tl.float32)[:, None]
        tl.store(both_ptr + ((bg * GP + h) * E)[:, None] + e[None, :], o, mask=(e < E)[None, :])


@triton.jit
def _weighted(
    acc_ptr, m_ptr, total_ptr, first, n, e, GP: tl.constexpr, E: tl.constexpr, PB: tl.constexpr, CACHE: tl.constexpr
):
    """Columns ``e`` of the output over parts ``first`` to ``first + n``: [GP, columns]; zeros where there is no key."""
    s = tl.arange(0, PB)
    h = tl.arange(0, GP)
    at = ((first + s)[:, None] * GP + h[None, :]).to(tl.int64) * E
    acc = tl.load(
        acc_ptr + at[:, :, None] + e[None, None, :], mask=(s < n)[:, None, None] & (e < E)[None, None, :], other=0.0,
        cache_modifier=CACHE,
    )  # fmt: skip
    factor, _, total = _largest_and_sum(m_ptr, total_ptr, first, n, GP, PB, CACHE)
    return tl.sum(acc * factor[:, :, None], 0) / tl.where(total == 0.0, 1.0, total)[:, None]


@triton.jit
def selected_kernel(
    q_ptr, k_slc_ptr, v_slc_ptr, position_ptr, table_ptr, best_ptr, gate_ptr, acc_ptr, m_ptr, total_ptr,
    both_ptr, o_ptr, arrived_ptr, n_row_pages, n_slices, bests, qk_scale,
    G: tl.constexpr, GROUP: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, BD: tl.constexpr, E: tl.constexpr,
    BE: tl.constexpr, L_SLC: tl.constexpr, BL: tl.constexpr, N: tl.constexpr, BN: tl.constexpr, JS: tl.constexpr,
    CB: tl.constexpr, CR: tl.constexpr, INITIAL: tl.constexpr, LOCAL: tl.constexpr, SELECTS: tl.constexpr,
    PARTS: tl.constexpr,
):  # fmt: skip
    """Programs per row and kv head: SELECTS, each with some of the chosen blocks; the last to end adds all."""
    part = tl.program_id(0)
    bg = tl.program_id(1)
    b, g = bg // G, bg % G
    h = tl.arange(0, GP)
    first_part = (bg + 1) * PARTS - SELECTS
    p = tl.load(position_ptr + b)
    q = _queries(q_ptr, b, g, G, GROUP, GP, D, BD)
    m = tl.full([GP], -float("inf"), tl.float32)
    total = tl.zeros([GP], tl.float32)
    acc = tl.zeros([GP, BE], tl.float32)
    n_chosen = tl.minimum(p // L_SLC + 1, N)
    per = (n_chosen + SELECTS - 1) // SELECTS
    within = tl.arange(0, BL)
    # What is loaded in the loop depends on nothing that the loop loads.
    slots = tl.arange(0, BN)
    blocks, row_pages = _chosen(
        best_ptr, bests, table_ptr + b * n_row_pages, bg, p // L_SLC, n_slices, N, BN, JS, CB, CR, INITIAL, LOCAL
    )
    for slot in range(part * per, tl.minimum(part * per + per, n_chosen)):
        block = tl.sum(tl.where(slots == slot, blocks, 0), 0)
        page = tl.sum(tl.where(slots == slot, row_pages, 0), 0).to(tl.int64)
        row = (page * G + g) * L_SLC + within
        live = (within < L_SLC) & (block * L_SLC + within <= p)
        k = _rows(k_slc_ptr + row * D, live, D, BD)
        v = _rows(v_slc_ptr + row * E, live, E, BE)
        m, total, acc, _, _ = _attend_tile(q, k, v, m, total, acc, live, qk_scale)
    _keep_part(m, total, acc, acc_ptr, m_ptr, total_ptr, first_part + part, GP, E, BE)
    tl.debug_barrier()
    if tl.atomic_add(arrived_ptr + bg, 1, sem="acq_rel") == SELECTS - 1:
        tl.store(arrived_ptr + bg, 0)
        e = tl.arange(0, BE)
        live = h < GROUP
        o = tl.load(both_ptr + ((bg * GP + h) * E)[:, None] + e[None, :], mask=(e < E)[None, :], other=0.0)
        slc_gate = tl.load(gate_ptr + (bg * GROUP + h) * 3 + 1, mask=live, other=0.0).to(tl.float32)
        slc = _weighted(acc_ptr, m_ptr, total_ptr, first_part, SELECTS, e, GP, E, SELECTS, ".cg")
        o += slc * slc_gate[:, None]
        o_at = o_ptr + ((bg * GROUP + h) * E)[:, None] + e[None, :]
        tl.store(o_at, o.to(o_ptr.dtype.element_ty), mask=live[:, None] & (e < E)[None, :])
