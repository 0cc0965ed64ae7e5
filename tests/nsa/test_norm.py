"""The norm, alone and of a sum: the reference's numbers and gradients, and torch's bits on a CPU."""

import pytest
import torch

from nsa.kernels.norm import reference
from nsa.kernels.norm.op import add_norm, norm
from nsa.model.transformer import Norm

TOLERANCE = {torch.float64: 1e-14, torch.float32: 1e-6, torch.bfloat16: 1e-2, torch.float16: 2e-3}
EPS = 1e-6


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_norms_and_gradients_equal_the_reference(dtype):
    x, y = (torch.randn(2, 7, 24, dtype=dtype, requires_grad=True) for _ in range(2))
    weight = torch.rand(24, dtype=dtype, requires_grad=True)
    got, want = (
        (*op.add_norm(x, y, weight, EPS), op.norm(x, weight, EPS)) for op in (torch_ops(), reference)
    )  # fmt: skip
    dy = [torch.randn_like(part) for part in got]
    grads = [
        torch.autograd.grad(parts, (x, y, weight), [d.to(part.dtype) for d, part in zip(dy, parts, strict=True)])
        for parts in (got, want)
    ]
    assert all(part.dtype == dtype for part in got)
    for a, b in zip((*got, *grads[0]), (*want, *grads[1]), strict=True):
        assert (a.double() - b.double()).norm() <= TOLERANCE[dtype] * b.double().norm()


def torch_ops():
    from nsa.kernels.norm import op

    return op


def test_a_model_on_a_cpu_has_torchs_bits():
    x, y = torch.randn(2, 3, 5, 16)
    module, torchs = Norm(16, eps=EPS), torch.nn.RMSNorm(16, eps=EPS)
    torchs.weight.data.copy_(module.weight.data.uniform_())
    assert torch.equal(module(x), torchs(x))
    total, normed = module(x, y)
    assert torch.equal(total, x + y)
    assert torch.equal(normed, torchs(x + y))
    assert torch.equal(norm(x, module.weight, EPS), torchs(x))
    assert torch.equal(add_norm(x, y, module.weight, EPS)[1], normed)
