# ruff: noqa: ANN001, ANN201, ANN202 - a kernel's arguments are pointers and numbers whose types the launch decides
"""A decoding step as one kernel, whose programs wait for each other; ``nsa.kernels.decode.triton`` launches it.

Programs in their order, ``step_kernel``'s parts one after the other:

1. ``_phi_part``: where a compression block ends with the new token, a part of phi's weights times that block.
2. ``_attend``: the compressed keys of a kv head divided over several programs, beside others that take the window.
   Weights are summed per selection block on the way, relative to the largest score so far in the program. The program
   with the window's end puts the new key and value where they belong.
3. ``_score``: with every maximum and sum of a head, the block sums of a slice of blocks become scores. The last program
   of a head to end chooses the best of them, ``_choose``.
4. ``_select``: every program takes its share of the chosen blocks.
5. ``_merge``: adds columns of the three branches' parts by their gates.

A program waits only for programs whose numbers are lower than its own. A GPU starts programs in the order of their
numbers, so those it waits for run or have ended, and nothing waits for ever, however few fit the GPU at a time. Each
counts its end in ``arrived`` behind a barrier (release), each that waits reads the count (acquire) and then reads what
the others wrote past the first cache. The last program of all puts the counts back to zero. Four kernels one after
another would do without the waiting, but drain and fill the GPU three times more in a step of microseconds.

Nothing is sorted: the score of the worst block that is chosen is looked for by counting how many are no worse. Code is
read from memory like data, and at a large batch keys and values drive it out of the caches: whoever runs a part first
waits for microseconds. So little code is worth more here than few instructions.

What is added has a fixed order, so that bits do not depend on who was first. Nor may a product be rounded together with
the sum that takes it (``enable_fp_fusion=False``): where several threads keep a sum over all of them, each would round
every product but its own, and which of them writes last is chance. Scores are in powers of two: log2(e) is part of the
scale.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _is_bad(x, mask, axis: tl.constexpr):
    """1 where something along the axis is not finite; NaN is not less than anything."""
    return tl.max(tl.where(mask & ~(tl.abs(x.to(tl.float32)) < float("inf")), 1, 0), axis)


@triton.jit
def _arrive(count_ptr):
    """Count this program's end, after everything that it wrote."""
    tl.debug_barrier()
    tl.atomic_add(count_ptr, 1, sem="release")


@triton.jit
def _wait_for(count_ptr, n):
    """Go on when ``n`` programs have arrived."""
    while tl.atomic_add(count_ptr, 0, sem="acquire") < n:
        pass


@triton.jit
def _turned(x_at, cos_ptr, sin_ptr, p, live, D: tl.constexpr, HALF: tl.constexpr, BD: tl.constexpr):
    """[rows, BD]: rows of D numbers turned by the angle of position ``p``; rows of NaN where one is not finite."""
    d = tl.arange(0, BD)
    mask = live[:, None] & (d < D)[None, :]
    x = tl.load(x_at[:, None] + d[None, :], mask=mask, other=0.0)
    rolled = tl.load(x_at[:, None] + ((d + HALF) % D)[None, :], mask=mask, other=0.0).to(tl.float32)
    angle = p.to(tl.int64) * D + d
    cos = tl.load(cos_ptr + angle, mask=d < D, other=0.0)
    sin = tl.load(sin_ptr + angle, mask=d < D, other=0.0)
    y = x.to(tl.float32) * cos[None, :] + rolled * sin[None, :]
    return tl.where(_is_bad(x, mask, 1)[:, None] > 0, float("nan"), y).to(x_at.dtype.element_ty)


