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
from typing import TYPE_CHECKING

import torch

from nsa.kernels.devices import is_hopper
from nsa.kernels.hopper import triton_backward, triton_forward, triton_quarantine
from nsa.kernels.hopper.triton_boxes import boxes as _boxes
from nsa.kernels.hopper.triton_boxes import for_copies as _for_copies
from nsa.kernels.hopper.triton_names import BLOCKS as _BLOCKS
from nsa.kernels.hopper.triton_names import LOG2E
from nsa.kernels.hopper.triton_names import WINDOW as _WINDOW
from nsa.kernels.operators import operator
from nsa.kernels.sizes import cdiv
from nsa.kernels.tiled.triton_kernels import sum_parts_kernel

if TYPE_CHECKING:
    from torch import Tensor
    from torch.autograd.function import FunctionCtx

    from nsa.kernels.registry import Site

WINDOW, BLOCKS = _WINDOW.value, _BLOCKS.value
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

    At width 128 the fastest of what prototypes of these kernels were timed with on an H200 at 32,768 tokens.
    """
    narrow = 128 // width
    keys = Stream(size=64, stages=4) if kind == WINDOW else Stream(size=128, stages=2 * narrow)
    return keys, Stream(size=64, stages=2 * narrow), Stream(size=64, stages=2 * narrow)


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
    B, T, H, D = q.shape
    S, G = k.shape[1:3]
    q = _for_copies(q)
    k, v = quarantined(k, v, is_marked=True)
    keys, pack = streams(width=D, kind=kind)[0], heads_of_tile(H // G)
    rows = (1, ROWS // 2 // pack, pack, D)
    n_tiles = cdiv(T * pack, ROWS)
    out = _boxes(o, rows)
    given = (out, out, out, lse)
    if added is not None:
        given = (_boxes(added.o_cmp, rows), _boxes(added.o_slc, rows), _boxes(added.out, rows), added.gate)
    triton_forward.forward_kernel[(n_tiles * B * (H // pack),)](
        _boxes(q, rows), _boxes(k, (1, keys.size, 1, D)), _boxes(v, (1, keys.size, 1, D)), out, lse, *given,
        n_tiles, T, S, offset, scale * LOG2E.value,
        H=H, GROUP=H // G, PACK=pack, D=D, BN=keys.size, KIND=kind, P1=sizes[0], P2=sizes[1], STAGES=keys.stages,
        GATED=added is not None, num_warps=4,
    )  # fmt: skip


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
    B, T, H, D = q.shape
    S, G = k.shape[1:3]
    dq = q.new_empty(q.shape) if add_to is None else add_to
    dk, dv = k.new_empty(k.shape), v.new_empty(v.shape)
    q, do = _for_copies(q), _for_copies(do)
    k, v = quarantined(k, v, is_marked=False)
    _, keys, rows = streams(width=D, kind=kind)
    pack = heads_of_tile(H // G)
    same = {"GROUP": H // G, "PACK": pack, "D": D, "KIND": kind, "P1": sizes[0], "P2": sizes[1], "num_warps": 4}
    box, keys_box = (1, ROWS // 2 // pack, pack, D), (1, keys.size, 1, D)
    n_tiles = cdiv(T * pack, ROWS)
    n_starts = 2 if gates is None else 3
    starts = q.new_empty(n_starts, B * (H // pack) * n_tiles * ROWS, dtype=torch.float32)
    gate, dgate, branch = (lse, lse, -1) if gates is None else (gates.gate, gates.dgate, gates.branch)
    triton_backward.dq_kernel[(n_tiles * B * (H // pack),)](
        _boxes(q, box), _boxes(do, box), _boxes(o, box), _boxes(k, keys_box), _boxes(v, keys_box), _boxes(dq, box),
        lse, starts[0], starts[1], gate, dgate, starts[-1], n_tiles, T, S, offset, scale,
        **same, H=H, BN=keys.size, STAGES=keys.stages, BRANCH=branch, ADDS=add_to is not None,
    )  # fmt: skip
    n_rows, n_tiles = n_tiles * ROWS, cdiv(S, ROWS)
    parts = n_parts(n_programs=n_tiles * B * G, n_steps=cdiv(T * (H // G), rows.size))
    dk_part, dv_part = (dk, dv) if parts == 1 else (x.new_empty(parts, *x.shape, dtype=torch.float32) for x in (k, v))
    box, keys_box = (1, rows.size // pack, pack, D), (1, ROWS // 2, 1, D)
    triton_backward.dkdv_kernel[(n_tiles * B * G, parts)](
        _boxes(q, box), _boxes(do, box), _boxes(k, keys_box), _boxes(v, keys_box), dk_part, dv_part,
        starts[0], starts[1], starts[-1], lse if gates is None else gates.least, B * G, T, S, offset, scale,
        n_rows, k.numel(),
        **same, G=G, BR=rows.size, STAGES=rows.stages, GATED=gates is not None,
    )  # fmt: skip
    if parts > 1:
        for part, total in ((dk_part, dk), (dv_part, dv)):
            n = total.numel()
            sum_parts_kernel[(cdiv(n, 1024),)](part, total, n, PARTS=parts, BLOCK=1024, num_warps=4)
    return dq, dk, dv


def n_parts(*, n_programs: int, n_steps: int) -> int:
    """Into how many runs the steps of the pass over keys are cut, so that ``PROGRAMS`` work; by shapes alone."""
    return max(1, min(cdiv(PROGRAMS, n_programs), MOST_PARTS, n_steps // 4))


def quarantined(k: Tensor, v: Tensor, *, is_marked: bool) -> tuple[Tensor, Tensor]:
    """Contiguous keys and values, zero where either is not finite; such a key is a row of NaN if ``is_marked``."""
    B, S, G, D = k.shape
    k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (k, v))
    k_out, v_out = k.new_empty(k.shape), v.new_empty(v.shape)
    n_rows = B * S * G
    triton_quarantine.quarantine_kernel[(cdiv(n_rows, 32),)](
        k, v, k_out, v_out, n_rows, S, *k.stride()[:3], *v.stride()[:3],
        D=D, G=G, BM=32, IS_MARKED=is_marked, num_warps=4,
    )  # fmt: skip
    return k_out, v_out


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
    ctx.rest = rest  # pyright: ignore[reportAttributeAccessIssue]  # the context takes any attribute


def _differentiate(ctx: FunctionCtx, do: Tensor, _: None) -> tuple[Tensor | None, ...]:
    kept, rest = ctx.saved_tensors, ctx.rest  # pyright: ignore[reportAttributeAccessIssue]
    return *_backward_op(do, *kept, *rest), *(None,) * 5


_forward_op.register_autograd(_differentiate, setup_context=_save)
_attention = torch.ops.nsa.hopper_attention.default
"""Said whole: torch looks for the overload of a name at every call."""
