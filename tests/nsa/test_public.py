"""The function and the layer that other programs use, held against the fp64 references and against each other."""

import subprocess
import sys
from importlib import resources

import pytest
import torch

import nsa
from nsa import NSAAttention, nsa_attention
from nsa.attention.compress import MeanPhi
from nsa.attention.rope import turns
from nsa.blocks import BlockLayout
from nsa.errors import ConfigError, InputError, KernelUnavailable
from nsa.kernels.combine.reference import combine
from nsa.kernels.compressed.reference import compressed
from nsa.kernels.scores.reference import select
from nsa.kernels.selected.reference import selected
from nsa.kernels.window.reference import window

GEOMETRY = {"l": 8, "d": 4, "l_slc": 8, "n": 4, "w": 10}
LAYOUT = BlockLayout(**GEOMETRY)


def drawn(T=60, S=60, B=2, G=2, H=4, D=8, E=6, cu=None, seed=0):
    generator = torch.Generator().manual_seed(seed)
    C = LAYOUT.n_cmp(S) if cu is None else S // LAYOUT.d
    shapes = {
        "q_BTHD": (B, T, H, D),
        "k_BSGD": (B, S, G, D),
        "v_BSGE": (B, S, G, E),
        "k_cmp_BCGD": (B, C, G, D),
        "v_cmp_BCGE": (B, C, G, E),
        "gate_BTHC": (B, T, H, 3),
        "k_win_BSGD": (B, S, G, D),
        "v_win_BSGE": (B, S, G, E),
    }
    return {k: torch.randn(s, generator=generator, dtype=torch.float64).requires_grad_() for k, s in shapes.items()}


def reference(x, cu=None, scale=None):
    """The same from the operators' references: loops over documents and dense masks in fp64."""
    where = {"offset": x["k_BSGD"].shape[1] - x["q_BTHD"].shape[1], "cu_seqlens": cu, "scale": scale}
    cmp, lse = compressed(x["q_BTHD"], x["k_cmp_BCGD"], x["v_cmp_BCGE"], LAYOUT, **where)
    index = select(x["q_BTHD"], x["k_cmp_BCGD"], lse, LAYOUT, **where)
    slc, _ = selected(x["q_BTHD"], x["k_BSGD"], x["v_BSGE"], index, l_slc=LAYOUT.l_slc, **where)
    win = window(x["q_BTHD"], x["k_win_BSGD"], x["v_win_BSGE"], w=LAYOUT.w, **where)
    return combine(cmp, slc, win, x["gate_BTHC"])


@pytest.mark.parametrize("kernels", [None, {"selected": "gather"}, {"compressed": "masked", "window": "masked"}])
@pytest.mark.parametrize(
    "case",
    [
        {},
        {"T": 3, "S": 50},
        {"T": 5, "S": 5},
        {"B": 1, "cu": [0, 7, 7, 40, 60]},
        {"scale": 0.7},
        {"G": 4},
        {"G": 1, "E": 24},
    ],
    ids=str,
)
def test_the_function_gives_the_references_numbers_and_gradients(case, kernels):
    case = dict(case)
    scale, cu = case.pop("scale", None), case.pop("cu", None)
    x, y = (drawn(**case, cu=cu) for _ in range(2))
    boundaries = None if cu is None else torch.tensor(cu)
    o = nsa_attention(**x, **GEOMETRY, cu_seqlens=boundaries, scale=scale, kernels=kernels)
    wanted = reference(y, boundaries, scale)
    torch.testing.assert_close(o, wanted, rtol=1e-10, atol=1e-10)
    do = torch.randn(o.shape, dtype=o.dtype, generator=torch.Generator().manual_seed(9))
    o.backward(do)
    wanted.backward(do)
    for name in x:
        torch.testing.assert_close(x[name].grad, y[name].grad, rtol=1e-9, atol=1e-9, msg=name)


