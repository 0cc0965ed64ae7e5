"""Settings that choose kernels really change what runs, and never what comes out."""

import importlib
import sys
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


HOPPER, AMPERE = (9, 0), (8, 0)
WIDE = {"d_k": 128, "d_v": 128}


@pytest.fixture
def site_on(monkeypatch):
    """A site on a GPU of a given compute capability, with changes."""
    pytest.importorskip("triton")

    def site(gpu, **changes):
        monkeypatch.setattr("nsa.kernels.devices.capability", lambda _: gpu)
        plain = {"dtype": torch.bfloat16, "d_k": 64, "d_v": 64}
        heads = {"n_heads": 12, "n_kv_groups": 2}
        layout = BlockLayout(l=32, d=16, l_slc=64, n=16, w=512)
        return Site(device=torch.device("cuda"), seq_len=2048, layout=layout, **plain | heads | changes)

    return site


@pytest.mark.parametrize(
    ("gpu", "changes", "expected", "said"),
    [
        (HOPPER, WIDE, ("hopper", "hopper"), "first choice"),
        (HOPPER, WIDE | {"dtype": torch.float16}, ("hopper", "hopper"), "first choice"),
        (HOPPER, {}, ("tiles", "tiles"), "hopper: timed at head widths of 128, not at 64"),
        (HOPPER, WIDE | {"dtype": torch.float32}, ("tiles", "tiles"), "hopper: the kernels take bf16 or fp16"),
        (HOPPER, {"d_k": 128, "d_v": 64}, ("tiles", "tiles"), "hopper: the kernels take one head width, 64 or 128"),
        (HOPPER, {"d_k": 96, "d_v": 96}, ("tiles", "tiles"), "hopper: the kernels take one head width, 64 or 128"),
        (HOPPER, WIDE | {"sdpa": "no-flash"}, ("packed", "sdpa"), "asks for an attention of torch's"),
        (AMPERE, {}, ("tiles", "tiles"), "hopper: these kernels are for a GPU of compute capability 9.0"),
        (AMPERE, WIDE, ("packed", "flash"), "timed at head widths up to 64, not at 128, but for Hopper GPUs"),
        ((10, 0), WIDE, ("packed", "flash"), "hopper: these kernels are for a GPU of compute capability 9.0"),
    ],
    ids=str,
)
def test_a_gpu_takes_the_kernels_that_were_timed_there_and_says_why_not_the_others(
    gpu, changes, expected, said, site_on
):
    pytest.importorskip("triton.experimental.gluon")
    site = site_on(gpu, **changes)
    chosen = [resolve(op, choice="auto", policy="auto", site=site) for op in ("compressed", "window")]
    assert tuple(c.kernel for c in chosen) == expected
    assert all(said in c.reason for c in chosen)
    for op in ("compressed", "window"):
        named = resolve(op, choice="tiles", policy="exact", site=replace(site, sdpa="any"))
        assert named.kernel == "tiles"
    # Under a mask of selected blocks tiles were timed at 64 alone.
    yields = importlib.import_module("nsa.kernels.selected.tiles").yields(site)
    assert (yields is None) == (max(site.d_k, site.d_v) <= 64)


@pytest.mark.parametrize(
    ("gpu", "seq_len", "width", "expected", "said"),
    [
        (HOPPER, 4096, 128, "hopper", "first choice"),
        (HOPPER, 4096, 64, "hopper", "first choice"),
        (HOPPER, 4095, 128, "triton", "hopper: faster from 4096 tokens on, and there are 4095"),
        (HOPPER, 65536, 96, "triton", "hopper: the kernels take a head width of 64 or 128, not 96"),
        (AMPERE, 65536, 128, "triton", "hopper: these kernels are for a GPU of compute capability 9.0"),
    ],
)
def test_block_selection_takes_the_hopper_kernels_from_the_length_on_at_which_they_are_faster(
    gpu, seq_len, width, expected, said, site_on
):
    pytest.importorskip("triton.experimental.gluon")
    site = replace(site_on(gpu, d_k=width, d_v=width), seq_len=seq_len)
    chosen = resolve("scores", choice="auto", policy="auto", site=site)
    assert chosen.kernel == expected
    assert said in chosen.reason


def test_block_selection_for_hopper_runs_at_any_length_when_asked_for(site_on):
    pytest.importorskip("triton.experimental.gluon")
    assert resolve("scores", choice="hopper", policy="exact", site=site_on(HOPPER, **WIDE)).kernel == "hopper"
    for gpu, changes, said in (
        (AMPERE, {}, "compute capability 9.0"),
        (HOPPER, {"dtype": torch.float32}, "bf16 or fp16"),
        (HOPPER, {"d_k": 96, "d_v": 96}, "64 or 128"),
    ):
        with pytest.raises(KernelUnavailable, match=said):
            resolve("scores", choice="hopper", policy="exact", site=site_on(gpu, **WIDE | changes))


def test_the_selected_branch_runs_on_the_hopper_kernels_where_they_were_timed_faster(site_on, monkeypatch):
    pytest.importorskip("triton.experimental.gluon")
    monkeypatch.setattr("nsa.kernels.selected.triton._smem_bytes", lambda _: 227 << 10)
    site = site_on(HOPPER, **WIDE, n_heads=64, n_kv_groups=4)
    assert resolve("selected", choice="auto", policy="auto", site=site).kernel == "hopper"
    narrow = resolve("selected", choice="auto", policy="auto", site=replace(site, d_k=64, d_v=64))
    assert narrow.kernel != "hopper"
    assert "timed at head width 128" in narrow.reason
    assert resolve("selected", choice="hopper", policy="exact", site=site).kernel == "hopper"
    for gpu, changes, said in (
        (AMPERE, {}, "compute capability 9.0"),
        (HOPPER, {"dtype": torch.float32}, "bf16 or fp16"),
        (HOPPER, {"d_v": 64}, "one head width, 64 or 128, not 128 and 64"),
        (HOPPER, {"n_heads": 16}, "16 heads of one group, and a group has 4"),
        (HOPPER, {"layout": BlockLayout(l=32, d=16, l_slc=48, n=16, w=512)}, "l_slc is 48"),
    ):
        with pytest.raises(KernelUnavailable, match=said):
            resolve(
                "selected",
                choice="hopper",
                policy="exact",
                site=replace(site_on(gpu, **WIDE), **{"n_heads": 64, "n_kv_groups": 4} | changes),
            )


def test_block_scores_for_hopper_need_whole_blocks_in_a_tile(site_on):
    pytest.importorskip("triton.experimental.gluon")
    site = replace(site_on(HOPPER, **WIDE), layout=BlockLayout(l=32, d=16, l_slc=48, n=16, w=512))
    with pytest.raises(KernelUnavailable, match="l_slc / d is 3"):
        resolve("scores", choice="hopper", policy="exact", site=site)


def test_a_triton_without_gluon_leaves_hopper_to_the_other_kernels(site_on, monkeypatch):
    pytest.importorskip("triton.experimental.gluon")
    for name in [n for n in sys.modules if "hopper" in n and n.startswith("nsa.kernels")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "nsa.kernels.hopper.triton_names", None)
    site = site_on(HOPPER, **WIDE)
    for op in ("compressed", "window"):
        chosen = resolve(op, choice="auto", policy="auto", site=site)
        assert chosen.kernel == "tiles"
        assert "hopper: it cannot be imported" in chosen.reason
        with pytest.raises(KernelUnavailable, match="it cannot be imported"):
            resolve(op, choice="hopper", policy="exact", site=site)


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
