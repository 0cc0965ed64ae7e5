"""Block means under Triton's interpreter, against sums in fp64; started by test_interpreted.py."""

from __future__ import annotations

import oracle
import pytest
import torch
from interpreted import nan_filled

from nsa.kernels.block_mean import reference, triton

__all__ = ["nan_filled"]

SHAPES = {
    "overlapping": (2, 29, 2, 24, 8, 4),
    "rows after the last block": (1, 31, 1, 16, 8, 4),
    "four blocks per row, l = 12": (1, 40, 2, 8, 12, 3),
    "no overlap": (1, 16, 3, 16, 4, 4),
    "no block is complete": (2, 7, 2, 8, 8, 4),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("name", SHAPES)
def test_means_and_gradients_equal_the_reference(name, dtype):
    B, S, G, D, length, stride = SHAPES[name]
    gen = torch.Generator().manual_seed(0)
    x = torch.randn(B, S, 3 * G, D, generator=gen).to(dtype)[:, :, G : 2 * G].requires_grad_()
    got, want = triton.means(x, length, stride), reference.block_mean(x, length, stride)
    dy = torch.randn(got.shape, generator=gen).to(dtype)
    dx = triton.spread(dy, length, stride, S)
    assert (got.dtype, dx.dtype, got.shape) == (dtype, dtype, want.shape)
    tolerance = {torch.float64: 1e-14, torch.float32: 1e-6, torch.float16: 5e-4}[dtype]
    if got.numel():
        assert oracle.relative(got, want) <= tolerance
        assert oracle.relative(dx, torch.autograd.grad(want, x, dy.double())[0]) <= tolerance
    else:
        assert not dx.any()
