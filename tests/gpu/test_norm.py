"""The norm on a GPU, alone and of a sum: against fp64, the same bits every time, and torch's own checks."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from nsa.kernels.norm import reference, triton
from nsa.kernels.norm.op import add_norm, norm

EPS = 1e-6
TOLERANCE = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 6e-3}


def relative(got, want):
    got, want = got.detach().double(), want.detach().double()
    return float((got - want).norm() / want.norm())


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", [(4, 2048, 768), (3, 333, 1000), (2, 5, 8192), (1, 768)], ids=str)
def test_norms_and_gradients_equal_the_reference(shape, dtype, nan_filled):
    gen = torch.Generator("cuda").manual_seed(0)
    x, y, dtotal, dy = (torch.randn(shape, device="cuda", generator=gen).to(dtype) for _ in range(4))
    weight = torch.rand(shape[-1:], device="cuda", generator=gen).to(dtype).requires_grad_()
    for given in (x, y):
        given.requires_grad_()
    runs = []
    for op in (triton, triton, reference):
        total, normed = op.add_norm(x, y, weight, EPS)
        grads = torch.autograd.grad((total, normed), (x, y, weight), [d.to(total.dtype) for d in (dtotal, dy)])
        alone = op.norm(x, weight, EPS)
        runs.append((total, normed, *grads, alone, *torch.autograd.grad(alone, (x, weight), dy.to(alone.dtype))))
    for got, again, want in zip(*runs, strict=True):
        assert torch.equal(got, again)
        assert relative(got, want) <= TOLERANCE[dtype]


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")
def test_types_that_differ_are_torchs():
    x, weight = torch.randn(4, 64, device="cuda", dtype=torch.bfloat16), torch.ones(64, device="cuda")
    assert norm(x, weight, EPS).shape == x.shape
    total, _ = add_norm(x.float(), x, weight, EPS)
    assert total.dtype == torch.float32


def test_the_operators_pass_torchs_own_check():
    x, y = (torch.randn(3, 64, device="cuda", requires_grad=True) for _ in range(2))
    weight = torch.rand(64, device="cuda", requires_grad=True)
    torch.library.opcheck(torch.ops.nsa.norm.default, (x, weight, EPS))
    torch.library.opcheck(torch.ops.nsa.add_norm.default, (x, y, weight, EPS))
