"""How a rank leaves: what holds the process group is released before the group is."""

from pathlib import Path

import torch.distributed as dist

from nsa.config import RunConfig
from nsa.train.parallel import Ddp
from nsa.train.trainer import train

HOLDERS = {"reducer", "logger", "process_group"}


def test_the_reducer_is_released_while_its_group_still_exists(monkeypatch):
    """Its release after the group's end can wait for ever: the group's thread waits for the lock that it holds."""
    wrapped, left, threads = [], [], []
    wrap, destroy, before = Ddp.wrap, dist.destroy_process_group, gloo_threads()

    def kept(self, model):
        wrapped.append(wrap(self, model))
        assert vars(wrapped[0]).keys() >= HOLDERS
        return wrapped[0]

    def looked_at():
        left.append(vars(wrapped[0]).keys() & HOLDERS)
        destroy()
        threads.append(gloo_threads())

    monkeypatch.setattr(Ddp, "wrap", kept)
    monkeypatch.setattr(dist, "destroy_process_group", looked_at)
    small = {"model.n_layers": 1, "model.dim": 32, "model.n_heads": 2, "train.seq_len": 32, "train.steps": 2}
    result = train(RunConfig().with_values({**small, "parallel.mode": "ddp", "parallel.allow_single": True}))
    assert len(result.losses) == 2
    assert left == [set()]
    assert threads == [before], "the group's threads outlive it: something still holds it"


def gloo_threads():
    names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    return names.count("pt_gloo_runloop")
