"""Selected attention by the Hopper kernels as a torch operator, and how each kernel is launched.

The forward is query-major; the backward is the KV-major pass of ``nsa.kernels.selected.triton``, by wgmma where heads
are 128 wide and blocks have 64 keys. Nothing here reads data on the host.

Shapes: B batch, T queries, S keys, G kv heads, H = G * group query heads, D both head widths, N slots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from nsa.blocks import N_INITIAL, N_LOCAL
from nsa.kernels.hopper import triton_selected, triton_selected_backward
from nsa.kernels.hopper.triton import FORCED, HALF_TYPES, ROWS, WIDTHS, heads_of_tile, quarantined, run_tiles, streams
from nsa.kernels.hopper.triton_boxes import boxes, for_copies, plain_boxes
from nsa.kernels.operators import operator
from nsa.kernels.prepared import Prepared, kept, places
from nsa.kernels.selected.triton import gradients
from nsa.kernels.selected.triton_kernels import LOG2E
from nsa.kernels.sizes import pow2

if TYPE_CHECKING:
    from torch import Size, Tensor
    from torch.autograd.function import FunctionCtx

    from nsa.kernels.selected.triton import Launch, Pass
    from nsa.kernels.selected.triton_csr import Plan

BLOCKS = (16, 32, 64)
"""Keys of a block whose scores fit the registers of the warps that hold them."""
HEADS = 16
"""Of a warp: the fewest rows of a product. A group must be made of so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipe:
    """How the forward is compiled: warps for each 16 heads, and blocks of keys under way at a time."""

    warps: int
    stages: int


PIPE = Pipe(warps=1, stages=2)
"""The fastest for 16 heads of those timed on an H200 at 8,192, 32,768 and 65,536 tokens (stages=1 takes 2 to 5 % more).

Six programs of 16 heads of 128 still fit a processor and hide each other's copies. Of 64 heads two would, and with one
block under way six: there it stays at one.
"""


BACKWARD_STAGES = 4
"""Tiles of 64 rows of q and do under way at a time, as many as have room: at 32,768 tokens 11.9 ms, with three 13.1."""
BY_WGMMA = True
"""Whether the backward of 128 wide heads runs on wgmma; False asks for today's of ``triton``, to compare with."""


def attend(
    q_BTHD: Tensor, k_BSGD: Tensor, v_BSGD: Tensor, index_BTGN: Tensor, *, l_slc: int, scale: float, offset: int
) -> tuple[Tensor, Tensor]:
    """Attention over listed blocks; differentiable once in q, k and v, through lse, too.

    Args:
        q_BTHD: queries, bf16 or fp16, a multiple of 16 heads for each kv head; query t stands at key t + offset.
        k_BSGD: keys, in q's type.
        v_BSGD: values, in q's type.
        index_BTGN: int32 block numbers, each once, -1 where unused.
        l_slc: keys of a block: 16, 32 or 64.
        scale: factor on the scores.
        offset: see above; not negative.

    Returns:
        o_BTHD in q's type and lse_BTH (fp32, natural log); 0 and -inf where no key is seen.

    Raises:
        ValueError: shapes, types or sizes that do not fit together or the kernels.
    """
    return _attention(q_BTHD, k_BSGD, v_BSGD, index_BTGN, l_slc, scale, offset)


def stages(pack: int) -> int:
    """Blocks of keys that the forward has under way at a time for so many heads in a program."""
    return PIPE.stages if pack == HEADS else 1


def uneven(*, group: int, l_slc: int) -> str | None:
    """Why groups of so many heads and blocks of so many keys do not fill the kernels' tiles, if they do not."""
    if group % HEADS:
        return f"a warp has {HEADS} heads of one group, and a group has {group}"
    if l_slc not in BLOCKS:
        return f"a block has {', '.join(map(str, BLOCKS))} keys, and l_slc is {l_slc}"
    return None


