"""The rotation as an operator: torch's own rules, one graph, and no tensor of the angles' type kept for backward."""

import pytest
import torch

from nsa.attention.rope import Angles, angles, rotate, rotate_both
from nsa.kernels.rotary import reference


def inputs(dtype=torch.float32, *, B=2, T=9, H=3, G=4, D=8):
    """Queries and keys that are views of one projection, and angles of every second position."""
    stacked = torch.randn(B, T, H + G, D, dtype=dtype, requires_grad=True)
    by = angles(torch.arange(100, 100 + 2 * T), D, base=100.0, like=stacked).every(2, first=0)
    return stacked, stacked[:, :, :H], stacked[:, :, H:], by


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("n_plain", [0, 2])
def test_queries_keys_and_gradients_equal_the_reference(dtype, n_plain):
    stacked, q, k, by = inputs(dtype)
    outputs = rotate_both(q, k, by, n_plain=n_plain)
    wanted = reference.rotate(q, k, by.cos_T1D, by.sin_T1D, n_plain)
    do = [torch.randn_like(x) for x in outputs]
    (got_grad,) = torch.autograd.grad(outputs, stacked, do)
    (want_grad,) = torch.autograd.grad(wanted, stacked, [x.double() for x in do])
    tolerance = {torch.float64: 1e-13, torch.float32: 1e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}[dtype]
    near = {"rtol": tolerance, "atol": tolerance}
    assert {x.dtype for x in (*outputs, got_grad)} == {dtype}
    assert torch.equal(outputs[1][:, :, :n_plain], k[:, :, :n_plain])
    for got, want in zip((*outputs, got_grad), (*wanted, want_grad), strict=True):
        torch.testing.assert_close(got.double(), want.double(), **near)


def test_a_head_that_is_copied_keeps_its_infinities():
    _, q, k, by = inputs()
    assert torch.equal(rotate_both(q, torch.full_like(k, torch.inf), by, n_plain=4)[1], torch.full_like(k, torch.inf))


def test_one_row_of_angles_serves_every_token():
    x = torch.randn(2, 5, 3, 8)
    by = angles(torch.tensor([7]), 8, base=100.0, like=x)
    every = Angles(cos_T1D=by.cos_T1D.expand(5, 1, 8), sin_T1D=by.sin_T1D.expand(5, 1, 8))
    assert torch.equal(rotate(x, by), rotate(x, every))


def test_the_operator_passes_torchs_own_check(opcheck):
    stacked, _, _, by = inputs()
    q, k = (x.detach().requires_grad_() for x in stacked.split((3, 4), 2))
    opcheck(torch.ops.nsa.rotate.default, (q, k, by.cos_T1D, by.sin_T1D, 1, 1))


def test_it_compiles_as_one_graph_with_the_same_bits():
    torch._dynamo.reset()
    stacked, _, _, by = inputs()
    q, k = (x.detach().requires_grad_() for x in stacked.split((3, 4), 2))
    found = []
    for call in (rotate_both, torch.compile(rotate_both, fullgraph=True, backend="aot_eager")):
        turned = call(q, k, by, n_plain=1)
        found.append([*turned, *torch.autograd.grad(turned, (q, k), [x.detach().cos() for x in turned])])
    assert all(torch.equal(x, y) for x, y in zip(*found, strict=True))
    torch._dynamo.reset()


def test_backward_keeps_the_angles_alone():
    _, q, k, by = inputs(torch.bfloat16)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        rotate_both(q, k, by)
    assert {x.data_ptr() for x in kept} == {by.cos_T1D.data_ptr(), by.sin_T1D.data_ptr()}
