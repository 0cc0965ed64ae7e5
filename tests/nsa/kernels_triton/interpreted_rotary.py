"""The rotation under Triton's interpreter, against complex numbers in fp64; started by test_interpreted.py."""

from __future__ import annotations

import oracle
import pytest
import torch
from interpreted import nan_filled

from nsa.attention.rope import angles
from nsa.kernels.rotary import reference, triton

__all__ = ["nan_filled"]

SHAPES = {
    "several programs": (2, 40, 3, 6, 64),
    "odd widths": (2, 9, 3, 2, 24),
    "no keys": (1, 5, 4, 0, 16),
    "one token": (3, 1, 2, 1, 8),
    "no token": (1, 0, 2, 1, 8),
}


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("name", SHAPES)
def test_queries_and_keys_turn_as_complex_numbers_do(name, dtype, sign):
    B, T, H, G, D = SHAPES[name]
    n_plain = min(G, 1)
    gen = torch.Generator().manual_seed(0)
    stacked = torch.randn(B, T, H + G + 1, D, generator=gen).to(dtype)
    q, k = stacked[:, :, :H], stacked[:, :, H : H + G]  # as from projections: strides that are not the heads' own
    by = angles(torch.arange(100, 100 + 2 * T), D, base=100.0, like=q).every(2, first=0)
    got = triton.rotate(q, k, by.cos_T1D, by.sin_T1D, n_plain, sign)
    assert torch.equal(got[1][:, :, :n_plain], k[:, :, :n_plain])
    wanted = reference.rotate(q, k, by.cos_T1D, by.sin_T1D, n_plain, sign)
    tolerance = {torch.float64: 1e-14, torch.float32: 1e-6, torch.float16: 5e-4}[dtype]
    for x, y in zip(got, wanted, strict=True):
        assert x.dtype == dtype
        assert x.is_contiguous()
        assert oracle.relative(x, y) <= tolerance


def test_strides_within_a_head_are_copied_away():
    by = angles(torch.arange(5), 8, base=100.0, like=torch.ones(1))
    q, k = torch.ones(()).expand(1, 5, 2, 8), torch.randn(1, 5, 8, 2).transpose(2, 3)
    want = reference.rotate(q, k, by.cos_T1D, by.sin_T1D)
    for x, y in zip(triton.rotate(q, k, by.cos_T1D, by.sin_T1D, 0, 1), want, strict=True):
        assert oracle.relative(x, y) <= 1e-6
