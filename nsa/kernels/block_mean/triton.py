# ruff: noqa: ANN001, ANN201 - a kernel's arguments are pointers and numbers whose types the launch decides
"""The means in Triton: one launch forward, one backward, both summed in fp32 (fp64 for fp64) in a fixed order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl

from nsa.kernels.prepared import Prepared, kept, places
from nsa.kernels.sizes import cdiv, pow2

if TYPE_CHECKING:
    from torch import Size, Tensor

ROWS = 32  # (batch, token, head) rows per program of the backward
ELEMENTS = 512  # that a program of the forward writes: 8 bytes a thread, 1.5 times as fast as 16


@triton.jit
def means_kernel(
    x_ptr, y_ptr, C, stride_b, stride_s, stride_g,
    G: tl.constexpr, D: tl.constexpr, BD: tl.constexpr, L: tl.constexpr, STRIDE: tl.constexpr, BC: tl.constexpr,
    REAL: tl.constexpr,
):  # fmt: skip
    """BC blocks of one head: y = sum of rows c STRIDE to c STRIDE + L - 1, divided by L, first row first.

    Unrolled, so that the rows are on their way together; a row that lies in two of the blocks is in the cache.
    """
    g, b = tl.program_id(1), tl.program_id(2).to(tl.int64)
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    e = tl.arange(0, BD)[None, :]
    mask = (c < C)[:, None] & (e < D)
    x_ptr += b * stride_b + g * stride_g + (c * STRIDE).to(tl.int64)[:, None] * stride_s + e
    total = tl.zeros([BC, BD], REAL)
    for i in tl.static_range(L):
        total += tl.load(x_ptr + i * stride_s, mask=mask, other=0.0).to(REAL)
    at = y_ptr + ((b * C + c)[:, None] * G + g) * D + e
    tl.store(at, (total / L).to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def spread_kernel(
    dy_ptr, dx_ptr, n_rows, S, C,
    G: tl.constexpr, D: tl.constexpr, BD: tl.constexpr, L: tl.constexpr, STRIDE: tl.constexpr, BM: tl.constexpr,
    REAL: tl.constexpr,
):  # fmt: skip
    """Rows of dx = sum of dy of the L / STRIDE blocks that a row lies in, where there are so many, divided by L."""
    row = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    e = tl.arange(0, BD)[None, :]
    g, s, b = row % G, row // G % S, row // G // S
    is_row = (row < n_rows)[:, None] & (e < D)
    dx = tl.zeros((BM, BD), REAL)
    for back in tl.static_range(0, L // STRIDE):
        c = s // STRIDE - back
        is_block = ((c >= 0) & (c < C))[:, None]
        at = dy_ptr + (((b * C + c) * G + g) * D)[:, None] + e
        dx += tl.load(at, mask=is_row & is_block, other=0.0).to(REAL)
    tl.store(dx_ptr + (row * D)[:, None] + e, (dx / L).to(dx_ptr.dtype.element_ty), mask=is_row)


def means(x_BSGD: Tensor, length: int, stride: int) -> Tensor:
    """Contract: ``nsa.kernels.block_mean.op.block_mean``; any strides of tokens and heads, without a copy."""
    x = x_BSGD if x_BSGD.stride(-1) == 1 else x_BSGD.contiguous()
    B, S, G, D = x.shape
    C = max(0, (S - length) // stride + 1)
    y = x.new_empty(B, C, G, D)
    if y.numel():
        _means(y.shape, x.stride(), length, stride, places(x))(x, y)
    return y


@kept
def _means(y: Size, x_stride: tuple[int, ...], length: int, stride: int, where: tuple[Any, ...]) -> Prepared:
    B, C, G, D = y
    many = max(1, ELEMENTS // pow2(D))
    return Prepared(
        means_kernel, (cdiv(C, many), G, B), C, *x_stride[:3],
        G=G, D=D, BD=pow2(D), L=length, STRIDE=stride, BC=many, REAL=_real(where), num_warps=4,
    )  # fmt: skip


def spread(dy_BCGD: Tensor, length: int, stride: int, n_tokens: int) -> Tensor:
    """Gradient of the rows: every row gets its share of every block that it lies in."""
    dy = dy_BCGD.contiguous()
    B, _, G, D = dy.shape
    dx = dy.new_empty(B, n_tokens, G, D)
    if dx.numel():
        _spread(dy.shape, n_tokens, length, stride, places(dy))(dy, dx)
    return dx


@kept
def _spread(dy: Size, n_tokens: int, length: int, stride: int, where: tuple[Any, ...]) -> Prepared:
    B, C, G, D = dy
    n_rows = B * n_tokens * G
    return Prepared(
        spread_kernel, (cdiv(n_rows, ROWS),), n_rows, n_tokens, C,
        G=G, D=D, BD=pow2(D), L=length, STRIDE=stride, BM=ROWS, REAL=_real(where), num_warps=4,
    )  # fmt: skip


def _real(where: tuple[Any, ...]) -> tl.dtype:
    """What sums are taken in, of the tensor whose ``places`` these are."""
    return tl.float64 if where[1][0] == torch.float64 else tl.float32
