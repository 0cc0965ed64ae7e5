"""What only a GPU can show: no host synchronisation, equal bits, and the same model whatever the kernels."""

import pytest
import torch

import nsa
from nsa.config import RunConfig
from nsa.model.build import build_model
from nsa.train.trainer import train

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype"),
]
SIZES = {
    "train.device": "cuda",
    "model.n_layers": 2,
    "model.dim": 128,
    "model.n_heads": 8,
    "model.d_k": 32,
    "model.d_v": 32,
    "train.seq_len": 512,
}
TORCH = {
    "kernels.compressed": "masked",
    "kernels.scores": "torch",
    "kernels.selected": "gather",
    "kernels.window": "masked",
    "kernels.combine": "torch",
}
# What auto takes of wide heads; flash takes no fp32, and another kernel stands in.
FLASH = {
    "kernels.compressed": "packed",
    "kernels.selected": "triton",
    "kernels.window": "flash",
    "kernels.policy": "auto",
}


def model_of(changes, dtype=torch.float32):
    torch.manual_seed(0)
    precision = {torch.bfloat16: "bf16", torch.float16: "fp16"}.get(dtype, "fp32")
    config = RunConfig().with_values({**SIZES, **changes, "train.precision": precision})
    return build_model(config)[0].to(dtype)


@pytest.mark.parametrize("kernels", [{}, TORCH, FLASH], ids=["auto", "torch", "flash"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_forward_and_backward_never_wait_for_the_device(kernels, dtype):
    model, ids = model_of(kernels, dtype), torch.randint(256, (2, 512), device="cuda")
    model(ids).float().square().mean().backward()  # compilation may wait
    torch.cuda.synchronize()
    try:
        torch.cuda.set_sync_debug_mode("error")
        model(ids).float().square().mean().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-3), (torch.bfloat16, 6e-2)])
def test_automatic_kernels_give_the_model_of_the_torch_kernels(dtype, tolerance):
    ids = torch.randint(256, (2, 512), device="cuda")
    auto, flash, plain = (model_of(kernels, dtype)(ids).float() for kernels in ({}, FLASH, TORCH))
    assert (auto - plain).norm() < tolerance * plain.norm()
    assert (flash - plain).norm() < tolerance * plain.norm()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_editing_the_future_changes_no_earlier_bit(dtype):
    model, ids = model_of({}, dtype), torch.randint(256, (1, 512), device="cuda")
    other = ids.clone()
    other[:, 300:] = (other[:, 300:] + 1) % 256
    before, after = model(ids), model(other)
    assert torch.equal(before[:, :300], after[:, :300])
    assert not torch.equal(before[:, 300:], after[:, 300:])


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_deterministic_training_repeats_its_losses_bit_by_bit(precision):
    changes = {"train.deterministic": True, "train.precision": precision, "train.steps": 4}
    config = RunConfig().with_values({**SIZES, **changes})
    assert train(config).losses == train(config).losses


def test_decoding_equals_prefill():
    model, ids = model_of({}), torch.randint(256, (2, 200), device="cuda")
    with torch.no_grad():
        cache = model.new_cache(200)
        pieces = [model(ids[:, :150], cache=cache), *(model(ids[:, t : t + 1], cache=cache) for t in range(150, 200))]
        stepped, whole = torch.cat(pieces, 1), model(ids)
    assert (stepped - whole).norm() < 1e-3 * whole.norm()


def test_packed_documents_equal_separate_ones():
    model, ids = model_of({}), torch.randint(256, (1, 300), device="cuda")
    cu = torch.tensor([0, 70, 71, 300], dtype=torch.int32, device="cuda")
    with torch.no_grad():
        packed = model(ids, cu_seqlens=cu)
        for start, stop in ((0, 70), (70, 71), (71, 300)):
            alone = model(ids[:, start:stop])
            assert (packed[:, start:stop] - alone).norm() < 1e-3 * alone.norm()


def test_peak_memory_grows_with_the_length_not_its_square():
    peaks = []
    for length in (4096, 16384):
        model = model_of({"train.seq_len": length}, torch.bfloat16)
        ids = torch.randint(256, (1, length), device="cuda")
        model(ids[:, :256]).float().mean().backward()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        model(ids).float().square().mean().backward()
        peaks.append(torch.cuda.max_memory_allocated() - before)
        del model
    assert peaks[1] < 6 * peaks[0], peaks  # four times the length; its square would be 16


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_built_on_the_cpu_works_after_cuda_and_gives_its_numbers(dtype):
    torch.manual_seed(0)
    model = nsa.TinyLM(256, 64, 2, 4, 2, 16, 16, 32, 16, 64, 16, 64).requires_grad_(False)
    ids = torch.randint(256, (2, 300))
    expected = model.double()(ids)
    moved = model.to("cuda", dtype)
    tolerance = 0.05 if dtype == torch.bfloat16 else 1e-3
    torch.testing.assert_close(moved(ids.cuda()).double().cpu(), expected, rtol=tolerance, atol=tolerance)
    assert moved.blocks[0].attn.kernels["selected"].at(ids.cuda().device, dtype, 300).site.device.type == "cuda"
