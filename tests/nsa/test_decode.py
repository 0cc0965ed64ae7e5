"""One path for prefill, chunked prefill and decoding: the same outputs and the same selections."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nsa.attention.cache import CacheError
from nsa.config import RunConfig
from nsa.model.build import build_model
from nsa.model.generate import generate

SIZES = {
    "model.dim": 24,
    "model.n_layers": 2,
    "model.n_heads": 4,
    "model.n_kv_groups": 2,
    "model.d_k": 8,
    "model.d_v": 6,
    "model.l": 8,
    "model.d": 4,
    "model.l_slc": 8,
    "model.n": 4,
    "model.w": 10,
}


def model_of(**changes):
    torch.manual_seed(0)
    config = RunConfig().with_values({**SIZES, **{k.replace("__", "."): v for k, v in changes.items()}})
    model, _ = build_model(config)
    model.double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("fc2.weight", ".pe")):
                parameter.add_(torch.randn_like(parameter) * 0.3)
    return model.requires_grad_(False)


MODELS = {name: model_of(model__attention=name) for name in ("nsa", "dense")} | {
    "packed": model_of(kernels__selected="packed", kernels__compressed="packed", kernels__window="sdpa"),
    "gather": model_of(kernels__selected="gather", kernels__compressed="masked", kernels__window="masked"),
    "cmp only": model_of(model__branches="cmp"),
    "slc only": model_of(model__branches="slc"),
    "win only": model_of(model__branches="win"),
    "shared": model_of(model__share_kv=True),
}


def fed(model, ids, sizes, cache):
    pieces, start = [], 0
    for size in sizes:
        pieces.append(model(ids[:, start : start + size], cache=cache))
        start += size
    return torch.cat(pieces, 1)


@pytest.mark.parametrize("name", MODELS)
def test_decoding_token_by_token_equals_prefill_at_every_position(name):
    model, ids = MODELS[name], torch.randint(256, (2, 43))
    whole = model(ids)
    stepped = fed(model, ids, [1] * 43, model.new_cache(43))
    torch.testing.assert_close(stepped, whole, rtol=1e-9, atol=1e-9)


@settings(max_examples=25)
@given(st.sampled_from(["nsa", "packed", "gather"]), st.lists(st.integers(1, 17), min_size=1, max_size=6))
def test_any_division_into_chunks_equals_prefill(name, sizes):
    model = MODELS[name]
    ids = torch.randint(256, (1, sum(sizes)), generator=torch.Generator().manual_seed(sum(sizes)))
    cache = model.new_cache(sum(sizes))
    torch.testing.assert_close(fed(model, ids, sizes, cache), model(ids), rtol=1e-9, atol=1e-9)
    assert cache.n_tokens == sum(sizes)


def test_editing_a_future_token_of_a_cached_text_changes_no_earlier_bit_or_selection(monkeypatch):
    model, ids, sizes = MODELS["nsa"], torch.randint(256, (1, 40)), [12, 6, 1, 1, 1, 10, 9]
    other = ids.clone()
    other[:, 25] = (other[:, 25] + 7) % 256
    chosen = []
    for block in model.blocks:
        select = block.attn.kernels["scores"]

        def recorded(*args, select=select, **where):
            return chosen.append(select(*args, **where)) or chosen[-1]

        monkeypatch.setitem(block.attn.kernels, "scores", recorded)
    a, b = (fed(model, x, sizes, model.new_cache(40)) for x in (ids, other))
    assert torch.equal(a[:, :25], b[:, :25])
    assert not torch.equal(a[:, 25:], b[:, 25:])
    first, second = (torch.cat(chosen[i : i + 14 : 2], 1) for i in (0, 14))
    assert first.shape[1] == 40
    assert torch.equal(first[:, :25], second[:, :25])
    last_layer = [torch.cat(chosen[i : i + 14 : 2], 1)[:, :25] for i in (1, 15)]
    assert torch.equal(*last_layer)


def test_a_compressed_block_appears_exactly_with_its_last_token():
    model, cache = MODELS["nsa"], MODELS["nsa"].new_cache(40)
    layout = model.config.layout
    for t in range(40):
        model(torch.randint(256, (1, 1)), cache=cache)
        assert cache.layers[1].whole["kc"].n_rows == layout.n_cmp(t + 1)


def test_tails_never_hold_more_than_the_window_and_the_unfinished_blocks_need():
    model, cache = MODELS["nsa"], MODELS["nsa"].new_cache(60)
    layout = model.config.layout
    for _ in range(60):
        model(torch.randint(256, (1, 1)), cache=cache)
        tails = cache.layers[0].tails
        assert tails["k_win"].rows_BPGD.shape[1] <= layout.w - 1
        assert tails["kc"].rows_BPGD.shape[1] < layout.l
    assert cache.n_bytes == sum(layer.n_bytes for layer in cache.layers) > 0


@pytest.mark.parametrize("back_to", [40, 36, 33, 32, 31])
def test_rolling_back_and_going_on_is_as_if_nothing_had_been_taken_back(back_to):
    model, ids, wrong = MODELS["nsa"], torch.randint(256, (2, 50)), torch.randint(256, (2, 40))
    cache = model.new_cache(60, rollback=9)
    model(torch.cat((ids[:, :back_to], wrong[:, back_to:]), 1)[:, :40], cache=cache)
    cache.roll_back(back_to)
    rest = model(ids[:, back_to:], cache=cache)
    torch.testing.assert_close(rest, model(ids)[:, back_to:], rtol=1e-9, atol=1e-9)


def test_a_rollback_past_what_is_kept_is_refused():
    cache = MODELS["nsa"].new_cache(60, rollback=4)
    MODELS["nsa"](torch.randint(256, (1, 20)), cache=cache)
    with pytest.raises(CacheError, match="cannot go from 20 back to 15 tokens: this cache keeps enough for 4"):
        cache.roll_back(15)


def test_a_full_cache_is_refused_before_anything_is_changed():
    cache = MODELS["nsa"].new_cache(10)
    MODELS["nsa"](torch.randint(256, (1, 10)), cache=cache)
    with pytest.raises(CacheError, match="1 tokens behind 10 do not fit a cache of 10"):
        MODELS["nsa"](torch.randint(256, (1, 1)), cache=cache)
    assert cache.n_tokens == 10


def test_reordered_rows_continue_what_they_copied():
    model, ids = MODELS["nsa"], torch.randint(256, (3, 30))
    order = torch.tensor([2, 0, 0])
    cache = model.new_cache(40)
    model(ids[:, :25], cache=cache)
    cache.reorder(order)
    rest = model(ids[order, 25:], cache=cache)
    torch.testing.assert_close(rest, model(ids[order])[:, 25:], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["nsa", "dense"])
@pytest.mark.parametrize("chunk", [None, 5])
def test_greedy_generation_is_the_argmax_of_the_whole_text(name, chunk):
    model, prompt = MODELS[name], torch.randint(256, (2, 11))
    text = generate(model, prompt, 12, temperature=0.0, prefill_chunk=chunk)
    assert text.shape == (2, 23)
    assert torch.equal(text[:, 11:], model(text)[:, 10:-1].argmax(-1))


def test_the_token_loop_generates_the_same_text():
    slow = model_of(model__attention="legacy-sequential")
    prompt = torch.randint(256, (1, 9))
    assert torch.equal(generate(slow, prompt, 3, temperature=0.0), generate(MODELS["nsa"], prompt, 3, temperature=0.0))


def test_sampling_follows_its_generator_and_top_k():
    model, prompt = MODELS["nsa"], torch.randint(256, (1, 9))
    texts = [generate(model, prompt, 8, top_k=5, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    assert torch.equal(texts[0], texts[1])
    assert not torch.equal(texts[0], texts[2])
    greedy = generate(model, prompt, 8, temperature=0.0)
    assert torch.equal(generate(model, prompt, 8, top_k=1), greedy)
