# ruff: noqa: ANN001, ANN201, ANN202 - a kernel's arguments are pointers and numbers whose types the launch decides
"""The gated sum in Triton: one pass forward, one pass backward, no product of a gate and a branch in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl

from nsa.kernels.operators import operator
from nsa.kernels.prepared import Prepared, kept, places
from nsa.kernels.sizes import cdiv, pow2

if TYPE_CHECKING:
    from torch import Tensor

ROWS = 16  # (token, head) rows per program


@triton.jit
def combine_kernel(
    cmp_ptr, slc_ptr, win_ptr, gate_ptr, o_ptr, n_rows, E: tl.constexpr, BE: tl.constexpr, BM: tl.constexpr
):
    """O = g_cmp o_cmp + g_slc o_slc + g_win o_win (Eq. 5), summed in fp32."""
    row = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    e = tl.arange(0, BE)
    live = row < n_rows
    mask = live[:, None] & (e < E)[None, :]
    at = row[:, None] * E + e[None, :]
    g_cmp = tl.load(gate_ptr + row * 3, mask=live, other=0.0).to(tl.float32)[:, None]
    g_slc = tl.load(gate_ptr + row * 3 + 1, mask=live, other=0.0).to(tl.float32)[:, None]
    g_win = tl.load(gate_ptr + row * 3 + 2, mask=live, other=0.0).to(tl.float32)[:, None]
    o = g_cmp * tl.load(cmp_ptr + at, mask=mask, other=0.0).to(tl.float32)
    o += g_slc * tl.load(slc_ptr + at, mask=mask, other=0.0).to(tl.float32)
    o += g_win * tl.load(win_ptr + at, mask=mask, other=0.0).to(tl.float32)
    tl.store(o_ptr + at, o.to(o_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _branch_backward(o_ptrs, do_ptrs, gate_ptrs, dgate_ptrs, do, mask, live):
    g = tl.load(gate_ptrs, mask=live, other=0.0).to(tl.float32)[:, None]
    o = tl.load(o_ptrs, mask=mask, other=0.0).to(tl.float32)
    tl.store(do_ptrs, (g * do).to(do_ptrs.dtype.element_ty), mask=mask)
    tl.store(dgate_ptrs, tl.sum(o * do, 1).to(dgate_ptrs.dtype.element_ty), mask=live)


@triton.jit
def combine_backward_kernel(
    cmp_ptr, slc_ptr, win_ptr, gate_ptr, do_ptr, dcmp_ptr, dslc_ptr, dwin_ptr, dgate_ptr, n_rows,
    E: tl.constexpr, BE: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """do_c = g_c do and dg_c = do . o_c for the three branches."""
    row = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    e = tl.arange(0, BE)
    live = row < n_rows
    mask = live[:, None] & (e < E)[None, :]
    at = row[:, None] * E + e[None, :]
    do = tl.load(do_ptr + at, mask=mask, other=0.0).to(tl.float32)
    _branch_backward(cmp_ptr + at, dcmp_ptr + at, gate_ptr + row * 3, dgate_ptr + row * 3, do, mask, live)
    _branch_backward(slc_ptr + at, dslc_ptr + at, gate_ptr + row * 3 + 1, dgate_ptr + row * 3 + 1, do, mask, live)
    _branch_backward(win_ptr + at, dwin_ptr + at, gate_ptr + row * 3 + 2, dgate_ptr + row * 3 + 2, do, mask, live)


@operator("nsa::combine_triton", schema="(Tensor cmp, Tensor slc, Tensor win, Tensor gate) -> Tensor")
def _combine_op(cmp: Tensor, slc: Tensor, win: Tensor, gate: Tensor) -> Tensor:
    cmp, slc, win, gate = (x.contiguous() for x in (cmp, slc, win, gate))
    o = torch.empty_like(cmp)
    n_rows, width = cmp.numel() // max(1, cmp.shape[-1]), cmp.shape[-1]
    if n_rows:
        _launch(combine_kernel, n_rows, width, places(cmp, slc, win, gate))(cmp, slc, win, gate, o)
    return o


@operator(
    "nsa::combine_triton_backward",
    schema="(Tensor cmp, Tensor slc, Tensor win, Tensor gate, Tensor do) -> (Tensor, Tensor, Tensor, Tensor)",
)
def _combine_backward_op(
    cmp: Tensor, slc: Tensor, win: Tensor, gate: Tensor, do: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    cmp, slc, win, gate, do = (x.contiguous() for x in (cmp, slc, win, gate, do))
    dcmp, dslc, dwin, dgate = (torch.empty_like(x) for x in (cmp, slc, win, gate))
    n_rows, width = cmp.numel() // max(1, cmp.shape[-1]), cmp.shape[-1]
    if n_rows:
        launch = _launch(combine_backward_kernel, n_rows, width, places(cmp, slc, win, gate, do))
        launch(cmp, slc, win, gate, do, dcmp, dslc, dwin, dgate)
    return dcmp, dslc, dwin, dgate


@kept
def _launch(kernel: Any, n_rows: int, width: int, _: object) -> Prepared:
    return Prepared(kernel, (cdiv(n_rows, ROWS),), n_rows, E=width, BE=pow2(width), BM=ROWS, num_warps=4)


@_combine_op.register_fake
def _(cmp: Tensor, slc: Tensor, win: Tensor, gate: Tensor) -> Tensor:
    return cmp.new_empty(cmp.shape)


@_combine_backward_op.register_fake
def _(cmp: Tensor, slc: Tensor, win: Tensor, gate: Tensor, do: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return tuple(x.new_empty(x.shape) for x in (cmp, slc, win, gate))  # type: ignore[return-value]


def _save(ctx: torch.autograd.function.FunctionCtx, inputs: tuple, output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: torch.autograd.function.FunctionCtx, do: Tensor) -> tuple:
    return _combine_backward_op(*ctx.saved_tensors, do)


_combine_op.register_autograd(_backward, setup_context=_save)


def combine(cmp_BTHE: Tensor, slc_BTHE: Tensor, win_BTHE: Tensor, gate_BTHC: Tensor) -> Tensor:
    """Contract: ``nsa.kernels.combine.op.CombineBranches``; sums in fp32, also where the inputs are bf16."""
    return _combine_op(cmp_BTHE, slc_BTHE, win_BTHE, gate_BTHC)
