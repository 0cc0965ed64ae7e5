# ruff: noqa: ANN001, ANN201 - a kernel's arguments are pointers and numbers whose types the launch decides
"""RMSNorm in Triton: a sum and its norm in one pass, and their gradients in another.

A program takes a run of rows, a few at a time, and keeps the sum of the weight's gradient over its run in registers;
the runs' sums are added in their order by a launch of their own, so bits repeat.
"""

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

NUMBERS = 4096
"""Of all rows that a program has in its registers at a time; one row may have more."""
RUNS = 1056
"""Runs of rows that the backward is cut into at most: eight for each processor of an H100 or H200."""
COLUMNS = 32
"""Of the weight's gradient that one program sums over the runs."""


@triton.jit
def norm_kernel(
    x_ptr, y_ptr, weight_ptr, total_ptr, out_ptr, n_rows, eps, X: tl.constexpr, BX: tl.constexpr, BM: tl.constexpr,
    ADDS: tl.constexpr,
):  # fmt: skip
    """BM rows: the sum, where there is one, as it is rounded, and its norm."""
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    i = tl.arange(0, BX)
    mask = (row < n_rows)[:, None] & (i < X)[None, :]
    at = row.to(tl.int64)[:, None] * X + i[None, :]
    x = tl.load(x_ptr + at, mask=mask, other=0.0)
    if ADDS:
        x = (x.to(tl.float32) + tl.load(y_ptr + at, mask=mask, other=0.0).to(tl.float32)).to(x.dtype)
        tl.store(total_ptr + at, x, mask=mask)
    x = x.to(tl.float32)
    weight = tl.load(weight_ptr + i, mask=i < X, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, 1) / X + eps)
    tl.store(out_ptr + at, (x * scale[:, None] * weight[None, :]).to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def norm_backward_kernel(
    dy_ptr, dtotal_ptr, x_ptr, weight_ptr, dx_ptr, dweight_part_ptr, n_rows, run, eps,
    X: tl.constexpr, BX: tl.constexpr, BM: tl.constexpr, ADDS: tl.constexpr,
):  # fmt: skip
    """A run of rows: the gradient of what was normed, onto that which arrived beside it with ADDS; and the weight's."""
    i = tl.arange(0, BX)
    weight = tl.load(weight_ptr + i, mask=i < X, other=0.0).to(tl.float32)
    dweight = tl.zeros([BX], tl.float32)
    begin = tl.program_id(0) * run
    end = tl.minimum(begin + run, n_rows)
    for first in range(begin, end, BM):
        row = first + tl.arange(0, BM)
        mask = (row < end)[:, None] & (i < X)[None, :]
        at = row.to(tl.int64)[:, None] * X + i[None, :]
        x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + at, mask=mask, other=0.0).to(tl.float32)
        scale = tl.rsqrt(tl.sum(x * x, 1) / X + eps)[:, None]
        normed = x * scale
        dweight += tl.sum(dy * normed, 0)
        dy *= weight[None, :]
        dx = (dy - normed * (tl.sum(dy * normed, 1) / X)[:, None]) * scale
        if ADDS:
            dx += tl.load(dtotal_ptr + at, mask=mask, other=0.0).to(tl.float32)
        tl.store(dx_ptr + at, dx.to(dx_ptr.dtype.element_ty), mask=mask)
    tl.store(dweight_part_ptr + tl.program_id(0).to(tl.int64) * X + i, dweight, mask=i < X)


@triton.jit
def sum_runs_kernel(part_ptr, out_ptr, n_runs, X: tl.constexpr, BX: tl.constexpr, BM: tl.constexpr):
    """BX columns, summed over the runs: BM of them side by side, then these."""
    i = tl.program_id(0) * BX + tl.arange(0, BX)
    total = tl.zeros([BM, BX], tl.float32)
    for first in range(0, n_runs, BM):
        run = first + tl.arange(0, BM)
        mask = (run < n_runs)[:, None] & (i < X)[None, :]
        total += tl.load(part_ptr + run.to(tl.int64)[:, None] * X + i[None, :], mask=mask, other=0.0)
    tl.store(out_ptr + i, tl.sum(total, 0).to(out_ptr.dtype.element_ty), mask=i < X)


@kept
def _forward(n_rows: int, width: int, eps: float, adds: bool, _: object) -> Prepared:  # noqa: FBT001
    rows = _rows(width)
    return Prepared(
        norm_kernel, (cdiv(n_rows, rows),), n_rows, eps, X=width, BX=pow2(width), BM=rows, ADDS=adds, num_warps=4
    )


