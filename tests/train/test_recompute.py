"""What backward computes again, and what it does not."""

from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from nsa.config import RunConfig
from nsa.errors import ConfigError
from nsa.model.build import build_model
from nsa.train import recompute

SMALL = {"model.n_layers": 2, "model.dim": 32, "model.n_heads": 2, "model.phi": "mean", "train.seq_len": 64}
ATTENTION = ("nsa::select_blocks", "nsa::masked_attention", "nsa::gather_attention", "aten::_scaled_dot_product")


class Calls(TorchDispatchMode):
    """Counts operators by name."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen[function.name().partition(".")[0]] += 1
        return function(*args, **(kwargs or {}))

    def __enter__(self):
        self.seen = Counter()
        return super().__enter__()


def calls(**settings):
    """What a forward and backward pass calls."""
    config = RunConfig().with_values({**SMALL, **{k.replace("__", "."): v for k, v in settings.items()}})
    model, kernels = build_model(config.with_value("train.checkpointing", "none"))
    recompute.install(config, tuple(model.blocks), kernels)
    with Calls() as mode:
        model(torch.zeros(1, 64, dtype=torch.long)).sum().backward()
    return mode.seen


def in_attention(seen):
    return {name: n for name, n in seen.items() if name.startswith(ATTENTION)}


def test_selective_runs_attention_and_selection_once_and_all_else_again():
    whole, selective = calls(), calls(train__checkpointing="selective")
    again = calls(train__checkpointing="nonreentrant")
    assert in_attention(whole)
    assert in_attention(selective) == in_attention(whole)
    assert in_attention(again) != in_attention(whole)
    for name in ("nsa::rotate", "nsa::block_mean", "aten::mm", "aten::silu"):
        assert selective[name] == again[name] > whole[name], name


@pytest.mark.parametrize(("layers", "n"), [("0:1", 1), ("1:2", 1), ("0:2", 2), ("", 2)])
def test_only_the_layers_of_the_range_are_run_again(layers, n):
    whole, part = calls(), calls(train__checkpointing="nonreentrant", train__checkpoint_layers=layers)
    assert part["aten::silu"] - whole["aten::silu"] == n * whole["aten::silu"] // 2


def test_selective_refuses_what_it_cannot_keep():
    config = RunConfig().with_values({**SMALL, "train.checkpointing": "selective", "model.attention": "dense"})
    with pytest.raises(ConfigError, match="keeps the results of sparse attention"):
        recompute.install(config, (), ())
