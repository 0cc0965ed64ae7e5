"""The rank that all others mostly wait for, by its own and their marks."""

from __future__ import annotations

from types import SimpleNamespace

from harness.classify.rules.slow import straggler
from harness.core.evidence import Heartbeat

MARKS = [("forward", "begin"), ("forward", "end"), ("reduce", "begin"), ("reduce", "end")]


def view(rank, steps):
    """A rank whose steps take so long in forward, and in waiting for the others, seconds."""
    marks, t_s = [], 1.0
    for step, (forward_s, reduce_s) in enumerate(steps):
        for (phase, edge), lasts_s in zip(MARKS, (forward_s, 0.01, reduce_s, 0.01), strict=True):
            marks.append(Heartbeat(seq=len(marks), t_s=t_s, rank=rank, pid=7 + rank, phase=phase, edge=edge, step=step))
            t_s += lasts_s
    return SimpleNamespace(rank=rank, facts=SimpleNamespace(heartbeats=tuple(marks)))


def test_what_ddp_does_in_its_first_two_steps_does_not_hide_a_straggler():
    # In step 1 DDP puts its buckets together: rank 0 waits for rank 1 inside its forward.
    quick, late = view(0, [(0.02, 0.02), (1.5, 0.01), (0.02, 1.5)]), view(1, [(0.02, 0.02), (1.5, 0.01), (1.5, 0.01)])

    assert straggler([quick, late]) is late


def test_the_first_steps_count_where_there_are_no_others():
    quick, late = view(0, [(0.1, 2.0), (0.1, 2.0)]), view(1, [(2.0, 0.1), (2.0, 0.1)])

    assert straggler([quick, late]) is late


def test_ranks_that_wait_for_each_other_in_turn_are_no_stragglers():
    steps = [(1.0, 0.1), (0.1, 1.0)] * 3

    assert straggler([view(0, steps), view(1, steps[1:] + steps[:1])]) is None
