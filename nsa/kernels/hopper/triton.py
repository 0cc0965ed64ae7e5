"""Attention by the Hopper kernels as torch operators: forward, backward, and how each kernel is launched.

They serve the masks that follow from positions, the window and complete compressed blocks (Eq. 7), as the kernels of
``nsa.kernels.tiled`` do, which are their twins for other GPUs, types and head widths. Gradients are the same bits in
every run. Nothing here reads data on the host; keys and values are copied once, the backward copies them again rather
than keep them.

Shapes: B batch, T queries, S keys, H query heads, G key/value heads, D both head widths.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from nsa.kernels.devices import is_hopper, processors
from nsa.kernels.hopper import triton_backward, triton_forward, triton_quarantine
from nsa.kernels.hopper.triton_boxes import boxes as _boxes
from nsa.kernels.hopper.triton_boxes import for_copies as _for_copies
from nsa.kernels.hopper.triton_names import BLOCKS as _BLOCKS
from nsa.kernels.hopper.triton_names import FORCED as _FORCED
from nsa.kernels.hopper.triton_names import LOG2E
from nsa.kernels.hopper.triton_names import WINDOW as _WINDOW
from nsa.kernels.operators import operator
from nsa.kernels.prepared import Prepared, kept, places
from nsa.kernels.sizes import cdiv
from nsa.kernels.tiled.triton import sum_parts

if TYPE_CHECKING:
    from torch import Size, Tensor
    from torch.autograd.function import FunctionCtx

    from nsa.kernels.registry import Site

Box = tuple[int, int, int, int]
WINDOW, BLOCKS, FORCED = _WINDOW.value, _BLOCKS.value, _FORCED.value
WIDTHS = (64, 128)
"""Head widths that are whole boxes of the copy engine, 128 bytes wide, and fit the registers."""
TIMED = 128
"""The head width at which they were timed beside the kernels they replace."""
HALF_TYPES = (torch.bfloat16, torch.float16)
ROWS = 128
"""Rows, or keys, of one program: 64 for each of its two computing groups."""
PROGRAMS = 528
"""Programs that the pass over keys is cut into at least: four for each processor, which holds one at a time."""
MOST_PARTS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """What streams past the rows or keys that stay: how many in a tile, and how many tiles have room at a time."""

    size: int
    stages: int


def refuses(site: Site) -> str | None:
    """Why these kernels cannot serve this site, if they cannot."""
    if site.sdpa != "any":
        return f"kernels.sdpa = {site.sdpa!r} asks for an attention of torch's"
    if not is_hopper(site.device):
        return "these kernels are for a GPU of compute capability 9.0 (H100, H200)"
    if site.dtype not in HALF_TYPES:
        return f"the kernels take bf16 or fp16, not {site.dtype}"
    if site.d_k != site.d_v or site.d_k not in WIDTHS:
        return f"the kernels take one head width, 64 or 128, not {site.d_k} and {site.d_v}"
    return None


def yields(site: Site) -> str | None:
    """Why ``auto`` passes these kernels over here, though they could run."""
    if site.d_k != TIMED:
        return f"timed at head widths of {TIMED}, not at {site.d_k}"
    return None


@cache
def streams(*, width: int, kind: int) -> tuple[Stream, Stream, Stream]:
    """What streams through the forward (keys), through dq (keys), and through dk and dv (rows).

    At width 128 the fastest of what prototypes of these kernels were timed with on an H200 at 32,768 tokens, and the
    forward's on an H100 at 8,192 to 65,536. There is no room for more beside the rows of two tiles and their results.
    """
    stages = 2 * 128 // width
    keys = Stream(size=128 if kind == BLOCKS else 64, stages=stages)
    return keys, Stream(size=64, stages=stages), Stream(size=64, stages=stages)


def heads_of_tile(group: int) -> int:
    """How many heads of a group share a tile: the greatest power of two that divides it, up to 64."""
    return min(group & -group, 64)


def attend(
    q_BTHD: Tensor,
    k_BSGD: Tensor,
    v_BSGD: Tensor,
    *,
    kind: int,
    sizes: tuple[int, int],
    scale: float,
    offset: int,
) -> tuple[Tensor, Tensor]:
    """Attention under one of the two masks; differentiable in q, k and v.

    Args:
        q_BTHD: queries, bf16 or fp16; row t stands at key t + offset.
        k_BSGD: keys.
        v_BSGD: values.
        kind: WINDOW or BLOCKS.
        sizes: (w, 0) or (l, d).
        scale: factor on the scores; positive.
        offset: see above; not negative.

    Returns:
        o_BTHD in q's type and lse_BTH (fp32, natural log, not differentiable); 0 and -inf where no key is seen.

    Raises:
        ValueError: shapes or types that do not belong together, or a scale that is not positive.
    """
    return _attention(q_BTHD, k_BSGD, v_BSGD, kind, *sizes, scale, offset)


@operator(
    "nsa::hopper_attention",
    schema="(Tensor q, Tensor k, Tensor v, int kind, int p1, int p2, float scale, int offset) -> (Tensor, Tensor)",
)
def _forward_op(
    q: Tensor, k: Tensor, v: Tensor, kind: int, p1: int, p2: int, scale: float, offset: int
) -> tuple[Tensor, Tensor]:
    B, T, H, D = q.shape
    S, G = k.shape[1:3]
    if k.shape != (B, S, G, D) or v.shape != k.shape or H % G or D not in WIDTHS or offset < 0:
        raise ValueError(f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}, offset {offset} do not fit")
    if q.dtype not in HALF_TYPES or not q.dtype == k.dtype == v.dtype:
        raise ValueError(f"q, k and v must be of one type, bf16 or fp16, got {q.dtype}, {k.dtype} and {v.dtype}")
    if scale <= 0:
        raise ValueError(f"the kernels take the maximum before the scale, which must be positive, got {scale}")
    o, lse = q.new_empty(q.shape), q.new_empty(B, T, H, dtype=torch.float32)
    if S == 0 or o.numel() == 0:
        return o.zero_(), lse.fill_(-torch.inf)
    run_forward(q, k, v, o, lse, kind=kind, sizes=(p1, p2), scale=scale, offset=offset)
    return o, lse


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """The gated sum (Eq. 5) that the window's kernel makes with its own o: what it adds, by which gates, and where."""

    o_cmp: Tensor
    o_slc: Tensor
    gate: Tensor
    out: Tensor


