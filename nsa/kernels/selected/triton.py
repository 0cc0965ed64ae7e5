"""Selected attention in Triton: forward, backward, and their registration as torch operators.

The forward runs query-major or KV-major, whichever moves fewer bytes; the backward is one KV-major pass for dQ, dK
and dV. Scratch is bounded by ``SLOT_BYTES`` whatever the length. Nothing here reads data on the host.

We differ from the paper's Fig. 3 in the loop order (see ``triton_kernels``), not in the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import torch

from nsa.kernels.operators import operator
from nsa.kernels.prepared import Prepared, kept, places
from nsa.kernels.selected import triton_kernels as kernels
from nsa.kernels.selected.triton_csr import Csr, Documents, Plan, build, documents, views
from nsa.kernels.sizes import cdiv, pow2

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Size, Tensor

    from nsa.kernels.registry import Site

SLOT_BYTES = 1 << 30  # scratch for partial results of one launch
ROWS_PER_ITEM = 8192
"""(Pair, head) rows that one program works through at most."""
FEWER_ROWS, FEW_ROWS, MANY = 2048, 4096, 3 << 20
"""With groups below 16 fewer, and still fewer where a launch has fewer rows than MANY: no processor ends late.

Measured at 16/4 heads of 128 on an H100: at 8,192 tokens 0.68 / 0.99 ms with 2,048 rows, 0.87 / 1.26 with 8,192; at
65,536 5.30 / 8.28 with 4,096, 5.58 / 8.38 with 8,192. At 64/4 8,192 were the fastest at every length.
"""
TILE_LIMIT = 256  # largest padded head size with blocks of 64 keys; above it accumulators do not fit the registers


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """How one kernel is compiled; pinned per shape, never searched at run time."""

    rows: int
    num_warps: int
    num_stages: int


def refuses(site: Site) -> str | None:
    """Why these kernels cannot serve this site, if they cannot; the backward needs the most shared memory."""
    if site.dtype not in (torch.bfloat16, torch.float16, torch.float32):
        return f"the kernels take bf16, fp16 or fp32, not {site.dtype}"
    too_large = _too_large(d=site.d_k, e=site.d_v, l_slc=site.layout.l_slc)
    if too_large:
        return too_large
    sizes = {"d": site.d_k, "e": site.d_v, "l_slc": site.layout.l_slc, "itemsize": site.dtype.itemsize}
    has = _smem_bytes(site.device)
    needs = backward_bytes(backward_tile(**sizes, smem_bytes=has), **sizes)
    if needs > has:
        return (
            f"its backward needs {needs >> 10} KiB of shared memory for blocks of {site.layout.l_slc} keys of size "
            f"{site.d_k} and values of size {site.d_v} in {site.dtype}, and this device gives a program {has >> 10}"
        )
    return None


@cache
def _too_large(*, d: int, e: int, l_slc: int) -> str | None:
    if max(d, e) <= TILE_LIMIT and _pow2(l_slc) * max(_pow2(d), _pow2(e)) <= TILE_LIMIT * 64:
        return None
    return (
        f"a block of {l_slc} keys of size {d} and values of size {e} does not fit on chip; "
        f"64 of size {TILE_LIMIT} or 128 of size {TILE_LIMIT // 2} do"
    )


def _pow2(x: int, least: int = 16) -> int:
    return max(least, pow2(x))


@cache
def forward_tile(*, d: int, e: int, l_slc: int, itemsize: int) -> Tile:
    """Give the KV-major forward's tile; small, so that several programs on one processor hide the gathers."""
    bd, be, bl = _pow2(d), _pow2(e), _pow2(l_slc)
    wide = bd > 128 or be > 128 or bl > 64
    return Tile(rows=64 if itemsize < 4 else 16 if wide else 32, num_warps=8 if wide else 4, num_stages=1)


