"""The models as a whole: names and order of parameters, sizes, work beside the token loop, learning."""

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import nsa
from nsa.config import RunConfig
from nsa.kernels.samples import BY_NAME
from nsa.model.build import build_model, site_of
from nsa.train.data import stdlib_text
from nsa.train.trainer import train

SEED_ARGUMENTS = (8, 2, 16, 16, 16, 8, 32, 8, 64)  # heads, groups, d_k, d_v, l, d, l_sel, n_sel, w


def tiny(n_layers, **options):
    return nsa.TinyLM(256, 128, n_layers, *SEED_ARGUMENTS, **options)


def test_tinylm_has_the_reports_parameter_192():
    names = [name for name, _ in tiny(12).named_parameters()]
    assert len(names) == 195
    assert names[192] == "blocks.11.mlp.fc2.weight"
    assert sum(name.startswith("blocks.3.") for name in names) == 16


def test_tinylm_takes_checkpointing_by_position_and_keeps_its_numbers():
    torch.manual_seed(0)
    plain = tiny(2)
    torch.manual_seed(0)
    saving = nsa.TinyLM(256, 128, 2, *SEED_ARGUMENTS, True)
    ids = torch.randint(256, (1, 64))
    for model in (plain, saving):
        model(ids).mean().backward()
    for a, b in zip(plain.parameters(), saving.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)


def test_twelve_layers_have_few_autograd_nodes():
    loss = tiny(12)(torch.randint(256, (1, 128))).mean()
    seen, waiting = set(), [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting.extend(parent for parent, _ in node.next_functions)
    assert len(seen) <= 3000


class Operations(TorchDispatchMode):
    """How many operators torch ran: what takes a step's time here, and the same on a busy machine."""

    count = 0

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        self.count += 1
        return operator(*args, **(kwargs or {}))


def test_the_token_loop_gives_tinylms_numbers_by_many_times_the_work():
    ids = torch.randint(256, (1, 128))
    outputs, counts = [], []
    for attention in ("nsa", "legacy-sequential"):
        torch.manual_seed(0)
        model = tiny(2, attention=attention)
        with Operations() as run:
            out = model(ids)
            out.mean().backward()
        counts.append(run.count)
        outputs.append(out)
    torch.testing.assert_close(*outputs, rtol=1e-4, atol=1e-4)
    assert counts[1] > 50 * counts[0]


@pytest.mark.parametrize("decoder", ["tiny", "modern"])
@pytest.mark.parametrize("attention", ["nsa", "dense"])
@pytest.mark.parametrize("is_tied", [True, False])
def test_every_decoder_trains_with_every_attention_and_head(decoder, attention, is_tied):
    config = RunConfig().with_values(
        {
            "model.decoder": decoder,
            "model.attention": attention,
            "model.tied_head": is_tied,
            "model.n_layers": 1,
            "model.dim": 32,
            "model.n_heads": 2,
            "model.n_kv_groups": 1,
            "train.seq_len": 96,
            "train.steps": 3,
        }
    )
    model, _ = build_model(config)
    assert (model.lm_head.weight is model.embed.weight) == is_tied
    losses = train(config).losses
    assert losses[0] == pytest.approx(math.log(256), abs=0.6)
    assert losses[-1] < losses[0]


def test_bf16_trains_to_nearly_the_same_losses():
    config = RunConfig().with_values({"model.n_layers": 1, "model.dim": 32, "train.seq_len": 96, "train.steps": 3})
    full, half = train(config).losses, train(config.with_value("train.precision", "bf16")).losses
    assert full != half
    assert half == pytest.approx(full, abs=0.1)


@pytest.mark.slow
def test_real_text_is_learned_far_below_its_byte_frequencies():
    counts = torch.bincount(stdlib_text().long(), minlength=256).double()
    frequency = counts[counts > 0] / counts.sum()
    unigram_nats = -(frequency * frequency.log()).sum().item()
    config = RunConfig().with_values(
        {
            "model.n_layers": 1,
            "model.dim": 64,
            "model.n_heads": 4,
            "train.steps": 130,
            "train.lr": 1e-2,
            "train.batch_size": 2,
            "train.seq_len": 128,
            "model.n": 4,
            "model.w": 32,
        }
    )
    losses = train(config).losses
    assert sum(losses[-30:]) / 30 < unigram_nats - 0.4


@pytest.mark.slow
def test_uniform_tokens_are_never_predicted_better_than_chance():
    config = RunConfig().with_values(
        {
            "model.n_layers": 2,
            "model.dim": 64,
            "model.n_heads": 4,
            "train.steps": 80,
            "train.lr": 1e-2,
            "train.seq_len": 128,
            "train.data": "synthetic",
        }
    )
    losses = train(config).losses
    # One batch may be lucky by chance; a model that sees its labels is below ln V in all of them.
    assert sum(losses) / len(losses) > math.log(256)
    assert min(losses) > math.log(256) - 0.1


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_kernels_are_chosen_for_the_precision_that_they_will_get(precision):
    wanted = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    assert site_of(RunConfig().with_value("train.precision", precision)).dtype == wanted


def test_samples_cover_every_edge_that_the_contract_names():
    assert {"one-token", "shorter-than-l", "exactly-l", "documents-of-0-1-and-short", "wide-keys"} <= set(BY_NAME)
