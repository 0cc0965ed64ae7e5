"""The norm under Triton's interpreter, alone and of a sum, against fp64; started by test_interpreted.py."""

from __future__ import annotations

import oracle
import pytest
import torch
from interpreted import nan_filled

from nsa.kernels.norm import reference, triton

__all__ = ["nan_filled"]

EPS = 1e-6
SHAPES = {"few rows": (2, 3, 24), "one wide row": (1, 1, 4097), "more rows than runs": (1, 1301, 8)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("name", SHAPES)
def test_norms_and_gradients_equal_the_reference(name, dtype, monkeypatch):
    monkeypatch.setattr(triton, "RUNS", 16)
    monkeypatch.setattr(triton, "NUMBERS", 64)
    gen = torch.Generator().manual_seed(0)
    shape = SHAPES[name]
    x, y, dtotal, dy = (torch.randn(shape, generator=gen).to(dtype) for _ in range(4))
    x.requires_grad_()
    y.requires_grad_()
    weight = torch.rand(shape[-1], generator=gen).to(dtype).requires_grad_()
    tolerance = {torch.float32: 2e-6, torch.float16: 1e-3}[dtype]
    got, want = triton.add_norm(x, y, weight, EPS), reference.add_norm(x, y, weight, EPS)
    grads = [
        torch.autograd.grad(parts, (x, y, weight), [d.to(parts[0].dtype) for d in (dtotal, dy)])
        for parts in (got, want)
    ]  # fmt: skip
    for a, b in zip((*got, *grads[0]), (*want, *grads[1]), strict=True):
        assert a.dtype == dtype
        assert oracle.relative(a, b) <= tolerance
    got, want = triton.norm(x, weight, EPS), reference.norm(x, weight, EPS)
    grads = [torch.autograd.grad(part, (x, weight), dy.to(part.dtype)) for part in (got, want)]
    for a, b in zip((got, *grads[0]), (want, *grads[1]), strict=True):
        assert oracle.relative(a, b) <= tolerance


@pytest.mark.filterwarnings("ignore:invalid value encountered")
def test_a_row_that_is_not_finite_spoils_itself_alone():
    x = torch.randn(6, 24)
    x[2, 3], x[4, 0] = float("nan"), float("inf")
    out = triton.norm(x, torch.ones(24), EPS)
    assert out.isnan().any(-1).tolist() == [False, False, True, False, True, False]


def test_what_only_one_result_is_used_of_has_its_gradient():
    x, y, weight = torch.randn(4, 24, requires_grad=True), torch.randn(4, 24), torch.ones(24, requires_grad=True)
    total, normed = triton.add_norm(x, y, weight, EPS)
    assert torch.equal(torch.autograd.grad(total.sum(), x, retain_graph=True)[0], torch.ones(4, 24))
    want = torch.autograd.grad(reference.norm(total, weight, EPS).sum(), x, retain_graph=True)[0]
    assert oracle.relative(torch.autograd.grad(normed.sum(), x)[0], want) <= 2e-6
