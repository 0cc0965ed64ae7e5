"""What decays, and the learning rate of every step."""

import math
from itertools import pairwise

import pytest
import torch

from nsa.config import RunConfig
from nsa.model.build import build_model
from nsa.train.optim import decayed_names, learning_rate, make_optimizer
from nsa.train.trainer import train

SMALL = {
    "model.n_layers": 2,
    "model.dim": 32,
    "model.n_heads": 2,
    "model.n_kv_groups": 1,
    "train.seq_len": 64,
    "train.lr": 1e-2,
    "train.steps": 12,
}


def test_the_rate_rises_over_the_warm_up_and_falls_by_a_cosine_to_zero():
    train_config = (
        RunConfig().with_values({"train.steps": 104, "train.warmup_steps": 4, "train.schedule": "cosine"}).train
    )
    lr = train_config.lr
    rates = [learning_rate(train_config, step) for step in range(105)]
    assert rates[:5] == pytest.approx([lr / 4, lr / 2, 3 * lr / 4, lr, lr])
    assert rates[54] == pytest.approx(lr / 2)
    assert rates[104] == pytest.approx(0.0)
    assert all(a >= b for a, b in pairwise(rates[3:]))


def test_without_a_schedule_the_rate_is_the_same_float():
    config = RunConfig().train
    assert {learning_rate(config, step) for step in range(5)} == {config.lr}


def test_matrices_decay_and_norms_embeddings_and_positions_do_not():
    config = RunConfig().with_values(SMALL)
    model, _ = build_model(config)
    decayed = decayed_names(model)
    assert "blocks.1.mlp.fc2.weight" in decayed
    assert {"embed.weight", "norm_f.weight", "blocks.0.attn.phi_k.pe"}.isdisjoint(decayed)
    optimizer = make_optimizer(model, config.train, decayed)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.01, 0.0]
    assert len(optimizer.param_groups[0]["params"]) == len(decayed)


@pytest.mark.parametrize(
    ("precision", "mode", "dtype"),
    [
        ("fp32", "pure", torch.float32),
        ("bf16", "autocast", torch.float32),
        ("bf16", "pure", torch.bfloat16),
        ("fp16", "autocast", torch.float32),
    ],
)
def test_every_precision_learns_and_its_weights_have_the_type_it_says(precision, mode, dtype):
    class Keep:
        def built(self, state):
            self.model = state.model

        def mark(self, **_):
            pass

        resolved = step_done = lambda *_, **__: None

    keep = Keep()
    config = RunConfig().with_values({**SMALL, "train.precision": precision, "train.precision_mode": mode})
    losses = train(config, [keep]).losses
    assert {p.dtype for p in keep.model.parameters()} == {dtype}
    assert losses[0] == pytest.approx(math.log(256), abs=0.5)
    assert losses[-1] < losses[0] - 0.7