@cache
def backward_tile(*, d: int, e: int, l_slc: int, itemsize: int, smem_bytes: int) -> Tile:
    """Give the backward's tile: dK and dV stay in registers, Q and dO stream; the most that fits in shared memory.

    With a third stage heads of 128 take 2 to 3 % less on an H200 at 65,536 tokens. The smallest tile where none fits:
    ask ``refuses`` first.
    """
    widths = _pow2(d) + _pow2(e)
    wide = widths > 256 or _pow2(l_slc) > 64
    if itemsize == 4:
        choices = ((16, 8, 1),) if wide else ((32, 4, 1), (16, 4, 1))
    elif wide:
        choices = ((64, 8, 2), (64, 8, 1), (32, 8, 1), (16, 8, 1))
    else:
        choices = ((64, 4, 2), (64, 4, 1), (32, 4, 1), (16, 4, 1))
    if itemsize < 4 and not wide and widths == 256:
        choices = ((64, 4, 3), *choices)
    tiles = [Tile(rows=rows, num_warps=num_warps, num_stages=num_stages) for rows, num_warps, num_stages in choices]
    fitting = (t for t in tiles if backward_bytes(t, d=d, e=e, l_slc=l_slc, itemsize=itemsize) <= smem_bytes)
    return next(fitting, tiles[-1])


def backward_bytes(tile: Tile, *, d: int, e: int, l_slc: int, itemsize: int) -> int:
    """Shared memory of one program of the backward: V, K and, before Hopper, its transpose, the streams, P and dS.

    In fp32 there is no transpose, and this is what the compiler takes for sm_80, to the byte: 172,032 for heads of 256
    and blocks of 64, more than an A100 has.
    """
    bd, be, bl = _pow2(d), _pow2(e), _pow2(l_slc)
    keys = bl * ((1 if itemsize == 4 else 2) * bd + be)
    return itemsize * (keys + tile.num_stages * tile.rows * (bd + be) + 2 * tile.rows * bl)


@cache
def query_tile(*, d: int, e: int, group: int, itemsize: int) -> Tile:
    """Give the query-major forward's tile: the heads of a group, 16 at least for the tensor cores."""
    rows = min(_pow2(group), 64 if itemsize < 4 else 16)
    wide = _pow2(d) > 128 or _pow2(e) > 128 or itemsize == 4
    return Tile(rows=rows, num_warps=4 if wide or rows > 16 else 2, num_stages=1 if itemsize == 4 else 2)


