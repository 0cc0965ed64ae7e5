# ruff: noqa: ANN001, ANN201 - a kernel's arguments are pointers and numbers whose types the launch decides
"""Keys and values as the Hopper kernels take them: contiguous, and without what would leak from a hidden key."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def quarantine_kernel(
    k_ptr, v_ptr, k_out_ptr, v_out_ptr, n_rows, S, k_b, k_s, k_g, v_b, v_s, v_g,
    D: tl.constexpr, G: tl.constexpr, BM: tl.constexpr, IS_MARKED: tl.constexpr,
):  # fmt: skip
    """Copy keys and values, zero where either is not finite; with IS_MARKED such a key is a row of NaN instead.

    A score with a row of NaN is NaN, and is dropped where the key is hidden; the weight of its value, zero, meets zero.
    """
    row = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    live = (row < n_rows)[:, None]
    g = row % G
    s = (row // G) % S
    b = row // G // S
    d = tl.arange(0, D)[None, :]
    k = tl.load(k_ptr + (b * k_b + s * k_s + g * k_g)[:, None] + d, mask=live, other=0.0)
    v = tl.load(v_ptr + (b * v_b + s * v_s + g * v_g)[:, None] + d, mask=live, other=0.0)
    k_bad = tl.max((tl.abs(k.to(tl.float32)) < float("inf")).to(tl.int32) ^ 1, 1)
    v_bad = tl.max((tl.abs(v.to(tl.float32)) < float("inf")).to(tl.int32) ^ 1, 1)
    bad = ((k_bad | v_bad) > 0)[:, None]
    tl.store(k_out_ptr + row[:, None] * D + d, tl.where(bad, float("nan") if IS_MARKED else 0.0, k), mask=live)
    tl.store(v_out_ptr + row[:, None] * D + d, tl.where(bad, 0.0, v), mask=live)
