"""What everyone does once: interrupted steps, empty input, boundaries and shapes that do not fit."""

import contextlib

import pytest
import torch
from interruptions import InterruptAt, InterruptAtLine, Interrupted

import nsa.attention.cache
from nsa.attention.cache import CacheError
from nsa.attention.layer import NsaAttention
from nsa.config import ModelConfig, RunConfig
from nsa.errors import ConfigError, InputError
from nsa.kernels.registry import resolve_all
from nsa.kernels.selected import sdpa
from nsa.model.build import build_model, site_of
from nsa.model.generate import generate

SIZES = {
    "model.dim": 24,
    "model.n_layers": 3,
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
ROUTES = {
    "auto": {},
    "masked": {"kernels.compressed": "masked", "kernels.selected": "masked", "kernels.window": "masked"},
    "gather": {"kernels.selected": "gather"},
    "packed": {"kernels.selected": "packed"},
    "dense": {"model.attention": "dense"},
    "cmp alone": {"model.branches": "cmp"},
    "slc alone": {"model.branches": "slc"},
    "mean": {"model.phi": "mean"},
}


def config_of(**changes):
    return RunConfig().with_values({**SIZES, **changes})


def model_of(route="auto"):
    torch.manual_seed(0)
    return build_model(config_of(**ROUTES[route]))[0]


@pytest.mark.parametrize(
    ("route", "max_tokens", "interrupt", "every"),
    [
        pytest.param("auto", 60, InterruptAt, 1, marks=pytest.mark.long),
        pytest.param("auto", None, InterruptAt, 1, marks=pytest.mark.long),
        ("dense", 60, InterruptAt, 1),
        pytest.param("masked", 60, InterruptAt, 7, marks=pytest.mark.long),
        ("gather", None, InterruptAt, 11),
        pytest.param("packed", 60, InterruptAt, 13, marks=pytest.mark.long),
        ("cmp alone", 60, InterruptAt, 1),
        pytest.param("slc alone", None, InterruptAt, 7, marks=pytest.mark.long),
        pytest.param("auto", None, InterruptAtLine, 1, marks=pytest.mark.long),
        ("dense", 60, InterruptAtLine, 1),
    ],
)
def test_a_step_interrupted_anywhere_leaves_the_cache_as_it_was_and_the_retry_has_the_same_bits(
    route, max_tokens, interrupt, every, monkeypatch
):
    """At every operator and every line; memory without a limit grows in this very step."""
    monkeypatch.setattr(nsa.attention.cache, "FIRST_ROWS", 1)
    torch.manual_seed(0)
    model = build_model(config_of(**ROUTES[route], **{"model.n_layers": 2}))[0].requires_grad_(False)
    ids = torch.randint(256, (2, 30))
    undisturbed, cache = model.new_cache(max_tokens), model.new_cache(max_tokens)
    for c in (undisturbed, cache):
        model(ids[:, :23], cache=c)
    # Token 23 completes a compressed block, and the tails of window and blocks are cut.
    with interrupt(0) as count:
        wanted = [model(ids[:, 23:24], cache=undisturbed)]
    wanted.append(model(ids[:, 24:], cache=undisturbed))
    # The last line returns what is done: an interruption there comes too late, and the cache has the token.
    n_before_the_end = count.seen - (interrupt is InterruptAtLine)
    assert n_before_the_end > 60
    for n in range(1, n_before_the_end + 1, every):
        with pytest.raises(Interrupted), interrupt(n):
            model(ids[:, 23:24], cache=cache)
        assert [layer.n_tokens for layer in cache.layers] == [23] * 2
        assert cache.n_tokens == 23
    got = [model(ids[:, 23:24], cache=cache), model(ids[:, 24:], cache=cache)]
    assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))


@pytest.mark.parametrize("at", [0.3, 0.6, 0.9])
def test_taking_a_step_back_may_be_interrupted_too(at):
    model = model_of().requires_grad_(False)
    ids, cache, undisturbed = torch.randint(256, (1, 30)), model.new_cache(60), model.new_cache(60)
    for c in (cache, undisturbed):
        model(ids[:, :23], cache=c)
    with InterruptAtLine(0) as step:
        wanted = model(ids[:, 23:24], cache=undisturbed)
    n = 1
    while True:
        with pytest.raises(Interrupted), InterruptAtLine(int(at * step.seen)):
            model(ids[:, 23:24], cache=cache)
        with contextlib.suppress(Interrupted), InterruptAtLine(n) as back:
            cache.layers  # noqa: B018 - takes the step back
        if back.seen < n:
            break
        n += 1
    assert n > 10
    assert torch.equal(model(ids[:, 23:24], cache=cache), wanted)


