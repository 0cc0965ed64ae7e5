"""Estimates against reality, and the numbers about gates and selection."""

import math

import pytest
import torch

from nsa.attention.stats import watch_attention
from nsa.config import RunConfig
from nsa.kernels.combine import fused
from nsa.model.build import build_model
from nsa.model.estimate import estimate, n_parameters
from nsa.train.precision import cast, next_token_loss

SHAPES = [
    {},
    {"model.n_layers": 2, "model.dim": 64, "model.n_heads": 4, "train.batch_size": 3},
    {"model.d_k": 32, "model.d_v": 24, "train.seq_len": 384},
    {"model.decoder": "modern", "model.w": 32},
    {"model.attention": "dense"},
    {"model.phi": "mean"},
]
MORE = [
    {"model.tied_head": True},
    {"model.share_kv": True},
    {"model.branches": "cmp"},
    {"model.branches": "slc"},
    {"model.branches": "win"},
    {"model.attention": "legacy-sequential"},
]


@pytest.mark.parametrize("changes", SHAPES + MORE, ids=str)
def test_the_parameter_count_is_exact(changes):
    config = RunConfig().with_values(changes)
    model, _ = build_model(config)
    assert n_parameters(config.model) == sum(p.numel() for p in model.parameters())


def kept(config):
    model, _ = build_model(config)
    cast(model, config.train)
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    held = {}

    def pack(x):
        if x.untyped_storage().data_ptr() not in weights:
            held[x.untyped_storage().data_ptr()] = x.untyped_storage()
        return x

    ids = torch.randint(256, (config.train.batch_size, config.train.seq_len + 1))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        loss = next_token_loss(model, config.train, ids)
    loss.backward()
    return sum(storage.nbytes() for storage in held.values())


@pytest.mark.parametrize("changes", SHAPES, ids=str)
def test_the_memory_estimate_is_within_ten_percent_of_what_autograd_keeps(changes):
    config = RunConfig().with_values(changes)
    assert estimate(config).kept_bytes == pytest.approx(kept(config), rel=0.10)


HALVES = {"bf16 throughout": ("bf16", "pure"), "bf16 autocast": ("bf16", "autocast"), "fp16": ("fp16", "autocast")}


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("changes", [SHAPES[1], SHAPES[3], SHAPES[4]], ids=str)
def test_the_memory_estimate_follows_the_precision(changes, half):
    precision, mode = HALVES[half]
    config = RunConfig().with_values({**changes, "train.precision": precision, "train.precision_mode": mode})
    assert estimate(config).kept_bytes == pytest.approx(kept(config), rel=0.10)


@pytest.mark.parametrize(
    ("precision", "mode", "size"), [("fp32", "autocast", 16), ("bf16", "autocast", 16), ("bf16", "pure", 8)]
)
def test_state_is_weights_gradients_and_two_moments(precision, mode, size):
    config = RunConfig().with_values({"train.precision": precision, "train.precision_mode": mode})
    assert estimate(config).state_bytes == size * n_parameters(config.model)
    assert estimate(config).total_bytes == estimate(config).state_bytes + estimate(config).kept_bytes


def test_fresh_gates_are_even_and_selection_counts_are_exact():
    config = RunConfig().with_value("model.n_layers", 2)
    model, _ = build_model(config)
    with watch_attention(model) as watch:
        model(torch.randint(256, (2, 256)))
    assert len(watch.layers) == 2
    facts = watch.facts()
    assert facts["layer1.gate_cmp"] == 0.5
    assert facts["layer0.gate_entropy_mean"] == pytest.approx(math.log(3))
    layout = config.model.layout
    k = [layout.n_selected(t) for t in range(256)]
    assert facts["layer0.k_mean"] == pytest.approx(sum(k) / 256)
    assert facts["layer0.k_max"] == layout.n
    assert facts["layer0.rows"] == 2 * 256 * config.model.n_kv_groups
    assert facts["layer0.pct_at_max"] == pytest.approx(100 * sum(x == layout.n for x in k) / 256)
    assert 0 < facts["layer0.overlap"] <= 1
    assert facts["layer0.distance"] >= 2


def test_overlap_and_distance_of_a_known_selection():
    from nsa.attention.stats import LayerWatch

    layout = RunConfig().model.layout
    index = torch.tensor([[[[0, 2, 5, 6, -1, -1]], [[0, 3, 5, 6, -1, -1]]]], dtype=torch.int32)
    facts = LayerWatch(layout=layout, index_BTGN=index, offset=6 * 16).selection_facts()
    assert facts["overlap"] == 0.75
    assert facts["distance"] == (4 + 3) / 2
    assert facts["k_mean"] == 4


def test_nothing_is_left_behind_when_watching_ends():
    model, _ = build_model(RunConfig().with_value("model.n_layers", 1))
    before = model.blocks[0].attn.kernels["scores"]
    with watch_attention(model) as watch:
        model(torch.randint(256, (1, 64)))
    record = watch.layers[0].index_BTGN
    model(torch.randint(256, (1, 32)))
    assert watch.layers[0].index_BTGN is record
    assert model.blocks[0].attn.kernels["scores"] is before
    assert not model.blocks[0].attn.gate._forward_hooks


def test_one_operator_for_all_branches_serves_whoever_watches(monkeypatch):
    model, _ = build_model(RunConfig().with_value("model.n_layers", 1))
    calls = []

    def attend(q, _keys, gate, layout, names, *, scale=None):
        calls.append(names)
        return q * gate.sum(-1, keepdim=True), torch.full((*q.shape[:2], 2, layout.n), len(calls), dtype=torch.int32)

    monkeypatch.setattr(fused, "attend", attend)
    monkeypatch.setattr(fused, "serves", lambda names: names.get("scores") == "torch")
    with watch_attention(model) as outer, watch_attention(model) as inner:
        model(torch.randint(256, (1, 64)))
    assert len(calls) == 1
    for watch in (outer, inner):
        assert (watch.layers[0].index_BTGN == 1).all()
        assert watch.layers[0].gate_BTHC.shape[:2] == (1, 64)
    select = model.blocks[0].attn.kernels["scores"]
    model.blocks[0].attn.kernels["scores"] = lambda *given, **where: select(*given, **where)
    with watch_attention(model) as watch:  # of a function that somebody put there, by itself
        model(torch.randint(256, (1, 64)))
    assert len(calls) == 1
    assert watch.layers[0].index_BTGN.min() == -1


def test_a_decoding_step_reads_what_the_paper_predicts():
    config = RunConfig().with_value("model.n_layers", 1)
    model, _ = build_model(config)
    cache = model.new_cache(256)
    with torch.no_grad():
        model(torch.randint(256, (1, 200)), cache=cache)
        for position in (200, 201, 202):
            with watch_attention(model) as watch:
                model(torch.randint(256, (1, 1)), cache=cache)
            assert watch.layers[0].tokens_read(position) == config.model.layout.tokens_read(position)
