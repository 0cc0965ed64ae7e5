"""What the whole layer must do, whatever its parts are: causality, degeneracy, gradients, invariances."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nsa.attention.compress import MeanPhi, MlpPhi, blocks_of
from nsa.attention.gate import Gate
from nsa.attention.layer import NsaAttention
from nsa.attention.rope import angles, rotate, turns
from nsa.attention.sequential import SequentialAttention
from nsa.blocks import BlockLayout
from nsa.config import RunConfig
from nsa.kernels import registry
from nsa.kernels.compressed.masked import compressed
from nsa.kernels.registry import resolve_all
from nsa.kernels.samples import BY_NAME, CASES, random_index, tensors
from nsa.kernels.selected.reference import selected as selected_reference
from nsa.kernels.window.masked import window
from nsa.model.build import build_model, site_of

SIZES = {
    "model.dim": 24,
    "model.n_heads": 4,
    "model.n_kv_groups": 2,
    "model.d_k": 8,
    "model.d_v": 6,
    "model.l": 8,
    "model.d": 4,
    "model.l_slc": 8,
    "model.n": 4,
    "model.w": 10,
    "model.n_layers": 2,
}
ROUTES = [
    {"compressed": "masked", "selected": "masked", "window": "masked"},
    {"compressed": "packed", "selected": "sdpa", "window": "sdpa"},
    {"compressed": "packed", "selected": "gather", "window": "sdpa"},
    {"compressed": "packed", "selected": "packed", "window": "sdpa"},
]


def configured(**changes):
    return RunConfig().with_values({**SIZES, **{k.replace("__", "."): v for k, v in changes.items()}})


def routed(route, **changes):
    return configured(**{f"kernels__{op}": name for op, name in route.items()}, **changes)


def shaken(model):
    """Weights that start at zero (gates, phi) would hide errors: make every one of them count."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("fc2.weight", ".pe")):
                parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


def layer_of(config, cls=NsaAttention, dtype=torch.float32):
    torch.manual_seed(0)
    return shaken(cls(config.model, resolve_all(config.kernels, site_of(config)))).to(dtype)


# 1 and 2: causality


@pytest.mark.parametrize("route", ROUTES, ids=lambda r: "-".join(r.values()))
@pytest.mark.parametrize("cut", [1, 9, 21, 40])
def test_replacing_the_future_leaves_every_earlier_bit_of_output_and_selection(route, cut):
    config = routed(route)
    model = shaken(build_model(config)[0])
    selections = record_selections(model)
    ids = torch.randint(256, (2, 48))
    other = ids.clone()
    other[:, cut:] = (other[:, cut:] + 1 + torch.randint(255, other[:, cut:].shape)) % 256
    before, after = model(ids), model(other)
    assert not torch.equal(before[:, cut:], after[:, cut:])
    assert torch.equal(before[:, :cut], after[:, :cut])
    half = len(selections) // 2
    for first, second in zip(selections[:half], selections[half:], strict=True):
        assert torch.equal(first[:, :cut], second[:, :cut])


@pytest.mark.parametrize("route", ROUTES, ids=lambda r: "-".join(r.values()))
@pytest.mark.parametrize("cut", [5, 12, 20, 33])
def test_the_same_holds_inside_packed_documents(route, cut):
    model = shaken(build_model(routed(route))[0])
    selections = record_selections(model)
    ids, cu = torch.randint(256, (1, 48)), torch.tensor([0, 11, 48], dtype=torch.int32)
    other = ids.clone()
    other[:, cut:] = (other[:, cut:] + 1) % 256
    before, after = model(ids, cu_seqlens=cu), model(other, cu_seqlens=cu)
    assert not torch.equal(before[:, cut:], after[:, cut:])
    assert torch.equal(before[:, :cut], after[:, :cut])
    for first, second in zip(selections[:2], selections[2:], strict=True):
        assert torch.equal(first[:, :cut], second[:, :cut])


