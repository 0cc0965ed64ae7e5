"""The decoding step's kernels and graph on a GPU: against the same step in torch, and against whole texts."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch

from nsa.attention.compress import make_phi
from nsa.attention.pages import PagedCache
from nsa.config import ModelConfig, RunConfig
from nsa.kernels.decode import torch as plain
from nsa.model.build import build_model
from nsa.model.decoding import Decoding
from nsa.model.generate import generate

fast = pytest.importorskip("nsa.kernels.decode.triton")

SIZES = {
    "64/4 heads of 128": {"n_heads": 64, "n_kv_groups": 4, "d_k": 128, "d_v": 128},
    "the 125M model": {"n_heads": 12, "n_kv_groups": 2, "d_k": 64, "d_v": 64},
    "odd widths": {"n_heads": 6, "n_kv_groups": 2, "d_k": 24, "d_v": 40, "share_kv": True, "phi": "mean"},
}
CLOSE = {torch.float32: 2e-5, torch.float16: 3e-3, torch.bfloat16: 2e-2}
POSITIONS = (0, 31, 47, 511, 2047, 4000, 8190, 8191)


def prepared(name, dtype, *, positions=POSITIONS):
    gen = torch.Generator("cuda").manual_seed(0)
    config = ModelConfig(dim=64, n_layers=1, **SIZES[name])
    B = len(positions)
    cache = PagedCache(config, n_rows=B, max_tokens=8192, dtype=dtype, device=torch.device("cuda"))
    table = torch.randperm(cache.place.table_BM.numel(), device="cuda", generator=gen)
    place = dataclasses.replace(
        cache.place,
        table_BM=table.view(cache.place.table_BM.shape).int(),
        position_B=torch.tensor(positions, device="cuda").int(),
    )
    for x in cache.layers[0].tensors():
        x.normal_(generator=gen)
    phis = [make_phi(config.phi, l=config.l, width=width).to("cuda", dtype) for width in (config.d_k, config.d_v)]
    for phi in phis:
        for x in phi.parameters():
            x.data.normal_(std=max(x.shape) ** -0.5, generator=gen)
    H, K = config.n_heads, config.n_kv_groups * (1 if config.share_kv else 3)
    shapes = (B, H, config.d_k), (B, K, config.d_k), (B, K, config.d_v), (B, H, 3)
    given = [torch.randn(shape, device="cuda", generator=gen).to(dtype) for shape in shapes]
    return given, cache.layers[0], place, phis, config.layout


def relative(got, want):
    got, want = got.double(), want.double()
    return ((got - want).norm() / want.norm()).item()


@torch.no_grad()
@pytest.mark.parametrize("dtype", CLOSE, ids=str)
@pytest.mark.parametrize("name", SIZES)
def test_a_step_gives_and_keeps_what_torch_does_twice_with_the_same_bits(name, dtype, nan_filled):
    given, pages, place, phis, layout = prepared(name, dtype)
    others = [copy.deepcopy(pages) for _ in range(2)]
    got = fast.decode(*given, pages, place, *phis, layout)
    again = fast.decode(*given, others[0], place, *phis, layout)
    want = plain.decode(*given, others[1], place, *phis, layout)
    assert not place.arrived.any()
    assert torch.equal(got, again)
    errors = [relative(got, want), *(relative(x, y) for x, y in zip(pages.tensors(), others[1].tensors(), strict=True))]
    assert max(errors) <= CLOSE[dtype], errors
    for x, y in zip(pages.tensors(), others[0].tensors(), strict=True):
        assert torch.equal(x, y)


@torch.no_grad()
def test_what_is_not_finite_spoils_the_heads_that_see_it():
    given, pages, place, phis, layout = prepared("64/4 heads of 128", torch.bfloat16)
    given[0][1, 3, 5], given[1][2, 1, 0], given[2][3, -1, 7] = float("nan"), float("inf"), float("-inf")
    other = copy.deepcopy(pages)
    got = fast.decode(*given, pages, place, *phis, layout)
    want = plain.decode(*given, other, place, *phis, layout)
    assert torch.equal(got.isnan(), want.isnan())
    # One head of row 1; of row 2, whose block ends here, the cmp key's group; the window's last group of row 3.
    assert got.isnan().all(-1).sum(1).tolist() == [0, 1, 16, 16, 0, 0, 0, 0]


def model_of(**changes):
    torch.manual_seed(0)
    sizes = {"dim": 128, "n_layers": 3, "n_heads": 8, "n_kv_groups": 2, "d_k": 64, "d_v": 64, "w": 128, "n": 8}
    values = {f"model.{k}": v for k, v in sizes.items()} | {"train.device": "cuda", "train.precision": "fp32"}
    model = build_model(RunConfig().with_values(values | changes))[0]
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("fc2.weight", ".pe")):
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.requires_grad_(False)


@pytest.mark.parametrize(("n", "share"), [(8, 0.97), (69, 1.0)], ids=["the best", "every block"])
def test_a_replayed_step_goes_on_as_the_whole_text_does(n, share):
    """To fp32, but where two blocks nearly tie: there rounding decides which of them a step sees.

    With every block chosen nothing can tie. With 8, one step of three hundred did on an H100: two blocks' scores were
    2e-6 of themselves apart in fp64, and the logits of the whole text, which saw the second best, 6e-3 from it.
    """
    model = model_of(**{"model.n": n})
    ids = torch.randint(256, (3, 1100), device="cuda")
    whole = model(ids)
    decoding = Decoding(model, n_rows=3, max_tokens=1100)
    lengths = [1000, 700, 1000]
    prompts = ids.new_zeros(3, 1000)
    for row, length in enumerate(lengths):
        prompts[row, 1000 - length :] = ids[row, :length]
    steps = [decoding.prefill(prompts, lengths=lengths).clone()]
    new = [torch.stack([row[length + i] for row, length in zip(ids, lengths, strict=True)]) for i in range(100)]
    steps += [decoding.step(x).clone() for x in new]
    for row, length in enumerate(lengths):
        got = torch.stack([step[row] for step in steps]).double()
        want = whole[row, length - 1 : length + 100].double()
        errors = (got - want).norm(dim=-1) / want.norm(dim=-1)
        close = errors < 1e-4
        assert close.double().mean() >= share, errors
        assert errors.max() < 2e-2
        assert torch.equal(got[close].argmax(-1), want[close].argmax(-1))


def test_greedy_texts_are_the_argmax_of_the_whole_text_and_other_texts_use_the_same_graph():
    model = model_of()
    for _ in range(2):
        prompt = torch.randint(256, (2, 500), device="cuda")
        text = generate(model, prompt, 120, temperature=0.0, prefill_chunk=200)
        assert torch.equal(text[:, 500:], model(text)[:, 499:-1].argmax(-1))
    decoding = Decoding(model, n_rows=2, max_tokens=700)
    prompts = [torch.randint(256, (2, n), device="cuda") for n in (600, 90)]
    for prompt in prompts:
        last = decoding.prefill(prompt)
        text = prompt
        for _ in range(40):
            text = torch.cat((text, last.argmax(-1, keepdim=True)), 1)
            last = decoding.step(text[:, -1])
        n = prompt.shape[1]
        assert torch.equal(text[:, n:], model(text)[:, n - 1 : -1].argmax(-1))


def test_half_precision_steps_are_as_far_from_the_whole_text_as_rounding_puts_them():
    model = model_of().bfloat16()
    ids = torch.randint(256, (2, 900), device="cuda")
    whole = model(ids)
    decoding = Decoding(model, n_rows=2, max_tokens=900)
    steps = [decoding.prefill(ids[:, :700])] + [decoding.step(ids[:, t]).clone() for t in range(700, 900)]
    assert relative(torch.stack(steps, 1), whole[:, 699:]) < 2e-2


def test_a_step_that_an_exception_ended_is_taken_again_with_the_same_bits():
    model = model_of()
    ids = torch.randint(256, (2, 400), device="cuda")
    one, other = (Decoding(model, n_rows=2, max_tokens=500) for _ in range(2))
    for decoding in (one, other):
        decoding.prefill(ids[:, :390])
        decoding.step(ids[:, 390])
    wanted = [one.step(ids[:, t]).clone() for t in range(391, 400)]
    got = []
    for t in range(391, 400):
        ended = other.cache.end
        other.cache.end = lambda: (_ for _ in ()).throw(KeyboardInterrupt)  # after the replay, before it counts
        with pytest.raises(KeyboardInterrupt):
            other.step(ids[:, t - 20])
        other.cache.end = ended
        got.append(other.step(ids[:, t]).clone())
    assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))
