"""The contract of every backend of every operator: equal to the fp64 reference, forward and gradients."""

from functools import cache
from types import SimpleNamespace

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask

from nsa.errors import ConfigError, KernelUnavailable
from nsa.kernels import registry
from nsa.kernels.combine.reference import combine as combine_reference
from nsa.kernels.compressed.cudnn import causal
from nsa.kernels.compressed.reference import compressed as compressed_reference
from nsa.kernels.samples import BY_NAME, CASES, Case, boundaries, random_index, tensors
from nsa.kernels.selected.reference import selected as selected_reference
from nsa.kernels.visibility import cmp_visible, slc_visible, win_visible
from nsa.kernels.window.flex import _band
from nsa.kernels.window.reference import window as window_reference

HAS_GPU = torch.cuda.is_available()
ON_GPU = [pytest.mark.gpu, pytest.mark.skipif(not HAS_GPU, reason="no CUDA device")]
DEVICES = ["cpu", pytest.param("cuda", marks=ON_GPU)]
# On a GPU: determinism is asked for as a wish here (for memory that starts as NaN), and flex_attention is compiled.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*defaults to a non-deterministic algorithm:UserWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
]
TOLERANCE = {torch.float32: (1e-5, 1e-5), torch.float16: (1e-3, 2e-3), torch.bfloat16: (4e-3, 8e-3)}
"""Of outputs and of gradients, relative to the fp64 reference; the same for every backend on every device."""


def backends(op):
    """Every torch backend of an operator; Triton has a suite of its own, in shapes that its interpreter can bear."""
    return [name for name in registry.KERNELS[op] if name != "triton"]


@pytest.fixture
def _nan_filled_memory():
    """Every new tensor starts as NaN, so that an element nobody wrote shows."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(False)


def run(op, name, case, x, index, *, dtype=torch.float32, device="cpu"):
    site = case.site(device=device, dtype=dtype)
    refusal = registry.refusal_of(op, name, site)
    if refusal is not None:
        pytest.skip(refusal)
    call = registry.resolve(op, choice=name, policy="exact", site=site).call
    return apply(op, call, case, x, index)


def apply(op, call, case, x, index):
    where = {"offset": case.offset, "cu_seqlens": boundaries(case, device=x["q"].device)}
    if op == "compressed":
        return call(x["q"], x["kc"], x["vc"], case.layout, **where)
    if op == "selected":
        return call(x["q"], x["k"], x["v"], index, l_slc=case.l_slc, **where)
    return call(x["q"], x["k"], x["v"], w=case.w, **where), None


REFERENCE = {"compressed": compressed_reference, "selected": selected_reference, "window": window_reference}
INPUTS = {"compressed": ("q", "kc", "vc"), "selected": ("q", "k", "v"), "window": ("q", "k", "v")}


def relative(got, want):
    return ((got.double() - want.double()).norm() / want.double().norm().clamp(min=1e-6)).item()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
@pytest.mark.parametrize(("op", "name"), [(op, n) for op in REFERENCE for n in backends(op)])
@pytest.mark.usefixtures("_nan_filled_memory")
def test_backend_equals_the_reference_forward_and_backward(op, name, case, device):
    ran = []
    for dtype in TOLERANCE:
        if registry.refusal_of(op, name, case.site(device=device, dtype=dtype)) is None:
            check_against_reference(op, name, case, device, dtype)
            ran.append(dtype)
    if not ran:
        pytest.skip(registry.refusal_of(op, name, case.site(device=device)))


@cache
def wanted(op, name_of_case, dtype, device):
    """The reference on the case's inputs as ``dtype`` rounds them: output, lse, the cotangent given, gradients."""
    case = BY_NAME[name_of_case]
    y = {k: v.detach().double().requires_grad_() for k, v in tensors(case, device=device, dtype=dtype).items()}
    o, lse = apply(op, REFERENCE[op], case, y, random_index(case, device=device))
    do = torch.randn(o.shape, generator=torch.Generator().manual_seed(1)).to(device, dtype)
    o.backward(do.double())
    return o.detach(), lse, do, {key: y[key].grad for key in INPUTS[op]}