def record_selections(model):
    seen = []
    for block in model.blocks:
        inner = block.attn.kernels["scores"]

        def recorded(*args, inner=inner, **kwargs):
            index = inner(*args, **kwargs)
            seen.append(index)
            return index

        block.attn.kernels["scores"] = recorded
    return seen


@pytest.mark.parametrize("route", ROUTES, ids=lambda r: "-".join(r.values()))
@pytest.mark.parametrize("poison", [math.nan, math.inf, 1e30])
def test_a_poisoned_future_leaves_every_earlier_bit(route, poison):
    layer = layer_of(routed(route))
    x = torch.randn(1, 48, 24)
    bad = x.clone()
    bad[:, 30:] = poison
    assert torch.equal(layer(x)[:, :30], layer(bad)[:, :30])
    assert not torch.isfinite(layer(bad)[:, 30:]).all()


@pytest.mark.parametrize("route", ROUTES, ids=lambda r: "-".join(r.values()))
def test_no_output_has_a_gradient_at_a_later_token(route):
    layer = layer_of(routed(route), dtype=torch.float64)
    x = torch.randn(1, 33, 24, dtype=torch.float64, requires_grad=True)
    y = layer(x)
    for t in (0, 6, 7, 8, 15, 16, 24, 32):
        (grad,) = torch.autograd.grad(y[0, t].square().sum(), x, retain_graph=True)
        assert grad[0, t + 1 :].abs().max().item() == 0.0 if t < 32 else True
        assert grad[0, t].abs().max() > 0


def test_documents_in_one_row_do_not_see_each_other():
    for route in ROUTES:
        layer = layer_of(routed(route))
        x, cu = torch.randn(1, 50, 24), torch.tensor([0, 13, 13, 14, 50], dtype=torch.int32)
        packed = layer(x, cu_seqlens=cu)
        for start, stop in ((0, 13), (13, 14), (14, 50)):
            torch.testing.assert_close(packed[:, start:stop], layer(x[:, start:stop]), rtol=1e-5, atol=1e-5)
        edited = x.clone()
        edited[:, :14] = torch.randn(1, 14, 24)
        assert torch.equal(packed[:, 14:], layer(edited, cu_seqlens=cu)[:, 14:])


# 6: degeneracy


