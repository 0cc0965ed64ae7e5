"""Documents whose boundaries the host knows are rows: the numbers of a packed row, at the cost of rows."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nsa import NSAAttention, nsa_attention
from nsa.attention import documents
from nsa.attention.documents import alike
from nsa.config import RunConfig
from nsa.errors import ConfigError, InputError
from nsa.model.build import build_model

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
CU = (0, 0, 21, 30, 51, 52, 52, 90)


def model_of(**changes):
    torch.manual_seed(0)
    config = RunConfig().with_values({**SIZES, **{k.replace("__", "."): v for k, v in changes.items()}})
    model = build_model(config)[0].double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("fc2.weight", ".pe")):
                parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"model__attention": "dense"},
        {"model__branches": "slc"},
        {"model__branches": "cmp"},
        {"model__share_kv": True, "model__phi": "mean"},
        {"kernels__selected": "gather", "kernels__compressed": "masked"},
        {"train__checkpointing": "block"},
    ],
    ids=str,
)
@pytest.mark.parametrize("more", [1.0, 1.25], ids="more{}".format)
def test_boundaries_as_numbers_and_as_a_tensor_give_the_same_logits_and_gradients_as_documents_alone(
    changes, more, monkeypatch
):
    monkeypatch.setattr(documents, "MORE", {"cpu": more})
    model, ids = model_of(**changes), torch.randint(256, (1, 90))
    do = torch.randn(1, 90, 256, dtype=torch.float64)
    found = []
    for cu in (CU, list(CU), torch.tensor(CU)):
        model.zero_grad()
        logits = model(ids, cu_seqlens=cu)
        logits.backward(do)
        found.append((logits, [p.grad.clone() for p in model.parameters()]))
    model.zero_grad()
    alone = torch.cat([model(ids[:, a:b]) for a, b in pairwise(CU)], 1)
    alone.backward(do)
    for logits, grads in found:
        torch.testing.assert_close(logits, alone, rtol=1e-9, atol=1e-9)
        for (name, p), grad in zip(model.named_parameters(), grads, strict=True):
            torch.testing.assert_close(grad, p.grad, rtol=1e-8, atol=1e-9, msg=name)


def test_like_lengths_are_rows_of_one_call_and_no_kernel_sees_two_documents(monkeypatch):
    monkeypatch.setattr(documents, "MORE", {"cpu": 1.25})
    model = model_of()
    seen = []
    for op, kernel in model.blocks[0].attn.kernels.items():

        def recorded(q, *rest, op=op, kernel=kernel, **where):
            seen.append((op, tuple(q.shape[:2]), where.get("cu_seqlens")))
            return kernel(q, *rest, **where)

        model.blocks[0].attn.kernels[op] = recorded
    model(torch.randint(256, (1, 90)), cu_seqlens=CU)
    shapes = [(1, 38), (3, 21), (1, 1)]
    for op in ("compressed", "scores", "selected", "window"):
        assert [(shape, cu) for name, shape, cu in seen if name == op] == [(shape, None) for shape in shapes]


@given(lengths=st.lists(st.integers(0, 300), max_size=40), more=st.sampled_from([1.0, 1.25]))
def test_every_document_is_in_one_call_whose_rows_have_no_more_tokens_than_allowed(lengths, more):
    groups = alike(lengths, more=more)
    assert sorted(i for group in groups for i in group) == [i for i, n in enumerate(lengths) if n]
    for group in groups:
        held = [lengths[i] for i in group]
        assert held == sorted(held, reverse=True)
        assert len(group) == 1 or len(held) * held[0] <= more * sum(held)


def test_the_token_loop_takes_documents_as_numbers_and_refuses_a_mask():
    model, ids = model_of(model__attention="legacy-sequential"), torch.randint(256, (1, 90))
    alone = torch.cat([model(ids[:, a:b]) for a, b in pairwise(CU) if a < b], 1)
    torch.testing.assert_close(model(ids, cu_seqlens=CU), alone, rtol=1e-9, atol=1e-9)
    with pytest.raises(ConfigError, match="one document"):
        model(ids, cu_seqlens=torch.tensor(CU))


def test_the_function_and_the_layer_take_numbers_too():
    torch.manual_seed(0)
    layer, x = (
        NSAAttention(32, 4, 2, l=8, d=4, l_slc=8, n=4, w=10, dtype=torch.float64),
        torch.randn(1, 90, 32).double(),
    )
    torch.testing.assert_close(layer(x, cu_seqlens=CU), layer(x, cu_seqlens=torch.tensor(CU)), rtol=1e-9, atol=1e-9)
    q, k, gate = (torch.randn(1, 90, *rest).double() for rest in ((4, 8), (2, 8), (4, 3)))
    how = {"l": 8, "d": 4, "l_slc": 8, "n": 4, "w": 10}
    rows, packed = (nsa_attention(q, k, k, None, None, gate, **how, cu_seqlens=cu) for cu in (CU, torch.tensor(CU)))
    torch.testing.assert_close(rows, packed, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("attention", ["nsa", "dense"])
def test_only_empty_documents_give_empty_logits(attention):
    assert model_of(model__attention=attention)(torch.zeros(1, 0, dtype=torch.int64), cu_seqlens=[0, 0]).shape == (
        1,
        0,
        256,
    )


@pytest.mark.parametrize("cu", [[0, 50, 40, 90], [0, 80], [1, 90], [90], []])
def test_numbers_that_divide_no_row_are_refused(cu):
    with pytest.raises(InputError, match="cu_seqlens"):
        model_of()(torch.zeros(1, 90, dtype=torch.int64), cu_seqlens=cu)