def check_against_reference(op, name, case, device, dtype):
    x, index = tensors(case, device=device, dtype=dtype), random_index(case, device=device)
    o, lse = run(op, name, case, x, index, dtype=dtype, device=device)
    o_want, lse_want, do, grads_want = wanted(op, case.name, dtype, device)
    forward, backward = TOLERANCE[dtype]
    assert o.dtype == dtype
    assert o.shape == o_want.shape
    assert relative(o, o_want) < forward
    assert (o.double() - o_want).norm(dim=-1).max() < 4 * forward * o_want.norm(dim=-1).max().clamp(min=1e-3)
    if lse is not None:
        torch.testing.assert_close(lse.double(), lse_want, rtol=forward, atol=forward)
    o.backward(do)
    for key, want in grads_want.items():
        assert x[key].grad is not None, key
        if want is None or want.norm() < 1e-9:
            assert x[key].grad.norm() <= backward * do.norm(), key
        else:
            assert relative(x[key].grad, want) < backward, f"{key}: {relative(x[key].grad, want):.1e}"


def rounded_as_flash_kernels_do(op, case, x, index, do):
    """Output and gradients with p and dS rounded to the half type before their products, and one dk, dv per head."""
    q, k, v = (x[key].detach() for key in INPUTS[op])
    where = {"offset": case.offset, "cu_seqlens": boundaries(case)}
    if op == "compressed":
        visible = cmp_visible(case.T, case.C, case.layout, device=q.device, **where)
    elif op == "window":
        visible = win_visible(case.T, case.S, case.w, device=q.device, k_offset=0, **where)
    else:
        visible = slc_visible(index, case.S, l_slc=case.l_slc, **where)
    R = case.H // case.G
    visible = visible.expand(case.B, case.G, -1, -1).repeat_interleave(R, 1)
    q_, do_ = q.float().transpose(1, 2), do.float().transpose(1, 2)
    k_, v_ = (t.float().transpose(1, 2).repeat_interleave(R, 1) for t in (k, v))
    s = (q_ @ k_.mT * case.D**-0.5).masked_fill(~visible, -torch.inf)
    top = s.amax(-1, keepdim=True).clamp(min=-1e30)
    weight = (s - top).exp()
    total = weight.sum(-1, keepdim=True).clamp(min=1e-30)
    o = (weight.to(do.dtype).float() @ v_ / total).to(do.dtype)
    p = weight / total
    delta = (do_ * o.float()).sum(-1, keepdim=True)
    ds = (p * (do_ @ v_.mT - delta)).to(do.dtype).float()
    dq, dk = (ds @ k_ * case.D**-0.5).to(do.dtype), (ds.mT @ q_ * case.D**-0.5).to(do.dtype)
    dv = (p.to(do.dtype).float().mT @ do_).to(do.dtype)
    per_head = (g.unflatten(1, (case.G, R)).sum(2) for g in (dk, dv))
    return [t.transpose(1, 2) for t in (o, dq, *per_head)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("op", list(REFERENCE))
def test_a_kernel_that_rounds_where_vendors_do_keeps_the_tolerance(op, dtype):
    forward, backward = TOLERANCE[dtype]
    for case in CASES:
        if op == "compressed" and case.n_blocks == 0:
            continue
        x, index = tensors(case, dtype=dtype), random_index(case)
        o_want, _, do, grads_want = wanted(op, case.name, dtype, "cpu")
        o, *grads = rounded_as_flash_kernels_do(op, case, x, index, do)
        assert relative(o, o_want) < forward, case.name
        for got, want in zip(grads, grads_want.values(), strict=True):
            assert want.norm() < 1e-9 or relative(got, want) < backward, case.name


@pytest.mark.parametrize("name", ["masked", "gather"])
def test_gradients_through_lse_are_right_where_the_backend_offers_them(name):
    case = BY_NAME["plain"]
    x, index = tensors(case, dtype=torch.float64), random_index(case)
    y = {k: v.detach().clone().requires_grad_() for k, v in x.items()}
    _, lse = run("selected", name, case, x, index, dtype=torch.float64)
    _, lse_want = selected_reference(y["q"], y["k"], y["v"], index, l_slc=case.l_slc)
    weight = torch.randn(lse.shape, dtype=torch.float64)
    (lse * weight).sum().backward()
    (lse_want * weight).sum().backward()
    torch.testing.assert_close(x["q"].grad, y["q"].grad)
    torch.testing.assert_close(x["k"].grad, y["k"].grad)


@pytest.mark.parametrize("name", backends("selected"))
@pytest.mark.parametrize("device", DEVICES)
def test_a_query_without_blocks_gets_zero_and_gives_zero_gradients(name, device):
    case = BY_NAME["ragged-prime"]
    refusal = registry.refusal_of("selected", name, case.site(device=device))
    if refusal is not None:
        pytest.skip(refusal)
    x, index = tensors(case, device=device), random_index(case, device=device)
    index[0, 20:23], index[1, 7, 1] = -1, -1
    o, lse = run("selected", name, case, x, index, device=device)
    o.square().sum().backward()
    assert o[0, 20:23].abs().max() == 0
    assert (lse[0, 20:23] == -torch.inf).all()
    assert x["q"].grad[0, 20:23].abs().max() == 0
    group = case.H // case.G
    assert o[1, 7, group:].abs().max() == 0
    assert (o[1, 7, :group].abs().sum(-1) > 0).all()
    assert all(torch.isfinite(x[key].grad).all() for key in "qkv")


@pytest.mark.parametrize("op", list(REFERENCE))
@pytest.mark.parametrize("case", [BY_NAME["ragged-prime"], BY_NAME["documents"]], ids=lambda c: c.name)
def test_strided_inputs_give_the_same_numbers(op, case):
    for name in backends(op):
        if registry.refusal_of(op, name, case.site()) is not None:
            continue
        index = random_index(case)
        plain = run(op, name, case, tensors(case), index)[0]
        strided = run(op, name, case, tensors(case, is_contiguous=False), index)[0]
        torch.testing.assert_close(plain, strided, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("op", list(REFERENCE))
def test_the_same_inputs_give_the_same_bits(op):
    case = BY_NAME["ragged-prime"]
    for name in backends(op):
        if registry.refusal_of(op, name, case.site()) is not None:
            continue
        runs = []
        for _ in range(2):
            x, index = tensors(case), random_index(case)
            o, _ = run(op, name, case, x, index)
            o.square().sum().backward()
            runs.append([o, *(x[key].grad for key in INPUTS[op])])
        for first, second in zip(*runs, strict=True):
            assert torch.equal(first, second), name


@pytest.mark.parametrize("case", [c for c in CASES if c.T > 8], ids=lambda c: c.name)
def test_small_chunks_of_queries_change_nothing(case, monkeypatch):
    for op, name in (("compressed", "masked"), ("selected", "masked"), ("selected", "gather"), ("window", "masked")):
        results = []
        for limit in (1 << 24, 1500):
            monkeypatch.setattr("nsa.kernels.masked.SCORES_AT_ONCE", limit)
            monkeypatch.setattr("nsa.kernels.selected.gather.SCORES_AT_ONCE", limit)
            x, index = tensors(case), random_index(case)
            o, _ = run(op, name, case, x, index)
            o.square().sum().backward()
            results.append([o, *(x[key].grad for key in INPUTS[op])])
        for whole, pieces in zip(*results, strict=True):
            torch.testing.assert_close(whole, pieces, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", [n for n in registry.KERNELS["combine"] if n not in ("triton", "fused")])
def test_the_gated_sum_equals_its_reference(name):
    branches = [torch.randn(2, 9, 4, 8, requires_grad=True) for _ in range(3)]
    gate = torch.rand(2, 9, 4, 3, requires_grad=True)
    copies = [t.detach().double().requires_grad_() for t in (*branches, gate)]
    o = registry.load("combine", name)(*branches, gate)
    want = combine_reference(*copies)
    torch.testing.assert_close(o.double(), want, rtol=1e-6, atol=1e-6)
    do = torch.randn_like(o)
    o.backward(do)
    want.backward(do.double())
    for got, copy in zip((*branches, gate), copies, strict=True):
        torch.testing.assert_close(got.grad.double(), copy.grad, rtol=1e-5, atol=1e-5)


# The registry


def test_exact_raises_when_the_named_kernel_cannot_run_and_says_what_to_do():
    with pytest.raises(KernelUnavailable, match=r"kernels.window = 'flex' cannot run here: flex_attention has no"):
        registry.resolve("window", choice="flex", policy="exact", site=CASES[0].site())


def test_auto_replaces_it_and_records_why():
    resolution = registry.resolve("window", choice="flex", policy="auto", site=CASES[0].site())
    assert resolution.kernel == "sdpa"
    assert "flex was asked for but flex_attention has no backward on a CPU" in resolution.reason


@pytest.mark.parametrize(
    ("shared_KiB", "dtype", "width", "refusal"),
    [
        (163, torch.float32, 256, "its backward needs 168 KiB of shared memory for blocks of 64 keys .* program 163"),
        (227, torch.float32, 256, None),
        (163, torch.float32, 128, None),
        (163, torch.bfloat16, 256, None),
        (99, torch.float32, 128, None),
        (64, torch.bfloat16, 128, None),
        (64, torch.float32, 128, "its backward needs 88 KiB"),
    ],
)
def test_triton_is_refused_before_its_first_launch_where_it_does_not_fit_on_chip(
    shared_KiB, dtype, width, refusal, monkeypatch
):
    pytest.importorskip("triton")
    device = SimpleNamespace(shared_memory_per_block_optin=shared_KiB << 10)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: device)
    site = Case(name="wide", T=2048, D=width, E=width, l_slc=64).site(device="cuda", dtype=dtype)
    if refusal is None:
        assert registry.refusal_of("selected", "triton", site) is None
        return
    with pytest.raises(KernelUnavailable, match=refusal):
        registry.resolve("selected", choice="triton", policy="exact", site=site)
    chosen = registry.resolve("selected", choice="auto", policy="auto", site=site)
    assert chosen.kernel == "gather"
    assert "triton: its backward needs" in chosen.reason


def test_flash_attn_says_why_it_is_not_used():
    refusal = registry.refusal_of("window", "flash-attn", CASES[0].site())
    assert refusal in ("the package flash-attn is not installed", "flash-attn runs on a GPU only")


def test_an_unknown_kernel_is_an_error_with_a_suggestion():
    with pytest.raises(ConfigError, match="did you mean 'gather'"):
        registry.resolve("selected", choice="gater", policy="auto", site=CASES[0].site())


@pytest.mark.parametrize(("op", "name"), [(op, n) for op in registry.KERNELS for n in registry.KERNELS[op]])
def test_every_backend_either_loads_or_says_why_not(op, name):
    refusal = registry.refusal_of(op, name, CASES[0].site())
    if refusal is None:
        assert callable(registry.load(op, name))
    else:
        assert len(refusal) > 10


def test_every_preferred_kernel_is_in_the_table():
    for lists in registry.PREFERENCE.values():
        assert set(lists) == set(registry.KERNELS)
        for op, names in lists.items():
            assert set(names) <= set(registry.KERNELS[op])


def test_cudnn_is_refused_where_it_would_end_the_process_or_be_wrong():
    x = tensors(BY_NAME["heads-of-32"])
    with pytest.raises(KernelUnavailable, match="needs 32 compression blocks in a row, got 16"):
        registry.load("compressed", "cudnn")(x["q"], x["kc"], x["vc"], BY_NAME["heads-of-32"].layout)
    long = torch.empty(1, 8, 40, 2**23, device="meta")
    with pytest.raises(KernelUnavailable, match="got 2684354560"):
        causal(long, x["kc"], torch.empty(1, 8, 40, 8, device="meta"), scale=1.0)
    assert all("cudnn" not in names["compressed"] for names in registry.PREFERENCE.values())


@pytest.mark.parametrize(
    ("T", "S", "w", "shift"), [(300, 300, 20, 0), (512, 512, 512, 0), (129, 400, 200, 271), (1, 57, 8, 56)]
)
def test_the_tiles_of_the_band_are_those_that_torch_finds_by_looking_at_every_score(T, S, w, shift):
    got = _band(T, S, w, shift, torch.device("cpu"))
    want = create_block_mask(got.mask_mod, None, None, T, S, device="cpu")
    assert torch.equal(got.to_dense(), want.to_dense())
    for name in ("kv_num_blocks", "full_kv_num_blocks", "q_num_blocks", "full_q_num_blocks"):
        assert torch.equal(getattr(got, name), getattr(want, name)), name
