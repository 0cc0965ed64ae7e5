"""Block means as an operator: the reference's numbers and gradients, torch's own rules, one graph."""

import pytest
import torch

from nsa.kernels.block_mean import reference
from nsa.kernels.block_mean.op import block_mean


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("S", "length", "stride"), [(29, 8, 4), (16, 4, 4), (8, 8, 2), (7, 8, 4), (90, 16, 4)])
def test_means_and_gradients_equal_the_reference(S, length, stride, dtype):
    rows = torch.randn(2, S, 5, 6, dtype=dtype, requires_grad=True)
    x = rows[:, :, 1:3]  # as one branch's keys are a part of all branches' keys
    got, want = block_mean(x, length, stride), reference.block_mean(x, length, stride)
    dy = torch.randn_like(got)
    grads = [torch.autograd.grad(y, rows, dy.to(y.dtype))[0] for y in (got, want)]
    tolerance = {torch.float64: 1e-14, torch.float32: 1e-6, torch.bfloat16: 1e-2, torch.float16: 1e-3}[dtype]
    assert got.dtype == dtype
    assert got.is_contiguous()
    for a, b in ((got, want), grads):
        torch.testing.assert_close(a.double(), b.double(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("S", [29, 7])
def test_the_operators_pass_torchs_own_check(S, opcheck):
    x = torch.randn(2, S, 2, 6, requires_grad=True)
    opcheck(torch.ops.nsa.block_mean.default, (x, 8, 4))
    opcheck(torch.ops.nsa.block_spread.default, (torch.randn(2, max(0, (S - 4) // 4), 2, 6), 8, 4, S))
