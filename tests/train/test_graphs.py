"""Blocks that are replayed train as the plain ones do; what a graph cannot do is refused."""

from functools import partial

import numpy as np
import pytest
import torch
from graphs_on_cpu import replayed, replayed_gradients
from rank_work import SMALL, announced, arrivals, gradients, run, told

from nsa.attention.rope import turns
from nsa.config import RunConfig
from nsa.errors import ConfigError
from nsa.model import transformer
from nsa.model.build import build_model
from nsa.train import graphs
from nsa.train.__main__ import main
from nsa.train.trainer import train

CAPTURED = RunConfig().with_values({**SMALL, "train.device": "cuda", "train.cuda_graphs": "blocks"})


def same(found, wanted):
    assert found[0] == wanted[0]
    for got, want in zip(found[1], wanted[1], strict=True):
        assert list(got) == list(want)
        for name in want:
            assert np.array_equal(got[name], want[name]), name


@pytest.mark.parametrize(
    "changes",
    [
        {"train.accumulate": 3},
        *(
            pytest.param(changes, marks=pytest.mark.long)
            for changes in ({}, {"model.attention": "dense", "train.accumulate": 2}, {"model.branches": "slc"})
        ),
    ],
    ids=str,
)
def test_one_process(changes):
    same(replayed_gradients(0, changes), gradients(0, changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"parallel.mode": "manual", "train.accumulate": 2},
        {"parallel.mode": "ddp", "parallel.gradient_as_bucket_view": True, "train.accumulate": 2},
        pytest.param({"parallel.mode": "ddp", "train.accumulate": 2}, marks=pytest.mark.long),
        pytest.param({"parallel.mode": "ddp", "parallel.gradient_as_bucket_view": True}, marks=pytest.mark.long),
        pytest.param({"parallel.mode": "ddp", "parallel.static_graph": True}, marks=pytest.mark.long),
        pytest.param({"parallel.mode": "ddp", "parallel.find_unused_parameters": True}, marks=pytest.mark.long),
    ],
    ids=str,
)
def test_two_ranks(ranks, changes):
    for found, wanted in zip(ranks.run(replayed_gradients, changes), ranks.run(gradients, changes), strict=True):
        same(found, wanted)


def test_held_out_losses_are_taken_without_the_graphs():
    changes = {"train.eval_every": 1, "train.eval_batches": 2}
    with replayed() as captures:
        found = told(0, changes)
    assert captures.n_replays == SMALL["train.steps"] * SMALL["model.n_layers"]
    assert found == told(0, changes)


def test_a_continued_run_replays_with_the_weights_of_the_checkpoint(tmp_path):
    changes = {"train.steps": 4, "train.out_dir": str(tmp_path), "train.save_every": 2}
    _, whole, _ = run(0, {**changes, "train.out_dir": ""})
    with replayed():
        run(0, {**changes, "train.steps": 2})
    with replayed():
        assert run(0, {**changes, "train.resume": True}) == (2, whole[2:], "all steps done")


def test_blocks_and_gradients_are_announced_as_they_are_without_graphs():
    with replayed():
        assert announced(0, {}) == announced(0, {}) == [f"blocks.{i}" for i in (2, 1, 0)]
        found = arrivals(0, {})
    wanted = arrivals(0, {})
    assert len(found) == len(wanted)
    assert {line.partition(": ")[2] for line in found} == {line.partition(": ")[2] for line in wanted}


def test_gates_and_selections_come_from_the_memory_that_replays_write(tmp_path, capsys):
    class InPlace(graphs.AttentionWatch):
        """What a GPU does by replaying: the records' memory has the numbers of the last forward."""

        def __init__(self, model, layers):
            super().__init__(layers)
            for module, layer in zip((b.attn for b in model.blocks), layers, strict=True):
                module.gate.register_forward_hook(partial(self._write, layer))

        @staticmethod
        def _write(layer, _module, _inputs, gate):
            layer.gate_BTHC.copy_(gate.detach())

    capture = graphs.capture_blocks

    def captured(config, model, *, n_rows):
        found = capture(config, model, n_rows=n_rows)
        return graphs.Captured(parameters=found.parameters, watch=InPlace(model, found.watch.layers))

    small = "model.n_layers=2 model.dim=32 model.n_heads=2 model.n_kv_groups=1 train.seq_len=32 train.steps=3"
    with pytest.MonkeyPatch.context() as patched, replayed():
        patched.setattr(graphs, "capture_blocks", captured)
        assert main(["--override", f"{small} train.out_dir={tmp_path / 'graphs'}"]) == 0
    assert main(["--override", f"{small} train.out_dir={tmp_path / 'plain'}"]) == 0
    for name in ("gate_stats.csv", "k_stats.csv"):
        assert (tmp_path / "graphs" / name).read_text() == (tmp_path / "plain" / name).read_text()


