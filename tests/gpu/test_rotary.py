"""The rotation on a GPU against complex numbers in fp64, forward and gradients."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from nsa.attention.rope import angles, rotate, rotate_both
from nsa.kernels.rotary import reference

TOLERANCE = {torch.float64: 1e-14, torch.float32: 1e-6, torch.float16: 5e-4, torch.bfloat16: 4e-3}


def relative(got, want):
    got, want = got.detach().double(), want.detach().double()
    return float((got - want).norm() / want.norm())


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", [(2, 300, 12, 6, 64), (1, 33, 16, 4, 128), (3, 1, 3, 3, 24), (1, 70, 5, 2, 192)])
def test_queries_keys_and_gradients_turn_as_complex_numbers_do(shape, dtype, nan_filled):
    B, T, H, G, D = shape
    gen = torch.Generator("cuda").manual_seed(0)
    stacked = torch.randn(B, T, H + G, D, generator=gen, device="cuda").to(dtype).requires_grad_()
    q, k = stacked[:, :, :H], stacked[:, :, H:]
    by = angles(torch.arange(100, 100 + 2 * T, device="cuda"), D, base=100.0, like=stacked).every(2, first=0)
    outputs = rotate_both(q, k, by, n_plain=2)
    wanted = reference.rotate(q, k, by.cos_T1D, by.sin_T1D, 2)
    do = [torch.randn(x.shape, generator=gen, device="cuda").to(dtype) for x in outputs]
    got = [*outputs, *torch.autograd.grad(outputs, stacked, do)]
    want = [*wanted, torch.autograd.grad(wanted, stacked, [x.double() for x in do])[0].double()]
    assert torch.equal(outputs[1][:, :, :2], k[:, :, :2])
    assert max(relative(x, y) for x, y in zip(got, want, strict=True)) <= TOLERANCE[dtype]


def test_a_key_alone_and_an_expanded_gradient(nan_filled):
    x = torch.randn(2, 40, 2, 64, device="cuda", requires_grad=True)
    by = angles(torch.arange(40, device="cuda"), 64, base=100.0, like=x)
    rotate(x, by).sum().backward()
    none = x.new_empty(2, 40, 0, 64)
    want, _ = reference.rotate(torch.ones_like(x), none, by.cos_T1D, by.sin_T1D, 0, -1)
    assert relative(x.grad, want) <= 1e-6
