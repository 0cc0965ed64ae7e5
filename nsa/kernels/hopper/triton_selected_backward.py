# ruff: noqa: ANN001, ANN201, ANN202 - a kernel's arguments are pointers and numbers whose types the launch decides
"""Backward of selected attention in Gluon, KV-major: one block of 64 keys stays, the queries that chose it stream.

A program works through one item of the inverse index (``nsa.kernels.selected.triton_csr``): pairs (query, block) of one
bucket. One warp group loads by TMA, two compute by wgmma, taking tiles of 64 rows (pair, head) in turn, each with its
own sums of dk and dv. Keys are the rows of all products but dq's, whose left side, ds, goes through shared memory; dq
leaves by TMA, one slot for each pair, as in ``kv_major_backward_kernel``, and is summed in slot order.

Keys and values are zero where either is not finite; who sees such a key has an lse that is no number.

Shapes: B batch, T queries, S keys, G kv heads, H = G * GROUP query heads, N slots; heads are 128 wide, in two halves of
64, the widest box of the copy engine.
"""

from __future__ import annotations

from nsa.kernels.hopper.triton_names import (
    LOG2E,
    barrier,
    copy_in,
    copy_out,
    fence_async_shared,
    gl,
    gluon,
    has_signs,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

LAUNCH = ("launch", "bg0", "t0", "n_buckets", "max_items", "n_blocks", "bg_chunk", "T", "S", "offset")
"""Arguments that every length and launch may change: one compilation serves them all."""


@gluon.jit
def _item(item_bucket, item_start, start, launch, n_buckets, max_items, SEG: gl.constexpr):
    """This program's bucket and its range of pairs, empty where it has no item."""
    pid = gl.program_id(0)
    bucket = gl.load(item_bucket + launch * max_items + pid)
    safe = gl.minimum(bucket, n_buckets - 1)
    first = gl.load(item_start + launch * (n_buckets + 1) + safe)
    at = launch * n_buckets + safe
    lo = gl.load(start + at) + (pid - first) * SEG
    hi = gl.minimum(gl.load(start + at + 1), lo + SEG)
    return safe, lo, gl.where(bucket < n_buckets, hi, lo)


@gluon.jit
def _pairs_of_rows(pairs, tile, row, n_pairs, GROUP: gl.constexpr):
    """The pair of every row of a tile; past the last one, that one."""
    return gl.load(pairs + gl.minimum((tile * 64 + row) // GROUP, gl.maximum(n_pairs - 1, 0)))


@gluon.jit
def _load(
    desc_q, desc_do, desc_k, desc_v, lse_ptr, delta_ptr, gate_ptr, q_smem, do_smem, k_smem, v_smem, start_smem,
    keys_full, rows_full, rows_empty, pairs, start, item_start, item_bucket, launch, bg0, n_buckets, max_items,
    n_blocks, S, scale,
    G: gl.constexpr, GROUP: gl.constexpr, PACK: gl.constexpr, N: gl.constexpr, SEG: gl.constexpr, STAGES: gl.constexpr,
    GATED: gl.constexpr,
):  # fmt: skip
    """The loading group: the block's keys and values once, then queries, do and what goes with them, tile by tile.

    Where a tile's rows lie its pairs say. They are read a tile ahead, whose cache line serves the copies' addresses,
    and what goes with the rows is read before their copies begin: nobody waits for two loads one after the other.
    """
    UNITS: gl.constexpr = 64 // PACK
    PACKS: gl.constexpr = GROUP // PACK
    ROWS: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    bucket, lo, hi = _item(item_bucket, item_start, start, launch, n_buckets, max_items, SEG)
    bg = bg0 + bucket // n_blocks
    key = bg // G * S + bucket % n_blocks * 64
    n_pairs = hi - lo
    n_units = n_pairs * PACKS
    pairs += lo
    if n_units > 0:
        mbarrier.expect(keys_full, 4 * desc_k.block_type.nbytes)
        for h in gl.static_range(2):
            copy_in(desc_k, [key, bg % G * 128 + h * 64], keys_full, k_smem.index(h))
            copy_in(desc_v, [key, bg % G * 128 + h * 64], keys_full, v_smem.index(h))
    row = gl.arange(0, 64, ROWS)
    pair_of_row = _pairs_of_rows(pairs, 0, row, n_pairs, GROUP)
    for i in range((n_units + UNITS - 1) // UNITS):
        stage = i % STAGES
        q_row = pair_of_row // N * GROUP + (i * 64 + row) % GROUP
        lse = gl.load(lse_ptr + q_row)
        delta = gl.load(delta_ptr + q_row)
        if GATED:
            gate = gl.load(gate_ptr + q_row.to(gl.int64) * 3 + 1).to(gl.float32)
        pair_of_row = _pairs_of_rows(pairs, i + 1, row, n_pairs, GROUP)
        mbarrier.wait(rows_empty.index(stage), ((i // STAGES) & 1) ^ 1)
        mbarrier.expect(rows_full.index(stage), 4 * UNITS * desc_q.block_type.nbytes)
        for j in gl.static_range(UNITS):
            unit = gl.minimum(i * UNITS + j, n_units - 1)
            at = gl.load(pairs + unit // PACKS) // N * GROUP + unit % PACKS * PACK
            for h in gl.static_range(2):
                into_q = q_smem.index(stage * 2 + h).slice(j * PACK, PACK, 0)
                into_do = do_smem.index(stage * 2 + h).slice(j * PACK, PACK, 0)
                copy_in(desc_q, [at, h * 64], rows_full.index(stage), into_q)
                copy_in(desc_do, [at, h * 64], rows_full.index(stage), into_do)
        s_start = lse * (-1.0 / scale)
        if GATED:
            s_start += gl.log(gl.abs(gate)) * (1.0 / scale)
        start_smem.index(stage * 3).store(s_start)
        start_smem.index(stage * 3 + 1).store(-delta)
        if GATED:
            start_smem.index(stage * 3 + 2).store(gate)
        barrier()
        mbarrier.arrive(rows_full.index(stage), count=1)


@gluon.jit
def _apart(x):
    """The same values, each in a register of its own: ptxas waits for a running product before it copies one."""
    return gl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=gl.float32, is_pure=False, pack=1)


@gluon.jit
def _gradients(
    WHO: gl.constexpr, desc_slot, dk_part_ptr, dv_part_ptr, least_ptr, q_smem, do_smem, k_smem, v_smem, start_smem,
    ds_smem, dq_smem, keys_full, rows_full, rows_empty, pairs, start, item_start, item_bucket,
    launch, bg0, t0, n_buckets, max_items, n_blocks, bg_chunk, T, S, offset, scale,
    G: gl.constexpr, GROUP: gl.constexpr, PACK: gl.constexpr, N: gl.constexpr, SEG: gl.constexpr, STAGES: gl.constexpr,
    GATED: gl.constexpr,
):  # fmt: skip
    """A computing group: every second tile's dq to the slots of its pairs, and this group's part of dk and dv."""
    UNITS: gl.constexpr = 64 // PACK
    PACKS: gl.constexpr = GROUP // PACK
    LS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    LP: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=LS, k_width=2)
    bucket, lo, hi = _item(item_bucket, item_start, start, launch, n_buckets, max_items, SEG)
    bg_local = bucket // n_blocks
    first_t = (bg0 + bg_local) // G * T
    shift = offset - first_t
    slot_0 = bg_local - (first_t + t0) * bg_chunk
    is_signed = has_signs(least_ptr, GATED)
    pairs += lo
    key_0 = bucket % n_blocks * 64
    key = key_0 + gl.arange(0, 64, gl.SliceLayout(1, LS))
    COLUMNS: gl.constexpr = gl.SliceLayout(0, LS)
    column = gl.arange(0, 64, COLUMNS)
    n_pairs = hi - lo
    n_units = n_pairs * PACKS
    none = gl.zeros([64, 64], gl.float32, LS)
    dk_0 = gl.zeros([64, 64], gl.float32, LS)
    dk_1 = gl.zeros([64, 64], gl.float32, LS)
    dv_0 = gl.zeros([64, 64], gl.float32, LS)
    dv_1 = gl.zeros([64, 64], gl.float32, LS)
    if n_units > 0:
        mbarrier.wait(keys_full, 0)
    for i in range(WHO, (n_units + UNITS - 1) // UNITS, 2):
        stage = i % STAGES
        # The queries of an item ascend, so its first tiles alone have one that does not see the whole block.
        oldest = gl.load(pairs + i * 64 // GROUP) // (N * G) + shift
        mbarrier.wait(rows_full.index(stage), (i // STAGES) & 1)
        q_0 = q_smem.index(stage * 2)
        q_1 = q_smem.index(stage * 2 + 1)
        do_0 = do_smem.index(stage * 2)
        do_1 = do_smem.index(stage * 2 + 1)
        s = _apart(none + start_smem.index(stage * 3).load(COLUMNS)[None, :])
        dp = _apart(none + start_smem.index(stage * 3 + 1).load(COLUMNS)[None, :])
        s = warpgroup_mma(k_smem.index(0), q_0.permute((1, 0)), s, is_async=True)
        s = warpgroup_mma(k_smem.index(1), q_1.permute((1, 0)), s, is_async=True)
        dp = warpgroup_mma(v_smem.index(0), do_0.permute((1, 0)), dp, is_async=True)
        dp = warpgroup_mma(v_smem.index(1), do_1.permute((1, 0)), dp, is_async=True)
        s, dp = warpgroup_mma_wait(0, [s, dp])
        p = gl.exp2(s * (scale * LOG2E))
        if GATED:  # noqa: SIM102 - decided by the compiler, the other one by the gates
            if is_signed:
                gate = start_smem.index(stage * 3 + 2).load(COLUMNS)
                p = p * gl.where(gate < 0.0, -1.0, 1.0)[None, :]
        ds = p * dp
        if (key_0 + 63 > gl.minimum(oldest, S - 1)) | ((i + 1) * UNITS > n_units):
            row = i * 64 + column
            last = gl.load(pairs + gl.minimum(row // GROUP, n_pairs - 1)) // (N * G) + shift
            last = gl.where(row < n_pairs * GROUP, gl.minimum(last, S - 1), -1)
            is_seen = key[:, None] <= last[None, :]
            p = gl.where(is_seen, p, 0.0)
            ds = gl.where(is_seen, ds, 0.0)
        weights = gl.convert_layout(p.to(q_smem.dtype), LP)
        rounded = ds.to(q_smem.dtype)
        left = gl.convert_layout(rounded, LP)
        ds_smem.index(WHO).store(rounded)
        fence_async_shared()
        barrier()
        pending_v0 = warpgroup_mma(weights, do_0, dv_0, is_async=True)
        pending_v1 = warpgroup_mma(weights, do_1, dv_1, is_async=True)
        pending_k0 = warpgroup_mma(left, q_0, dk_0, is_async=True)
        pending_k1 = warpgroup_mma(left, q_1, dk_1, is_async=True)
        rows_of_ds = ds_smem.index(WHO).permute((1, 0))
        pending_q = warpgroup_mma(rows_of_ds, k_smem.index(0), none, use_acc=False, is_async=True)
        dv_0, dv_1, dk_0, dk_1, dq = warpgroup_mma_wait(0, [pending_v0, pending_v1, pending_k0, pending_k1, pending_q])
        tma.store_wait(0)  # of the last tile's dq
        barrier()
        mbarrier.arrive(rows_empty.index(stage), count=1)
        dq_smem.index(WHO * 2).store((dq * scale).to(q_smem.dtype))
        pending_q = warpgroup_mma(rows_of_ds, k_smem.index(1), none, use_acc=False, is_async=True)
        dq = warpgroup_mma_wait(0, [pending_q])
        dq_smem.index(WHO * 2 + 1).store((dq * scale).to(q_smem.dtype))
        fence_async_shared()
        barrier()
        for j in gl.static_range(UNITS):
            unit = i * UNITS + j
            if unit < n_units:
                one = gl.load(pairs + unit // PACKS)
                slot = (one // (N * G) * bg_chunk + slot_0) * N + one % N
                for h in gl.static_range(2):
                    rows = dq_smem.index(WHO * 2 + h).slice(j * PACK, PACK, 0)
                    copy_out(desc_slot, [slot * GROUP + unit % PACKS * PACK, h * 64], rows)
    tma.store_wait(0)
    if n_units > 0:
        part = (gl.program_id(0).to(gl.int64) * 2 + WHO) * 64 + gl.arange(0, 64, gl.SliceLayout(1, LS))
        at = part[:, None] * 128 + column[None, :]
        gl.store(dk_part_ptr + at, dk_0 * scale)
        gl.store(dk_part_ptr + at + 64, dk_1 * scale)
        gl.store(dv_part_ptr + at, dv_0)
        gl.store(dv_part_ptr + at + 64, dv_1)


@gluon.jit(do_not_specialize=LAUNCH)
def backward_kernel(
    desc_q, desc_do, desc_k, desc_v, desc_slot, dk_part_ptr, dv_part_ptr, lse_ptr, delta_ptr, gate_ptr,
    least_ptr, pairs, start, item_start, item_bucket,
    launch, bg0, t0, n_buckets, max_items, n_blocks, bg_chunk, T, S, offset, scale,
    G: gl.constexpr, GROUP: gl.constexpr, PACK: gl.constexpr, N: gl.constexpr, SEG: gl.constexpr, STAGES: gl.constexpr,
    GATED: gl.constexpr,
):  # fmt: skip
    """DQ of one item's pairs to their slots, and dk and dv of the item in fp32, as two parts of 64 keys.

    Queries and do are [B * T * H, 128], slots [slots * GROUP, 128], all three in boxes (PACK, 64); keys and values
    [B * S, G * 128] in (64, 64). ``lse_ptr`` holds natural logarithms, ``delta_ptr`` what ``delta_kernel`` writes.
    With GATED do is the gradient of the gated sum (Eq. 5), ``gate_ptr`` are its gates [B, T, H, 3], ``least_ptr`` the
    least of them, and the slc branch's multiply the weights, by their logarithm, so that do is not rounded once more.
    """
    q_smem = gl.allocate_shared_memory(desc_q.dtype, [STAGES * 2, 64, 64], desc_q.layout)
    do_smem = gl.allocate_shared_memory(desc_q.dtype, [STAGES * 2, 64, 64], desc_q.layout)
    k_smem = gl.allocate_shared_memory(desc_q.dtype, [2, 64, 64], desc_k.layout)
    v_smem = gl.allocate_shared_memory(desc_q.dtype, [2, 64, 64], desc_v.layout)
    start_smem = gl.allocate_shared_memory(gl.float32, [STAGES * 3, 64], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    ds_smem = gl.allocate_shared_memory(desc_q.dtype, [2, 64, 64], desc_q.layout)
    dq_smem = gl.allocate_shared_memory(desc_q.dtype, [4, 64, 64], desc_slot.layout)
    keys_full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    rows_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    rows_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    mbarrier.init(keys_full, count=1)
    for i in gl.static_range(STAGES):
        mbarrier.init(rows_full.index(i), count=2)  # copies, and what goes with the rows
        mbarrier.init(rows_empty.index(i), count=1)
    gl.warp_specialize(
        [
            (_gradients, (
                0, desc_slot, dk_part_ptr, dv_part_ptr, least_ptr, q_smem, do_smem, k_smem, v_smem, start_smem,
                ds_smem, dq_smem, keys_full, rows_full, rows_empty, pairs, start, item_start, item_bucket, launch,
                bg0, t0, n_buckets, max_items, n_blocks, bg_chunk, T, S, offset, scale,
                G, GROUP, PACK, N, SEG, STAGES, GATED,
            )),
            (_gradients, (
                1, desc_slot, dk_part_ptr, dv_part_ptr, least_ptr, q_smem, do_smem, k_smem, v_smem, start_smem,
                ds_smem, dq_smem, keys_full, rows_full, rows_empty, pairs, start, item_start, item_bucket, launch,
                bg0, t0, n_buckets, max_items, n_blocks, bg_chunk, T, S, offset, scale,
                G, GROUP, PACK, N, SEG, STAGES, GATED,
            )),
            (_load, (
                desc_q, desc_do, desc_k, desc_v, lse_ptr, delta_ptr, gate_ptr, q_smem, do_smem, k_smem, v_smem,
                start_smem, keys_full, rows_full, rows_empty, pairs, start, item_start, item_bucket, launch, bg0,
                n_buckets, max_items, n_blocks, S, scale, G, GROUP, PACK, N, SEG, STAGES, GATED,
            )),
        ],
        [4, 4],
        [240, 24],
    )  # fmt: skip
