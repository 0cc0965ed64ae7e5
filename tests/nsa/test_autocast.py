"""Autocast chooses types for the model's own layers; inside the attention's operators it changes nothing.

A GPU's autocast computes more in fp32 than a CPU's: norms and sums among it. Where a test needs that, the CPU's
autocast is given the GPU's list.
"""

from pathlib import Path

import pytest
import torch

import nsa
from nsa.attention.layer import NsaAttention
from nsa.config import RunConfig
from nsa.kernels import flash, registry
from nsa.kernels.masked import masked_attention
from nsa.kernels.registry import resolve_all
from nsa.kernels.samples import BY_NAME, boundaries, random_index, tensors
from nsa.kernels.visibility import win_visible
from nsa.model.build import site_of
from nsa.train.trainer import train

BF16 = torch.bfloat16
AUTOCAST_CPU = torch._C.DispatchKey.AutocastCPU
INPUTS = {
    "compressed": ("q", "kc", "vc"),
    "scores": ("q", "kc"),
    "selected": ("q", "k", "v"),
    "window": ("q", "k", "v"),
    "combine": ("cmp", "slc", "win", "gate"),
}


def autocast(dtype=BF16, *, is_on=True):
    return torch.autocast("cpu", dtype=dtype, enabled=is_on)


@pytest.fixture
def _a_gpus_list():
    """What CUDA's autocast computes in fp32 and the CPU's does not (fp32_set_opt_dtype in autocast_mode.h)."""
    library = torch.library.Library("aten", "IMPL")
    for name in ("linalg_vector_norm", "sum", "sum.dim_IntList", "cumsum"):
        packet, _, overload = name.partition(".")
        operator = getattr(getattr(torch.ops.aten, packet), overload or "default")

        def in_fp32(x, *args, _operator=operator, **how):
            with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(AUTOCAST_CPU)):
                if x.dtype in (torch.float16, BF16, torch.float32):
                    how["dtype"] = how.get("dtype") or torch.float32
                return _operator(x, *args, **how)

        library.impl(name, in_fp32, "AutocastCPU")
    yield
    library._destroy()


def on_a_cpu(op):
    return [n for n in registry.KERNELS[op] if registry.refusal_of(op, n, BY_NAME["plain"].site()) is None]


def called(op, name, case, x):
    """The operator's results that are not None, whichever operator it is."""
    call = registry.resolve(op, choice=name, policy="exact", site=case.site(dtype=x["q"].dtype)).call
    where = {"offset": case.offset, "cu_seqlens": boundaries(case)}
    if op == "compressed":
        return call(x["q"], x["kc"], x["vc"], case.layout, **where)
    if op == "scores":
        lse = torch.full(x["q"].shape[:3], 2.0)
        return (call(x["q"], x["kc"], lse, case.layout, **where),)
    if op == "selected":
        return call(x["q"], x["k"], x["v"], random_index(case), l_slc=case.l_slc, **where)
    if op == "window":
        return (call(x["q"], x["k"], x["v"], w=case.w, **where),)
    return (call(x["cmp"], x["slc"], x["win"], x["gate"]),)


@pytest.mark.parametrize("case", ["ragged-prime", "shorter-than-l", "behind-a-cache", "documents"])
@pytest.mark.parametrize(("op", "name"), [(op, n) for op in INPUTS for n in on_a_cpu(op)])
@pytest.mark.usefixtures("_a_gpus_list")
def test_a_kernel_gives_the_same_bits_with_autocast_around_it(op, name, case):
    case, bits = BY_NAME[case], []
    for is_on in (False, True):
        x = tensors(case, dtype=BF16)
        shape = (*x["q"].shape[:3], case.E)
        drawn = torch.Generator().manual_seed(3)
        for key, size in (("cmp", shape), ("slc", shape), ("win", shape), ("gate", (*shape[:3], 3))):
            x[key] = torch.randn(size, generator=drawn).to(BF16).requires_grad_()
        with autocast(is_on=is_on):
            o, *rest = called(op, name, case, x)
            if op != "scores":
                assert o.dtype == BF16
                o.backward(torch.ones_like(o))  # inside: torch advises against it, and people do it
        bits.append([o, *rest, *(x[key].grad for key in INPUTS[op] if op != "scores")])
    for plain, cast in zip(*bits, strict=True):
        assert plain.dtype == cast.dtype
        assert torch.equal(plain, cast)


