"""Block means on a GPU against sums in fp64, forward and gradients, and the same bits every time."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from nsa.kernels.block_mean import reference
from nsa.kernels.block_mean.op import block_mean

TOLERANCE = {torch.float64: 1e-14, torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 4e-3}


def relative(got, want):
    got, want = got.detach().double(), want.detach().double()
    return float((got - want).norm() / want.norm())


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(("S", "D", "length", "stride"), [(2048, 64, 32, 16), (333, 128, 64, 16), (100, 24, 12, 3)])
def test_means_and_gradients_equal_the_reference(S, D, length, stride, dtype, nan_filled):
    gen = torch.Generator("cuda").manual_seed(0)
    rows = torch.randn(2, S, 6, D, generator=gen, device="cuda").to(dtype).requires_grad_()
    x = rows[:, :, 2:4]
    got, want = block_mean(x, length, stride), reference.block_mean(x, length, stride)
    dy = torch.randn(got.shape, generator=gen, device="cuda").to(dtype)
    grads = [torch.autograd.grad(y, rows, dy.to(y.dtype))[0] for y in (got, want)]
    assert relative(got, want) <= TOLERANCE[dtype]
    assert relative(*grads) <= TOLERANCE[dtype]
    assert torch.equal(got, block_mean(x, length, stride))


def test_without_a_complete_block_the_gradient_is_zero(nan_filled):
    x = torch.randn(2, 7, 2, 64, device="cuda", requires_grad=True)
    block_mean(x, 8, 4).sum().backward()
    assert not x.grad.any()
