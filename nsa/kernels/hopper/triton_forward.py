# ruff: noqa: ANN001, ANN201, ANN202 - a kernel's arguments are pointers and numbers whose types the launch decides
"""Forward attention over tiles in Gluon: one warp group loads by TMA, two compute by wgmma.

A tile has 128 rows, 64 for each computing group, whose queries stay in shared memory, beside the next tile's; keys and
values pass through STAGES buffers. A group issues the next keys' scores before these keys' product with the values, so
that the tensor cores work while it takes exponentials. Weights never leave the registers. Softmax runs in base 2.

There is one program for each processor, which takes one tile of rows after the other: the next tile's queries and keys
come while this tile's last sums are taken, and its results leave while the next one begins. A tile's bits do not
depend on who computes it.

A key that is not finite, or whose value is not, comes as a row of NaN, its value as zeros: whoever sees it gets NaN
through its score, and whoever does not drops that score and multiplies a zero weight by zero.

Shapes: B batch, T queries, S keys, G kv heads, H = G * GROUP query heads, D both head widths.
"""

from __future__ import annotations

from nsa.kernels.hopper.triton_names import BLOCKS as _BLOCKS
from nsa.kernels.hopper.triton_names import (
    LN2,
    SIZES,
    barrier,
    copy_in,
    copy_out,
    fence_async_shared,
    first_open_tile,
    gl,
    gluon,
    key_tile,
    keys_of_tile,
    last_key,
    mbarrier,
    past_open_tiles,
    seen_of_rows,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

BLOCKS = _BLOCKS


@gluon.jit
def tile_of(work, n_work, n_tiles, H: gl.constexpr, PACK: gl.constexpr, ROWS: gl.constexpr, KIND: gl.constexpr):
    """Batch, first head and first token: the longest tiles of all heads begin first, none ends last."""
    PACKS: gl.constexpr = H // PACK
    n_packs = n_work // n_tiles
    tile = work // n_packs
    if KIND == BLOCKS:
        tile = n_tiles - 1 - tile
    pack = work % n_packs
    return pack // PACKS, pack % PACKS * PACK, tile * (ROWS // PACK)


@gluon.jit
def _load(
    desc_q, desc_k, desc_v, desc_cmp, desc_slc, q_smem, k_smem, v_smem, others_smem, q_full, q_empty, k_full, k_empty,
    v_full, v_empty, others_full, others_empty, n_work, n_tiles, T, S, offset,
    H: gl.constexpr, GROUP: gl.constexpr, PACK: gl.constexpr, BN: gl.constexpr, KIND: gl.constexpr,
    P1: gl.constexpr, P2: gl.constexpr, STAGES: gl.constexpr, GATED: gl.constexpr,
):  # fmt: skip
    """The loading group: queries, then keys and values from the newest tile to the oldest, then what is added."""
    BT: gl.constexpr = 128 // PACK
    past = 0  # tiles of keys that went before
    for work in range(gl.program_id(0), n_work, gl.num_programs(0)):
        turn = work // gl.num_programs(0)
        place = turn & 1
        b, head, t0 = tile_of(work, n_work, n_tiles, H, PACK, 128, KIND)
        g = head // GROUP
        mbarrier.wait(q_empty.index(place), (turn // 2 & 1) ^ 1)
        mbarrier.expect(q_full.index(place), 2 * desc_q.block_type.nbytes)
        copy_in(desc_q, [b, t0, head, 0], q_full.index(place), q_smem.index(place * 2))
        copy_in(desc_q, [b, t0 + BT // 2, head, 0], q_full.index(place), q_smem.index(place * 2 + 1))
        lo, hi = keys_of_tile(t0, t0 + BT - 1, T, S, offset, P1, P2, KIND, BN)
        for i in range(hi - lo):
            stage = (past + i) % STAGES
            phase = ((past + i) // STAGES) & 1
            n0 = key_tile(i, lo, hi, P2, KIND) * BN
            mbarrier.wait(k_empty.index(stage), phase ^ 1)
            mbarrier.expect(k_full.index(stage), desc_k.block_type.nbytes)
            copy_in(desc_k, [b, n0, g, 0], k_full.index(stage), k_smem.index(stage))
            mbarrier.wait(v_empty.index(stage), phase ^ 1)
            mbarrier.expect(v_full.index(stage), desc_v.block_type.nbytes)
            copy_in(desc_v, [b, n0, g, 0], v_full.index(stage), v_smem.index(stage))
        past += hi - lo
        if GATED:
            mbarrier.wait(others_empty, turn & 1)
            mbarrier.expect(others_full, 4 * desc_q.block_type.nbytes)
            for who in gl.static_range(2):
                copy_in(desc_cmp, [b, t0 + who * (BT // 2), head, 0], others_full, others_smem.index(who))
                copy_in(desc_slc, [b, t0 + who * (BT // 2), head, 0], others_full, others_smem.index(2 + who))


@gluon.jit
def _masked(
    s, n, last, S, open_lo, open_hi, KIND: gl.constexpr, P1: gl.constexpr, BN: gl.constexpr, LS: gl.constexpr
):  # fmt: skip
    """Scores of key tile ``n``, -inf where hidden; a tile that all rows see whole pays nothing."""
    if (n < open_lo) | (n >= open_hi):
        key = n * BN + gl.arange(0, BN, gl.SliceLayout(0, LS))
        s = gl.where(seen_of_rows(last, key, S, P1, KIND), s, float("-inf"))
    return s


@gluon.jit
def _results_left(others_empty, GATED: gl.constexpr):
    """Wait until the results of the tile before have left, whose place this one's take."""
    tma.store_wait(0)
    if GATED:
        mbarrier.arrive(others_empty, count=1)


@gluon.jit
def _attend(
    WHO: gl.constexpr, desc_o, desc_sum, lse_ptr, gate_ptr, q_smem, k_smem, v_smem, o_smem, others_smem, q_full,
    q_empty, k_full, k_empty, v_full, v_empty, others_full, others_empty, n_work, n_tiles, T, S, offset, qk_scale,
    H: gl.constexpr, PACK: gl.constexpr, D: gl.constexpr, BN: gl.constexpr, KIND: gl.constexpr,
    P1: gl.constexpr, P2: gl.constexpr, STAGES: gl.constexpr, GATED: gl.constexpr,
):  # fmt: skip
    """A computing group: o and lse of its 64 rows of every tile; a row without a key gets o = 0, lse = -inf."""
    BT: gl.constexpr = 128 // PACK
    MINE: gl.constexpr = 64 // PACK
    LS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN, 16])
    LO: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    LP: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=LO, k_width=2)
    ROWS: gl.constexpr = gl.SliceLayout(1, LS)
    O_ROWS: gl.constexpr = gl.SliceLayout(1, LO)
    past = 0  # tiles of keys that went before
    for work in range(gl.program_id(0), n_work, gl.num_programs(0)):
        turn = work // gl.num_programs(0)
        place = turn & 1
        q = q_smem.index(place * 2 + WHO).reshape([64, D])
        b, head, t00 = tile_of(work, n_work, n_tiles, H, PACK, 128, KIND)
        lo, hi = keys_of_tile(t00, t00 + BT - 1, T, S, offset, P1, P2, KIND, BN)
        t0 = t00 + WHO * MINE
        row = gl.arange(0, 64, ROWS)
        t = t0 + row // PACK
        last = last_key(t, offset, P1, P2, KIND)
        open_lo = first_open_tile(t0 + MINE - 1, offset, P1, P2, KIND, BN)
        open_hi = past_open_tiles(t0, S, offset, P1, P2, KIND, BN)
        m = gl.full([64], float("-inf"), gl.float32, ROWS)
        total = gl.full([64], 0.0, gl.float32, ROWS)
        acc = gl.zeros([64, D], gl.float32, LO)
        none = gl.zeros([64, BN], gl.float32, LS)
        count = hi - lo
        mbarrier.wait(q_full.index(place), turn // 2 & 1)
        if count > 0:
            stage = past % STAGES
            mbarrier.wait(k_full.index(stage), (past // STAGES) & 1)
            pending_s = warpgroup_mma(
                q, k_smem.index(stage).reshape([BN, D]).permute((1, 0)), none, use_acc=False, is_async=True
            )
            _results_left(others_empty, GATED)
            s = warpgroup_mma_wait(0, [pending_s])
            mbarrier.arrive(k_empty.index(stage), count=1)
            s = _masked(s, key_tile(0, lo, hi, P2, KIND), last, S, open_lo, open_hi, KIND, P1, BN, LS)
            m = gl.max(s, 1) * qk_scale
            base = gl.where(m == float("-inf"), 0.0, m)
            p = gl.exp2(s * qk_scale - base[:, None])
            total = gl.sum(p, 1)
            weights = gl.convert_layout(p.to(desc_o.dtype), LP)
            for i in range(1, count):
                stage = (past + i) % STAGES
                before = (past + i - 1) % STAGES
                mbarrier.wait(k_full.index(stage), ((past + i) // STAGES) & 1)
                pending_s = warpgroup_mma(
                    q, k_smem.index(stage).reshape([BN, D]).permute((1, 0)), none, use_acc=False, is_async=True
                )
                mbarrier.wait(v_full.index(before), ((past + i - 1) // STAGES) & 1)
                pending_o = warpgroup_mma(weights, v_smem.index(before).reshape([BN, D]), acc, is_async=True)
                s = warpgroup_mma_wait(1, [pending_s])
                mbarrier.arrive(k_empty.index(stage), count=1)
                s = _masked(s, key_tile(i, lo, hi, P2, KIND), last, S, open_lo, open_hi, KIND, P1, BN, LS)
                m_new = gl.maximum(m, gl.max(s, 1) * qk_scale)
                base = gl.where(m_new == float("-inf"), 0.0, m_new)
                p = gl.exp2(s * qk_scale - base[:, None])
                fade = gl.exp2(m - base)
                total = total * fade + gl.sum(p, 1)
                m = m_new
                acc = warpgroup_mma_wait(0, [pending_o])
                mbarrier.arrive(v_empty.index(before), count=1)
                acc = acc * gl.convert_layout(fade, O_ROWS)[:, None]
                weights = gl.convert_layout(p.to(desc_o.dtype), LP)
            mbarrier.arrive(q_empty.index(place), count=1)
            past += count
            before = (past - 1) % STAGES
            mbarrier.wait(v_full.index(before), ((past - 1) // STAGES) & 1)
            pending_o = warpgroup_mma(weights, v_smem.index(before).reshape([BN, D]), acc, is_async=True)
            acc = warpgroup_mma_wait(0, [pending_o])
            mbarrier.arrive(v_empty.index(before), count=1)
        else:
            mbarrier.arrive(q_empty.index(place), count=1)
            _results_left(others_empty, GATED)
        is_empty = total == 0.0
        total = gl.where(is_empty, 1.0, total)
        o = acc / gl.convert_layout(total, O_ROWS)[:, None]
        o_smem.index(WHO).reshape([64, D]).store(o.to(desc_o.dtype))
        fence_async_shared()
        barrier()
        copy_out(desc_o, [b, t0, head, 0], o_smem.index(WHO))
        lse = gl.where(is_empty, float("-inf"), (m + gl.log2(total)) * LN2)
        gl.store(lse_ptr + (b.to(gl.int64) * T + t) * H + head + row % PACK, lse, mask=t < T)
        if GATED:
            mine = gl.arange(0, 64, O_ROWS)
            at = gate_ptr + ((b.to(gl.int64) * T + t0 + mine // PACK) * H + head + mine % PACK) * 3
            live = t0 + mine // PACK < T
            g_cmp = gl.load(at, mask=live, other=0.0).to(gl.float32)
            g_slc = gl.load(at + 1, mask=live, other=0.0).to(gl.float32)
            g_win = gl.load(at + 2, mask=live, other=0.0).to(gl.float32)
            mbarrier.wait(others_full, turn & 1)
            o_cmp = others_smem.index(WHO).reshape([64, D])
            o_slc = others_smem.index(2 + WHO).reshape([64, D])
            o = o * g_win[:, None] + o_cmp.load(LO).to(gl.float32) * g_cmp[:, None]
            o += o_slc.load(LO).to(gl.float32) * g_slc[:, None]
            o_cmp.store(o.to(desc_o.dtype))
            fence_async_shared()
            barrier()
            copy_out(desc_sum, [b, t0, head, 0], others_smem.index(WHO))
    tma.store_wait(0)


@gluon.jit(do_not_specialize=SIZES)
def forward_kernel(
    desc_q, desc_k, desc_v, desc_o, lse_ptr, desc_cmp, desc_slc, desc_sum, gate_ptr, n_work, n_tiles, T, S, offset,
    qk_scale,
    H: gl.constexpr, GROUP: gl.constexpr, PACK: gl.constexpr, D: gl.constexpr, BN: gl.constexpr, KIND: gl.constexpr,
    P1: gl.constexpr, P2: gl.constexpr, STAGES: gl.constexpr, GATED: gl.constexpr,
):  # fmt: skip
    """O and lse of ``n_work`` tiles of 128 rows; ``qk_scale``, positive, is the scores' factor times log2(e).

    Queries and o are [B, T, H, D] in boxes (1, 64 / PACK, PACK, D), keys and values [B, S, G, D] in (1, BN, 1, D).
    What of a box lies beyond an axis' end reads zeros and writes nothing.

    With GATED o is the win branch's, and the gated sum of Eq. 5 leaves, too: o of the branches cmp and slc come in
    q's boxes, gates as [B, T, H, 3]. Otherwise these arguments are not looked at.
    """
    MINE: gl.constexpr = 64 // PACK
    q_smem = gl.allocate_shared_memory(desc_q.dtype, [4, 1, MINE, PACK, D], desc_q.layout)
    k_smem = gl.allocate_shared_memory(desc_q.dtype, [STAGES, 1, BN, 1, D], desc_k.layout)
    v_smem = gl.allocate_shared_memory(desc_q.dtype, [STAGES, 1, BN, 1, D], desc_v.layout)
    o_smem = gl.allocate_shared_memory(desc_q.dtype, [2, 1, MINE, PACK, D], desc_q.layout)
    others_smem = q_smem
    if GATED:
        others_smem = gl.allocate_shared_memory(desc_q.dtype, [4, 1, MINE, PACK, D], desc_q.layout)
    q_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    q_empty = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    others_full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    others_empty = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    k_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(2):
        mbarrier.init(q_full.index(i), count=1)
        mbarrier.init(q_empty.index(i), count=2)
    mbarrier.init(others_full, count=1)
    mbarrier.init(others_empty, count=2)
    for i in gl.static_range(STAGES):
        mbarrier.init(k_full.index(i), count=1)
        mbarrier.init(k_empty.index(i), count=2)
        mbarrier.init(v_full.index(i), count=1)
        mbarrier.init(v_empty.index(i), count=2)
    gl.warp_specialize(
        [
            (_attend, (
                0, desc_o, desc_sum, lse_ptr, gate_ptr, q_smem, k_smem, v_smem, o_smem, others_smem, q_full, q_empty,
                k_full, k_empty, v_full, v_empty, others_full, others_empty, n_work, n_tiles, T, S, offset, qk_scale,
                H, PACK, D, BN, KIND, P1, P2, STAGES, GATED,
            )),
            (_attend, (
                1, desc_o, desc_sum, lse_ptr, gate_ptr, q_smem, k_smem, v_smem, o_smem, others_smem, q_full, q_empty,
                k_full, k_empty, v_full, v_empty, others_full, others_empty, n_work, n_tiles, T, S, offset, qk_scale,
                H, PACK, D, BN, KIND, P1, P2, STAGES, GATED,
            )),
            (_load, (
                desc_q, desc_k, desc_v, desc_cmp, desc_slc, q_smem, k_smem, v_smem, others_smem, q_full, q_empty,
                k_full, k_empty, v_full, v_empty, others_full, others_empty, n_work, n_tiles, T, S, offset,
                H, GROUP, PACK, BN, KIND, P1, P2, STAGES, GATED,
            )),
        ],
        [4, 4],
        [240, 24],
    )  # fmt: skip