@pytest.fixture
def model():
    return build_model(RunConfig().with_values(SMALL))[0]


def test_nothing_keeps_the_history_of_a_capture(model):
    with replayed() as captures:
        graphs.capture_blocks(CAPTURED, model, n_rows=4)
    assert len(captures.outputs) == len(model.blocks)
    assert all(output.grad_fn is None for output in captures.outputs)


def test_capturing_leaves_no_gradient_and_draws_no_random_number(model):
    before = torch.get_rng_state()
    with replayed():
        graphs.capture_blocks(CAPTURED, model, n_rows=4)
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(torch.get_rng_state(), before)


def test_only_whole_sequences_of_the_captured_shape_are_replayed(model):
    with replayed() as captures:
        graphs.capture_blocks(CAPTURED, model, n_rows=4)
    ids = torch.zeros(2, 50, dtype=torch.long)
    with torch.no_grad():
        model(ids)
    model(ids[:1], cu_seqlens=torch.tensor([0, 20, 50], dtype=torch.int32))
    model(ids[:1], cu_seqlens=[0, 20, 50])
    model(ids, cache=model.new_cache(50))
    assert captures.n_replays == 0
    with pytest.raises(ValueError, match=r"captured for \(4, 96, 32\) and got \(2, 50, 32\) to train on"):
        model(ids)


def test_the_backward_of_a_forward_that_was_written_over_is_an_error(model):
    with replayed():
        graphs.capture_blocks(CAPTURED, model, n_rows=4)
    first, second = (model(torch.randint(256, (4, 96))).sum() for _ in range(2))
    second.backward()
    with pytest.raises(RuntimeError, match=r"backward of a block's forward 1 after forward 2"):
        first.backward()


def test_the_angles_of_the_captured_length_are_computed_once(model, monkeypatch):
    ids = {length: torch.randint(256, (4, length)) for length in (96, 50)}
    with torch.no_grad():
        wanted = {length: model(x) for length, x in ids.items()}
    with replayed():
        graphs.capture_blocks(CAPTURED, model, n_rows=4)
    calls = []
    monkeypatch.setattr(transformer, "turns", lambda *args, **how: calls.append(1) or turns(*args, **how))
    with torch.no_grad():
        assert torch.equal(model(ids[96]), wanted[96])
        assert calls == []
        assert torch.equal(model(ids[50]), wanted[50])
        assert calls == [1]
        cache = model.new_cache(96)
        pieces = [model(ids[96][:, first : first + 48], cache=cache) for first in (0, 48)]
        assert len(calls) == 3
    assert torch.allclose(torch.cat(pieces, 1), wanted[96], atol=1e-5)


def test_a_kernel_that_cannot_be_captured_is_told_with_what_to_change(model, monkeypatch):
    def refuse(*_):
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing")

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", refuse)
    with pytest.raises(RuntimeError, match="not permitted") as caught:
        graphs.capture_blocks(CAPTURED, model, n_rows=4)
    assert "train.cuda_graphs = 'off'" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"train.device": "cpu"},
        {"train.checkpointing": "nonreentrant"},
        {"train.checkpointing": "selective"},
        {"parallel.mode": "fsdp"},
        {"parallel.mode": "fsdp1"},
        {"train.compile": "inductor"},
        {"kernels.window": "flex"},
        {"model.attention": "legacy-sequential"},
        {"train.trace_modules": True},
        {"train.census": 1},
        {"train.detect_anomaly": True},
    ],
    ids=str,
)
def test_what_a_graph_cannot_do_is_refused_with_the_setting(changes):
    (path,) = changes
    with pytest.raises(ConfigError, match=rf"train\.cuda_graphs = 'blocks' with {path}"):
        CAPTURED.with_values(changes)


def test_a_machine_without_a_gpu_is_refused_when_it_is_known(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    config = CAPTURED.with_value("train.device", "auto")
    with pytest.raises(ConfigError, match=r"train\.cuda_graphs = 'blocks' with train\.device = 'cpu'"):
        train(config)
