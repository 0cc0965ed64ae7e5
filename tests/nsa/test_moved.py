"""A model works where its tensors are: cast, moved, filled from the meta device, given longer inputs, copied."""

import copy
import pickle

import pytest
import torch

import nsa
from nsa.config import RunConfig
from nsa.errors import KernelUnavailable
from nsa.kernels.on_call import KernelOnCall
from nsa.kernels.registry import resolve
from nsa.kernels.selected import sdpa
from nsa.model.build import build_model, site_of

SIZES = (256, 32, 2, 4, 2, 8, 8, 8, 4, 8, 4, 12)
CPU = torch.device("cpu")


def on_call(op="selected", choice="auto", policy="exact"):
    return KernelOnCall(resolve(op, choice=choice, policy=policy, site=site_of(RunConfig())))


def test_kernels_hold_up_to_the_length_they_were_chosen_for_and_are_chosen_again_beyond_it():
    selected = on_call()
    assert selected.at(CPU, torch.float32, 256) is selected.built
    assert [selected.at(CPU, torch.float32, n).kernel for n in (1, 256, 257, 4096, 4097, 70_000, 30)] == [
        *["sdpa"] * 4,
        *["gather"] * 2,
        "sdpa",
    ]
    assert selected.at(CPU, torch.float32, 5000) is selected.at(CPU, torch.float32, 8192)
    assert "8192 tokens are more than 4096" in selected.at(CPU, torch.float32, 5000).reason


def test_an_input_longer_than_the_mask_of_sdpa_may_be_never_gets_that_mask(monkeypatch):
    monkeypatch.setattr(sdpa, "LONGEST", 512)
    monkeypatch.setattr(sdpa, "slc_visible", lambda *_a, **_k: pytest.fail("a mask of T times S"))
    torch.manual_seed(0)
    model = nsa.TinyLM(*SIZES).requires_grad_(False)
    assert model(torch.randint(256, (1, 600))).isfinite().all()


def test_another_device_or_type_is_asked_anew():
    selected = on_call()
    assert selected.at(CPU, torch.float64, 5).site.dtype == torch.float64
    assert selected.at(torch.device("meta"), torch.float32, 5).site.device.type == "meta"
    with pytest.raises(KernelUnavailable, match="no kernel for selected runs on xpu; move the tensors"):
        selected.at(torch.device("xpu"), torch.float32, 5)


def test_a_kernel_asked_for_by_name_is_refused_where_it_cannot_run_and_replaced_under_auto():
    named = on_call(choice="sdpa")
    assert named.at(CPU, torch.float32, 4096).kernel == "sdpa"
    with pytest.raises(KernelUnavailable, match=r"kernels\.selected = .sdpa. cannot run here: its mask grows"):
        named.at(CPU, torch.float32, 4097)
    lenient = on_call(choice="sdpa", policy="auto").at(CPU, torch.float32, 4097)
    assert lenient.kernel == "gather"
    assert lenient.reason.startswith("sdpa was asked for but its mask grows")


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_cast_model_gives_the_numbers_of_one_in_its_new_type(dtype):
    torch.manual_seed(0)
    model = nsa.TinyLM(*SIZES).requires_grad_(False)
    ids = torch.randint(256, (2, 60))
    before = model(ids)
    assert model.to(dtype)(ids).dtype == dtype
    torch.testing.assert_close(model(ids).float(), before, atol=0.05, rtol=0.05)


@pytest.mark.parametrize("attention", ["nsa", "dense", "legacy-sequential"])
@pytest.mark.parametrize("is_tied", [True, False])
def test_a_model_of_the_meta_device_is_filled_with_the_same_weights_as_a_built_one(attention, is_tied):
    config = RunConfig().with_values(
        {"model.attention": attention, "model.tied_head": is_tied, "model.n_layers": 2, "model.decoder": "modern"}
    )
    with torch.device("meta"):
        model, _ = build_model(config)
    assert {p.device.type for p in model.parameters()} == {"meta"}
    if attention != "legacy-sequential":  # which reads block numbers back
        assert model(torch.zeros(1, 40, dtype=torch.int64, device="meta")).shape == (1, 40, 256)
    model.to_empty(device="cpu")
    for parameter in model.parameters():
        parameter.data.fill_(torch.nan)
    torch.manual_seed(1)
    model.reset_parameters()
    built, _ = build_model(config)
    torch.manual_seed(1)
    built.reset_parameters()
    assert (model.lm_head.weight is model.embed.weight) == is_tied
    for (name, a), b in zip(model.named_parameters(), built.parameters(), strict=True):
        assert torch.equal(a, b), name
    assert model(torch.randint(256, (1, 20))).isfinite().all()


def test_a_copy_and_a_pickle_ask_again_and_give_the_same_numbers():
    model = nsa.TinyLM(*SIZES).requires_grad_(False)
    ids = torch.randint(256, (1, 300))
    expected = model(ids)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert not other.blocks[0].attn.kernels["selected"]._found
        assert torch.equal(other(ids), expected)


@pytest.mark.long
def test_a_compiled_call_takes_lengths_on_both_sides_of_a_choice_as_one_graph(monkeypatch):
    monkeypatch.setattr(sdpa, "LONGEST", 512)
    torch._dynamo.reset()
    selected = on_call()
    graphs = []

    def counted(graph, inputs):
        graphs.append(graph)
        return graph.forward

    def attend(x, index):
        return selected(x, x, x, index, l_slc=8)[0]

    compiled = torch.compile(attend, fullgraph=True, backend=counted, dynamic=True)
    for n in (200, 300, 310, 320, 400, 520, 530):
        x, index = torch.randn(1, n, 2, 16), torch.zeros(1, n, 2, 3, dtype=torch.int32)
        torch.testing.assert_close(compiled(x, index), attend(x, index), rtol=1e-5, atol=1e-5)
    assert len(graphs) == 3  # as built, up to 512, up to 1,024
    torch._dynamo.reset()