def run_forward(
    q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor,
    *, kind: int, sizes: tuple[int, int], scale: float, offset: int, added: Sum | None = None,
) -> None:  # fmt: skip
    """Launch the forward of one branch into o and lse; none of the tensors is empty."""
    marked = quarantined(k, v, is_marked=True)
    run_tiles(_for_copies(q), *marked, o, lse, kind=kind, sizes=sizes, scale=scale, offset=offset, added=added)


def run_tiles(
    q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor,
    *, kind: int, sizes: tuple[int, int], scale: float, offset: int, added: Sum | None = None,
) -> None:  # fmt: skip
    """``run_forward`` of what the copy engine can read, and of keys and values that are ``quarantined`` already."""
    stream = streams(width=q.shape[3], kind=kind)[0]
    how = (kind, *sizes, scale, offset)
    where = places(q) if added is None else places(q, added.gate)
    launch, rows, keys = _forward(q.shape, k.shape, stream, how, added is not None, where)
    out = _boxes(o, rows)
    given = (out, out, out, lse)
    if added is not None:
        given = (_boxes(added.o_cmp, rows), _boxes(added.o_slc, rows), _boxes(added.out, rows), added.gate)
    launch(_boxes(q, rows), _boxes(k, keys), _boxes(v, keys), out, lse, *given)