def test_a_prefill_interrupted_between_layers_can_be_retried_on_an_empty_cache():
    model, ids = model_of().requires_grad_(False), torch.randint(256, (1, 30))
    cache = model.new_cache(40, rollback=5)
    hook = model.blocks[1].register_forward_pre_hook(lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        model(ids, cache=cache)
    hook.remove()
    cache.reorder(torch.tensor([0]))
    assert cache.n_tokens == 0
    torch.testing.assert_close(model(ids, cache=cache), model(ids))


def test_a_lone_layer_interrupted_is_as_it_was():
    config = config_of()
    layer = NsaAttention(config.model, resolve_all(config.kernels, site_of(config))).requires_grad_(False)
    cache, x = model_of().new_cache(40).layers[0], torch.randn(1, 20, 24)
    layer(x[:, :12], cache=cache)
    hook = layer.o_proj.register_forward_pre_hook(lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        layer(x[:, 12:], cache=cache)
    hook.remove()
    torch.testing.assert_close(layer(x[:, 12:], cache=cache), layer(x)[:, 12:])


def test_memory_that_grows_with_the_text_gives_the_numbers_of_memory_taken_once():
    model, ids = model_of().requires_grad_(False), torch.randint(256, (1, 700))
    pieces = ids.split([1, 250, 9, 400, 40], 1)
    whole, growing = (
        torch.cat([model(piece, cache=cache) for piece in pieces], 1)
        for cache in (model.new_cache(700), model.new_cache())
    )
    assert torch.equal(whole, growing)


def test_a_cache_of_other_rows_or_layers_is_refused():
    model, cache = model_of(), model_of().new_cache(40)
    model(torch.zeros(2, 9, dtype=torch.int64), cache=cache)
    with pytest.raises(CacheError, match="3 sequences behind a cache of 2"):
        model(torch.zeros(3, 1, dtype=torch.int64), cache=cache)
    assert cache.n_tokens == 9
    cache._layers = cache.layers[:2]
    with pytest.raises(CacheError, match="a cache of 2 layers for 3 blocks"):
        model(torch.zeros(2, 1, dtype=torch.int64), cache=cache)


@pytest.mark.parametrize(("B", "S"), [(2, 0), (2, 30), (0, 30)])
def test_the_kernel_of_torch_that_divides_by_its_rows_is_not_given_none(B, S):
    q, k = torch.randn(B, 0 if B else 9, 4, 8, requires_grad=True), torch.randn(B, S, 2, 8, requires_grad=True)
    index = torch.zeros(*q.shape[:2], 2, 3, dtype=torch.int32)
    o, lse = sdpa.selected(q, k, k, index, l_slc=8, offset=S - q.shape[1])
    assert (o.shape, lse.shape) == (q.shape, q.shape[:3])
    o.sum().backward()
    assert not k.grad.any()


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("shape", [(0, 16), (2, 0), (0, 0)])
def test_empty_input_gives_empty_logits_and_zero_gradients_for_every_parameter(route, shape):
    model = model_of(route)
    logits = model(torch.zeros(shape, dtype=torch.int64))
    assert logits.shape == (*shape, 256)
    logits.sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert not parameter.grad.any(), name


def test_no_new_tokens_behind_a_cache_change_nothing():
    model, ids = model_of().requires_grad_(False), torch.randint(256, (1, 20))
    cache = model.new_cache(30)
    model(ids[:, :15], cache=cache)
    assert model(ids[:, :0], cache=cache).shape == (1, 0, 256)
    torch.testing.assert_close(model(ids[:, 15:], cache=cache), model(ids)[:, 15:])


@pytest.mark.parametrize(
    ("cu", "message"),
    [
        ([0, 40, 20, 70], r"cu_seqlens = \[0, 40, 20, 70\] must rise from 0 to 70"),
        ([0, 5, 60], "must rise from 0 to 70"),
        ([3, 70], "must rise from 0 to 70"),
        ([0, 5, 80], "must rise from 0 to 70"),
        ([0, *[70, 60] * 5, 70], r"\[0, 70, 60, 70, '...', 70\] must rise"),
        ([70], "int32 or int64 of shape"),
        ([0.0, 70.0], "int32 or int64 of shape"),
    ],
)
@pytest.mark.parametrize("route", ["auto", "masked", "dense"])
def test_boundaries_that_divide_no_row_are_refused_whatever_the_kernels(route, cu, message):
    with pytest.raises(InputError, match=message):
        model_of(route)(torch.zeros(1, 70, dtype=torch.int64), cu_seqlens=torch.tensor(cu))


def test_boundaries_of_two_rows_or_beside_a_cache_are_refused():
    model, cu = model_of(), torch.tensor([0, 9, 20])
    with pytest.raises(InputError, match="cu_seqlens with 2 rows"):
        model(torch.zeros(2, 20, dtype=torch.int64), cu_seqlens=cu)
    with pytest.raises(InputError, match="either cu_seqlens or cache"):
        model(torch.zeros(1, 20, dtype=torch.int64), cu_seqlens=cu, cache=model.new_cache(30))
    with pytest.raises(InputError, match="cu_seqlens is on meta"):
        model(torch.zeros(1, 20, dtype=torch.int64), cu_seqlens=cu.to("meta"))


def test_boundaries_are_looked_at_once_for_all_layers(monkeypatch):
    looks = []
    monkeypatch.setattr("nsa.attention.documents.check_boundaries", lambda *_a, **_k: looks.append("look"))
    model = model_of()
    model(torch.zeros(1, 20, dtype=torch.int64), cu_seqlens=torch.tensor([0, 9, 20]))
    assert looks == ["look"]
    model.blocks[0].attn(torch.randn(1, 20, 24), cu_seqlens=torch.tensor([0, 9, 20]))
    assert looks == ["look"] * 2


def test_ids_and_rows_of_another_shape_or_type_are_refused():
    model = model_of()
    with pytest.raises(InputError, match=r"token ids are torch.float32 of shape \(1, 5\)"):
        model(torch.zeros(1, 5))
    with pytest.raises(InputError, match=r"token ids are torch.int64 of shape \(5,\)"):
        model(torch.zeros(5, dtype=torch.int64))
    with pytest.raises(InputError, match=r"x has shape \(1, 5, 23\); this layer takes \[batch, tokens, 24\]"):
        model.blocks[0].attn(torch.zeros(1, 5, 23))


def test_a_layer_refuses_heads_that_do_not_fit_when_it_is_built():
    config = config_of()
    with pytest.raises(ConfigError, match=r"model\.n_heads = 5 is not a multiple of model\.n_kv_groups = 2"):
        NsaAttention(ModelConfig(n_heads=5, n_kv_groups=2), resolve_all(config.kernels, site_of(config)))


def test_only_the_last_logits_are_computed_when_only_they_are_asked_for():
    model, ids = model_of(), torch.randint(256, (2, 20))
    whole = model(ids)
    for n_last in (0, 1, 5, 20, 30):
        torch.testing.assert_close(model(ids, n_last=n_last), whole[:, max(0, 20 - n_last) :])


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"top_k": 0}, "top_k = 0 leaves no token to choose; use 1 or more"),
        ({"temperature": -1.0}, r"temperature = -1\.0 is below zero"),
        ({"n_new": -1}, "n_new = -1"),
        ({"prefill_chunk": 0}, "prefill_chunk = 0"),
    ],
)
def test_sampling_that_means_nothing_is_refused(how, message):
    with pytest.raises(ConfigError, match=message):
        generate(model_of(), torch.zeros(1, 5, dtype=torch.int64), **{"n_new": 2, **how})


def test_a_prompt_without_tokens_is_refused():
    with pytest.raises(InputError, match="at least one token"):
        generate(model_of(), torch.zeros(1, 0, dtype=torch.int64), 2)


def test_generation_ends_where_every_row_has_its_stop_token():
    model = model_of().requires_grad_(False)
    prompt = torch.randint(256, (1, 9))
    free = generate(model, prompt, 12, temperature=0.0)[0, 9:].tolist()
    stop = free[4]
    first = free.index(stop)
    stopped = generate(model, prompt, 12, temperature=0.0, stop=stop)
    assert stopped[0, 9:].tolist() == free[: first + 1]
    both = generate(model, prompt.expand(2, -1), 12, temperature=0.0, stop=stop)
    assert torch.equal(both[0], both[1])