@pytest.fixture
def _flash_kernel(monkeypatch):
    """Torch's flash kernel, which refuses tensors of several types, by masked attention."""

    def forward(q, k, v, cu_q, cu_k, longest_q, longest_k, *, scale, window_size_left, **_):
        if {q.dtype, k.dtype, v.dtype} != {q.dtype}:
            raise RuntimeError("query and key must have the same dtype")
        where = {"device": q.device, "offset": longest_k - longest_q, "k_offset": 0, "cu_seqlens": None}
        visible = win_visible(longest_q, longest_k, window_size_left + 1, **where)
        o, lse = masked_attention(q, k, v, visible, scale)
        return o, lse.transpose(1, 2).contiguous(), torch.zeros(2, dtype=torch.uint64)

    monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", forward)


@pytest.mark.usefixtures("_a_gpus_list", "_flash_kernel")
def test_torchs_flash_kernel_is_given_one_type_under_a_gpus_autocast():
    q, k, v = (tensors(BY_NAME["plain"], dtype=BF16)[key] for key in "qkv")
    plain = flash.flash_attention(q, k, v, None, 0.3, 8)
    with autocast():
        assert torch.linalg.vector_norm(q, dim=-1).dtype == torch.float32
        cast = flash.flash_attention(q, k, v, None, 0.3, 8)
    assert all(torch.equal(a, b) for a, b in zip(plain, cast, strict=True))


ROUTES = [
    ("packed", "sdpa", "sdpa"),
    ("masked", "gather", "masked"),
    ("packed", "packed", "sdpa"),
]


@pytest.mark.parametrize("phi", ["mlp", "mean"])
@pytest.mark.parametrize("dtype", [BF16, torch.float16], ids=str)
@pytest.mark.parametrize("route", ROUTES, ids="-".join)
@pytest.mark.usefixtures("_a_gpus_list")
def test_every_kernel_of_a_layer_is_given_autocasts_type_and_returns_it(route, dtype, phi):
    names = dict(zip(("kernels.compressed", "kernels.selected", "kernels.window"), route, strict=True))
    sizes = {"model.dim": 32, "model.n_heads": 4, "train.seq_len": 96, "model.phi": phi}
    config = RunConfig().with_values({**sizes, **names})
    layer, types = NsaAttention(config.model, resolve_all(config.kernels, site_of(config))), {}

    def watched(op, call):
        def run(*args, **how):
            given = args[: len(INPUTS[op])]
            out = call(*args, **how)
            returned = [] if op == "scores" else [out[0] if type(out) is tuple else out]
            types[op] = {x.dtype for x in (*given, *returned)}
            return out

        return run

    layer.kernels = {op: watched(op, call) for op, call in layer.kernels.items()}
    with autocast(dtype):
        layer(torch.randn(2, 96, 32))
    assert types == {op: {dtype} for op in INPUTS}


def test_recomputation_changes_no_loss_in_mixed_precision():
    sizes = {"model.n_layers": 2, "model.dim": 32, "model.n_heads": 2, "model.n_kv_groups": 1, "train.seq_len": 64}
    config = RunConfig().with_values({**sizes, "train.steps": 2, "train.precision": "bf16"})
    assert config.train.precision_mode == "autocast"
    kinds = ("none", "nonreentrant", "reentrant", "selective")
    losses = {kind: train(config.with_value("train.checkpointing", kind)).losses for kind in kinds}
    assert losses == dict.fromkeys(kinds, losses["none"])


def test_every_operator_of_ours_is_registered_where_autocast_is_kept_out():
    root = Path(nsa.__file__).parent
    ways = ("library.custom_op(", "library.define(", "library.Library(")
    found = {p.relative_to(root).as_posix() for p in root.rglob("*.py") if any(way in p.read_text() for way in ways)}
    assert found == {"kernels/operators.py"}