def test_the_selected_branch_is_dense_while_every_block_fits():
    q, k, v = torch.randn(1, 24, 4, 8), torch.randn(1, 24, 2, 8), torch.randn(1, 24, 2, 8)
    every = torch.tensor([[j if 8 * j <= t else -1 for j in range(3)] for t in range(24)], dtype=torch.int32)
    dense = torch.nn.functional.scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True, enable_gqa=True
    ).transpose(1, 2)
    for name in ("masked", "sdpa", "gather", "packed"):
        o, _ = registry.load("selected", name)(q, k, v, every[None, :, None].expand(1, 24, 2, 3), l_slc=8)
        torch.testing.assert_close(o, dense, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(window(q, k, v, w=24), dense, rtol=1e-5, atol=1e-5)
    layout = BlockLayout(l=1, d=1, l_slc=4, n=3, w=4)
    torch.testing.assert_close(compressed(q, k, v, layout)[0], dense, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("branch", ["cmp", "slc", "win"])
def test_a_one_hot_gate_and_an_isolated_branch_give_the_same_output(branch):
    config = configured(model__phi="mean")
    gated = layer_of(config.with_value("model.gate", branch))
    alone = layer_of(config.with_value("model.branches", branch))
    n, size = {"cmp": 0, "slc": 1, "win": 2}[branch], 2 * 8
    with torch.no_grad():
        alone.q_proj.weight.copy_(gated.q_proj.weight)
        alone.o_proj.weight.copy_(gated.o_proj.weight)
        rows = slice(0, 2 * size) if branch == "slc" else slice(n * size, (n + 1) * size)
        alone.k_proj.weight.copy_(gated.k_proj.weight[rows])
        alone.v_proj.weight.copy_(gated.v_proj.weight[n * 12 : (n + 1) * 12])
    x = torch.randn(2, 40, 24)
    torch.testing.assert_close(gated(x), alone(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("branch", ["cmp", "slc", "win"])
def test_an_isolated_branch_builds_nothing_that_it_does_not_train(branch):
    layer = layer_of(configured(model__branches=branch))
    layer(torch.randn(1, 40, 24)).square().sum().backward()
    assert all(p.grad is not None for p in layer.parameters())
    assert not hasattr(layer, "gate")


# 7: what a selection is made of, not how it is written down


@pytest.mark.parametrize("name", ["masked", "sdpa", "gather", "packed"])
def test_the_order_of_slots_and_empty_ones_between_them_change_nothing(name):
    case = BY_NAME["ragged-prime"]
    x, index = tensors(case, dtype=torch.float64), random_index(case)
    attend = registry.load("selected", name)
    o, lse = attend(x["q"], x["k"], x["v"], index, l_slc=case.l_slc)
    spread = torch.nn.functional.pad(index, (1, 2), value=-1)[..., [4, 0, 2, 6, 1, 3, 5]]
    again, lse_again = attend(x["q"], x["k"], x["v"], spread, l_slc=case.l_slc)
    torch.testing.assert_close(again, o, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(lse_again, lse, rtol=1e-12, atol=1e-12)


# 9: every parameter trains, whatever the length


@pytest.mark.parametrize("route", ROUTES, ids=lambda r: "-".join(r.values()))
@pytest.mark.parametrize("length", [1, 3, 7, 8, 9, 17])
def test_every_parameter_gets_a_finite_gradient_at_every_length(route, length):
    layer = layer_of(routed(route))
    y = layer(torch.randn(2, length, 24))
    assert torch.isfinite(y).all()
    y.square().sum().backward()
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name


def test_every_parameter_gets_a_gradient_that_is_not_zero_after_the_first_step():
    model, _ = build_model(configured())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randint(256, (2, 64))).square().mean().backward()
        optimizer.step()
    dead = [name for name, p in model.named_parameters() if not p.grad.abs().max() > 0]
    assert dead == []


def test_the_compressed_branch_is_zero_for_queries_before_the_first_block():
    case = CASES[0]
    x = tensors(case)
    o, lse = compressed(x["q"], x["kc"], x["vc"], case.layout)
    assert o[:, : case.l - 1].abs().max() == 0
    assert (lse[:, : case.l - 1] == -torch.inf).all()
    assert (o[:, case.l - 1 :].abs().sum(-1) > 0).all()


# 11: exactly w keys


@pytest.mark.parametrize("name", ["masked", "sdpa"])
@pytest.mark.parametrize("w", [1, 5, 13])
def test_the_window_holds_exactly_w_keys(name, w):
    q, k, v = torch.randn(1, 40, 2, 8), torch.randn(1, 40, 2, 8), torch.randn(1, 40, 2, 8)
    attend = registry.load("window", name)
    o = attend(q, k, v, w=w)
    for t in (w, 30):
        outside, edge = v.clone(), v.clone()
        outside[:, t - w] += 100.0
        edge[:, t - w + 1] += 100.0
        assert torch.equal(attend(q, k, outside, w=w)[:, t], o[:, t])
        assert not torch.equal(attend(q, k, edge, w=w)[:, t], o[:, t])


# 12: gradients


def test_the_reference_passes_gradcheck():
    q, k, v = (torch.randn(1, 9, 2, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    index = torch.tensor([[0, -1, -1], [0, 1, -1], [0, 1, 2]], dtype=torch.int32).repeat_interleave(3, 0)
    index = index[None, :, None].expand(1, 9, 2, 3)
    assert torch.autograd.gradcheck(lambda *x: selected_reference(*x, index, l_slc=3), (q, k, v))


def test_finite_differences_agree_through_the_whole_layer():
    layer = layer_of(routed(ROUTES[1]), dtype=torch.float64)
    x = torch.randn(1, 24, 24, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(layer, x, eps=1e-6, atol=1e-5, fast_mode=True)


def test_a_block_that_nobody_selects_gets_no_gradient_and_one_that_all_select_gets_it():
    q, k, v = torch.randn(1, 32, 2, 8), torch.randn(1, 32, 2, 8), torch.randn(1, 32, 2, 8)
    index = torch.tensor([[0, t // 8] if t >= 8 else [0, -1] for t in range(32)], dtype=torch.int32)
    index = index[None, :, None].expand(1, 32, 2, 2).contiguous()
    index[:, 24:, :, 1] = -1  # block 3 is never listed
    for name in ("masked", "sdpa", "gather", "packed"):
        inputs = [x.clone().requires_grad_() for x in (q, k, v)]
        copies = [x.double().requires_grad_() for x in (q, k, v)]
        registry.load("selected", name)(*inputs, index, l_slc=8)[0].square().sum().backward()
        selected_reference(*copies, index, l_slc=8)[0].square().sum().backward()
        assert inputs[1].grad[:, 24:].abs().max() == 0
        assert inputs[2].grad[:, 24:].abs().max() == 0
        for got, want in zip(inputs, copies, strict=True):
            torch.testing.assert_close(got.grad.double(), want.grad, rtol=1e-4, atol=1e-5)


# 13: determinism


def test_batch_rows_do_not_influence_each_other():
    layer = layer_of(configured())
    x = torch.randn(3, 40, 24)
    together = layer(x)
    for b in range(3):
        torch.testing.assert_close(layer(x[b : b + 1])[0], together[b], rtol=1e-5, atol=1e-6)
    edited = x.clone()
    edited[1] = torch.randn(40, 24)
    assert torch.equal(layer(edited)[[0, 2]], together[[0, 2]])


@pytest.mark.parametrize("attention", ["nsa", "dense"])
def test_recomputing_blocks_gives_the_same_gradients_bit_by_bit(attention):
    grads = []
    for mode in ("none", "block"):
        torch.manual_seed(0)
        model, _ = build_model(configured(model__attention=attention, train__checkpointing=mode))
        model(torch.arange(80).reshape(2, 40)).square().mean().backward()
        grads.append([p.grad for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


# 14: shift, scale, rotation


@pytest.mark.parametrize("name", ["masked", "sdpa", "gather", "packed"])
def test_one_vector_added_to_all_keys_changes_nothing_and_values_pass_linearly(name):
    attend = registry.load("selected", name)
    q, k, v = torch.randn(1, 32, 2, 8), torch.randn(1, 32, 2, 8), torch.randn(1, 32, 2, 8)
    index = torch.tensor([[0, t // 8] if t >= 8 else [0, -1] for t in range(32)], dtype=torch.int32)
    index = index[None, :, None].expand(1, 32, 2, 2)
    o, _ = attend(q, k, v, index, l_slc=8)
    torch.testing.assert_close(attend(q, k + torch.randn(8), v, index, l_slc=8)[0], o, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(attend(q, k, 2 * v + 3, index, l_slc=8)[0], 2 * o + 3, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("op", "name"), [("selected", n) for n in ("masked", "sdpa", "gather", "packed")])
def test_scores_of_a_thousand_stay_finite(op, name):
    q = (100 * torch.randn(1, 32, 2, 8)).requires_grad_()
    k = (30 * torch.randn(1, 32, 2, 8)).requires_grad_()
    index = torch.tensor([[0, t // 8] if t >= 8 else [0, -1] for t in range(32)], dtype=torch.int32)
    o, lse = registry.load(op, name)(q, k, torch.randn(1, 32, 2, 8), index[None, :, None].expand(1, 32, 2, 2), l_slc=8)
    o.sum().backward()
    assert all(torch.isfinite(x).all() for x in (o, lse, q.grad, k.grad))


@given(st.integers(0, 3000), st.integers(0, 3000), st.integers(0, 500))
def test_the_product_of_rotated_query_and_key_depends_on_their_distance_only(a, b, shift):
    generator = torch.Generator().manual_seed(3)
    q, k = (torch.randn(1, 1, 3, 8, generator=generator, dtype=torch.float64) for _ in range(2))

    def product(position_q, position_k):
        at_q, at_k = (angles(torch.tensor([p]), 8, base=10000.0, like=q) for p in (position_q, position_k))
        return (rotate(q, at_q) * rotate(k, at_k)).sum(-1)

    torch.testing.assert_close(product(a, b), product(a + shift, b + shift), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("branch", ["slc", "win"])
def test_scores_of_the_layer_depend_on_distance_only_for_every_head(branch):
    layer = layer_of(configured(), dtype=torch.float64)
    x = torch.randn(1, 1, 24, dtype=torch.float64).expand(1, 30, 24)
    heads = layer.project(x, turns(layer.config, x))
    k_BSHD = heads.k[branch].repeat_interleave(2, dim=2)
    score_HTS = torch.einsum("bthd,bshd->hts", heads.q_BTHD, k_BSHD)
    for distance in (0, 1, 5, 17):
        along = score_HTS.diagonal(-distance, 1, 2)
        torch.testing.assert_close(along, along[:, :1].expand_as(along), rtol=1e-9, atol=1e-9)


def test_a_compressed_key_scores_by_its_distance_only():
    layer = layer_of(configured(), dtype=torch.float64)
    x = torch.randn(1, 1, 24, dtype=torch.float64).expand(1, 48, 24)
    turn = turns(layer.config, x)
    heads = layer.project(x, turn)
    kc_BCHD = layer.compressed_keys(heads.k["cmp"], turn.blocks).repeat_interleave(2, dim=2)
    score_HTC = torch.einsum("bthd,bchd->htc", heads.q_BTHD, kc_BCHD)
    for shift in range(1, 6):
        moved, fixed = score_HTC[:, 12 + 4 * shift :, shift], score_HTC[:, 12 : 48 - 4 * shift, 0]
        torch.testing.assert_close(moved, fixed, rtol=1e-9, atol=1e-9)


def test_rotation_keeps_lengths_and_position_0_is_the_identity():
    x = torch.randn(1, 5, 2, 8, dtype=torch.float64)
    turned = rotate(x, angles(torch.arange(5), 8, base=10000.0, like=x))
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    assert torch.equal(turned[:, 0], x[:, 0])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_rotation_is_a_product_of_complex_numbers_and_turns_gradients_back(dtype):
    x = torch.randn(2, 9, 3, 8, dtype=dtype, requires_grad=True)
    by = angles(torch.arange(100, 109), 8, base=100.0, scale=2.0, like=x)
    frequency = 100.0 ** (-torch.arange(4, dtype=torch.float64) / 4)
    factor = torch.polar(torch.ones(9, 4, dtype=torch.float64), torch.arange(100, 109)[:, None] / 2 * frequency)

    def as_complex(t):
        a, b = t.detach().double().chunk(2, -1)
        return torch.complex(a, b)

    turned, do = rotate(x, by), torch.randn(2, 9, 3, 8, dtype=dtype)
    turned.backward(do)
    tolerance = {torch.float64: 1e-12, torch.float32: 2e-6, torch.bfloat16: 2e-2}[dtype]
    near = {"rtol": tolerance, "atol": tolerance}
    assert turned.dtype == x.grad.dtype == dtype
    torch.testing.assert_close(as_complex(turned), as_complex(x) * factor[:, None], **near)
    torch.testing.assert_close(as_complex(x.grad), as_complex(do) * factor.conj()[:, None], **near)


@pytest.mark.parametrize("boundaries", [None, (0, 9, 9, 30)])
def test_angles_computed_once_for_all_layers_are_those_that_a_layer_computes(boundaries):
    layer = layer_of(configured())
    x = torch.randn(1, 30, 24)
    cu = None if boundaries is None else torch.tensor(boundaries, dtype=torch.int32)
    turn = turns(layer.config, x, cu_seqlens=cu)
    assert torch.equal(layer(x, cu_seqlens=cu), layer(x, cu_seqlens=cu, turn=turn))
    if boundaries is None:
        last = torch.arange(layer.layout.n_cmp(30)) * layer.layout.d + layer.layout.l - 1
        own = angles(last, layer.config.d_k, base=layer.config.rope_base, like=x)
        assert torch.equal(turn.blocks.cos_T1D, own.cos_T1D)
        assert torch.equal(turn.blocks.sin_T1D, own.sin_T1D)


# phi and gate


def test_phi_starts_as_the_mean_and_learns_position():
    phi, layout = MlpPhi(l=4, width=6), BlockLayout(l=4, d=2, l_slc=4, n=3, w=4)
    x = torch.randn(1, 8, 2, 6)
    torch.testing.assert_close(phi(x, layout), MeanPhi()(x, layout))
    shaken(phi)
    assert not torch.allclose(phi(x, layout), phi(x.flip(1), layout).flip(1))


@given(st.integers(0, 40))
def test_compression_blocks_are_cut_where_the_layout_says(n_tokens):
    layout = BlockLayout(l=8, d=4, l_slc=8, n=3, w=4)
    x = torch.arange(n_tokens, dtype=torch.float32)[None, :, None, None]
    blocks = blocks_of(x, layout)
    assert blocks.shape == (1, layout.n_cmp(n_tokens), 1, 8, 1)
    for i in range(blocks.shape[1]):
        assert blocks[0, i, 0, :, 0].tolist() == list(layout.cmp_span(i))


def test_gates_start_at_one_half_and_are_independent():
    gate = Gate(dim=24, n_heads=4, kind="learned")
    x = torch.randn(2, 5, 24)
    assert (gate(x) == 0.5).all()
    shaken(gate)
    g = gate(x)
    assert g.shape == (2, 5, 4, 3)
    assert ((g > 0) & (g < 1)).all()
    assert not torch.allclose(g.sum(-1), torch.ones(2, 5, 4)), "sigmoids, not a softmax"


def test_shared_and_separate_projections_differ_in_size_only_where_they_should():
    separate, shared = layer_of(configured()), layer_of(configured(model__share_kv=True))
    assert separate.k_proj.weight.shape[0] == 3 * shared.k_proj.weight.shape[0]
    assert separate.v_proj.weight.shape[0] == 3 * shared.v_proj.weight.shape[0]
    assert shared(torch.randn(1, 40, 24)).shape == (1, 40, 24)


def test_gradients_stop_at_the_gate_when_asked():
    layer = layer_of(configured(model__gate_grad=False))
    layer(torch.randn(1, 20, 24)).square().sum().backward()
    assert layer.gate.fc1.weight.grad.abs().max() == 0
    assert layer.gate.fc2.weight.grad.abs().max() == 0


# the token loop


@pytest.mark.parametrize("length", [1, 7, 30])
def test_the_token_loop_gives_the_same_numbers_and_gradients(length):
    config = configured()
    fast, slow = layer_of(config), layer_of(config, SequentialAttention)
    x = torch.randn(2, length, 24)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    outputs = [fast(inputs[0]), slow(inputs[1])]
    torch.testing.assert_close(*outputs, rtol=1e-5, atol=1e-5)
    for y in outputs:
        y.square().sum().backward()
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad, rtol=1e-4, atol=1e-5)
    for (name, a), b in zip(fast.named_parameters(), slow.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-4, msg=name)