def plan(
    *, B: int, T: int, S: int, G: int, N: int, group: int, width: int, itemsize: int, l_slc: int, n_docs: int,
    slot_bytes: int, rows_per_item: int,
) -> Plan:  # fmt: skip
    """Split a call so that one launch's slots (``width`` numbers per pair and head) fit ``slot_bytes``."""
    rows = max(1, slot_bytes // (N * group * width * itemsize))  # (query, kv head) pairs per launch
    t_chunk = cdiv(T, cdiv(T, rows))
    bg_chunk = min(B * G, max(1, rows // t_chunk))
    if group < 16:
        few = t_chunk * bg_chunk * N * group < MANY
        rows_per_item = min(rows_per_item, FEWER_ROWS if few else FEW_ROWS)
    return Plan(
        B=B,
        T=T,
        S=S,
        G=G,
        N=N,
        n_blocks=cdiv(S, l_slc) + n_docs,
        t_chunk=t_chunk,
        bg_chunk=bg_chunk,
        seg=max(1, cdiv(rows_per_item, group)),
    )


_kept_plan = kept(plan)


def _smem_bytes(device: torch.device) -> int:
    if device.type != "cuda":
        return 227 << 10
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin


def _slot_dtype(dtype: torch.dtype, *, is_gradient: bool) -> torch.dtype:
    """fp16 keeps three more bits than bf16 and the forward scales into its range; gradients may be tiny."""
    if dtype == torch.bfloat16 and not is_gradient:
        return torch.float16
    return dtype


def _check(q: Tensor, k: Tensor, v: Tensor, index: Tensor, l_slc: int, offset: int, cu: Tensor | None) -> None:
    B, T, H, D = q.shape
    S, G = k.shape[1], k.shape[2]
    if k.shape != (B, S, G, D) or v.shape[:3] != (B, S, G) or H % G != 0:
        raise ValueError(f"q {tuple(q.shape)}, k {tuple(k.shape)} and v {tuple(v.shape)} do not fit together")
    if index.shape[:3] != (B, T, G) or index.dtype != torch.int32:
        raise ValueError(f"index must be int32 [{B}, {T}, {G}, n], got {index.dtype} {tuple(index.shape)}")
    if q.dtype != k.dtype or q.dtype != v.dtype:
        raise ValueError(f"q, k and v must share one dtype, got {q.dtype}, {k.dtype}, {v.dtype}")
    too_large = _too_large(d=D, e=v.shape[3], l_slc=l_slc)
    if too_large:
        raise ValueError(too_large)
    if cu is not None and (B != 1 or T != S or offset != 0):
        raise ValueError(f"packed documents need B = 1, T = S, offset = 0; got {B}, {T} and {S}, {offset}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Launch:
    """A rectangle of queries and kv heads whose slots fit ``SLOT_BYTES``."""

    number: int
    t0: int
    bg0: int
    n_t: int
    n_bg: int
    is_first: bool  # of those that share its kv heads
    is_last: bool


@kept
def _launches(plan: Plan) -> tuple[Launch, ...]:
    heads = plan.B * plan.G
    return tuple(
        Launch(
            number=i * plan.n_bg + j,
            t0=i * plan.t_chunk,
            bg0=j * plan.bg_chunk,
            n_t=min(plan.t_chunk, plan.T - i * plan.t_chunk),
            n_bg=min(plan.bg_chunk, heads - j * plan.bg_chunk),
            is_first=i == 0,
            is_last=i == plan.n_t - 1,
        )
        for i in range(plan.n_t)
        for j in range(plan.n_bg)
    )


def is_kv_major(*, T: int, group: int) -> bool:
    """Whether the KV-major forward is the faster one; decode steps have too few queries per block."""
    return T >= 256 and group < 16


def _forward_query_major(
    q: Tensor, k: Tensor, v: Tensor, index: Tensor, o: Tensor, lse: Tensor, docs: Documents | None,
    *, l_slc: int, scale: float, offset: int,
) -> None:  # fmt: skip
    tile = query_tile(d=q.shape[3], e=v.shape[3], group=q.shape[2] // v.shape[2], itemsize=q.element_size())
    how = (l_slc, scale, offset, docs is not None)
    launch = _query_major(q.shape, v.shape, index.shape[3], tile, how, places(q, k, v, index))
    launch(q, k, v, index, o, lse, *((docs.start_T, docs.block_T) if docs else (index, index)))


@kept
def _query_major(q: Size, v: Size, N: int, tile: Tile, how: tuple[int, float, int, bool], _: object) -> Prepared:
    (B, T, H, D), (S, G, E), (l_slc, scale, offset, is_varlen) = q, v[1:], how
    return Prepared(
        kernels.query_major_forward_kernel, (T, B * G, cdiv(H // G, tile.rows)),
        T, S, offset, scale * kernels.LOG2E.value,
        D=D, E=E, BD=_pow2(D), BE=_pow2(E), L=l_slc, BL=_pow2(l_slc), G=G, GROUP=H // G, BG=tile.rows,
        N=N, VARLEN=is_varlen, num_warps=tile.num_warps, num_stages=tile.num_stages,
    )  # fmt: skip


def _forward_kv_major(
    q: Tensor, k: Tensor, v: Tensor, index: Tensor, o: Tensor, lse: Tensor, docs: Documents | None,
    work: Plan, csr: Csr, *, l_slc: int, scale: float, offset: int,
) -> None:  # fmt: skip
    D, E, group = q.shape[3], v.shape[3], q.shape[2] // v.shape[2]
    tile = forward_tile(d=D, e=E, l_slc=l_slc, itemsize=q.element_size())
    n_slots = work.t_chunk * work.bg_chunk * work.N * group
    o_slot = q.new_empty(n_slots, E, dtype=_slot_dtype(q.dtype, is_gradient=False))
    lse_slot = q.new_empty(n_slots, dtype=torch.float32)
    v_scale = q.new_empty(work.buckets, dtype=torch.float32)
    of_blocks = (docs.block_lo, docs.block_hi) if docs else (index, index)
    of_tokens = (docs.start_T, docs.block_T) if docs else (index, index)
    how = (l_slc, scale, offset, docs is not None)
    for items, combine in _kv_major(work, (D, E, group), tile, how, places(q, k, v, index)):
        items(q, k, v, o_slot, lse_slot, v_scale, csr.pairs, csr.start, csr.item_start, csr.item_bucket, *of_blocks)
        combine(index, o_slot, lse_slot, v_scale, o, lse, *of_tokens)


@kept
def _kv_major(
    work: Plan, sizes: tuple[int, int, int], tile: Tile, how: tuple[int, float, int, bool], _: object
) -> tuple[tuple[Prepared, Prepared], ...]:
    """For every rectangle the launch over its items, and the one that combines their slots."""
    (D, E, group), (l_slc, scale, offset, is_varlen) = sizes, how
    heads, made = min(_pow2(group, 1), 16), []
    for at in _launches(work):
        items = Prepared(
            kernels.kv_major_forward_kernel, (work.items,),
            at.number, at.bg0, at.t0, work.buckets, work.items, work.n_blocks, work.bg_chunk, work.T, work.S, offset,
            scale * kernels.LOG2E.value,
            D=D, E=E, BD=_pow2(D), BE=_pow2(E), L=l_slc, BL=_pow2(l_slc), G=work.G, GROUP=group, N=work.N,
            SEG=work.seg, BM=tile.rows, VARLEN=is_varlen, num_warps=tile.num_warps, num_stages=tile.num_stages,
        )  # fmt: skip
        combine = Prepared(
            kernels.combine_slots_kernel, (at.n_t, at.n_bg, cdiv(group, heads)),
            at.bg0, at.t0, work.n_blocks, work.bg_chunk, work.T, work.S, offset,
            E=E, BE=_pow2(E), L=l_slc, G=work.G, GROUP=group, BG=heads, N=work.N, BN=_pow2(work.N, 1),
            VARLEN=is_varlen, num_warps=4 if heads >= 8 else 1,
        )  # fmt: skip
        made.append((items, combine))
    return tuple(made)


def _docs(cu: Tensor | None, *, T: int, S: int, l_slc: int) -> tuple[Documents | None, int]:
    if cu is None:
        return None, 0
    n_docs = cu.numel() - 1
    return documents(cu, T=T, n_blocks=cdiv(S, l_slc) + n_docs, l_slc=l_slc), n_docs


_SCHEMA = (
    "(Tensor q, Tensor k, Tensor v, Tensor index, int l_slc, float scale, int offset, Tensor? cu_seqlens, "
    "bool? kv_major) -> (Tensor, Tensor, Tensor)"
)


@operator("nsa::selected_attention_triton", schema=_SCHEMA)
def forward_op(
    q: Tensor, k: Tensor, v: Tensor, index: Tensor, l_slc: int, scale: float, offset: int,
    cu_seqlens: Tensor | None, kv_major: bool | None,  # noqa: FBT001 - an operator's schema is positional
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """O, lse, and the inverse index where the loop order needed it: backward, which does, then sorts nothing."""
    _check(q, k, v, index, l_slc, offset, cu_seqlens)
    B, T, H, _ = q.shape
    S, G, E = v.shape[1:]
    q, k, v, index = (x.contiguous() for x in (q, k, v, index))
    o = q.new_empty(B, T, H, E)
    lse = q.new_empty(B, T, H, dtype=torch.float32)
    if o.numel() == 0 or S == 0 or index.numel() == 0:
        return o.zero_(), lse.fill_(float("-inf")), index.new_empty(0)
    docs, n_docs = _docs(cu_seqlens, T=T, S=S, l_slc=l_slc)
    if not (is_kv_major(T=T, group=H // G) if kv_major is None else kv_major):
        _forward_query_major(q, k, v, index, o, lse, docs, l_slc=l_slc, scale=scale, offset=offset)
        return o, lse, index.new_empty(0)
    work = _plan_of(q, v, index, l_slc=l_slc, n_docs=n_docs)
    flat = build(index, work, docs, l_slc=l_slc, offset=offset)
    csr = views(flat, work)
    _forward_kv_major(q, k, v, index, o, lse, docs, work, csr, l_slc=l_slc, scale=scale, offset=offset)
    return o, lse, flat


def _plan_of(q: Tensor, v: Tensor, index: Tensor, *, l_slc: int, n_docs: int) -> Plan:
    """One split for forward and backward, by the wider of their slots; kept where sizes are numbers."""
    B, T, H, D = q.shape
    S, G, E = v.shape[1:]
    make = _kept_plan if type(T) is int and type(B) is int and type(S) is int and type(n_docs) is int else plan
    return make(
        B=B, T=T, S=S, G=G, N=index.shape[3], group=H // G, width=max(D, E), itemsize=q.element_size(),
        l_slc=l_slc, n_docs=n_docs, slot_bytes=SLOT_BYTES, rows_per_item=ROWS_PER_ITEM,
    )  # fmt: skip


@forward_op.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, index: Tensor, l_slc: int, scale: float, offset: int,
    cu_seqlens: Tensor | None, kv_major: bool | None,  # noqa: FBT001
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    o, lse = q.new_empty(*q.shape[:3], v.shape[3]), q.new_empty(q.shape[:3], dtype=torch.float32)
    n = 0
    if is_kv_major(T=q.shape[1], group=q.shape[2] // v.shape[2]) if kv_major is None else kv_major:
        n_docs = 0 if cu_seqlens is None else cu_seqlens.shape[0] - 1
        n = sum(_plan_of(q, v, index, l_slc=l_slc, n_docs=n_docs).sizes)
    return o, lse, index.new_empty(n)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """What the launches over items read and write; a ``Launch`` says which items."""

    q: Tensor
    k: Tensor
    v: Tensor
    do: Tensor
    lse: Tensor
    delta: Tensor
    gate: Tensor | None
    least: Tensor | None
    dq_slot: Tensor
    dk_part: Tensor
    dv_part: Tensor
    csr: Csr
    plan: Plan
    docs: Documents | None
    l_slc: int
    scale: float
    offset: int


def run_items(given: Pass, at: Launch) -> None:
    """Write dQ of every pair of a launch to its slot, dK and dV of every item."""
    q, v, csr, docs = given.q, given.v, given.csr, given.docs
    D, E = q.shape[3], v.shape[3]
    tile = backward_tile(d=D, e=E, l_slc=given.l_slc, itemsize=q.element_size(), smem_bytes=_smem_bytes(q.device))
    gate = given.lse if given.gate is None else given.gate
    how = (given.l_slc, given.scale, given.offset, docs is not None, given.gate is not None)
    launch = _items(
        given.plan, at, (D, E, q.shape[2] // v.shape[2]), tile, how, places(q, given.k, v, given.do, given.lse, gate)
    )
    launch(
        q, given.k, v, given.do, given.lse, given.delta, gate, given.dq_slot, given.dk_part, given.dv_part,
        csr.pairs, csr.start, csr.item_start, csr.item_bucket,
        *((docs.block_lo, docs.block_hi) if docs else (csr.pairs, csr.pairs)),
    )  # fmt: skip


@kept
def _items(
    work: Plan, at: Launch, sizes: tuple[int, int, int], tile: Tile, how: tuple[int, float, int, bool, bool], _: object
) -> Prepared:
    (D, E, group), (l_slc, scale, offset, is_varlen, is_gated) = sizes, how
    return Prepared(
        kernels.kv_major_backward_kernel, (work.items,),
        at.number, at.bg0, at.t0, work.buckets, work.items, work.n_blocks, work.bg_chunk, work.T, work.S, offset, scale,
        D=D, E=E, BD=_pow2(D), BE=_pow2(E), L=l_slc, BL=_pow2(l_slc), G=work.G, GROUP=group, N=work.N,
        SEG=work.seg, BM=tile.rows, VARLEN=is_varlen, GATED=is_gated,
        num_warps=tile.num_warps, num_stages=tile.num_stages,
    )  # fmt: skip


def gradients(
    q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, flat: Tensor, do: Tensor, dlse: Tensor | None,
    index: Tensor, l_slc: int, scale: float, offset: int, cu_seqlens: Tensor | None,
    run: Callable[[Pass, Launch], None] = run_items, parts: int = 1,
    gates: tuple[Tensor, Tensor, Tensor] | None = None, add_to: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of q, k and v, one launch after the other; ``run`` writes ``parts`` sums of dK and dV per item.

    With ``gates``, the [B, T, H, 3] of a gated sum, where their gradients go, and their least, ``do`` is the sum's
    gradient. With ``add_to`` dq is added to that tensor, in its place.
    """
    T, H, D = q.shape[1:]
    S, G, E = v.shape[1:]
    group, N = H // G, index.shape[3]
    q, k, v, o, lse, do, index = (x.contiguous() for x in (q, k, v, o, lse, do, index))
    dq = torch.empty_like(q) if add_to is None else add_to
    dk, dv = torch.empty_like(k), torch.empty_like(v)
    if q.numel() == 0 or S == 0 or N == 0:
        return dq.zero_(), dk.zero_(), dv.zero_()
    docs, n_docs = _docs(cu_seqlens, T=T, S=S, l_slc=l_slc)
    if docs:
        # Rows after the last document belong to no block.
        dk.zero_()
        dv.zero_()
    work = _plan_of(q, v, index, l_slc=l_slc, n_docs=n_docs)
    csr = views(flat if flat.numel() else build(index, work, docs, l_slc=l_slc, offset=offset), work)
    delta = torch.empty_like(lse)
    gate, dgate, least = (None, delta, None) if gates is None else gates
    dlse = lse if dlse is None else dlse.contiguous()
    dq_slot = q.new_empty(work.t_chunk * work.bg_chunk * N * group, D, dtype=_slot_dtype(q.dtype, is_gradient=True))
    dk_part = q.new_empty(work.items * parts, l_slc, D, dtype=torch.float32)
    dv_part = q.new_empty(work.items * parts, l_slc, E, dtype=torch.float32)
    dk_sum = dk if work.n_t == 1 else torch.empty_like(k, dtype=torch.float32)
    dv_sum = dv if work.n_t == 1 else torch.empty_like(v, dtype=torch.float32)
    of_blocks = (docs.block_lo, docs.block_hi) if docs else (index, index)
    of_tokens = (docs.start_T, docs.block_T) if docs else (index, index)
    how = (l_slc, offset, docs is not None, parts, dlse is not lse, gate is not None, add_to is not None)
    sums = _sums(work, (D, E, group), how, places(q, o, do, lse, dlse, index, dgate))
    sums.delta(o, do, dlse, delta, dgate)
    given = Pass(
        q=q, k=k, v=v, do=do, lse=lse, delta=delta, gate=gate, least=least, dq_slot=dq_slot, dk_part=dk_part,
        dv_part=dv_part, csr=csr, plan=work, docs=docs, l_slc=l_slc, scale=scale, offset=offset,
    )  # fmt: skip
    for at, of_items, of_slots in sums.launches:
        run(given, at)
        of_items(dk_part, dv_part, dk_sum, dv_sum, dk, dv, csr.item_start, *of_blocks)
        of_slots(index, dq_slot, dq, *of_tokens)
    return dq, dk, dv


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sums:
    """The launches of the backward around those over items: delta, then the sums over items and slots of each."""

    delta: Prepared
    launches: tuple[tuple[Launch, Prepared, Prepared], ...]


@kept
def _sums(
    work: Plan, sizes: tuple[int, int, int], how: tuple[int, int, bool, int, bool, bool, bool], _: object
) -> _Sums:
    (D, E, group), (l_slc, offset, is_varlen, parts, has_dlse, is_gated, adds) = sizes, how
    n_rows, heads, wide = work.B * work.T * work.G * group, min(_pow2(group, 1), 16), min(_pow2(max(D, E)), 16)
    delta = Prepared(
        kernels.delta_kernel, (cdiv(n_rows, 32),), n_rows,
        E=E, BE=_pow2(E), BM=32, HAS_DLSE=has_dlse, GATED=is_gated, num_warps=4,
    )  # fmt: skip
    made = []
    for at in _launches(work):
        of_items = Prepared(
            kernels.sum_items_kernel, (at.n_bg * work.n_blocks, cdiv(D, wide) + cdiv(E, wide)),
            at.number, at.bg0, work.buckets, work.n_blocks, work.S,
            D=D, E=E, WIDE=wide, L=l_slc, BL=_pow2(l_slc), G=work.G, FIRST=at.is_first, LAST=at.is_last,
            VARLEN=is_varlen, PARTS=parts, num_warps=4,
        )  # fmt: skip
        of_slots = Prepared(
            kernels.sum_slots_kernel, (at.n_t, at.n_bg, cdiv(group, heads)),
            at.bg0, at.t0, work.bg_chunk, work.T, work.S, offset,
            D=D, BD=_pow2(D), L=l_slc, G=work.G, GROUP=group, BG=heads, N=work.N, VARLEN=is_varlen, ADDS=adds,
            num_warps=4 if heads >= 8 else 1,
        )  # fmt: skip
        made.append((at, of_items, of_slots))
    return _Sums(delta=delta, launches=tuple(made))


@operator(
    "nsa::selected_attention_triton_backward",
    schema="(Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, Tensor csr, Tensor do, Tensor? dlse, Tensor index, "
    "int l_slc, float scale, int offset, Tensor? cu_seqlens) -> (Tensor, Tensor, Tensor)",
)
def _backward_op(
    q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, flat: Tensor, do: Tensor, dlse: Tensor | None,
    index: Tensor, l_slc: int, scale: float, offset: int, cu_seqlens: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return gradients(q, k, v, o, lse, flat, do, dlse, index, l_slc, scale, offset, cu_seqlens)


@_backward_op.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, flat: Tensor, do: Tensor, dlse: Tensor | None,
    index: Tensor, l_slc: int, scale: float, offset: int, cu_seqlens: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return tuple(x.new_empty(x.shape) for x in (q, k, v))  # type: ignore[return-value]


def _save(ctx: torch.autograd.function.FunctionCtx, inputs: tuple, output: tuple[Tensor, Tensor, Tensor]) -> None:
    q, k, v, index, ctx.l_slc, ctx.scale, ctx.offset, cu_seqlens, _ = inputs
    ctx.save_for_backward(q, k, v, *output, index, cu_seqlens)
    ctx.mark_non_differentiable(output[2])
    ctx.set_materialize_grads(False)  # a gradient of lse that nobody asked for is not filled with zeros


def _backward(ctx: torch.autograd.function.FunctionCtx, do: Tensor | None, dlse: Tensor | None, _: None) -> tuple:
    q, k, v, o, lse, flat, index, cu_seqlens = ctx.saved_tensors
    do = torch.zeros_like(o) if do is None else do
    grads = _backward_op(q, k, v, o, lse, flat, do, dlse, index, ctx.l_slc, ctx.scale, ctx.offset, cu_seqlens)
    return *grads, None, None, None, None, None, None


forward_op.register_autograd(_backward, setup_context=_save)


def selected_attention(
    q_BTHD: Tensor,
    k_BSGD: Tensor,
    v_BSGE: Tensor,
    index_BTGN: Tensor,
    *,
    l_slc: int,
    scale: float | None = None,
    offset: int = 0,
    cu_seqlens: Tensor | None = None,
    kv_major: bool | None = None,
) -> tuple[Tensor, Tensor]:
    """Attend to the chosen key blocks only (NSA Eq. 1-2 with the keys of Eq. 11-12).

    Args:
        q_BTHD: queries; query head h uses kv head h // (H / G). Query t stands at position ``offset + t``.
        k_BSGD: keys from position 0 on, same dtype as q (bf16, fp16 or fp32).
        v_BSGE: values; E may differ from D.
        index_BTGN: int32 numbers of the chosen blocks, distinct, -1 where unused. With ``cu_seqlens`` they count
            from the start of the query's document.
        l_slc: keys per block (l').
        scale: factor on q.k; 1 / sqrt(D) when None.
        offset: position of the first query.
        cu_seqlens: int32 [documents + 1] bounds of documents packed into one row (B = 1, T = S).
        kv_major: loop order of the forward; None takes the faster one for the shape.

    Returns:
        o_BTHE in q's dtype, and lse_BTH in fp32, natural logarithm. A query that sees no key gets o = 0,
        lse = -inf and zero gradients. Both are differentiable in q, k and v.

    Raises:
        ValueError: shapes, dtypes or sizes that do not fit together or the kernels.
    """
    scale = q_BTHD.shape[-1] ** -0.5 if scale is None else scale
    return forward_op(q_BTHD, k_BSGD, v_BSGE, index_BTGN, l_slc, scale, offset, cu_seqlens, kv_major)[:2]


__all__ = ["Tile", "backward_tile", "forward_tile", "plan", "query_tile", "selected_attention"]