@triton.jit
def _append(
    k_ptr, v_ptr, cos_ptr, sin_ptr, table_ptr, k_slc_ptr, v_slc_ptr, k_win_ptr, v_win_ptr, k_raw_ptr, v_raw_ptr,
    bg, p, n_row_pages, SHARED: tl.constexpr, G: tl.constexpr, D: tl.constexpr, HALF: tl.constexpr, BD: tl.constexpr,
    E: tl.constexpr, BE: tl.constexpr, L_SLC: tl.constexpr, RW: tl.constexpr, RU: tl.constexpr,
):  # fmt: skip
    """Put the new key and value of a kv head into the three branches' memory; returns those of the window.

    A key is NaN and its value zeros where one of them is not finite; what phi reads stays as it is.
    """
    b, g = bg // G, bg % G
    branch = tl.arange(0, 4)  # cmp, slc, win; the fourth is none
    d = tl.arange(0, BD)
    e = tl.arange(0, BE)
    heads: tl.constexpr = G if SHARED else 3 * G
    step: tl.constexpr = 0 if SHARED else G
    head = b * heads + g + branch * step
    live = branch < 3
    k_mask = live[:, None] & (d < D)[None, :]
    v_mask = live[:, None] & (e < E)[None, :]
    k_new = tl.load(k_ptr + (head * D)[:, None] + d[None, :], mask=k_mask, other=0.0)
    v = tl.load(v_ptr + (head * E)[:, None] + e[None, :], mask=v_mask, other=0.0)
    k = _turned(k_ptr + head * D, cos_ptr, sin_ptr, p, live, D, HALF, BD)
    bad = tl.maximum(_is_bad(k_new, k_mask, 1), _is_bad(v, v_mask, 1))[:, None] > 0
    page = tl.load(table_ptr + b * n_row_pages + p // L_SLC).to(tl.int64)
    none = branch.to(tl.int64) * 0  # each of these stores is of one row
    raw = (bg * RU + p % RU).to(tl.int64)
    slc = (page * G + g) * L_SLC + p % L_SLC
    win = bg.to(tl.int64) * RW + p % RW
    cmp_row, slc_row, win_row = (branch == 0)[:, None], (branch == 1)[:, None], (branch == 2)[:, None]
    tl.store(k_raw_ptr + (raw * D + none)[:, None] + d[None, :], k_new, mask=cmp_row & k_mask)
    tl.store(v_raw_ptr + (raw * E + none)[:, None] + e[None, :], v, mask=cmp_row & v_mask)
    k = tl.where(bad, float("nan"), k)
    v = tl.where(bad, 0.0, v)
    tl.store(k_slc_ptr + (slc * D + none)[:, None] + d[None, :], k, mask=slc_row & k_mask)
    tl.store(v_slc_ptr + (slc * E + none)[:, None] + e[None, :], v, mask=slc_row & v_mask)
    tl.store(k_win_ptr + (win * D + none)[:, None] + d[None, :], k, mask=win_row & k_mask)
    tl.store(v_win_ptr + (win * E + none)[:, None] + e[None, :], v, mask=win_row & v_mask)
    own_k = tl.sum(tl.where(win_row, k.to(tl.float32), 0.0), 0)
    return own_k, tl.sum(tl.where(win_row, v.to(tl.float32), 0.0), 0)


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
        for k0 in tl.range(0, L * W, BK, num_stages=3):
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
def _phi_row(part_ptr, r, n_rows, e, mask, W: tl.constexpr, N_CHUNKS: tl.constexpr, CB: tl.constexpr, MLP: tl.constexpr, element: tl.constexpr):  # fmt: skip  # noqa: E501
    """Columns ``e`` of a compressed row from its parts, added in their order and rounded as torch does."""
    mean_at = part_ptr + ((N_CHUNKS if MLP else 0) * n_rows + r) * W + e
    mean = tl.load(mean_at, mask=mask, other=0.0, cache_modifier=".cg")
    mean = mean.to(element).to(tl.float32)
    if MLP:
        c = tl.arange(0, CB)
        parts = tl.load(
            part_ptr + ((c * n_rows + r) * W)[:, None] + e[None, :], mask=(c < N_CHUNKS)[:, None] & mask[None, :],
            other=0.0, cache_modifier=".cg",
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
def _queries(
    q_ptr, cos_ptr, sin_ptr, bg, p,
    GROUP: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, HALF: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """[GP, BD]: the turned queries of one kv head; zeros for heads that are padding."""
    h = tl.arange(0, GP)
    return _turned(q_ptr + (bg * GROUP + h) * D, cos_ptr, sin_ptr, p, h < GROUP, D, HALF, BD)


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

    ``sums`` is [SPILLS + 1, B * G, GP, blocks], with room for a tile more than there is: what a block gives to the k-th
    behind it stands in the k-th at that one's number. ``bases`` is [B * G, GP, tiles]. Both are soon read again, and
    shall not leave the cache for keys and values, which are not.
    """
    BJ: tl.constexpr = BC // R
    h = tl.arange(0, GP)
    j = tl.arange(0, BJ)
    i = tl.arange(0, R)
    w = tl.reshape(w, [GP, BJ, R])
    at = sums_ptr + (((bg * GP + h) * (max_tiles + 1) + tile) * BJ)[:, None] + j[None, :]
    mask = is_wanted & (h < GP)
    for k in tl.static_range(SPILLS + 1):
        overlap = tl.maximum(tl.minimum(i + OVERLAP, (k + 1) * R) - tl.maximum(i, k * R), 0).to(tl.float32)
        share = tl.sum(w * overlap[None, None, :], 2)
        tl.store(at + k * (spill_stride + 1), share, mask=mask[:, None], eviction_policy="evict_last")
    tl.store(bases_ptr + (bg * GP + h) * max_tiles + tile, base, mask=mask, eviction_policy="evict_last")


@triton.jit
def _largest_and_sum(m_ptr, total_ptr, first, n, GP: tl.constexpr, PB: tl.constexpr):
    """Over parts ``first`` to ``first + n``: what each counts for, the largest score, and the sum over all."""
    s = tl.arange(0, PB)
    h = tl.arange(0, GP)
    at = (first + s)[:, None] * GP + h[None, :]
    live = (s < n)[:, None]
    m = tl.load(m_ptr + at, mask=live, other=-float("inf"), cache_modifier=".cg")
    total = tl.load(total_ptr + at, mask=live, other=0.0, cache_modifier=".cg")
    largest = tl.max(m, 0)
    base = tl.where(largest == -float("inf"), 0.0, largest)
    factor = tl.exp2(m - base[None, :])
    return factor, base, tl.sum(total * factor, 0)


@triton.jit
def _weighted(acc_ptr, m_ptr, total_ptr, first, n, e, GP: tl.constexpr, E: tl.constexpr, PB: tl.constexpr):
    """Columns ``e`` of the output over parts ``first`` to ``first + n``: [GP, columns]; zeros where there is no key."""
    s = tl.arange(0, PB)
    h = tl.arange(0, GP)
    at = ((first + s)[:, None] * GP + h[None, :]).to(tl.int64) * E
    acc = tl.load(
        acc_ptr + at[:, :, None] + e[None, None, :], mask=(s < n)[:, None, None] & (e < E)[None, None, :], other=0.0,
        cache_modifier=".cg",
    )  # fmt: skip
    factor, _, total = _largest_and_sum(m_ptr, total_ptr, first, n, GP, PB)
    return tl.sum(acc * factor[:, :, None], 0) / tl.where(total == 0.0, 1.0, total)[:, None]


@triton.jit
def _forced(table_ptr, own, N: tl.constexpr, BN: tl.constexpr, INITIAL: tl.constexpr, LOCAL: tl.constexpr):
    """[BN]: the blocks that a query takes without a ranking, zeros in the other slots, and their pages.

    Where a row has no more than N blocks it takes them all.
    """
    slot = tl.arange(0, BN)
    is_all = own < N
    is_forced = (slot < INITIAL + LOCAL) | is_all
    block = tl.where(is_forced, tl.where(is_all | (slot < INITIAL), slot, own - (slot - INITIAL)), 0)
    page = tl.load(table_ptr + block, mask=is_forced & (slot < tl.minimum(own + 1, N)), other=0)
    return block, page


@triton.jit
def _score(
    m_ptr, total_ptr, sums_ptr, bases_ptr, keys_ptr, attended_ptr, bg, part, p, n_row_pages, max_tiles, spill_stride,
    GROUP: tl.constexpr, GP: tl.constexpr, L: tl.constexpr, STRIDE: tl.constexpr, L_SLC: tl.constexpr,
    R: tl.constexpr, N: tl.constexpr, BC: tl.constexpr, JS: tl.constexpr, SPILLS: tl.constexpr,
    INITIAL: tl.constexpr, LOCAL: tl.constexpr, SPLITS: tl.constexpr, SB: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Scores of JS blocks as integers that order alike; -1 for a block that is not ranked."""
    BJ: tl.constexpr = BC // R
    own = p // L_SLC
    _wait_for(attended_ptr, SPLITS)
    if (own >= N) & (part * JS <= own - LOCAL):
        n_tiles = (tl.maximum(p + 1 - L + STRIDE, 0) // STRIDE + BC - 1) // BC
        h = tl.arange(0, GP)
        i = tl.arange(0, BJ)
        tile = part * (JS // BJ) + tl.arange(0, JS // BJ)
        j = tile[:, None] * BJ + i[None, :]
        row = bg * GP + h
        base_at = bases_ptr + (row * max_tiles)[:, None] + tile[None, :]
        is_tile = (tile < n_tiles)[None, :]
        is_next = ((tile > 0) & (tile <= n_tiles))[None, :]
        base = tl.load(base_at, mask=is_tile, other=-float("inf"), cache_modifier=".cg")
        before = tl.load(base_at - 1, mask=is_next, other=-float("inf"), cache_modifier=".cg")
        sums_at = sums_ptr + (row * ((max_tiles + 1) * BJ))[:, None, None] + j[None, :, :]
        within = (tile <= n_tiles)[None, :, None]
        own_sums = tl.load(sums_at, mask=within, other=0.0, cache_modifier=".cg")
        if SPILLS > 0:
            sums = tl.load(sums_at + spill_stride, mask=within, other=0.0, cache_modifier=".cg")
        _, largest, total = _largest_and_sum(m_ptr, total_ptr, bg * PARTS, SPLITS, GP, SB)
        # Heads that are padding have queries of zeros, and their weights must not count.
        lse = tl.where(h < GROUP, largest + tl.log2(total), float("inf"))
        factor = tl.exp2(base - lse[:, None])[:, :, None]
        factor_before = tl.exp2(before - lse[:, None])[:, :, None]
        score = tl.sum(tl.where(is_tile[:, :, None], own_sums * factor, 0.0), 0)
        for k in tl.static_range(1, SPILLS + 1):
            if k > 1:
                sums = tl.load(sums_at + k * spill_stride, mask=within, other=0.0, cache_modifier=".cg")
            # What nobody spilled into was not written.
            written = (j >= k) & (j < n_tiles * BJ + k)
            share = sums * tl.where((i < k)[None, None, :], factor_before, factor)
            score += tl.sum(tl.where(written[None, :, :], share, 0.0), 0)
        # Scores are not negative, so their bits order like integers; what is no number ranks by its bits, too.
        bits = tl.minimum(score.to(tl.int32, bitcast=True) & 2147483647, 2147483392)
        key = tl.where((j >= INITIAL) & (j <= own - LOCAL), bits, -1)
        tl.store(keys_ptr + bg * n_row_pages + j, key, mask=j < n_row_pages)


@triton.jit
def _choose(
    keys_ptr, table_ptr, chosen_ptr, bg, own, n_row_pages,
    N: tl.constexpr, BN: tl.constexpr, BP: tl.constexpr, INITIAL: tl.constexpr, LOCAL: tl.constexpr,
):  # fmt: skip
    """Store the best blocks, in their order, in the slots behind the forced ones, and their pages.

    ``chosen`` is [B * G, 2, BN]. The worst of them is looked for by quarters: how many are no worse is counted until
    the number is right, or nothing is left to divide; then blocks tie, and the lower numbers are taken.
    """
    if own >= N:
        WANTED: tl.constexpr = N - INITIAL - LOCAL
        j = tl.arange(0, BP)
        key = tl.load(keys_ptr + bg * n_row_pages + j, mask=j <= own - LOCAL, other=-1, cache_modifier=".cg")
        page = tl.load(table_ptr + j, mask=j <= own - LOCAL, other=0)
        # Of so many parts each has one that is no worse than the worst of their best.
        best = tl.max(tl.reshape(key, [BN, BP // BN]), 1)
        enough = tl.maximum(tl.min(best, 0), 0)
        too_high = tl.max(best, 0) + 1
        n = own + 1
        while (n != WANTED) & (too_high - enough > 1):
            step = tl.maximum((too_high - enough) // 4, 1)
            first, second, third = enough + step, enough + 2 * step, enough + 3 * step
            # Three counts in one.
            counts = (key >= first).to(tl.int64) + ((key >= second).to(tl.int64) << 20)
            counts = tl.sum(counts + ((key >= third).to(tl.int64) << 40), 0)
            n_first, n_second, n_third = counts & 1048575, (counts >> 20) & 1048575, counts >> 40
            if n_first < WANTED:
                too_high = first
            elif n_second < WANTED:
                enough, too_high, n = first, second, n_first.to(tl.int32)
            elif n_third < WANTED:
                enough, too_high, n = second, tl.minimum(third, too_high), n_second.to(tl.int32)
            else:
                enough, n = third, n_third.to(tl.int32)
        is_better = key > enough
        room = WANTED - tl.sum(is_better.to(tl.int32), 0)
        # Two counts in one: of the better, and of those that tie.
        count = tl.cumsum(is_better.to(tl.int64) + ((key == enough).to(tl.int64) << 20), 0)
        n_ties = (count >> 20).to(tl.int32)
        is_chosen = is_better | ((key == enough) & (n_ties <= room))
        slot = INITIAL + LOCAL + (count & 1048575).to(tl.int32) + tl.minimum(n_ties, room) - 1
        tl.store(chosen_ptr + bg * 2 * BN + slot, j, mask=is_chosen)
        tl.store(chosen_ptr + bg * 2 * BN + BN + slot, page, mask=is_chosen)


@triton.jit
def step_kernel(
    q_ptr, k_ptr, v_ptr, gate_ptr, o_ptr, cos_ptr, sin_ptr, position_ptr, table_ptr,
    k_slc_ptr, v_slc_ptr, kc_ptr, vc_ptr, k_win_ptr, v_win_ptr, k_raw_ptr, v_raw_ptr,
    pe_k_ptr, fc1_k_ptr, fc2_k_ptr, pe_v_ptr, fc1_v_ptr, fc2_v_ptr, part_k_ptr, part_v_ptr,
    acc_ptr, m_ptr, total_ptr, sums_ptr, bases_ptr, keys_ptr, chosen_ptr, arrived_ptr,
    n_heads, n_row_pages, n_slices, max_blocks, max_tiles, spill_stride, n_counts, qk_scale,
    SHARED: tl.constexpr, G: tl.constexpr, GROUP: tl.constexpr, GP: tl.constexpr,
    D: tl.constexpr, HALF: tl.constexpr, BHALF: tl.constexpr, BD: tl.constexpr, E: tl.constexpr, BE: tl.constexpr,
    L: tl.constexpr, BL: tl.constexpr, STRIDE: tl.constexpr, L_SLC: tl.constexpr, BS: tl.constexpr,
    WIDTH: tl.constexpr, RW: tl.constexpr, RU: tl.constexpr, R: tl.constexpr, BC: tl.constexpr, SPILLS: tl.constexpr,
    N: tl.constexpr, BN: tl.constexpr, JS: tl.constexpr, BP: tl.constexpr,
    INITIAL: tl.constexpr, LOCAL: tl.constexpr,
    BR: tl.constexpr, HC: tl.constexpr, BK: tl.constexpr, CHUNKS_K: tl.constexpr, CHUNKS_V: tl.constexpr,
    CHUNKS: tl.constexpr, MLP: tl.constexpr,
    SPLITS: tl.constexpr, SB: tl.constexpr, WINDOWS: tl.constexpr, WB: tl.constexpr, SELECTS: tl.constexpr,
    MERGES: tl.constexpr, PARTS: tl.constexpr, STAGES: tl.constexpr, SELECT_STAGES: tl.constexpr,
):  # fmt: skip
    """One step of all rows. ``n_heads`` is rows times kv heads.

    Counts: [attended, window, ranked, selected, phi, done].
    """
    at = tl.program_id(0)
    attended_ptr, window_ptr = arrived_ptr, arrived_ptr + n_heads
    ranked_ptr, selected_ptr = arrived_ptr + 2 * n_heads, arrived_ptr + 3 * n_heads
    phi_ptr, done_ptr = arrived_ptr + 4 * n_heads, arrived_ptr + n_counts - 1
    n_phi = (n_heads + BR - 1) // BR * (CHUNKS_K + CHUNKS_V)
    n_attend = n_heads * (SPLITS + WINDOWS)
    n_rank = n_heads * n_slices
    n_select = n_heads * SELECTS
    if at < n_phi:
        chunk = at % (CHUNKS_K + CHUNKS_V)
        r = (at // (CHUNKS_K + CHUNKS_V)) * BR + tl.arange(0, BR)
        p_rows = tl.load(position_ptr + r // G, mask=r < n_heads, other=0)
        is_due = (r < n_heads) & (p_rows + 1 >= L) & ((p_rows + 1 - L) % STRIDE == 0)
        if tl.max(is_due.to(tl.int32), 0) > 0:
            heads: tl.constexpr = G if SHARED else 3 * G
            if D == E:
                # One copy of the loop's code and memory for both.
                new_ptr, raw_ptr, pe_ptr, part_ptr = k_ptr, k_raw_ptr, pe_k_ptr, part_k_ptr
                fc1_ptr, fc2_ptr = fc1_k_ptr, fc2_k_ptr
                if chunk >= CHUNKS_K:
                    new_ptr, raw_ptr, pe_ptr, part_ptr = v_ptr, v_raw_ptr, pe_v_ptr, part_v_ptr
                    fc1_ptr, fc2_ptr = fc1_v_ptr, fc2_v_ptr
                _phi_part(
                    new_ptr, raw_ptr, pe_ptr, fc1_ptr, fc2_ptr, part_ptr, r, is_due, p_rows, chunk % CHUNKS_K,
                    n_heads, heads, G, D, BD, L, BL, RU, HC, BK, CHUNKS_K, MLP,
                )  # fmt: skip
            elif chunk < CHUNKS_K:
                _phi_part(
                    k_ptr, k_raw_ptr, pe_k_ptr, fc1_k_ptr, fc2_k_ptr, part_k_ptr, r, is_due, p_rows, chunk, n_heads,
                    heads, G, D, BD, L, BL, RU, HC, BK, CHUNKS_K, MLP,
                )  # fmt: skip
            else:
                _phi_part(
                    v_ptr, v_raw_ptr, pe_v_ptr, fc1_v_ptr, fc2_v_ptr, part_v_ptr, r, is_due, p_rows,
                    chunk - CHUNKS_K, n_heads, heads, G, E, BE, L, BL, RU, HC, BK, CHUNKS_V, MLP,
                )  # fmt: skip
        _arrive(phi_ptr + at // (CHUNKS_K + CHUNKS_V))
    elif at < n_phi + n_attend:
        # The window comes last: no ranking waits for it, and its programs, which are shorter, fill up what is left.
        i = at - n_phi
        is_cmp = i < n_heads * SPLITS
        bg = i // SPLITS
        split = i % SPLITS
        if not is_cmp:
            bg = (i - n_heads * SPLITS) // WINDOWS
            split = SPLITS + (i - n_heads * SPLITS) % WINDOWS
        p = tl.load(position_ptr + bg // G)
        _attend(
            q_ptr, k_ptr, v_ptr, cos_ptr, sin_ptr, table_ptr, k_slc_ptr, v_slc_ptr, kc_ptr, vc_ptr,
            k_win_ptr, v_win_ptr, k_raw_ptr, v_raw_ptr, part_k_ptr, part_v_ptr,
            acc_ptr, m_ptr, total_ptr, sums_ptr, bases_ptr, phi_ptr,
            bg, split, is_cmp, p, n_heads, n_row_pages, max_blocks, max_tiles, spill_stride, qk_scale,
            SHARED, G, GROUP, GP, D, HALF, BHALF, BD, E, BE, L, STRIDE, L_SLC, R, WIDTH, RW, RU, BC, BR, SPILLS,
            SPLITS, WINDOWS, PARTS, CHUNKS_K, CHUNKS_V, CHUNKS, MLP, STAGES,
        )  # fmt: skip
        if is_cmp:
            _arrive(attended_ptr + bg)
        else:
            _arrive(window_ptr + bg)
    elif at < n_phi + n_attend + n_rank:
        i = at - n_phi - n_attend
        bg = i // n_slices
        p = tl.load(position_ptr + bg // G)
        _score(
            m_ptr, total_ptr, sums_ptr, bases_ptr, keys_ptr, attended_ptr + bg, bg, i % n_slices, p, n_row_pages,
            max_tiles, spill_stride, GROUP, GP, L, STRIDE, L_SLC, R, N, BC, JS, SPILLS, INITIAL, LOCAL, SPLITS, SB,
            PARTS,
        )  # fmt: skip
        # The last of a head chooses.
        tl.debug_barrier()
        if tl.atomic_add(ranked_ptr + bg, 1, sem="acq_rel") == n_slices - 1:
            _choose(
                keys_ptr, table_ptr + bg // G * n_row_pages, chosen_ptr, bg, p // L_SLC, n_row_pages, N, BN, BP,
                INITIAL, LOCAL,
            )  # fmt: skip
            _arrive(ranked_ptr + bg)
    elif at < n_phi + n_attend + n_rank + n_select:
        i = at - n_phi - n_attend - n_rank
        bg = i // SELECTS
        p = tl.load(position_ptr + bg // G)
        _select(
            q_ptr, cos_ptr, sin_ptr, k_slc_ptr, v_slc_ptr, table_ptr + bg // G * n_row_pages, chosen_ptr,
            acc_ptr, m_ptr, total_ptr, window_ptr + bg, ranked_ptr + bg, bg, i % SELECTS, p, n_slices, qk_scale,
            G, GROUP, GP, D, HALF, BD, E, BE, L_SLC, BS, N, BN, INITIAL, LOCAL, WINDOWS, SELECTS, PARTS,
            SELECT_STAGES,
        )  # fmt: skip
        _arrive(selected_ptr + bg)
    else:
        i = at - n_phi - n_attend - n_rank - n_select
        bg = i // MERGES
        _merge(
            gate_ptr, acc_ptr, m_ptr, total_ptr, o_ptr, attended_ptr + bg, window_ptr + bg, selected_ptr + bg,
            bg, i % MERGES, GROUP, GP, E, BE, SPLITS, SB, WINDOWS, WB, SELECTS, MERGES, PARTS,
        )  # fmt: skip
        if tl.atomic_add(done_ptr, 1, sem="acq_rel") == n_heads * MERGES - 1:
            for first in range(0, n_counts, 128):
                count = first + tl.arange(0, 128)
                tl.store(arrived_ptr + count, tl.zeros([128], tl.int32), mask=count < n_counts)


@triton.jit
def _attend(
    q_ptr, k_ptr, v_ptr, cos_ptr, sin_ptr, table_ptr, k_slc_ptr, v_slc_ptr, kc_ptr, vc_ptr,
    k_win_ptr, v_win_ptr, k_raw_ptr, v_raw_ptr, part_k_ptr, part_v_ptr,
    acc_ptr, m_ptr, total_ptr, sums_ptr, bases_ptr, phi_ptr,
    bg, split, is_cmp, p, n_heads, n_row_pages, max_blocks, max_tiles, spill_stride, qk_scale,
    SHARED: tl.constexpr, G: tl.constexpr, GROUP: tl.constexpr, GP: tl.constexpr, D: tl.constexpr,
    HALF: tl.constexpr, BHALF: tl.constexpr, BD: tl.constexpr, E: tl.constexpr, BE: tl.constexpr, L: tl.constexpr,
    STRIDE: tl.constexpr, L_SLC: tl.constexpr, R: tl.constexpr, WIDTH: tl.constexpr, RW: tl.constexpr,
    RU: tl.constexpr, BC: tl.constexpr, BR: tl.constexpr, SPILLS: tl.constexpr, SPLITS: tl.constexpr,
    WINDOWS: tl.constexpr, PARTS: tl.constexpr, CHUNKS_K: tl.constexpr, CHUNKS_V: tl.constexpr,
    CHUNKS: tl.constexpr, MLP: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """A share of a head's compressed keys, or of its window; one loop serves both, and memory is taken once."""
    n_blocks = tl.maximum(p + 1 - L + STRIDE, 0) // STRIDE
    first = 0
    last = n_blocks
    past = n_blocks
    share = split
    n_shares = SPLITS
    k_rows = kc_ptr + bg.to(tl.int64) * max_blocks * D
    v_rows = vc_ptr + bg.to(tl.int64) * max_blocks * E
    if split >= SPLITS:
        first = tl.maximum(p - (WIDTH - 1), 0)
        last = p  # the new key is in nobody's memory yet
        past = p + 1
        share = split - SPLITS
        n_shares = WINDOWS
        k_rows = k_win_ptr + bg.to(tl.int64) * (RW * D)
        v_rows = v_win_ptr + bg.to(tl.int64) * (RW * E)
    lo = first // BC
    n_tiles = (past + BC - 1) // BC
    per = (n_tiles - lo + n_shares - 1) // n_shares
    lo += share * per
    hi = tl.minimum(lo + per, n_tiles)
    m = tl.full([GP], -float("inf"), tl.float32)
    total = tl.zeros([GP], tl.float32)
    acc = tl.zeros([GP, BE], tl.float32)
    if (hi == n_tiles) & (lo < hi):
        if is_cmp:
            if (p + 1 >= L) & ((p + 1 - L) % STRIDE == 0):
                _wait_for(phi_ptr + bg // BR, CHUNKS_K + CHUNKS_V)
                _finish_block(
                    part_k_ptr, part_v_ptr, cos_ptr, sin_ptr, kc_ptr, vc_ptr, bg, p, n_blocks - 1,
                    n_heads, max_blocks, D, HALF, BHALF, E, BE, CHUNKS_K, CHUNKS_V, CHUNKS, MLP,
                )  # fmt: skip
                tl.debug_barrier()
        else:
            k_new, v_new = _append(
                k_ptr, v_ptr, cos_ptr, sin_ptr, table_ptr, k_slc_ptr, v_slc_ptr, k_win_ptr, v_win_ptr, k_raw_ptr,
                v_raw_ptr, bg, p, n_row_pages, SHARED, G, D, HALF, BD, E, BE, L_SLC, RW, RU,
            )  # fmt: skip
            q = _queries(q_ptr, cos_ptr, sin_ptr, bg, p, GROUP, GP, D, HALF, BD)
            m = tl.sum(q.to(tl.float32) * k_new[None, :], 1) * qk_scale
            total += 1.0
            acc += v_new[None, :]
    if STAGES > 1:
        q = _queries(q_ptr, cos_ptr, sin_ptr, bg, p, GROUP, GP, D, HALF, BD)
    for tile in tl.range(lo, hi, num_stages=STAGES):
        key = tile * BC + tl.arange(0, BC)
        # The window lies in a ring, whose length is a multiple of the tile's.
        row = tl.where(is_cmp, tile * BC, tile * BC % RW) + tl.arange(0, BC)
        live = (key >= first) & (key < last)
        k = _rows(k_rows + row * D, live, D, BD)
        v = _rows(v_rows + row * E, live, E, BE)
        if STAGES == 1:
            # Behind the keys: most programs have one tile, and would wait for the queries before they ask for it.
            q = _queries(q_ptr, cos_ptr, sin_ptr, bg, p, GROUP, GP, D, HALF, BD)
        m, total, acc, w, base = _attend_tile(q, k, v, m, total, acc, live, qk_scale)
        _block_sums(
            w, base, sums_ptr, bases_ptr, bg, tile, max_tiles, spill_stride, is_cmp, GP, BC, R, L // STRIDE, SPILLS
        )
    _keep_part(m, total, acc, acc_ptr, m_ptr, total_ptr, bg * PARTS + split, GP, E, BE)


@triton.jit
def _select(
    q_ptr, cos_ptr, sin_ptr, k_slc_ptr, v_slc_ptr, table_ptr, chosen_ptr, acc_ptr, m_ptr, total_ptr,
    window_ptr, ranked_ptr, bg, part, p, n_slices, qk_scale,
    G: tl.constexpr, GROUP: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, HALF: tl.constexpr, BD: tl.constexpr,
    E: tl.constexpr, BE: tl.constexpr, L_SLC: tl.constexpr, BS: tl.constexpr, N: tl.constexpr, BN: tl.constexpr,
    INITIAL: tl.constexpr, LOCAL: tl.constexpr, WINDOWS: tl.constexpr, SELECTS: tl.constexpr, PARTS: tl.constexpr,
    SELECT_STAGES: tl.constexpr,
):  # fmt: skip
    """A share of the chosen blocks."""
    q = _queries(q_ptr, cos_ptr, sin_ptr, bg, p, GROUP, GP, D, HALF, BD)
    m = tl.full([GP], -float("inf"), tl.float32)
    total = tl.zeros([GP], tl.float32)
    acc = tl.zeros([GP, BE], tl.float32)
    n_chosen = tl.minimum(p // L_SLC + 1, N)
    per = (n_chosen + SELECTS - 1) // SELECTS
    within = tl.arange(0, BS)
    # What is loaded in the loop depends on nothing that the loop loads.
    slots = tl.arange(0, BN)
    blocks, row_pages = _forced(table_ptr, p // L_SLC, N, BN, INITIAL, LOCAL)
    _wait_for(window_ptr, WINDOWS)  # who reads its end puts the new key away
    _wait_for(ranked_ptr, n_slices + 1)
    is_ranked = (slots >= INITIAL + LOCAL) & (p // L_SLC >= N) & (slots < N)
    blocks += tl.load(chosen_ptr + bg * 2 * BN + slots, mask=is_ranked, other=0, cache_modifier=".cg")
    row_pages += tl.load(chosen_ptr + bg * 2 * BN + BN + slots, mask=is_ranked, other=0, cache_modifier=".cg")
    for slot in tl.range(part * per, tl.minimum(part * per + per, n_chosen), num_stages=SELECT_STAGES):
        block = tl.sum(tl.where(slots == slot, blocks, 0), 0)
        page = tl.sum(tl.where(slots == slot, row_pages, 0), 0).to(tl.int64)
        row = (page * G + bg % G) * L_SLC + within
        live = (within < L_SLC) & (block * L_SLC + within <= p)
        k = _rows(k_slc_ptr + row * D, live, D, BD)
        v = _rows(v_slc_ptr + row * E, live, E, BE)
        m, total, acc, _, _ = _attend_tile(q, k, v, m, total, acc, live, qk_scale)
    _keep_part(m, total, acc, acc_ptr, m_ptr, total_ptr, (bg + 1) * PARTS - SELECTS + part, GP, E, BE)


@triton.jit
def _merge(
    gate_ptr, acc_ptr, m_ptr, total_ptr, o_ptr, attended_ptr, window_ptr, selected_ptr, bg, part,
    GROUP: tl.constexpr, GP: tl.constexpr, E: tl.constexpr, BE: tl.constexpr, SPLITS: tl.constexpr, SB: tl.constexpr,
    WINDOWS: tl.constexpr, WB: tl.constexpr, SELECTS: tl.constexpr, MERGES: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Columns of the output: the three branches by their gates."""
    h = tl.arange(0, GP)
    live = h < GROUP
    e = part * (BE // MERGES) + tl.arange(0, BE // MERGES)
    gate_at = gate_ptr + (bg * GROUP + h) * 3
    cmp_gate = tl.load(gate_at, mask=live, other=0.0).to(tl.float32)
    slc_gate = tl.load(gate_at + 1, mask=live, other=0.0).to(tl.float32)
    win_gate = tl.load(gate_at + 2, mask=live, other=0.0).to(tl.float32)
    first_part = bg * PARTS
    _wait_for(attended_ptr, SPLITS)
    _wait_for(window_ptr, WINDOWS)
    o = _weighted(acc_ptr, m_ptr, total_ptr, first_part, SPLITS, e, GP, E, SB) * cmp_gate[:, None]
    o += _weighted(acc_ptr, m_ptr, total_ptr, first_part + SPLITS, WINDOWS, e, GP, E, WB) * win_gate[:, None]
    _wait_for(selected_ptr, SELECTS)
    o += (
        _weighted(acc_ptr, m_ptr, total_ptr, first_part + SPLITS + WINDOWS, SELECTS, e, GP, E, SELECTS)
        * slc_gate[:, None]
    )
    o_at = o_ptr + ((bg * GROUP + h) * E)[:, None] + e[None, :]
    tl.store(o_at, o.to(o_ptr.dtype.element_ty), mask=live[:, None] & (e < E)[None, :])
