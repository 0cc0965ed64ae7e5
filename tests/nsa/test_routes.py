"""Settings that choose kernels really change what runs, and never what comes out."""

from dataclasses import replace

import pytest
import torch

from nsa.blocks import BlockLayout
from nsa.config import RunConfig
from nsa.errors import KernelUnavailable
from nsa.kernels.registry import Site, resolve
from nsa.model.build import build_model
from nsa.train.effective import effective

SIZES = {"model.n_layers": 1, "model.dim": 32, "model.n_heads": 4, "train.seq_len": 200}


def small(environ):
    return effective(None, overrides=[f"{path}={value}" for path, value in SIZES.items()], environ=environ).config


def built(config):
    torch.manual_seed(0)
    model, resolutions = build_model(config)
    return model, {r.op: r.kernel for r in resolutions}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, {"compressed": "packed", "selected": "sdpa", "window": "sdpa"}),
        ({"NSA_SDPA_NO_FLASH": "1"}, {"compressed": "masked", "selected": "gather", "window": "sdpa"}),
        ({"NSA_SDPA_FLASH_ONLY": "1"}, {"compressed": "packed", "selected": "sdpa", "window": "sdpa"}),
        ({"NSA_USE_SEL_PACK": "1"}, {"selected": "packed"}),
        ({"NSA_USE_SEL_MASK": "1"}, {"selected": "masked"}),
        ({"NSA_FORCE_PARITY": "1"}, {"selected": "gather"}),
        ({"NSA_USE_CMP_MASK": "1", "NSA_USE_WIN_MASK": "1"}, {"compressed": "masked", "window": "masked"}),
        ({"NSA_USE_FA2_WIN": "0", "NSA_USE_FA2_CMP": "0"}, {"compressed": "packed", "window": "sdpa"}),
    ],
    ids=str,
)
def test_the_origins_switches_change_the_kernel_and_not_the_numbers(environ, expected):
    plain, _ = built(RunConfig().with_values(SIZES))
    switched, kernels = built(small(environ))
    assert expected.items() <= kernels.items()
    ids = torch.randint(256, (1, 200))
    outputs = [model(ids) for model in (plain, switched)]
    torch.testing.assert_close(*outputs, rtol=1e-4, atol=1e-5)
    for out in outputs:
        out.square().mean().backward()
    for a, b in zip(plain.parameters(), switched.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "expected", "said"),
    [
        ({}, ("tiles", "tiles"), "first choice"),
        ({"d_k": 128, "d_v": 128}, ("packed", "flash"), "timed at head widths up to 64, not at 128"),
        ({"sdpa": "no-flash"}, ("packed", "sdpa"), "asks for an attention of torch's"),
    ],
    ids=str,
)
def test_a_gpu_takes_tiles_where_they_were_timed_and_torchs_kernels_were_not_asked_for(changes, expected, said):
    pytest.importorskip("triton")
    site = Site(
        device=torch.device("cuda"), dtype=torch.bfloat16, seq_len=2048, n_heads=12, n_kv_groups=2,
        **{"d_k": 64, "d_v": 64, **changes}, layout=BlockLayout(l=32, d=16, l_slc=64, n=16, w=512),
    )  # fmt: skip
    chosen = [resolve(op, choice="auto", policy="auto", site=site) for op in ("compressed", "window")]
    assert tuple(c.kernel for c in chosen) == expected
    assert all(said in c.reason for c in chosen)
    assert resolve("window", choice="tiles", policy="exact", site=replace(site, sdpa="any")).kernel == "tiles"


def test_long_sequences_take_the_route_without_a_mask():
    _, kernels = built(RunConfig().with_values({**SIZES, "train.seq_len": 8192}))
    assert kernels["selected"] == "gather"


@pytest.mark.parametrize("environ", [{"NSA_USE_TRITON_SEL": "1"}, {"NSA_USE_FA2": "1"}], ids=str)
def test_a_switch_that_cannot_be_followed_here_raises_and_is_never_dropped(environ):
    with pytest.raises(KernelUnavailable, match="cannot run here"):
        built(small(environ))


@pytest.mark.parametrize("gate", ["cmp", "slc", "win"])
def test_forcing_a_gate_still_computes_and_trains_through_every_branch(gate):
    model, _ = built(RunConfig().with_values({**SIZES, "model.gate": gate}))
    model(torch.randint(256, (1, 200))).square().mean().backward()
    assert all(p.grad is not None for p in model.parameters())
    third = model.blocks[0].attn.v_proj.weight.shape[0] // 3
    used = {
        name: model.blocks[0].attn.v_proj.weight.grad[i * third : (i + 1) * third]
        for i, name in enumerate(("cmp", "slc", "win"))
    }
    for name, grad in used.items():
        assert (grad.abs().max() > 0) == (name == gate)
