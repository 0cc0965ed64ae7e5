# ruff: noqa: ANN001, ANN201 - a kernel's arguments are pointers and numbers whose types the launch decides
"""The means in Triton: one launch forward, one backward, both summed in fp32 (fp64 for fp64) in a fixed order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from nsa.kernels.sizes import cdiv, pow2

if TYPE_CHECKING:
    from torch import Tensor

ROWS = 32  # (batch, token, head) rows per program of the backward
ELEMENTS = 16384  # that a program of the forward reads


@triton.jit
def means_kernel(
    x_ptr, y_ptr, C, stride_b, stride_s, stride_g,
    G: tl.constexpr, D: tl.constexpr, BD: tl.constexpr, L: tl.constexpr, BL: tl.constexpr, STRIDE: tl.constexpr,
    BC: tl.constexpr, REAL: tl.constexpr,
):  # fmt: skip
    """BC blocks of one head: y = sum of rows c STRIDE to c STRIDE + L - 1, divided by L."""
    g, b = tl.program_id(1), tl.program_id(2).to(tl.int64)
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    i, e = tl.arange(0, BL)[None, :, None], tl.arange(0, BD)
    row = (c * STRIDE).to(tl.int64)[:, None, None] + i
    live = (c < C)[:, None]
    x_ptr += b * stride_b + g * stride_g
    x = tl.load(x_ptr + row * stride_s + e, mask=live[:, :, None] & (i < L) & (e < D), other=0.0).to(REAL)
    at = y_ptr + ((b * C + c)[:, None] * G + g) * D + e[None, :]
    tl.store(at, (tl.sum(x, 1) / L).to(y_ptr.dtype.element_ty), mask=live & (e < D)[None, :])


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
        many = max(1, ELEMENTS // (pow2(length) * pow2(D)))  # a power of two, as all three are
        means_kernel[(cdiv(C, many), G, B)](
            x, y, C, *x.stride()[:3], G=G, D=D, BD=pow2(D), L=length,
            BL=pow2(length), STRIDE=stride, BC=many, REAL=_real(x), num_warps=8,
        )  # fmt: skip
    return y


def spread(dy_BCGD: Tensor, length: int, stride: int, n_tokens: int) -> Tensor:
    """Gradient of the rows: every row gets its share of every block that it lies in."""
    dy = dy_BCGD.contiguous()
    B, C, G, D = dy.shape
    dx = dy.new_empty(B, n_tokens, G, D)
    n_rows = B * n_tokens * G
    if dx.numel():
        spread_kernel[(cdiv(n_rows, ROWS),)](
            dy, dx, n_rows, n_tokens, C, G=G, D=D, BD=pow2(D), L=length, STRIDE=stride, BM=ROWS,
            REAL=_real(dy), num_warps=4,
        )  # fmt: skip
    return dx


def _real(x: Tensor) -> tl.dtype:
    return tl.float64 if x.dtype == torch.float64 else tl.float32
