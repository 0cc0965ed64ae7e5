"""How a rank leaves: what holds the process group is released before the group is."""

from pathlib import Path

import pytest
import torch.distributed as dist

from nsa.config import RunConfig
from nsa.train.parallel import Ddp
from nsa.train.trainer import train

HOLDERS = {"reducer", "logger", "process_group"}


@pytest.fixture
def threads_left(monkeypatch):
    """How many of the groups' threads there are, seen right after each end of the process group."""
    seen, destroy = [], dist.destroy_process_group

    def looked_at():
        destroy()
        seen.append(gloo_threads())

    monkeypatch.setattr(dist, "destroy_process_group", looked_at)
    return seen


def test_the_reducer_is_released_while_its_group_still_exists(monkeypatch, threads_left):
    """Its release after the group's end can wait for ever: the group's thread waits for the lock that it holds."""
    wrapped, left = [], []
    wrap, destroy, before = Ddp.wrap, dist.destroy_process_group, gloo_threads()

    def kept(self, model):
        wrapped.append(wrap(self, model))
        assert vars(wrapped[0]).keys() >= HOLDERS
        return wrapped[0]

    def looked_at():
        left.append(vars(wrapped[0]).keys() & HOLDERS)
        destroy()

    monkeypatch.setattr(Ddp, "wrap", kept)
    monkeypatch.setattr(dist, "destroy_process_group", looked_at)
    assert trained("ddp") == 2
    assert left == [set()]
    assert threads_left == [before], "the group's threads outlive it: something still holds it"


@pytest.mark.filterwarnings("ignore:FSDP is switching to use `NO_SHARD`")  # alone there is nothing to shard
@pytest.mark.parametrize("mode", ["fsdp", "fsdp1", "manual"])
def test_no_thread_of_the_group_outlives_it(mode, threads_left):
    """At the interpreter's end a thread that waits for its lock aborts the process."""
    before = gloo_threads()
    assert trained(mode) == 2
    assert threads_left == [before]


def trained(mode):
    small = {"model.n_layers": 1, "model.dim": 32, "model.n_heads": 2, "train.seq_len": 32, "train.steps": 2}
    config = RunConfig().with_values({**small, "parallel.mode": mode, "parallel.allow_single": True})
    return len(train(config).losses)


def gloo_threads():
    names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    return names.count("pt_gloo_runloop")
