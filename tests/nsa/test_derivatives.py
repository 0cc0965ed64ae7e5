"""What is not finite, and what is differentiated twice: one rule each, whatever the kernel."""

import math

import pytest
import torch

from nsa.attention.rope import angles, rotate_both
from nsa.config import RunConfig
from nsa.errors import DerivativeError
from nsa.kernels import registry
from nsa.kernels.block_mean.op import block_mean
from nsa.kernels.compressed.op import CompressedAttention
from nsa.kernels.samples import BY_NAME, boundaries, random_index, tensors
from nsa.kernels.selected.op import SelectedAttention
from nsa.kernels.visibility import cmp_visible, slc_visible, win_visible
from nsa.model.build import build_model

CPU = {
    "compressed": ("masked", "packed"),
    "selected": ("masked", "sdpa", "gather", "packed"),
    "window": ("masked", "sdpa"),
}
ROUTES = [(op, name) for op in CPU for name in CPU[op]]
INPUTS = {"compressed": ("q", "kc", "vc"), "selected": ("q", "k", "v"), "window": ("q", "k", "v")}


def outcome(op, name, case, x, index):
    """Output [B, T, H, E] of a backend."""
    where = {"offset": case.offset, "cu_seqlens": boundaries(case)}
    call = registry.load(op, name)
    if op == "compressed":
        return call(x["q"], x["kc"], x["vc"], case.layout, **where)[0]
    if op == "selected":
        return call(x["q"], x["k"], x["v"], index, l_slc=case.l_slc, **where)[0]
    return call(x["q"], x["k"], x["v"], w=case.w, **where)


def visible(op, case, index):
    """[B, G, T, S]: who sees whom."""
    where = {"offset": case.offset, "cu_seqlens": boundaries(case)}
    if op == "compressed":
        mask = cmp_visible(case.T, case.C, case.layout, device=torch.device("cpu"), **where)
    elif op == "selected":
        mask = slc_visible(index, case.S, l_slc=case.l_slc, **where)
    else:
        mask = win_visible(case.T, case.S, case.w, device=torch.device("cpu"), k_offset=0, **where)
    return mask.expand(case.B, case.G, -1, -1)


@pytest.mark.parametrize(
    ("poison", "dtype"),
    [(math.nan, torch.float32), (math.inf, torch.float32), (-math.inf, torch.float32), (math.inf, torch.bfloat16)],
)
@pytest.mark.parametrize("place", ["q", "k", "v"])
@pytest.mark.parametrize("name_of_case", ["ragged-prime", "documents"])
@pytest.mark.parametrize(("op", "name"), ROUTES)
def test_what_is_not_finite_spoils_who_sees_it_and_changes_no_other_bit_or_gradient(
    op, name, name_of_case, place, poison, dtype
):
    case = BY_NAME[name_of_case]
    clean, index = tensors(case, dtype=dtype), random_index(case)
    dirty = tensors(case, dtype=dtype)
    key = dict(zip("qkv", INPUTS[op], strict=True))[place]
    row, group = case.B - 1, case.G - 1
    at = case.T - 3 if place == "q" else 2 if op == "compressed" else 19
    heads = clean[key].shape[2]
    dirty[key].data[row, at, heads - 1, 1] = poison
    spoiled_BTH = torch.zeros(case.B, case.T, case.H, dtype=torch.bool)
    if place == "q":
        spoiled_BTH[row, at, heads - 1] = True
    else:
        seen_T = visible(op, case, index)[row, group, :, at]
        spoiled_BTH[row, :, group * case.H // case.G :] = seen_T[:, None]
    assert spoiled_BTH.any()
    o, want = outcome(op, name, case, dirty, index), outcome(op, name, case, clean, index)
    assert o[spoiled_BTH].isnan().all()
    assert torch.equal(o[~spoiled_BTH], want[~spoiled_BTH])
    do = torch.randn(o.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    names = INPUTS[op]
    # The others' gradients are as if the spoiled queries were not there, whatever weight the loss gives those.
    wanted = torch.autograd.grad(want, [clean[n] for n in names], do.masked_fill(spoiled_BTH[..., None], 0.0))
    for weight in (do, do.masked_fill(spoiled_BTH[..., None], 0.0)):
        got = torch.autograd.grad(o, [dirty[n] for n in names], weight, retain_graph=True)
        for n, a, b in zip(names, got, wanted, strict=True):
            tolerance = 1e-5 if dtype == torch.float32 else 2e-2
            torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, msg=lambda m, n=n: f"d{n}: {m}")


def second_derivative(loss, x):
    grads = torch.autograd.grad(loss, x, create_graph=True)
    return torch.autograd.grad(sum(g.square().sum() for g in grads), x)


@pytest.mark.parametrize(("op", "name"), ROUTES)
def test_a_second_derivative_is_refused_and_never_zero(op, name):
    case = BY_NAME["plain"]
    x, index = tensors(case), random_index(case)
    loss = outcome(op, name, case, x, index).square().sum()
    with pytest.raises((DerivativeError, RuntimeError), match=r"first derivative only|is not implemented"):
        second_derivative(loss, [x["q"]])


def test_the_whole_model_refuses_a_second_derivative():
    model, _ = build_model(RunConfig().with_values({"model.n_layers": 1, "model.dim": 32}))
    loss = model(torch.randint(256, (1, 60))).square().sum()
    with pytest.raises((DerivativeError, RuntimeError), match=r"first derivative only|is not implemented"):
        second_derivative(loss, list(model.parameters()))


def test_linear_operators_have_right_derivatives_of_second_order():
    generator = torch.Generator().manual_seed(0)
    q, k, x = (torch.randn(2, 12, g, 4, generator=generator, dtype=torch.float64).requires_grad_() for g in (4, 2, 2))
    by = angles(torch.arange(12), 4, base=100.0, like=q)
    assert torch.autograd.gradgradcheck(lambda q, k: rotate_both(q.sin(), k.sin(), by), (q, k))
    assert torch.autograd.gradgradcheck(lambda x: block_mean(x.sin(), 6, 2), (x,))


@pytest.mark.parametrize(("op", "name", "has_gradient"), [
    ("compressed", "masked", True),
    ("compressed", "packed", False),
    ("selected", "masked", True),
    ("selected", "gather", True),
    ("selected", "sdpa", False),
    ("selected", "packed", False),
])  # fmt: skip
def test_lse_has_a_gradient_exactly_where_its_contract_names_the_backend(op, name, has_gradient):
    case = BY_NAME["plain"]
    x, index = tensors(case), random_index(case)
    call = registry.load(op, name)
    lse = (
        call(x["q"], x["kc"], x["vc"], case.layout)[1]
        if op == "compressed"
        else call(x["q"], x["k"], x["v"], index, l_slc=case.l_slc)[1]
    )
    assert lse.requires_grad == has_gradient
    contract = {"compressed": CompressedAttention, "selected": SelectedAttention}[op]
    named = contract.__doc__.partition("lse has a gradient in ")[2].partition(" only")[0]
    assert (name in named) == has_gradient
