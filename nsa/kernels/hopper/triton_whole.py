"""The three branches and their gated sum (Eq. 5) as one torch operator, forward and backward.

Forward: the compressed branch, whose lse ranks the blocks; the selected branch; then the window, whose kernel adds all
three in its last store. Backward: the sum's gradient goes to every branch as it is; the gates multiply weights and dq
within the kernels (see ``dq_kernel``), their gradients are the deltas that a backward needs anyhow, and dq is added up
in one place, in the order cmp, win, slc. So no gradient of a branch's output is ever written, there is one gradient of
q instead of three and their two sums, and no rounding in between.

What the branches' own operators compute apart is the twin that this one is tested against. Bits repeat.

Shapes: B batch, T queries and keys, H query heads, G key/value heads, D both head widths, C compressed keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from nsa.kernels.hopper.triton import BLOCKS, HALF_TYPES, WINDOW, Gates, Sum, run_backward, run_forward
from nsa.kernels.hopper.triton_boxes import for_copies
from nsa.kernels.operators import operator
from nsa.kernels.scores.triton import select_op
from nsa.kernels.scores.triton_hopper import select_op as select_by_tma
from nsa.kernels.selected import triton as selected
from nsa.kernels.selected import triton_hopper as selected_hopper

if TYPE_CHECKING:
    from torch import Tensor
    from torch.autograd.function import FunctionCtx

_KEYS = "Tensor q, Tensor kc, Tensor vc, Tensor ks, Tensor vs, Tensor kw, Tensor vw, Tensor gate"
_KEPT = (
    "Tensor o_cmp, Tensor lse_cmp, Tensor o_slc, Tensor lse_slc, Tensor o_win, Tensor lse_win, Tensor index, Tensor csr"
)


@operator(
    "nsa::hopper_whole",
    schema=f"({_KEYS}, int l, int d, int l_slc, int n, int w, float scale, bool tma_scores, bool tma_slc) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def _forward_op(
    q: Tensor, kc: Tensor, vc: Tensor, ks: Tensor, vs: Tensor, kw: Tensor, vw: Tensor, gate: Tensor,
    l: int, d: int, l_slc: int, n: int, w: int, scale: float,  # noqa: E741 - the paper's letter
    tma_scores: bool, tma_slc: bool,  # noqa: FBT001 - an operator's schema is positional
) -> tuple[Tensor, ...]:  # fmt: skip
    """The gated sum, then what the backward needs: o and lse of cmp, slc and win, the blocks, their inverse or none."""
    _check(q, kc, vc, ks, vs, kw, vw, gate)
    lse_like = q.shape[:3]
    o_cmp, lse_cmp = q.new_empty(q.shape), q.new_empty(lse_like, dtype=torch.float32)
    q = for_copies(q)
    if kc.shape[1]:
        run_forward(q, kc, vc, o_cmp, lse_cmp, kind=BLOCKS, sizes=(l, d), scale=scale, offset=0)
    else:
        o_cmp.zero_()
        lse_cmp.fill_(-torch.inf)
    if tma_scores:
        index = select_by_tma.within(q, kc, lse_cmp, l, d, l_slc, n, scale, 0)
    else:
        index = select_op.within(q, kc, lse_cmp, l, d, l_slc, n, scale, 0, None)
    csr = index.new_empty(0)
    if tma_slc:
        o_slc, lse_slc = q.new_empty(q.shape), q.new_empty(lse_like, dtype=torch.float32)
        selected_hopper.run_forward(
            q, ks, vs, index, o_slc, lse_slc, l_slc=l_slc, scale=scale, offset=0, has_forced=True
        )
    else:
        o_slc, lse_slc, csr = selected.forward_op.within(q, ks, vs, index, l_slc, scale, 0, None, None)
    o_win, lse_win, out = q.new_empty(q.shape), q.new_empty(lse_like, dtype=torch.float32), q.new_empty(q.shape)
    added = Sum(o_cmp=o_cmp, o_slc=o_slc, gate=gate.contiguous(), out=out)
    run_forward(q, kw, vw, o_win, lse_win, kind=WINDOW, sizes=(w, 0), scale=scale, offset=0, added=added)
    return out, o_cmp, lse_cmp, o_slc, lse_slc, o_win, lse_win, index, csr


@operator(
    "nsa::hopper_whole_backward",
    schema=f"(Tensor do, {_KEYS}, {_KEPT}, int l, int d, int l_slc, int w, float scale, bool tma_slc) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def _backward_op(
    do: Tensor, q: Tensor, kc: Tensor, vc: Tensor, ks: Tensor, vs: Tensor, kw: Tensor, vw: Tensor, gate: Tensor,
    o_cmp: Tensor, lse_cmp: Tensor, o_slc: Tensor, lse_slc: Tensor, o_win: Tensor, lse_win: Tensor, index: Tensor,
    csr: Tensor,
    l: int, d: int, l_slc: int, w: int, scale: float, tma_slc: bool,  # noqa: E741, FBT001
) -> tuple[Tensor, ...]:  # fmt: skip
    """The gradients of the first eight inputs."""
    q, do, gate = for_copies(q.contiguous()), for_copies(do.contiguous()), gate.contiguous()
    dgate, least = torch.empty_like(gate), gate.amin()
    dq = None
    if kc.shape[1]:
        of_cmp = Gates(gate=gate, least=least, dgate=dgate, branch=0)
        where = {"kind": BLOCKS, "sizes": (l, d), "scale": scale, "offset": 0, "gates": of_cmp}
        dq, dkc, dvc = run_backward(do, q, kc, vc, o_cmp, lse_cmp, **where)
    else:
        dgate[..., 0] = 0.0
        dkc, dvc = torch.zeros_like(kc), torch.zeros_like(vc)
    of_win = Gates(gate=gate, least=least, dgate=dgate, branch=2)
    where = {"kind": WINDOW, "sizes": (w, 0), "scale": scale, "offset": 0, "gates": of_win, "add_to": dq}
    dq, dkw, dvw = run_backward(do, q, kw, vw, o_win, lse_win, **where)
    more = {"gates": (gate, dgate, least), "add_to": dq}
    if tma_slc:
        where = {"l_slc": l_slc, "scale": scale, "offset": 0, **more}
        dq, dks, dvs = selected_hopper.run_backward(do, None, q, ks, vs, index, o_slc, lse_slc, **where)
    else:
        given = (o_slc, lse_slc, csr, do, None, index, l_slc, scale, 0, None)
        dq, dks, dvs = selected.gradients(q, ks, vs, *given, **more)
    return dq, dkc, dvc, dks, dvs, dkw, dvw, dgate


def _check(q: Tensor, *others: Tensor) -> None:
    """Raise ValueError where shapes or types do not belong together."""
    (B, T, H, D), (*pairs, gate) = q.shape, others
    G = pairs[0].shape[2]
    lengths = (pairs[0].shape[1],) * 2 + (T,) * 4
    if any(x.shape != (B, S, G, D) for x, S in zip(pairs, lengths, strict=True)) or gate.shape != (B, T, H, 3):
        raise ValueError(f"q {tuple(q.shape)} and {', '.join(str(tuple(x.shape)) for x in others)} do not fit together")
    if q.dtype not in HALF_TYPES or any(x.dtype != q.dtype for x in pairs):
        raise ValueError(f"q, keys and values must be of one type, bf16 or fp16, got {q.dtype} and others")


@_forward_op.register_fake
def _(
    q: Tensor, kc: Tensor, vc: Tensor, ks: Tensor, vs: Tensor, kw: Tensor, vw: Tensor, gate: Tensor,
    l: int, d: int, l_slc: int, n: int, w: int, scale: float, tma_scores: bool, tma_slc: bool,  # noqa: E741, FBT001
) -> tuple[Tensor, ...]:  # fmt: skip
    o_slc, lse_slc, csr = q.new_empty(q.shape), q.new_empty(q.shape[:3], dtype=torch.float32), None
    index = q.new_empty(*q.shape[:2], ks.shape[2], n, dtype=torch.int32)
    if tma_slc:
        csr = index.new_empty(0)
    else:
        o_slc, lse_slc, csr = selected.forward_op(q, ks, vs, index, l_slc, scale, 0, None, None)
    one = [(q.new_empty(q.shape), q.new_empty(q.shape[:3], dtype=torch.float32)) for _ in range(2)]
    return q.new_empty(q.shape), *one[0], o_slc, lse_slc, *one[1], index, csr


@_backward_op.register_fake
def _(
    do: Tensor, q: Tensor, kc: Tensor, vc: Tensor, ks: Tensor, vs: Tensor, kw: Tensor, vw: Tensor, gate: Tensor,
    *_: object,
) -> tuple[Tensor, ...]:  # fmt: skip
    return tuple(x.new_empty(x.shape) for x in (q, kc, vc, ks, vs, kw, vw, gate))


def _save(ctx: FunctionCtx, inputs: tuple, output: tuple[Tensor, ...]) -> None:
    *tensors, l, d, l_slc, _, w, scale, _, tma_slc = inputs  # noqa: E741 - the paper's letter
    ctx.save_for_backward(*tensors, *output[1:])
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)  # no fill with zeros for what has no gradient
    ctx.rest = (l, d, l_slc, w, scale, tma_slc)


def _differentiate(ctx: FunctionCtx, do: Tensor, *_: None) -> tuple[Tensor | None, ...]:
    kept, rest = ctx.saved_tensors, ctx.rest
    return *_backward_op(do, *kept, *rest), *(None,) * 8


_forward_op.register_autograd(_differentiate, setup_context=_save)
attention = torch.ops.nsa.hopper_whole.default
"""Said whole: torch looks for the overload of a name at every call."""