@kept
def _backward_launches(
    n_rows: int,
    width: int,
    eps: float,
    adds: bool,  # noqa: FBT001
    _: object,
) -> tuple[Prepared, Prepared, int]:
    """The pass over rows, the sum over its runs, and how many there are."""
    rows = _rows(width)
    run = cdiv(cdiv(n_rows, RUNS), rows) * rows
    runs = cdiv(n_rows, run)
    sizes = {"X": width, "BX": pow2(width)}
    rows_pass = Prepared(
        norm_backward_kernel, (runs,), n_rows, run, eps, **sizes, BM=rows, ADDS=adds, num_warps=4
    )  # fmt: skip
    sums = Prepared(sum_runs_kernel, (cdiv(width, COLUMNS),), runs, X=width, BX=COLUMNS, BM=64, num_warps=4)
    return rows_pass, sums, runs


def _rows(width: int) -> int:
    return max(1, NUMBERS // pow2(width))


@operator("nsa::norm", schema="(Tensor x, Tensor weight, float eps) -> Tensor")
def _norm_op(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    x, weight = x.contiguous(), weight.contiguous()
    out, width = x.new_empty(x.shape), weight.numel()
    _forward(x.numel() // width, width, eps, False, places(x, weight))(x, x, weight, out, out)  # noqa: FBT003
    return out


@operator("nsa::add_norm", schema="(Tensor x, Tensor y, Tensor weight, float eps) -> (Tensor, Tensor)")
def _add_norm_op(x: Tensor, y: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    x, y, weight = x.contiguous(), y.contiguous(), weight.contiguous()
    total, out, width = x.new_empty(x.shape), x.new_empty(x.shape), weight.numel()
    launch = _forward(x.numel() // width, width, eps, True, places(x, y, weight))  # noqa: FBT003
    launch(x, y, weight, total, out)
    return total, out


@operator(
    "nsa::norm_backward",
    schema="(Tensor dy, Tensor? dtotal, Tensor x, Tensor weight, float eps) -> (Tensor, Tensor)",
)
def _backward_op(dy: Tensor, dtotal: Tensor | None, x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The gradients of what was normed, with what arrived for it elsewhere, and of the weight."""
    dy, x, weight = dy.contiguous(), x.contiguous(), weight.contiguous()
    beside = dy if dtotal is None else dtotal.contiguous()
    width = weight.numel()
    dx, dweight = x.new_empty(x.shape), weight.new_empty(weight.shape)
    where = places(dy, beside, x, weight)
    rows, sums, runs = _backward_launches(x.numel() // width, width, eps, dtotal is not None, where)
    part = x.new_empty(runs, width, dtype=torch.float32)
    rows(dy, beside, x, weight, dx, part)
    sums(part, dweight)
    return dx, dweight


@_norm_op.register_fake
def _(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x.new_empty(x.shape)


@_add_norm_op.register_fake
def _(x: Tensor, y: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.shape)


@_backward_op.register_fake
def _(dy: Tensor, dtotal: Tensor | None, x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), weight.new_empty(weight.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, ctx.eps = inputs
    ctx.save_for_backward(x, weight)


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    return *_backward_op(dy, None, *ctx.saved_tensors, ctx.eps), None


def _save_sum(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, _, weight, ctx.eps = inputs
    ctx.save_for_backward(output[0], weight)
    ctx.set_materialize_grads(False)  # no fill with zeros where only one of the results is used


def _sum_backward(ctx: Any, dtotal: Tensor | None, dy: Tensor | None) -> tuple[Tensor | None, ...]:
    if dy is None:
        return dtotal, dtotal, None, None
    dx, dweight = _backward_op(dy, dtotal, *ctx.saved_tensors, ctx.eps)
    return dx, dx, dweight, None


_norm_op.register_autograd(_backward, setup_context=_save)
_add_norm_op.register_autograd(_sum_backward, setup_context=_save_sum)


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Contract: ``nsa.kernels.norm.op.norm``; bf16, fp16 or fp32, and the weight in x's type."""
    return _norm_op(x, weight, eps)


def add_norm(x: Tensor, y: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Contract: ``nsa.kernels.norm.op.add_norm``; bf16, fp16 or fp32, all of one type."""
    return _add_norm_op(x, y, weight, eps)
