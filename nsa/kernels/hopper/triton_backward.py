# ruff: noqa: ANN001, ANN201, ANN202 - a kernel's arguments are pointers and numbers whose types the launch decides
"""Backward of attention over tiles in Gluon, in two passes whose sums are in a fixed order: dq, then dk and dv.

In the first pass 128 rows stay and keys stream past them; in the second 128 keys stay and rows stream past. One group
of warps loads by TMA, two compute by wgmma, 64 rows or keys each.

Keys and values come without what is not finite. Who saw such a key has NaN for its lse, and so for its weights; its
delta is 0, so that a key that it does not see gets zero from it, not zero times NaN.

Shapes: B batch, T queries, S keys, G kv heads, H = G * GROUP query heads, D both head widths.
"""

from __future__ import annotations

from nsa.kernels.hopper.triton_forward import tile_of
from nsa.kernels.hopper.triton_names import (
    LOG2E,
    SIZES,
    barrier,
    copy_in,
    copy_out,
    fence_async_shared,
    first_open_tile,
    gl,
    gluon,
    has_signs,
    keys_of_tile,
    last_key,
    mbarrier,
    past_open_tiles,
    seen_of_keys,
    seen_of_rows,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from nsa.kernels.hopper.triton_names import WINDOW as _WINDOW

WINDOW = _WINDOW


@gluon.jit
def _load_for_dq(
    desc_q, desc_do, desc_o, desc_k, desc_v, q_smem, do_smem, o_smem, k_smem, v_smem, rows_full, keys_full, keys_empty,
    n_tiles, T, S, offset,
    H: gl.constexpr, GROUP: gl.constexpr, PACK: gl.constexpr, BN: gl.constexpr, KIND: gl.constexpr,
    P1: gl.constexpr, P2: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """The loading group: what belongs to the rows once, then keys and values in the forward's order."""
    BT: gl.constexpr = 128 // PACK
    b, head, t0 = tile_of(gl.program_id(0), gl.num_programs(0), n_tiles, H, PACK, 128, KIND)
    g = head // GROUP
    mbarrier.expect(rows_full, 6 * desc_q.block_type.nbytes)
    for who in gl.static_range(2):
        copy_in(desc_q, [b, t0 + who * (BT // 2), head, 0], rows_full, q_smem.index(who))
        copy_in(desc_do, [b, t0 + who * (BT // 2), head, 0], rows_full, do_smem.index(who))
        copy_in(desc_o, [b, t0 + who * (BT // 2), head, 0], rows_full, o_smem.index(who))
    lo, hi = keys_of_tile(t0, t0 + BT - 1, T, S, offset, P1, P2, KIND, BN)
    for i in range(hi - lo):
        stage = i % STAGES
        n0 = (hi - 1 - i) * BN
        mbarrier.wait(keys_empty.index(stage), ((i // STAGES) & 1) ^ 1)
        mbarrier.expect(keys_full.index(stage), 2 * desc_k.block_type.nbytes)
        copy_in(desc_k, [b, n0, g, 0], keys_full.index(stage), k_smem.index(stage))
        copy_in(desc_v, [b, n0, g, 0], keys_full.index(stage), v_smem.index(stage))


@gluon.jit
def _dq_of_rows(
    WHO: gl.constexpr, desc_dq, lse_ptr, s_start_ptr, dp_start_ptr, gate_ptr, dgate_ptr, g_start_ptr,
    q_smem, do_smem, o_smem, k_smem, v_smem, rows_full, keys_full, keys_empty, before_full,
    n_tiles, T, S, offset, scale,
    H: gl.constexpr, PACK: gl.constexpr, D: gl.constexpr, BN: gl.constexpr, KIND: gl.constexpr,
    P1: gl.constexpr, P2: gl.constexpr, STAGES: gl.constexpr, BRANCH: gl.constexpr, ADDS: gl.constexpr,
):  # fmt: skip
    """A computing group: dq of its 64 rows, and what their sums begin with in the other pass."""
    BT: gl.constexpr = 128 // PACK
    MINE: gl.constexpr = 64 // PACK
    LS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN, 16])
    LO: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    LP: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=LO, k_width=2)
    ROWS: gl.constexpr = gl.SliceLayout(1, LS)
    b, head, t00 = tile_of(gl.program_id(0), gl.num_programs(0), n_tiles, H, PACK, 128, KIND)
    lo, hi = keys_of_tile(t00, t00 + BT - 1, T, S, offset, P1, P2, KIND, BN)
    t0 = t00 + WHO * MINE
    row = gl.arange(0, 64, ROWS)
    t = t0 + row // PACK
    last = last_key(t, offset, P1, P2, KIND)
    open_lo = first_open_tile(t0 + MINE - 1, offset, P1, P2, KIND, BN)
    open_hi = past_open_tiles(t0, S, offset, P1, P2, KIND, BN)
    at = (b.to(gl.int64) * T + t) * H + head + row % PACK
    lse = gl.load(lse_ptr + at, mask=t < T, other=float("inf"))
    start = (b * (H // PACK) + head // PACK).to(gl.int64) * (n_tiles * 128) + t0 * PACK + row
    s_start = lse * (-1.0 / scale)
    lse = lse * LOG2E
    none = gl.zeros([64, BN], gl.float32, LS)
    dq = gl.zeros([64, D], gl.float32, LO)
    mbarrier.wait(rows_full, 0)
    q = q_smem.index(WHO).reshape([64, D])
    do = do_smem.index(WHO).reshape([64, D])
    o = o_smem.index(WHO).reshape([64, D])
    delta = gl.sum(o.load(LO).to(gl.float32) * do.load(LO).to(gl.float32), 1)
    delta = gl.convert_layout(delta, ROWS)
    factor = gl.full([64], scale, gl.float32, ROWS)
    if BRANCH >= 0:
        gl.store(dgate_ptr + at * 3 + BRANCH, delta.to(dgate_ptr.dtype.element_ty), mask=t < T)
        gate = gl.load(gate_ptr + at * 3 + BRANCH, mask=t < T, other=0.0).to(gl.float32)
        gl.store(g_start_ptr + start, gate)
        s_start += gl.log(gl.abs(gate)) * (1.0 / scale)
        factor = gate * scale
    gl.store(s_start_ptr + start, s_start)
    delta = gl.where(delta == delta, delta, 0.0)
    gl.store(dp_start_ptr + start, -delta)
    if ADDS:
        fence_async_shared()
        barrier()  # o has been read: what dq is added to takes its place while the keys pass by
        mbarrier.expect(before_full.index(WHO), desc_dq.block_type.nbytes)
        copy_in(desc_dq, [b, t0, head, 0], before_full.index(WHO), o_smem.index(WHO))
    for i in range(hi - lo):
        stage = i % STAGES
        n = hi - 1 - i
        mbarrier.wait(keys_full.index(stage), (i // STAGES) & 1)
        k = k_smem.index(stage).reshape([BN, D])
        v = v_smem.index(stage).reshape([BN, D])
        pending_s = warpgroup_mma(q, k.permute((1, 0)), none, use_acc=False, is_async=True)
        pending_dp = warpgroup_mma(do, v.permute((1, 0)), none, use_acc=False, is_async=True)
        s = warpgroup_mma_wait(1, [pending_s])
        p = gl.exp2(s * (scale * LOG2E) - lse[:, None])
        if (n < open_lo) | (n >= open_hi):
            key = n * BN + gl.arange(0, BN, gl.SliceLayout(0, LS))
            p = gl.where(seen_of_rows(last, key, S, P1, KIND), p, 0.0)
        dp = warpgroup_mma_wait(0, [pending_dp])
        ds = gl.convert_layout((p * (dp - delta[:, None])).to(desc_dq.dtype), LP)
        pending_dq = warpgroup_mma(ds, k, dq, is_async=True)
        dq = warpgroup_mma_wait(0, [pending_dq])
        mbarrier.arrive(keys_empty.index(stage), count=1)
    dq = dq * gl.convert_layout(factor, gl.SliceLayout(1, LO))[:, None]
    if ADDS:
        mbarrier.wait(before_full.index(WHO), 0)
        dq += o.load(LO).to(gl.float32)
    q.store(dq.to(desc_dq.dtype))  # all products with the queries are done, and their place is as large
    fence_async_shared()
    barrier()
    copy_out(desc_dq, [b, t0, head, 0], q_smem.index(WHO))
    tma.store_wait(0)


@gluon.jit(do_not_specialize=SIZES)
def dq_kernel(
    desc_q, desc_do, desc_o, desc_k, desc_v, desc_dq, lse_ptr, s_start_ptr, dp_start_ptr, gate_ptr, dgate_ptr,
    g_start_ptr, n_tiles, T, S, offset, scale,
    H: gl.constexpr, GROUP: gl.constexpr, PACK: gl.constexpr, D: gl.constexpr, BN: gl.constexpr, KIND: gl.constexpr,
    P1: gl.constexpr, P2: gl.constexpr, STAGES: gl.constexpr, BRANCH: gl.constexpr, ADDS: gl.constexpr,
):  # fmt: skip
    """DQ of 128 rows; tiles, boxes and order are the forward's.

    For the other pass it leaves each row's -lse / scale and -delta, delta = sum(do * o), in the order of its tiles,
    which are whole: [B, H / PACK, n_tiles * 128]; a row that is not there has -inf and 0, and so no weight. The sums
    of scores and of dp begin with them there, so that neither is held while the products run.

    With BRANCH >= 0 do is the gradient of the gated sum (Eq. 5): gates and their gradients are [B, T, H, 3], delta is
    the gradient of this branch's gate, and the gates are left in the tiles' order, too. They multiply dq here and the
    weights there, so that no gradient is rounded before: a gate's size is a part of what the sum of scores begins with,
    log |gate| / scale, and costs nothing there. With ADDS dq is added to what is there.
    """
    MINE: gl.constexpr = 64 // PACK
    q_smem = gl.allocate_shared_memory(desc_q.dtype, [2, 1, MINE, PACK, D], desc_q.layout)
    do_smem = gl.allocate_shared_memory(desc_q.dtype, [2, 1, MINE, PACK, D], desc_q.layout)
    o_smem = gl.allocate_shared_memory(desc_q.dtype, [2, 1, MINE, PACK, D], desc_q.layout)
    k_smem = gl.allocate_shared_memory(desc_q.dtype, [STAGES, 1, BN, 1, D], desc_k.layout)
    v_smem = gl.allocate_shared_memory(desc_q.dtype, [STAGES, 1, BN, 1, D], desc_v.layout)
    rows_full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    keys_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    keys_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    before_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    mbarrier.init(rows_full, count=1)
    mbarrier.init(before_full.index(0), count=1)
    mbarrier.init(before_full.index(1), count=1)
    for i in gl.static_range(STAGES):
        mbarrier.init(keys_full.index(i), count=1)
        mbarrier.init(keys_empty.index(i), count=2)
    gl.warp_specialize(
        [
            (_dq_of_rows, (
                0, desc_dq, lse_ptr, s_start_ptr, dp_start_ptr, gate_ptr, dgate_ptr, g_start_ptr, q_smem, do_smem,
                o_smem, k_smem, v_smem, rows_full, keys_full, keys_empty, before_full, n_tiles, T, S, offset, scale,
                H, PACK, D, BN, KIND, P1, P2, STAGES, BRANCH, ADDS,
            )),
            (_dq_of_rows, (
                1, desc_dq, lse_ptr, s_start_ptr, dp_start_ptr, gate_ptr, dgate_ptr, g_start_ptr, q_smem, do_smem,
                o_smem, k_smem, v_smem, rows_full, keys_full, keys_empty, before_full, n_tiles, T, S, offset, scale,
                H, PACK, D, BN, KIND, P1, P2, STAGES, BRANCH, ADDS,
            )),
            (_load_for_dq, (
                desc_q, desc_do, desc_o, desc_k, desc_v, q_smem, do_smem, o_smem, k_smem, v_smem, rows_full, keys_full,
                keys_empty, n_tiles, T, S, offset, H, GROUP, PACK, BN, KIND, P1, P2, STAGES,
            )),
        ],
        [4, 4],
        [240, 24],
    )  # fmt: skip


@gluon.jit
def _steps_of_keys(
    n_bg, T, S, offset,
    GROUP: gl.constexpr, PACK: gl.constexpr, BR: gl.constexpr, G: gl.constexpr, KIND: gl.constexpr,
    P1: gl.constexpr, P2: gl.constexpr,
):  # fmt: skip
    """Batch, kv head, first key, first tile of rows, and which steps: one per tile of rows and pack of heads.

    Key tiles with the most rows begin first. The second axis of the grid cuts a tile's steps into runs.
    """
    BT: gl.constexpr = BR // PACK
    PACKS: gl.constexpr = GROUP // PACK
    bg = gl.program_id(0) % n_bg
    n0 = gl.program_id(0) // n_bg * 128
    lo = n0 - offset
    hi = T
    if KIND == WINDOW:
        hi = gl.minimum(gl.minimum(n0 + 128, S) - 1 + P1 - offset, T)
    else:
        lo = n0 * P2 + P1 - 1 - offset
    tile_lo = gl.maximum(lo, 0) // BT
    n_steps = gl.maximum((hi + BT - 1) // BT - tile_lo, 0) * PACKS
    parts = gl.num_programs(1)
    run = (n_steps + parts - 1) // parts
    start = gl.program_id(1) * run
    stop = gl.maximum(gl.minimum(start + run, n_steps), start)
    return bg // G, bg % G, n0, tile_lo, start, stop


@gluon.jit
def _load_for_keys(
    desc_q, desc_do, desc_k, desc_v, q_smem, do_smem, k_smem, v_smem, keys_full, rows_full, rows_empty,
    n_bg, T, S, offset,
    G: gl.constexpr, GROUP: gl.constexpr, PACK: gl.constexpr, BR: gl.constexpr, KIND: gl.constexpr,
    P1: gl.constexpr, P2: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """The loading group: 128 keys and values once, then queries and do of one tile of rows after the other."""
    PACKS: gl.constexpr = GROUP // PACK
    b, g, n0, tile_lo, start, stop = _steps_of_keys(n_bg, T, S, offset, GROUP, PACK, BR, G, KIND, P1, P2)
    mbarrier.expect(keys_full, 4 * desc_k.block_type.nbytes)
    for who in gl.static_range(2):
        copy_in(desc_k, [b, n0 + who * 64, g, 0], keys_full, k_smem.index(who))
        copy_in(desc_v, [b, n0 + who * 64, g, 0], keys_full, v_smem.index(who))
    for i in range(stop - start):
        stage = i % STAGES
        step = start + i
        t0 = (tile_lo + step // PACKS) * (BR // PACK)
        head = g * GROUP + step % PACKS * PACK
        mbarrier.wait(rows_empty.index(stage), ((i // STAGES) & 1) ^ 1)
        mbarrier.expect(rows_full.index(stage), 2 * desc_q.block_type.nbytes)
        copy_in(desc_q, [b, t0, head, 0], rows_full.index(stage), q_smem.index(stage))
        copy_in(desc_do, [b, t0, head, 0], rows_full.index(stage), do_smem.index(stage))


@gluon.jit
def _apart(x):
    """The same values, each in a register of its own: ptxas waits for a running product before it copies one."""
    return gl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=gl.float32, is_pure=False, pack=1)


@gluon.jit
def _rows_of_step(
    b, g, tile_lo, step, n_rows, G: gl.constexpr, GROUP: gl.constexpr, PACK: gl.constexpr, BR: gl.constexpr
):  # fmt: skip
    """Where the rows of one step begin in what the first pass left."""
    PACKS: gl.constexpr = GROUP // PACK
    first = (b * G + g) * PACKS + step % PACKS
    return first.to(gl.int64) * n_rows + gl.minimum((tile_lo + step // PACKS) * BR, n_rows - BR)


@gluon.jit
def _starts_of_products(
    s_start_ptr, dp_start_ptr, b, g, tile_lo, step, row, n_rows,
    G: gl.constexpr, GROUP: gl.constexpr, PACK: gl.constexpr, BR: gl.constexpr,
):  # fmt: skip
    """What the sums of scores and of dp begin with in one step's rows; past the last tile, that of the last one."""
    at = _rows_of_step(b, g, tile_lo, step, n_rows, G, GROUP, PACK, BR)
    return gl.load(s_start_ptr + at + row), gl.load(dp_start_ptr + at + row)


@gluon.jit
def _dkdv_of_keys(
    WHO: gl.constexpr, dk_ptr, dv_ptr, s_start_ptr, dp_start_ptr, g_start_ptr, least_ptr, q_smem, do_smem, k_smem,
    v_smem, keys_full, rows_full, rows_empty, n_bg, T, S, offset, scale, n_rows, part_size,
    G: gl.constexpr, GROUP: gl.constexpr, PACK: gl.constexpr, D: gl.constexpr, BR: gl.constexpr, KIND: gl.constexpr,
    P1: gl.constexpr, P2: gl.constexpr, STAGES: gl.constexpr, GATED: gl.constexpr,
):  # fmt: skip
    """A computing group: dk and dv of its 64 keys; they are the rows of all products, and nothing is transposed."""
    PACKS: gl.constexpr = GROUP // PACK
    LS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BR, 16])
    LO: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    LP: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=LO, k_width=2)
    COLUMNS: gl.constexpr = gl.SliceLayout(0, LS)
    b, g, n00, tile_lo, start, stop = _steps_of_keys(n_bg, T, S, offset, GROUP, PACK, BR, G, KIND, P1, P2)
    n0 = n00 + WHO * 64
    key = n0 + gl.arange(0, 64, gl.SliceLayout(1, LS))
    row = gl.arange(0, BR, COLUMNS)
    none = gl.zeros([64, BR], gl.float32, LS)
    dk = gl.zeros([64, D], gl.float32, LO)
    dv = gl.zeros([64, D], gl.float32, LO)
    s0, dp0 = _starts_of_products(s_start_ptr, dp_start_ptr, b, g, tile_lo, start, row, n_rows, G, GROUP, PACK, BR)
    is_signed = has_signs(least_ptr, GATED)
    mbarrier.wait(keys_full, 0)
    k = k_smem.index(WHO).reshape([64, D])
    v = v_smem.index(WHO).reshape([64, D])
    for i in range(stop - start):
        stage = i % STAGES
        step = start + i
        t0 = (tile_lo + step // PACKS) * (BR // PACK)
        mbarrier.wait(rows_full.index(stage), (i // STAGES) & 1)
        q = q_smem.index(stage).reshape([BR, D])
        do = do_smem.index(stage).reshape([BR, D])
        s_begin = _apart(none + s0[None, :])
        dp_begin = _apart(none + dp0[None, :])
        pending_s = warpgroup_mma(k, q.permute((1, 0)), s_begin, is_async=True)
        pending_dp = warpgroup_mma(v, do.permute((1, 0)), dp_begin, is_async=True)
        s = warpgroup_mma_wait(1, [pending_s])
        p = gl.exp2(s * (scale * LOG2E))
        if GATED:  # noqa: SIM102 - decided by the compiler, the other one by the gates
            if is_signed:
                gate = gl.load(g_start_ptr + _rows_of_step(b, g, tile_lo, step, n_rows, G, GROUP, PACK, BR) + row)
                p = p * gl.where(gate < 0.0, -1.0, 1.0)[None, :]
        t_last = t0 + BR // PACK - 1
        is_edge = (n0 + 63 > last_key(t0, offset, P1, P2, KIND)) | (n0 + 64 > S) | (t_last >= T)
        if KIND == WINDOW:
            is_edge = is_edge | (n0 <= last_key(t_last, offset, P1, P2, KIND) - P1)
        if is_edge:
            p = gl.where(seen_of_keys(key, row, t0, T, S, offset, PACK, BR, P1, P2, KIND), p, 0.0)
        weights = gl.convert_layout(p.to(q_smem.dtype), LP)
        pending_dv = warpgroup_mma(weights, do, dv, is_async=True)
        dp = warpgroup_mma_wait(1, [pending_dp])
        ds = gl.convert_layout((p * dp).to(q_smem.dtype), LP)
        pending_dk = warpgroup_mma(ds, q, dk, is_async=True)
        # The next step's, while these products run; past the last step they are read and not used.
        s0, dp0 = _starts_of_products(
            s_start_ptr, dp_start_ptr, b, g, tile_lo, step + 1, row, n_rows, G, GROUP, PACK, BR
        )
        dv, dk = warpgroup_mma_wait(0, [pending_dv, pending_dk])
        mbarrier.arrive(rows_empty.index(stage), count=1)
    own = n0 + gl.arange(0, 64, gl.SliceLayout(1, LO))
    d = gl.arange(0, D, gl.SliceLayout(0, LO))
    at = ((b.to(gl.int64) * S + own) * G + g)[:, None] * D + d[None, :]
    at += gl.program_id(1).to(gl.int64) * part_size
    gl.store(dk_ptr + at, (dk * scale).to(dk_ptr.dtype.element_ty), mask=(own < S)[:, None])
    gl.store(dv_ptr + at, dv.to(dv_ptr.dtype.element_ty), mask=(own < S)[:, None])


@gluon.jit(do_not_specialize=SIZES)
def dkdv_kernel(
    desc_q, desc_do, desc_k, desc_v, dk_ptr, dv_ptr, s_start_ptr, dp_start_ptr, g_start_ptr, least_ptr, n_bg, T, S,
    offset, scale, n_rows, part_size,
    G: gl.constexpr, GROUP: gl.constexpr, PACK: gl.constexpr, D: gl.constexpr, BR: gl.constexpr, KIND: gl.constexpr,
    P1: gl.constexpr, P2: gl.constexpr, STAGES: gl.constexpr, GATED: gl.constexpr,
):  # fmt: skip
    """DK and dV of 128 keys of one kv head, from all its queries and heads, or from one of several runs of them.

    Queries and do come in boxes (1, BR / PACK, PACK, D), keys and values in (1, 64, 1, D). ``n_rows``: of a
    pack of heads in the first pass; ``part_size``: elements of dk, and of dv. With GATED ``least_ptr`` has the smallest
    gate of all: where none is negative, no sign is looked at.
    """
    q_smem = gl.allocate_shared_memory(desc_q.dtype, [STAGES, 1, BR // PACK, PACK, D], desc_q.layout)
    do_smem = gl.allocate_shared_memory(desc_q.dtype, [STAGES, 1, BR // PACK, PACK, D], desc_q.layout)
    k_smem = gl.allocate_shared_memory(desc_q.dtype, [2, 1, 64, 1, D], desc_k.layout)
    v_smem = gl.allocate_shared_memory(desc_q.dtype, [2, 1, 64, 1, D], desc_v.layout)
    keys_full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    rows_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    rows_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    mbarrier.init(keys_full, count=1)
    for i in gl.static_range(STAGES):
        mbarrier.init(rows_full.index(i), count=1)
        mbarrier.init(rows_empty.index(i), count=2)
    gl.warp_specialize(
        [
            (_dkdv_of_keys, (
                0, dk_ptr, dv_ptr, s_start_ptr, dp_start_ptr, g_start_ptr, least_ptr, q_smem, do_smem, k_smem, v_smem,
                keys_full, rows_full, rows_empty, n_bg, T, S, offset, scale, n_rows, part_size,
                G, GROUP, PACK, D, BR, KIND, P1, P2, STAGES, GATED,
            )),
            (_dkdv_of_keys, (
                1, dk_ptr, dv_ptr, s_start_ptr, dp_start_ptr, g_start_ptr, least_ptr, q_smem, do_smem, k_smem, v_smem,
                keys_full, rows_full, rows_empty, n_bg, T, S, offset, scale, n_rows, part_size,
                G, GROUP, PACK, D, BR, KIND, P1, P2, STAGES, GATED,
            )),
            (_load_for_keys, (
                desc_q, desc_do, desc_k, desc_v, q_smem, do_smem, k_smem, v_smem, keys_full, rows_full,
                rows_empty, n_bg, T, S, offset, G, GROUP, PACK, BR, KIND, P1, P2, STAGES,
            )),
        ],
        [4, 4],
        [240, 24],
    )  # fmt: skip
