import math

import pytest
import torch

from nsa.config import RunConfig
from nsa.errors import ConfigError, KernelUnavailable, NonFiniteLoss
from nsa.train.probe import NullProbe
from nsa.train.trainer import train

SMALL = RunConfig().with_values(
    {
        "model.n_layers": 2,
        "model.dim": 32,
        "model.n_heads": 2,
        "model.n_kv_groups": 1,
        "train.seq_len": 128,
        "train.steps": 2,
    }
)


class Recorder(NullProbe):
    def __init__(self):
        self.marks, self.facts, self.table, self.state = [], [], [], None

    def built(self, state):
        self.state = state

    def mark(self, *, phase, edge, step, detail=None):
        self.marks.append((str(phase), str(edge), step, detail))

    def step_done(self, *, step, facts):
        self.facts.append((step, dict(facts)))

    def resolved(self, table):
        self.table = list(table)


def test_every_phase_begins_and_ends_in_order():
    recorder = Recorder()
    train(SMALL, [recorder])
    edges = [(phase, edge, step) for phase, edge, step, _ in recorder.marks if edge != "progress"]
    step = [(p, e) for p in ("data", "forward", "backward", "optim") for e in ("begin", "end")]
    assert edges[:2] == [("build", "begin", None), ("build", "end", None)]
    assert edges[2:] == [(p, e, 0) for p, e in step] + [(p, e, 1) for p, e in step]


@pytest.mark.parametrize("checkpointing", ["none", "block"])
def test_each_block_reports_its_forward_and_then_its_backward_in_reverse(checkpointing):
    recorder = Recorder()
    train(SMALL.with_value("train.checkpointing", checkpointing), [recorder])
    progress = [(phase, detail) for phase, edge, step, detail in recorder.marks if edge == "progress" and step == 1]
    assert progress == [
        ("forward", "blocks.0"),
        ("forward", "blocks.1"),
        ("backward", "blocks.1"),
        ("backward", "blocks.0"),
    ]


def test_step_facts_are_plain_finite_floats():
    recorder = Recorder()
    result = train(SMALL, [recorder])
    assert [step for step, _ in recorder.facts] == [0, 1]
    for (_, facts), loss in zip(recorder.facts, result.losses, strict=True):
        assert all(type(value) is float and math.isfinite(value) for value in facts.values())
        assert facts["loss"] == loss
        assert facts["tokens"] == 128
        assert facts["grad_norm"] > 0


def test_the_kernel_table_names_every_operator_with_a_reason():
    recorder = Recorder()
    train(SMALL, [recorder])
    assert {row["op"] for row in recorder.table} == {"compressed", "scores", "selected", "window", "combine"}
    assert all(row["kernel"] and row["reason"] for row in recorder.table)


def test_in_backward_runs_once_inside_the_engine():
    seen = []

    class Spy(Recorder):
        def built(self, state):
            super().built(state)
            state.in_backward(lambda: seen.append((torch._C._current_graph_task_id(), list(self.marks)[-1][:2])))

    train(SMALL, [Spy()])
    assert len(seen) == 1
    graph_task, last_mark = seen[0]
    assert graph_task != -1, "not inside the autograd engine"
    assert last_mark == ("backward", "progress")


def test_a_changed_loss_that_is_not_finite_ends_the_run_with_step_value_and_phase():
    class Poison(NullProbe):
        def mark(self, *, phase, edge, step, detail=None):
            if (phase, edge, step) == ("data", "begin", 1):
                self.state.set_loss(lambda loss: loss * math.nan)

        def built(self, state):
            self.state = state

    recorder = Recorder()
    with pytest.raises(NonFiniteLoss, match=r"loss = nan at step 1, in forward"):
        train(SMALL, [Poison(), recorder])
    assert recorder.marks[-1][:3] != ("forward", "end", 1)
    assert [step for step, _ in recorder.facts] == [0]


def test_the_same_seed_gives_the_same_losses_and_another_seed_others():
    first, again = train(SMALL).losses, train(SMALL).losses
    assert first == again
    assert train(SMALL.with_value("train.seed", 7)).losses != first


def test_checkpointing_changes_memory_and_nothing_else():
    assert train(SMALL).losses == train(SMALL.with_value("train.checkpointing", "block")).losses


def test_legacy_sequential_trains_to_the_same_losses():
    config = SMALL.with_values({"train.seq_len": 40})
    slow = train(config.with_value("model.attention", "legacy-sequential")).losses
    torch.testing.assert_close(torch.tensor(slow), torch.tensor(train(config).losses), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("attention", ["nsa", "dense"])
def test_loss_falls_on_real_text(attention):
    losses = train(SMALL.with_values({"train.steps": 30, "train.lr": 1e-2, "model.attention": attention})).losses
    assert losses[0] == pytest.approx(math.log(256), abs=0.5)
    assert sum(losses[-5:]) / 5 < losses[0] - 1.5


def test_uniform_tokens_cannot_be_predicted():
    losses = train(SMALL.with_values({"train.steps": 12, "train.data": "synthetic"})).losses
    assert min(losses) > math.log(256) - 0.05


def test_a_vocabulary_smaller_than_a_byte_is_refused_for_text():
    with pytest.raises(ConfigError, match=r"model\.vocab = 100 is less than the 256 byte values"):
        train(SMALL.with_value("model.vocab", 100))


def test_an_unknown_kernel_is_refused_with_a_suggestion():
    with pytest.raises((ConfigError, KernelUnavailable), match="did you mean 'masked'"):
        train(SMALL.with_value("kernels.selected", "maskd"))