@pytest.mark.parametrize("cu", [None, [0, 7, 40, 60]])
def test_without_compressed_keys_it_takes_the_means_of_blocks_and_without_window_keys_the_same_keys(cu):
    x = drawn(B=1, cu=cu)
    boundaries = None if cu is None else torch.tensor(cu)
    spelled = {
        **x,
        "k_cmp_BCGD": MeanPhi()(x["k_BSGD"], LAYOUT, boundaries),
        "v_cmp_BCGE": MeanPhi()(x["v_BSGE"], LAYOUT, boundaries),
        "k_win_BSGD": x["k_BSGD"],
        "v_win_BSGE": x["v_BSGE"],
    }
    short = nsa_attention(
        x["q_BTHD"], x["k_BSGD"], x["v_BSGE"], None, None, x["gate_BTHC"], **GEOMETRY, cu_seqlens=boundaries
    )
    assert torch.equal(short, nsa_attention(**spelled, **GEOMETRY, cu_seqlens=boundaries))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q_BTHD": torch.zeros(2, 60, 4)}, r"q has shape \(2, 60, 4\); it needs \[batch, tokens, heads, width\]"),
        ({"q_BTHD": torch.zeros(2, 60, 3, 8)}, "q has 3 heads and k 2; every key head serves as many"),
        ({"q_BTHD": torch.zeros(2, 61, 4, 8)}, "61 queries and 60 keys"),
        ({"k_BSGD": torch.zeros(2, 60, 2, 10)}, "q has heads of 8 and k of 10"),
        ({"v_BSGE": torch.zeros(2, 59, 2, 6)}, "do not fit: the batch is the same in all three"),
        ({"v_BSGE": torch.zeros(2, 60, 2, 6).half()}, r"q is torch.float32 on cpu and v is torch.float16"),
        ({"gate_BTHC": torch.zeros(2, 60, 4, 2)}, r"they need \(2, 60, 4, 3\), in the order cmp, slc, win"),
        (
            {"k_cmp_BCGD": torch.zeros(2, 13, 2, 8), "v_cmp_BCGE": torch.zeros(2, 13, 2, 6)},
            "they need 14 rows of 2 heads",
        ),
        (
            {"k_win_BSGD": torch.zeros(2, 60, 4, 8), "v_win_BSGE": torch.zeros(2, 60, 4, 6)},
            "k_win .* they need 60 rows of 2",
        ),
        ({"v_win_BSGE": torch.zeros(2, 60, 2, 7)}, "v_win .* do not fit"),
        ({"cu_seqlens": torch.tensor([0, 60])}, "cu_seqlens with 2 rows"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_shapes(change, message):
    x = {name: t.detach().float() for name, t in drawn().items()}
    with pytest.raises(InputError, match=message):
        nsa_attention(**{**x, **change}, **GEOMETRY)


def test_geometry_and_kernels_that_do_not_exist_are_refused():
    x = drawn()
    with pytest.raises(ConfigError, match="d = 3 must divide l = 8"):
        nsa_attention(**x, **{**GEOMETRY, "d": 3})
    with pytest.raises(ConfigError, match=r"kernels\.selected = 'gathr' is unknown; did you mean 'gather'"):
        nsa_attention(**x, **GEOMETRY, kernels={"selected": "gathr"})
    with pytest.raises(ConfigError, match=r"unknown setting 'kernels\.chosen'"):
        nsa_attention(**x, **GEOMETRY, kernels={"chosen": "gather"})
    with pytest.raises(KernelUnavailable, match=r"kernels\.selected = 'triton' cannot run here"):
        nsa_attention(**x, **GEOMETRY, kernels={"selected": "triton"})


def test_the_function_compiles_as_one_graph():
    torch._dynamo.reset()
    x = {name: t.detach().float() for name, t in drawn().items()}
    compiled = torch.compile(nsa_attention, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(**x, **GEOMETRY), nsa_attention(**x, **GEOMETRY))
    torch._dynamo.reset()


def test_the_layer_is_the_function_between_its_projections():
    torch.manual_seed(0)
    layer = NSAAttention(32, 4, 2, **GEOMETRY, dtype=torch.float64).requires_grad_(False)
    for p in layer.parameters():
        p.copy_(torch.randn_like(p) * 0.2)
    x = torch.randn(1, 50, 32, dtype=torch.float64)
    cu = torch.tensor([0, 20, 50])
    turn = turns(layer.config, x, cu_seqlens=cu)
    heads = layer.project(x, turn)
    o = nsa_attention(
        heads.q_BTHD,
        heads.k["slc"],
        heads.v["slc"],
        layer.compressed_keys(heads.k["cmp"], turn.blocks, cu_seqlens=cu),
        layer.compressed_values(heads.v["cmp"], cu_seqlens=cu),
        layer.gate(x),
        k_win_BSGD=heads.k["win"],
        v_win_BSGE=heads.v["win"],
        **GEOMETRY,
        cu_seqlens=cu,
    )
    assert torch.equal(layer.o_proj(o.flatten(2)), layer(x, cu_seqlens=cu))


def test_the_layer_takes_plain_arguments_and_says_what_does_not_fit():
    layer = NSAAttention(48, 6, d_v=10, dtype=torch.bfloat16)
    assert layer(torch.randn(2, 70, 48, dtype=torch.bfloat16)).shape == (2, 70, 48)
    assert (layer.k_proj.out_features, layer.v_proj.out_features) == (3 * 6 * 8, 3 * 6 * 10)
    assert (layer.layout.l, layer.layout.d, layer.layout.l_slc, layer.layout.n, layer.layout.w) == (32, 16, 64, 16, 512)
    for arguments, options, message in [
        ((48, 5, 2), {"d_k": 8}, r"model\.n_heads = 5 is not a multiple"),
        ((48, 0), {}, r"model\.n_heads = 0 is too small"),
        ((48, 16), {}, r"model\.d_k = 3 is odd"),
        ((48, 6), {"phi": "linear"}, r"model\.phi = 'linear' is not a choice"),
        ((48, 6), {"d": 7}, "d = 7 must divide"),
        ((48, 6), {"kernels": {"windw": "sdpa"}}, "did you mean 'kernels.window'"),
    ]:
        with pytest.raises(ConfigError, match=message):
            NSAAttention(*arguments, **options)


def test_a_layer_of_the_meta_device_is_filled_as_a_built_one_is():
    layer = NSAAttention(48, 6, device="meta", dtype=torch.float64)
    assert {(p.device.type, p.dtype) for p in layer.parameters()} == {("meta", torch.float64)}
    layer.to_empty(device="cpu")
    torch.manual_seed(0)
    layer.reset_parameters()
    built = NSAAttention(48, 6, dtype=torch.float64)
    torch.manual_seed(0)
    built.reset_parameters()
    for (name, a), b in zip(layer.named_parameters(), built.parameters(), strict=True):
        assert torch.equal(a, b), name
    assert not layer.gate.fc2.weight.any()


def test_public_names_are_listed_typed_and_loaded_only_when_asked_for():
    assert set(nsa.__all__) <= set(dir(nsa))
    assert resources.files("nsa").joinpath("py.typed").is_file()
    with pytest.raises(AttributeError, match="no attribute 'nsa_atention'"):
        _ = nsa.nsa_atention
    code = (
        "import sys, nsa.config; assert 'torch' not in sys.modules; import nsa; nsa.nsa_attention; nsa.NSAAttention; "
    )
    code += "assert 'torch' in sys.modules and 'transformers' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
