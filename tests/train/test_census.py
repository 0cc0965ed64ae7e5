"""What is counted before the first backward tells a loop over tokens from a graph of whole tensors."""

import json

import pytest
import torch
from rank_work import SMALL

from nsa.config import RunConfig
from nsa.train.__main__ import main
from nsa.train.census import MARK, graph_nodes
from nsa.train.probe import NullProbe, Phase
from nsa.train.trainer import train


def censuses(changes):
    """What a run announces in forward, step by step."""

    found = []

    class Probe(NullProbe):
        def mark(self, *, phase, edge, step, detail=None):
            if detail and detail.startswith(MARK):
                assert phase is Phase.FORWARD
                found.append(json.loads(detail.removeprefix(MARK)))

    config = {**SMALL, "train.census": 2, "train.steps": 3, "train.batch_size": 1, **changes}
    train(RunConfig().with_values(config), [Probe()])
    return found


def nodes(changes):
    return censuses({"train.steps": 1, **changes})[0]["autograd_nodes"]


def test_every_node_is_counted_once_however_many_ways_lead_to_it():
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    assert graph_nodes((y + y).sum()) == {"SumBackward0": 1, "AddBackward0": 1, "MulBackward0": 1, "AccumulateGrad": 1}


def test_the_graph_does_not_grow_from_step_to_step_and_nothing_waits_for_the_device():
    first, second = censuses({})
    assert (first["more_than_the_step_before"], second["more_than_the_step_before"]) == (None, 0)
    assert first["autograd_nodes"] == sum(first["nodes_by_type"].values()) > 100
    assert first["nodes_by_type"]["AccumulateGrad"] == 51
    assert first["host_synchronisations_in_forward"] == 0, first["synchronising_operators"]


def test_the_graph_follows_the_layers_and_not_the_length_unless_tokens_are_looped_over():
    two, three, four = (nodes({"model.n_layers": n}) for n in (2, 3, 4))
    assert four - three == three - two > 0
    assert nodes({"train.seq_len": 96}) == nodes({"train.seq_len": 192})
    loop = {"model.attention": "legacy-sequential", "model.n_layers": 1}
    short, long = (nodes({**loop, "train.seq_len": length}) for length in (16, 32))
    assert long > 1.8 * short > 10 * nodes({"model.n_layers": 1})


@pytest.mark.parametrize("steps", [0, 2])
def test_it_is_written_when_it_is_asked_for(tmp_path, capsys, steps):
    small = "model.n_layers=1 model.dim=32 model.n_heads=2 model.n_kv_groups=1 train.seq_len=32 train.steps=3"
    assert main(["--override", f"{small} train.out_dir={tmp_path} train.census={steps}"]) == 0
    assert (tmp_path / "census.json").exists() == bool(steps)
    if steps:
        assert [row["step"] for row in json.loads((tmp_path / "census.json").read_text())] == [0, 1]