@operator(
    "nsa::selected_attention_hopper",
    schema="(Tensor q, Tensor k, Tensor v, Tensor index, int l_slc, float scale, int offset) -> (Tensor, Tensor)",
)
def forward_op(
    q: Tensor, k: Tensor, v: Tensor, index: Tensor, l_slc: int, scale: float, offset: int
) -> tuple[Tensor, Tensor]:
    """O and lse, as ``attend`` says."""
    B, T, H, D = q.shape
    S, G = k.shape[1:3]
    if k.shape != (B, S, G, D) or v.shape != k.shape or H % G or D not in WIDTHS or offset < 0:
        raise ValueError(f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}, offset {offset} do not fit")
    if index.shape[:3] != (B, T, G) or index.dtype != torch.int32:
        raise ValueError(f"index must be int32 [{B}, {T}, {G}, n], got {index.dtype} {tuple(index.shape)}")
    if q.dtype not in HALF_TYPES or not q.dtype == k.dtype == v.dtype:
        raise ValueError(f"q, k and v must be of one type, bf16 or fp16, got {q.dtype}, {k.dtype} and {v.dtype}")
    why = uneven(group=H // G, l_slc=l_slc)
    if why:
        raise ValueError(why)
    o, lse = q.new_empty(q.shape), q.new_empty(B, T, H, dtype=torch.float32)
    if S == 0 or o.numel() == 0 or index.numel() == 0:
        return o.zero_(), lse.fill_(-torch.inf)
    run_forward(q, k, v, index, o, lse, l_slc=l_slc, scale=scale, offset=offset)
    return o, lse


def run_forward(
    q: Tensor, k: Tensor, v: Tensor, index: Tensor, o: Tensor, lse: Tensor,
    *, l_slc: int, scale: float, offset: int, has_forced: bool = False,
) -> None:  # fmt: skip
    """Launch the forward into o and lse; none of the tensors is empty.

    Args:
        q: queries, as in ``attend``.
        k: keys, likewise.
        v: values, likewise.
        index: block numbers, likewise.
        o: where the results go.
        lse: likewise.
        l_slc: keys of a block.
        scale: factor on the scores.
        offset: where query 0 stands.
        has_forced: every list ascends and has the blocks of ``BlockLayout.forced``, the scale is positive, offset is 0.
    """
    (B, T, H, D), (S, G) = q.shape, k.shape[1:3]
    q, index = for_copies(q.contiguous()), index.contiguous()
    k, v = quarantined(k, v, is_marked=True)
    forced = (0, 0)
    if has_forced and are_tiles(group=H // G, l_slc=l_slc):
        forced = (N_INITIAL, N_LOCAL)
        run_tiles(q, k, v, o, lse, kind=FORCED, sizes=(N_LOCAL, N_INITIAL), scale=scale, offset=offset)
    how = (l_slc, scale, offset, *forced)
    launch, rows, keys = _forward(q.shape, k.shape, index.shape[3], PIPE, how, places(q, index))
    launch(
        plain_boxes(q.view(B * T * H, D), rows),
        plain_boxes(k.view(B * S, G * D), keys), plain_boxes(v.view(B * S, G * D), keys), index,
        plain_boxes(o.view(B * T * H, D), rows), lse,
    )  # fmt: skip


def are_tiles(*, group: int, l_slc: int) -> bool:
    """Whether blocks are tiles of keys for the attention over tiles, and no tile of rows has two own blocks."""
    return l_slc == streams(width=128, kind=FORCED)[0].size and l_slc * heads_of_tile(group) % ROWS == 0


@kept
def _forward(
    q: Size, k: Size, N: int, pipe: Pipe, how: tuple[int, float, int, int, int], _: object
) -> tuple[Prepared, tuple[int, int], tuple[int, int]]:
    """The launch of the forward, and the boxes of rows and of keys."""
    (B, T, H, D), (S, G), (l_slc, scale, offset, initial, local) = q, k[1:3], how
    pack = heads_of_tile(H // G)
    launch = Prepared(
        triton_selected.forward_kernel, (T, B * G, H // G // pack), T, S, offset, scale * LOG2E.value,
        D=D, G=G, GROUP=H // G, PACK=pack, L=l_slc, N=N, BN=pow2(N), INITIAL=initial, LOCAL=local,
        num_warps=pipe.warps * pack // HEADS, num_stages=stages(pack),
    )  # fmt: skip
    return launch, (pack, D), (l_slc, D)


@forward_op.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, index: Tensor, l_slc: int, scale: float, offset: int
) -> tuple[Tensor, Tensor]:  # fmt: skip
    return q.new_empty(q.shape), q.new_empty(q.shape[:3], dtype=torch.float32)


@operator(
    "nsa::selected_attention_hopper_backward",
    schema="(Tensor do, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor index, Tensor o, Tensor lse, int l_slc, "
    "float scale, int offset) -> (Tensor, Tensor, Tensor)",
)
def _backward_op(
    do: Tensor, dlse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, index: Tensor, o: Tensor, lse: Tensor,
    l_slc: int, scale: float, offset: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return run_backward(do, dlse, q, k, v, index, o, lse, l_slc=l_slc, scale=scale, offset=offset)


def run_backward(
    do: Tensor, dlse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, index: Tensor, o: Tensor, lse: Tensor,
    *, l_slc: int, scale: float, offset: int,
    gates: tuple[Tensor, Tensor, Tensor] | None = None, add_to: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """``nsa.kernels.selected.triton.gradients``, by wgmma where its tiles fit."""
    given = (o, lse, index.new_empty(0), for_copies(do.contiguous()), dlse, index, l_slc, scale, offset, None)
    is_empty = k.numel() == 0 or q.numel() == 0
    if is_empty or not BY_WGMMA or not fits_wgmma(width=q.shape[3], l_slc=l_slc, scale=scale):
        return gradients(q, k, v, *given, gates=gates, add_to=add_to)
    k, v = quarantined(k, v, is_marked=False)
    q = for_copies(q.contiguous())
    return gradients(q, k, v, *given, run=_run_items, parts=2, gates=gates, add_to=add_to)


def fits_wgmma(*, width: int, l_slc: int, scale: float) -> bool:
    """Whether the backward by wgmma has tiles for such heads and blocks; it divides by the scale."""
    return width == 128 and l_slc == 64 and scale > 0


def _run_items(given: Pass, at: Launch) -> None:
    """``nsa.kernels.selected.triton.run_items`` by wgmma: two sums of dk and dv for each item."""
    q, work, csr = given.q, given.plan, given.csr
    width, group = q.shape[3], q.shape[2] // work.G
    rows, keys = (heads_of_tile(group), 64), (64, 64)
    gate, least = (given.lse if x is None else x for x in (given.gate, given.least))
    how = (group, given.scale, given.offset, BACKWARD_STAGES, given.gate is not None)
    launch = _items(work, at, how, places(q, given.lse, gate))
    launch(
        boxes(q.view(-1, width), rows), boxes(given.do.view(-1, width), rows),
        boxes(given.k.view(-1, work.G * width), keys), boxes(given.v.view(-1, work.G * width), keys),
        boxes(given.dq_slot, rows), given.dk_part, given.dv_part, given.lse, given.delta, gate, least,
        csr.pairs, csr.start, csr.item_start, csr.item_bucket,
    )  # fmt: skip


@kept
def _items(work: Plan, at: Launch, how: tuple[int, float, int, int, bool], _: object) -> Prepared:
    group, scale, offset, n_stages, is_gated = how
    return Prepared(
        triton_selected_backward.backward_kernel, (work.items,),
        at.number, at.bg0, at.t0, work.buckets, work.items, work.n_blocks, work.bg_chunk, work.T, work.S, offset, scale,
        G=work.G, GROUP=group, PACK=heads_of_tile(group), N=work.N, SEG=work.seg, STAGES=n_stages,
        GATED=is_gated, num_warps=4,
    )  # fmt: skip


@_backward_op.register_fake
def _(
    do: Tensor, dlse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, index: Tensor, o: Tensor, lse: Tensor,
    l_slc: int, scale: float, offset: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _save(ctx: FunctionCtx, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.l_slc, ctx.scale, ctx.offset = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.set_materialize_grads(False)  # a gradient of lse that nobody asked for is not filled with zeros


def _differentiate(ctx: FunctionCtx, do: Tensor | None, dlse: Tensor | None) -> tuple[Tensor | None, ...]:
    kept = ctx.saved_tensors
    do = torch.zeros_like(kept[4]) if do is None else do
    rest = (ctx.l_slc, ctx.scale, ctx.offset)
    return *_backward_op(do, dlse, *kept, *rest), *(None,) * 4


forward_op.register_autograd(_differentiate, setup_context=_save)
_attention = torch.ops.nsa.selected_attention_hopper.default
"""Said whole: torch looks for the overload of a name at every call."""
