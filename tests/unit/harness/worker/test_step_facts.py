"""What a worker says beside its marks: its memory after every step, and what its forward pass has built."""

from __future__ import annotations

import json
import mmap
import os

import pytest
import torch

from harness.core.devices import MemoryMark
from harness.observe.heartbeat import Heartbeats
from harness.worker.heartbeat import HeartbeatProbe, autograd_nodes, memory_facts
from nsa.train.probe import Edge, Phase


@pytest.fixture
def probe(tmp_path):
    probe = HeartbeatProbe(tmp_path / "heartbeat_rank0.jsonl")
    yield probe
    probe.close()


def read(tmp_path) -> Heartbeats:
    beats = Heartbeats(tmp_path, started_s=0.0)
    beats.read()
    beats.close()
    return beats


def test_the_census_counts_exactly_what_autograd_built():
    x = torch.ones(3, requires_grad=True)
    before = autograd_nodes()
    y = ((x * 2) + 1).sum()
    assert y.requires_grad
    assert autograd_nodes() - before == 3 + 1  # mul, add, sum; and the count's own


def test_the_census_is_silent_where_no_graph_is_built():
    with torch.no_grad():
        assert autograd_nodes() is None


def test_memory_is_that_of_this_process_and_without_cuda_nothing_is_said_of_a_gpu():
    facts = memory_facts()
    assert set(facts) == {"rss_bytes"} or torch.cuda.is_available()
    with mmap.mmap(-1, 32 << 20) as kept:  # fresh pages: what earlier tests have freed may still be resident
        kept.write(b"x" * len(kept))
        assert memory_facts()["rss_bytes"] - facts["rss_bytes"] > len(kept) / 2


def test_each_step_leaves_a_memory_mark(tmp_path, probe):
    probe.mark(phase=Phase.DATA, edge=Edge.BEGIN, step=0)
    probe.step_done(step=0, facts={"loss": 5.5})
    beats = read(tmp_path)
    (mark,) = beats.memory.items()
    assert isinstance(mark, MemoryMark)
    assert (mark.step, mark.rank) == (0, 0)
    assert mark.rss_bytes > 10 << 20
    assert beats.facts["loss"] == 5.5


def test_a_forward_in_progress_says_how_much_of_it_is_done_and_built(tmp_path, probe):
    x = torch.ones(3, requires_grad=True)
    probe.mark(phase=Phase.FORWARD, edge=Edge.BEGIN, step=0)
    for block in range(2):
        for _ in range(10):
            x = x * 2
        probe.mark(phase=Phase.FORWARD, edge=Edge.PROGRESS, step=0, detail=f"blocks.{block}")
    facts = read(tmp_path).facts
    assert facts["forward_blocks"] == 2
    assert facts["forward_nodes"] == pytest.approx(20, abs=3)  # the counts themselves are nodes too
    assert 0 < facts["forward_s"] < 60


def test_a_new_forward_begins_its_own_count(tmp_path, probe):
    for step in range(2):
        probe.mark(phase=Phase.FORWARD, edge=Edge.BEGIN, step=step)
        probe.mark(phase=Phase.FORWARD, edge=Edge.PROGRESS, step=step, detail="blocks.0")
    assert read(tmp_path).facts["forward_blocks"] == 1


def test_other_ranks_blocks_are_not_counted_with_rank_0s(tmp_path):
    with (tmp_path / "heartbeat_rank1.jsonl").open("w") as file:
        for seq, edge in enumerate(("begin", "progress"), start=1):
            head = {"seq": seq, "t": 1.0 + seq, "rank": 1, "pid": os.getpid(), "nodes": 100 * seq}
            file.write(json.dumps({**head, "phase": "forward", "edge": edge, "step": 0, "detail": None}) + "\n")
    assert "forward_blocks" not in read(tmp_path).facts