@kept
def _forward(
    q: Size,
    k: Size,
    keys: Stream,
    how: tuple[int, int, int, float, int],
    is_gated: bool,  # noqa: FBT001
    where: tuple[Any, ...],
) -> tuple[Prepared, Box, Box]:
    """The launch of the forward, and the boxes of rows and of keys."""
    (B, T, H, D), (S, G), (kind, p1, p2, scale, offset) = q, k[1:3], how
    pack, device = heads_of_tile(H // G), where[0]
    n_tiles = cdiv(T * pack, ROWS)
    n_work = n_tiles * B * (H // pack)
    launch = Prepared(
        triton_forward.forward_kernel, (min(n_work, processors(device)),),
        n_work, n_tiles, T, S, offset, scale * LOG2E.value,
        H=H, GROUP=H // G, PACK=pack, D=D, BN=keys.size, KIND=kind, P1=p1, P2=p2, STAGES=keys.stages,
        GATED=is_gated, num_warps=4,
    )  # fmt: skip
    return launch, (1, ROWS // 2 // pack, pack, D), (1, keys.size, 1, D)


@operator(
    "nsa::hopper_attention_backward",
    schema="(Tensor do, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, int kind, int p1, int p2, float scale, "
    "int offset) -> (Tensor, Tensor, Tensor)",
)
def _backward_op(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor,
    kind: int, p1: int, p2: int, scale: float, offset: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    if k.shape[1] == 0 or o.numel() == 0:
        return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    return run_backward(do, q, k, v, o, lse, kind=kind, sizes=(p1, p2), scale=scale, offset=offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """The gates [B, T, H, 3] of a sum whose gradient arrives, their least, where their own go, and which branch."""

    gate: Tensor
    least: Tensor
    dgate: Tensor
    branch: int


def run_backward(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor,
    *, kind: int, sizes: tuple[int, int], scale: float, offset: int,
    gates: Gates | None = None, add_to: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of one branch; none of the tensors is empty.

    Args:
        do: the gradient of o, or with ``gates`` of the gated sum.
        q: as in the forward, as are k and v.
        k: see q.
        v: see q.
        o: what the forward gave.
        lse: likewise.
        kind: as in ``attend``, as are sizes, scale and offset.
        sizes: see kind.
        scale: see kind.
        offset: see kind.
        gates: of the gated sum, whose gradient for this branch is then written, too.
        add_to: the gradient of q that other branches left; this branch's is added in its place.

    Returns:
        dq, dk and dv.
    """
    dq = q.new_empty(q.shape) if add_to is None else add_to
    dk, dv = k.new_empty(k.shape), v.new_empty(v.shape)
    q, do = _for_copies(q), _for_copies(do)
    k, v = quarantined(k, v, is_marked=False)
    _, keys, rows = streams(width=q.shape[3], kind=kind)
    gate, dgate, branch = (lse, lse, -1) if gates is None else (gates.gate, gates.dgate, gates.branch)
    how, where = (kind, *sizes, scale, offset, branch, add_to is not None), places(q, lse, gate)
    by_rows = _dq(q.shape, k.shape, keys, how, where)
    starts = q.new_empty(2 if gates is None else 3, by_rows.n_starts, dtype=torch.float32).unbind()
    box = by_rows.rows
    by_rows.launch(
        _boxes(q, box), _boxes(do, box), _boxes(o, box), _boxes(k, by_rows.keys), _boxes(v, by_rows.keys),
        _boxes(dq, box), lse, starts[0], starts[1], gate, dgate, starts[-1],
    )  # fmt: skip
    by_keys = _dkdv(q.shape, k.shape, rows, how, where)
    dk_part, dv_part = dk, dv
    if by_keys.parts > 1:
        dk_part, dv_part = k.new_empty(2, by_keys.parts, *k.shape, dtype=torch.float32).unbind()
    box = by_keys.rows
    by_keys.launch(
        _boxes(q, box), _boxes(do, box), _boxes(k, by_keys.keys), _boxes(v, by_keys.keys), dk_part, dv_part,
        starts[0], starts[1], starts[-1], lse if gates is None else gates.least,
    )  # fmt: skip
    if by_keys.parts > 1:
        sum_parts(dk_part, dv_part, dk, dv)
    return dq, dk, dv


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pass:
    """A launch of the backward, its boxes of rows and of keys, and what it is cut into."""

    launch: Prepared
    rows: Box
    keys: Box
    n_starts: int = 0
    parts: int = 1


@kept
def _dq(q: Size, k: Size, keys: Stream, how: tuple[int, int, int, float, int, int, bool], _: object) -> _Pass:
    """The pass over rows; ``n_starts`` numbers of each kind does it leave for the other one."""
    (B, T, H, D), (S, G), (kind, p1, p2, scale, offset, branch, adds) = q, k[1:3], how
    pack = heads_of_tile(H // G)
    n_tiles = cdiv(T * pack, ROWS)
    launch = Prepared(
        triton_backward.dq_kernel, (n_tiles * B * (H // pack),), n_tiles, T, S, offset, scale,
        H=H, GROUP=H // G, PACK=pack, D=D, BN=keys.size, KIND=kind, P1=p1, P2=p2, STAGES=keys.stages, BRANCH=branch,
        ADDS=adds, num_warps=4,
    )  # fmt: skip
    rows, n_starts = (1, ROWS // 2 // pack, pack, D), B * (H // pack) * n_tiles * ROWS
    return _Pass(launch=launch, rows=rows, keys=(1, keys.size, 1, D), n_starts=n_starts)


@kept
def _dkdv(q: Size, k: Size, rows: Stream, how: tuple[int, int, int, float, int, int, bool], _: object) -> _Pass:
    """The pass over keys."""
    (B, T, H, D), (S, G), (kind, p1, p2, scale, offset, branch, _) = q, k[1:3], how
    pack, n_tiles = heads_of_tile(H // G), cdiv(S, ROWS)
    parts = n_parts(n_programs=n_tiles * B * G, n_steps=cdiv(T * (H // G), rows.size))
    launch = Prepared(
        triton_backward.dkdv_kernel, (n_tiles * B * G, parts),
        B * G, T, S, offset, scale, cdiv(T * pack, ROWS) * ROWS, k.numel(),
        G=G, GROUP=H // G, PACK=pack, D=D, BR=rows.size, KIND=kind, P1=p1, P2=p2, STAGES=rows.stages,
        GATED=branch >= 0, num_warps=4,
    )  # fmt: skip
    return _Pass(launch=launch, rows=(1, rows.size // pack, pack, D), keys=(1, ROWS // 2, 1, D), parts=parts)


def n_parts(*, n_programs: int, n_steps: int) -> int:
    """Into how many runs the steps of the pass over keys are cut, so that ``PROGRAMS`` work; by shapes alone."""
    return max(1, min(cdiv(PROGRAMS, n_programs), MOST_PARTS, n_steps // 4))


def quarantined(k: Tensor, v: Tensor, *, is_marked: bool) -> tuple[Tensor, Tensor]:
    """Contiguous keys and values, zero where either is not finite; such a key is a row of NaN if ``is_marked``."""
    k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (k, v))
    k_out, v_out = k.new_empty(k.shape), v.new_empty(v.shape)
    _quarantine(k.shape, k.stride(), v.stride(), is_marked, places(k, v))(k, v, k_out, v_out)
    return k_out, v_out


@kept
def _quarantine(
    k: Size,
    k_stride: tuple[int, ...],
    v_stride: tuple[int, ...],
    is_marked: bool,  # noqa: FBT001
    _: object,
) -> Prepared:
    B, S, G, D = k
    n_rows = B * S * G
    return Prepared(
        triton_quarantine.quarantine_kernel, (cdiv(n_rows, 32),), n_rows, S, *k_stride[:3], *v_stride[:3],
        D=D, G=G, BM=32, IS_MARKED=is_marked, num_warps=4,
    )  # fmt: skip


@_forward_op.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, kind: int, p1: int, p2: int, scale: float, offset: int) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), q.new_empty(q.shape[:3], dtype=torch.float32)


@_backward_op.register_fake
def _(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor,
    kind: int, p1: int, p2: int, scale: float, offset: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _save(ctx: FunctionCtx, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
    q, k, v, *rest = inputs
    ctx.save_for_backward(q, k, v, *output)
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)  # a fill with zeros for lse, which has no gradient
    ctx.rest = rest  # the context takes any attribute


def _differentiate(ctx: FunctionCtx, do: Tensor, _: None) -> tuple[Tensor | None, ...]:
    kept, rest = ctx.saved_tensors, ctx.rest
    return *_backward_op(do, *kept, *rest), *(None,) * 5


_forward_op.register_autograd(_differentiate, setup_context=_save)
_attention = torch.ops.nsa.hopper_attention.default
"""Said whole: torch looks for the overload of a name at every call."""
