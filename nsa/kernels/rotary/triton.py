# ruff: noqa: ANN001, ANN201, ANN202 - a kernel's arguments are pointers and numbers whose types the launch decides
"""The rotation in Triton: queries and keys in one launch, read once, computed in the angles' type, written once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from nsa.kernels.prepared import Prepared, kept, places
from nsa.kernels.sizes import cdiv, pow2

if TYPE_CHECKING:
    from torch import Size, Tensor

TILE = 2048  # pairs (i, i + D/2) per program


@triton.jit
def _turn_rows(
    x_ptr, y_ptr, cos_ptr, sin_ptr, first, n_rows, n_plain, T, stride_b, stride_t, stride_h, stride_cos,
    HEADS: tl.constexpr, HALF: tl.constexpr, BHALF: tl.constexpr, BM: tl.constexpr, SIGN: tl.constexpr,
):  # fmt: skip
    """Rows ``first`` to ``first + BM - 1`` of (batch, token, head) from x to y, which is contiguous."""
    row = first + tl.arange(0, BM)
    i = tl.arange(0, BHALF)[None, :]
    mask = (row < n_rows)[:, None] & (i < HALF)
    head, token = row % HEADS, row // HEADS
    t, b = token % T, (token // T).to(tl.int64)
    x_at = x_ptr + (b * stride_b + t.to(tl.int64) * stride_t + head * stride_h)[:, None] + i
    angle_at = (t.to(tl.int64) * stride_cos)[:, None] + i
    cos = tl.load(cos_ptr + angle_at, mask=mask, other=0.0)
    sin = tl.load(sin_ptr + angle_at + HALF, mask=mask, other=0.0) * SIGN
    a = tl.load(x_at, mask=mask, other=0.0).to(cos.dtype)
    c = tl.load(x_at + HALF, mask=mask, other=0.0).to(cos.dtype)
    is_plain = (head < n_plain)[:, None]
    y_at = y_ptr + row.to(tl.int64)[:, None] * (2 * HALF) + i
    tl.store(y_at, tl.where(is_plain, a, a * cos - c * sin).to(y_ptr.dtype.element_ty), mask=mask)
    tl.store(y_at + HALF, tl.where(is_plain, c, c * cos + a * sin).to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def rotate_kernel(
    q_ptr, k_ptr, q_out_ptr, k_out_ptr, cos_ptr, sin_ptr, n_q_programs, n_q_rows, n_k_rows, n_plain, T,
    q_stride_b, q_stride_t, q_stride_h, k_stride_b, k_stride_t, k_stride_h, stride_cos,
    H: tl.constexpr, G: tl.constexpr, HALF: tl.constexpr, BHALF: tl.constexpr, BM: tl.constexpr, SIGN: tl.constexpr,
):  # fmt: skip
    """(a, c) becomes (a cos - c sin, c cos + a sin) for the pairs of every head; the first programs take queries."""
    program = tl.program_id(0)
    if program < n_q_programs:
        _turn_rows(
            q_ptr, q_out_ptr, cos_ptr, sin_ptr, program * BM, n_q_rows, 0, T,
            q_stride_b, q_stride_t, q_stride_h, stride_cos, H, HALF, BHALF, BM, SIGN,
        )  # fmt: skip
    else:
        _turn_rows(
            k_ptr, k_out_ptr, cos_ptr, sin_ptr, (program - n_q_programs) * BM, n_k_rows, n_plain, T,
            k_stride_b, k_stride_t, k_stride_h, stride_cos, G, HALF, BHALF, BM, SIGN,
        )  # fmt: skip


def rotate(
    q_BTHD: Tensor, k_BTGD: Tensor, cos_T1D: Tensor, sin_T1D: Tensor, n_plain: int, sign: int
) -> tuple[Tensor, Tensor]:
    """Contract: ``nsa.kernels.rotary.op.rotate_heads``; any strides of tokens and heads, without a copy."""
    q, k = _heads_whole(q_BTHD), _heads_whole(k_BTGD)
    q_out, k_out = q.new_empty(q.shape), k.new_empty(k.shape)
    where = places(q, k, cos_T1D, sin_T1D)
    launch = _turn(q.shape, k.shape, q.stride(), k.stride(), cos_T1D.stride(0), n_plain, sign, where)
    if launch is not None:
        launch(q, k, q_out, k_out, cos_T1D, sin_T1D)
    return q_out, k_out


@kept
def _turn(
    q: Size, k: Size, q_stride: tuple[int, ...], k_stride: tuple[int, ...], cos_stride: int, n_plain: int, sign: int,
    _: object,
) -> Prepared | None:  # fmt: skip
    (B, T, H, D), G, block = q, k[2], pow2(q[3] // 2)
    rows, n_q, n_k = max(1, TILE // block), B * T * H, B * T * G
    n_q_programs, n_k_programs = cdiv(n_q, rows), cdiv(n_k, rows)
    if n_q_programs + n_k_programs == 0:
        return None
    return Prepared(
        rotate_kernel, (n_q_programs + n_k_programs,), n_q_programs, n_q, n_k, n_plain, T,
        *q_stride[:3], *k_stride[:3], cos_stride,
        H=H, G=max(G, 1), HALF=D // 2, BHALF=block, BM=rows, SIGN=sign, num_warps=4,
    )  # fmt: skip


def _heads_whole(x: Tensor) -> Tensor:
    """The tensor, with every head's elements side by side."""
    return x if x.stride(-1) == 1 else x.contiguous()
