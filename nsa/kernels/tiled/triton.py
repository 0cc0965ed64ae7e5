"""Attention over tiles as torch operators: forward, backward, and how each kernel is compiled.

The forward also returns what backward needs of the keys: copies without what is not finite, and the taint that says
where that was. Gradients are the same bits in every run. Nothing here reads data on the host.

Shapes: B batch, T queries, S keys, H query heads, G key/value heads, D and E head widths.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import torch

from nsa.kernels.devices import is_hopper
from nsa.kernels.operators import operator
from nsa.kernels.prepared import Prepared, kept, places
from nsa.kernels.sizes import cdiv, pow2
from nsa.kernels.tiled import triton_kernels as kernels

if TYPE_CHECKING:
    from torch import Size, Tensor
    from torch.autograd.function import FunctionCtx

    from nsa.kernels.registry import Site

WIDEST = 128
"""Largest head width; above it a tile's accumulators do not fit the registers."""
TIMED = 64
"""Largest head width at which they were timed for every mask beside the kernels they replace."""
FEWEST_QUERIES = 16
"""With fewer a tile is mostly empty, and one program would read all keys of its head alone: no work for tiles."""
PROGRAMS = 528
"""Programs that the pass over keys is cut into at least, four for each processor of an H200."""
WINDOW, BLOCKS, BITS = (kind.value for kind in (kernels.WINDOW, kernels.BLOCKS, kernels.BITS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """How one kernel is compiled; pinned per shape, never searched at run time."""

    rows: int
    keys: int
    num_warps: int
    num_stages: int


def refuses(site: Site) -> str | None:
    """Why these kernels cannot serve this site, if they cannot."""
    if site.device.type != "cuda":
        return f"Triton compiles for a GPU, and this is a {site.device.type}"
    if site.dtype not in (torch.bfloat16, torch.float16, torch.float32):
        return f"the kernels take bf16, fp16 or fp32, not {site.dtype}"
    if max(site.d_k, site.d_v) > WIDEST:
        return f"the kernels take head widths up to {WIDEST}, not {max(site.d_k, site.d_v)}"
    return None


def yields(site: Site) -> str | None:
    """Why ``auto`` passes these kernels over here, though they could run."""
    if max(site.d_k, site.d_v) > TIMED:
        return f"timed at head widths up to {TIMED}, not at {max(site.d_k, site.d_v)}"
    return None


def yields_library(site: Site) -> str | None:
    """Why ``auto`` keeps to a library's kernels here, for the masks that those know (window and compressed blocks).

    At a head width of 128 forward and backward together were timed on an H200 alone, and were the faster there:
    2.6 against 2.9 ms and 1.7 against 3.4 at 8,192 tokens of 64 heads, 10.3 against 10.6 and 19.3 against 21.2 at
    32,768.
    """
    late = yields(site)
    return None if late is None or is_hopper(site.device) else f"{late}, but for Hopper GPUs"


def refuses_library(site: Site) -> str | None:
    """Why these kernels cannot take the place of a library's here, if they cannot."""
    if site.sdpa != "any":
        return f"kernels.sdpa = {site.sdpa!r} asks for an attention of torch's"
    return refuses(site)


@cache
def tiles(*, width: int, itemsize: int, kind: int, most_keys: int = 64) -> tuple[Tile, Tile, Tile]:
    """Tiles of the forward, of dq, and of dk and dv; ``most_keys`` where a mask wants all keys in one block.

    Measured at width 64 in bf16 on an H200 (bench/tiles.py); one block's keys in a tile need one look at its bits.
    """
    if itemsize == 4:
        keys = min(32, most_keys)
        return (Tile(rows=32, keys=keys, num_warps=4, num_stages=1),) * 3
    keys = min(64, most_keys)
    if width > 64:
        return (
            Tile(rows=128, keys=keys, num_warps=8, num_stages=2),
            Tile(rows=64, keys=keys, num_warps=4, num_stages=2),
            Tile(rows=64, keys=keys, num_warps=8, num_stages=2),
        )
    forward = (keys, 2) if kind == BITS else (min(32, keys), 3)
    return (
        Tile(rows=64, keys=forward[0], num_warps=4, num_stages=forward[1]),
        Tile(rows=64, keys=min(32, keys), num_warps=4, num_stages=3),
        Tile(rows=64, keys=keys, num_warps=4, num_stages=3),
    )


def attend(
    q_BTHD: Tensor,
    k_BSGD: Tensor,
    v_BSGE: Tensor,
    *,
    kind: int,
    sizes: tuple[int, int],
    scale: float,
    offset: int,
    bits_BTG: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention under one of the three masks of ``nsa.kernels.tiled.triton_kernels``; differentiable in q, k and v.

    Args:
        q_BTHD: queries; row t stands at key t + offset.
        k_BSGD: keys.
        v_BSGE: values.
        kind: WINDOW, BLOCKS or BITS.
        sizes: (w, 0), (l, d) or (l_slc, 0).
        scale: factor on the scores.
        offset: see above; not negative.
        bits_BTG: for BITS, int64 words; bit j shows block j.

    Returns:
        o_BTHE in q's type and lse_BTH (fp32, natural log, not differentiable); 0 and -inf where no key is seen.
    """
    return _forward_op(q_BTHD, k_BSGD, v_BSGE, bits_BTG, kind, *sizes, scale, offset)[:2]


def block_bits(index_BTGN: Tensor) -> Tensor:
    """bits_BTG: one word per query and kv head, from the list of its blocks (below 64)."""
    return _bits_op(index_BTGN)


_SCHEMA = (
    "(Tensor q, Tensor k, Tensor v, Tensor? bits, int kind, int p1, int p2, float scale, int offset) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)


@operator("nsa::tiled_attention", schema=_SCHEMA)
def _forward_op(
    q: Tensor, k: Tensor, v: Tensor, bits: Tensor | None, kind: int, p1: int, p2: int, scale: float, offset: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    B, T, H, D = q.shape
    S, G, E = v.shape[1:]
    if k.shape != (B, S, G, D) or H % G or offset < 0 or (kind == BITS) != (bits is not None):
        raise ValueError(f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)} and kind {kind} do not fit")
    q, k, v = (_rows_whole(x) for x in (q, k, v))
    o, lse = q.new_empty(B, T, H, E), q.new_empty(B, T, H, dtype=torch.float32)
    k_clean, v_clean = k.new_empty(k.shape), v.new_empty(v.shape)
    taint = k.new_empty(B, S, G, dtype=torch.float32)
    if S == 0 or o.numel() == 0:
        return o.zero_(), lse.fill_(-torch.inf), k_clean.zero_(), v_clean.zero_(), taint.zero_()
    where = places(q, k, v)
    _clean(k.shape, E, k.stride(), v.stride(), where)(k, v, k_clean, v_clean, taint)
    tile = tiles(width=max(D, E), itemsize=q.element_size(), kind=kind, most_keys=p1 if kind == BITS else 64)[0]
    how, words = (kind, p1, p2, scale, offset), taint if bits is None else bits
    launch = _forward(q.shape, v.shape, q.stride(), tile, how, (where, places(words)))
    launch(q, k_clean, v_clean, taint, words, o, lse)
    return o, lse, k_clean, v_clean, taint


def _widths(D: int, E: int) -> dict[str, int]:
    return {"D": D, "E": E, "BD": _pow2(D), "BE": _pow2(E)}


@kept
def _clean(k: Size, E: int, k_stride: tuple[int, ...], v_stride: tuple[int, ...], _: object) -> Prepared:
    B, S, G, D = k
    n_rows = B * S * G
    return Prepared(
        kernels.clean_kernel, (cdiv(n_rows, 32),), n_rows, S, *k_stride[:3], *v_stride[:3],
        **_widths(D, E), G=G, BM=32, num_warps=4,
    )  # fmt: skip


@kept
def _forward(
    q: Size, v: Size, q_stride: tuple[int, ...], tile: Tile, how: tuple[int, int, int, float, int], _: object
) -> Prepared:
    (B, T, H, D), (S, G, E), (kind, p1, p2, scale, offset) = q, v[1:], how
    n_tiles = cdiv(T * (H // G), tile.rows)
    return Prepared(
        kernels.forward_kernel, (n_tiles * B * G,),
        T, S, offset, scale * kernels.LOG2E.value, n_tiles, B * G, *q_stride[:3],
        **_widths(D, E), G=G, GROUP=H // G, KIND=kind, P1=p1, P2=p2, BM=tile.rows, BN=tile.keys,
        num_warps=tile.num_warps, num_stages=tile.num_stages,
    )  # fmt: skip


@operator(
    "nsa::tiled_attention_backward",
    schema="(Tensor do, Tensor q, Tensor o, Tensor lse, Tensor k, Tensor v, Tensor taint, Tensor? bits, int kind, "
    "int p1, int p2, float scale, int offset) -> (Tensor, Tensor, Tensor)",
)
def _backward_op(
    do: Tensor, q: Tensor, o: Tensor, lse: Tensor, k: Tensor, v: Tensor, taint: Tensor, bits: Tensor | None,
    kind: int, p1: int, p2: int, scale: float, offset: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    D, S, E = q.shape[3], v.shape[1], v.shape[3]
    q, do = _rows_whole(q), do.contiguous()
    dq, dk, dv = q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)
    if S == 0 or o.numel() == 0:
        return dq.zero_(), dk.zero_(), dv.zero_()
    _, rows_first, keys_first = tiles(
        width=max(D, E), itemsize=q.element_size(), kind=kind, most_keys=p1 if kind == BITS else 64
    )
    words, delta = taint if bits is None else bits, torch.empty_like(lse)
    how, where = (kind, p1, p2, scale, offset), places(q, k, v, taint, words, o, lse, do)
    given = (q.shape, v.shape, q.stride())
    _dq(*given, rows_first, how, where)(q, k, v, taint, words, o, lse, do, delta, dq)
    launch, parts = _dkdv(*given, keys_first, how, where)
    dk_part, dv_part = (dk, dv) if parts == 1 else (x.new_empty(parts, *x.shape, dtype=torch.float32) for x in (k, v))
    launch(q, k, v, taint, words, lse, do, delta, dk_part, dv_part)
    if parts > 1:
        sum_parts(dk_part, dv_part, dk, dv)
    return dq, dk, dv


@kept
def _dq(
    q: Size, v: Size, q_stride: tuple[int, ...], tile: Tile, how: tuple[int, int, int, float, int], _: object
) -> Prepared:
    (B, T, H, D), (S, G, E), (kind, p1, p2, scale, offset) = q, v[1:], how
    n_tiles = cdiv(T * (H // G), tile.rows)
    return Prepared(
        kernels.dq_kernel, (n_tiles * B * G,), T, S, offset, scale, n_tiles, B * G, *q_stride[:3],
        **_widths(D, E), G=G, GROUP=H // G, KIND=kind, P1=p1, P2=p2, BM=tile.rows, BN=tile.keys,
        num_warps=tile.num_warps, num_stages=tile.num_stages,
    )  # fmt: skip


@kept
def _dkdv(
    q: Size, v: Size, q_stride: tuple[int, ...], tile: Tile, how: tuple[int, int, int, float, int], _: object
) -> tuple[Prepared, int]:
    """The pass over keys, and into how many runs it is cut."""
    (B, T, H, D), (S, G, E), (kind, p1, p2, scale, offset) = q, v[1:], how
    n_tiles = cdiv(S, tile.keys)
    parts = n_parts(n_programs=n_tiles * B * G, n_rows=T * (H // G), tile_rows=tile.rows)
    launch = Prepared(
        kernels.dkdv_kernel, (n_tiles * B * G, parts),
        T, S, offset, scale, n_tiles, B * G, B * S * G, *q_stride[:3],
        **_widths(D, E), G=G, GROUP=H // G, KIND=kind, P1=p1, P2=p2, BM=tile.rows, BN=tile.keys, PARTS=parts,
        num_warps=tile.num_warps, num_stages=tile.num_stages,
    )  # fmt: skip
    return launch, parts


def sum_parts(dk_part: Tensor, dv_part: Tensor, dk: Tensor, dv: Tensor) -> None:
    """Write the sums over the parts, [parts, ...] in fp32, of the gradients of keys and of values."""
    _sum_parts(len(dk_part), dk.numel(), dv.numel(), places(dk, dv))(dk_part, dv_part, dk, dv)


@kept
def _sum_parts(parts: int, n_k: int, n_v: int, _: object) -> Prepared:
    grid = (cdiv(max(n_k, n_v), 1024), 2)
    return Prepared(kernels.sum_parts_kernel, grid, n_k, n_v, PARTS=parts, BLOCK=1024, num_warps=4)


def n_parts(*, n_programs: int, n_rows: int, tile_rows: int) -> int:
    """Into how many runs of queries the pass over keys is cut, so that ``PROGRAMS`` work; by shapes alone."""
    wanted = cdiv(PROGRAMS, n_programs)
    return max(1, min(wanted, 16, n_rows // (4 * tile_rows)))


@operator("nsa::block_bits", schema="(Tensor index) -> Tensor")
def _bits_op(index: Tensor) -> Tensor:
    index = index.contiguous()
    bits = index.new_empty(index.shape[:3], dtype=torch.int64)
    if bits.numel():
        _bits(bits.numel(), index.shape[3], places(index))(index, bits)
    return bits


@kept
def _bits(n: int, N: int, _: object) -> Prepared:
    return Prepared(kernels.bits_kernel, (cdiv(n, 64),), n, N=N, BN=_pow2(N, 1), BM=64, num_warps=4)


@_bits_op.register_fake
def _(index: Tensor) -> Tensor:
    return index.new_empty(index.shape[:3], dtype=torch.int64)


@_forward_op.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, bits: Tensor | None, kind: int, p1: int, p2: int, scale: float, offset: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    o, lse = q.new_empty(*q.shape[:3], v.shape[3]), q.new_empty(q.shape[:3], dtype=torch.float32)
    return o, lse, k.new_empty(k.shape), v.new_empty(v.shape), k.new_empty(k.shape[:3], dtype=torch.float32)


@_backward_op.register_fake
def _(
    do: Tensor, q: Tensor, o: Tensor, lse: Tensor, k: Tensor, v: Tensor, taint: Tensor, bits: Tensor | None,
    kind: int, p1: int, p2: int, scale: float, offset: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _save(ctx: FunctionCtx, inputs: tuple, output: tuple[Tensor, ...]) -> None:
    q, _, _, bits, *rest = inputs
    o, lse, k, v, taint = output
    # torch takes None among the saved tensors; its annotation does not say so.
    ctx.save_for_backward(q, o, lse, k, v, taint, bits)
    ctx.mark_non_differentiable(lse, k, v, taint)
    ctx.set_materialize_grads(False)  # four fills with zeros for what has no gradient
    ctx.rest = rest  # the context takes any attribute


def _differentiate(ctx: FunctionCtx, do: Tensor, *_: None) -> tuple[Tensor | None, ...]:
    kept, rest = ctx.saved_tensors, ctx.rest
    return *_backward_op(do, *kept, *rest), *(None,) * 6


_forward_op.register_autograd(_differentiate, setup_context=_save)


def _rows_whole(x: Tensor) -> Tensor:
    """The tensor, with every row's elements side by side."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _pow2(x: int, least: int = 16) -> int:
    return max(least, pow2(x))
