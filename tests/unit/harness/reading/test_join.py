"""What the agents of several nodes saw, put together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.core.evidence import Evidence, Heartbeat, LogTail, ProcessState, RankFacts, WorkerResult
from harness.core.node import PIDS, Node
from harness.core.outcome import Ending, Exit, Outcome
from harness.reading.join import join, until

SILENT = Outcome(ending=Ending.STILL_RUNNING, duration_s=20.0)


def look(number, pid, rank, parent):
    return ProcessState(
        id=f"proc-{pid}", t_s=10.0, rank=rank, pid=number * PIDS + pid, parent=number * PIDS + parent, state="S",
        threads=(), rss_bytes=0, minor_faults=0, read_bytes=0, written_bytes=0, children=0,
    )  # fmt: skip


def part(number, ranks, looks):
    facts = tuple(RankFacts(id=f"rank-{rank}", rank=rank, pid=number * PIDS + pid) for rank, pid in ranks)
    seen = tuple(look(number, *row) for row in looks)
    return (
        Node(number=number, host=f"n{number}"),
        SILENT,
        Evidence(steps_wanted=0, ranks=facts, processes=seen, world=4),
    )


def test_what_the_launcher_of_another_node_has_written_makes_it_no_second_rank_0():
    first = part(0, [(0, 21), (1, 22)], [(20, 0, 1), (21, 0, 20), (22, 1, 20)])
    other = part(1, [(0, 20), (2, 21), (3, 22)], [(20, 0, 1), (21, 2, 20), (22, 3, 20)])

    ranks = {facts.rank: facts.pid for facts in join([first, other]).ranks}

    assert ranks == {0: 21, 1: 22, 2: PIDS + 21, 3: PIDS + 22}


def test_a_rank_that_has_started_the_others_is_one():
    joined = join([part(0, [(0, 20), (1, 21)], [(20, 0, 1), (21, 1, 20)]), part(1, [(2, 20)], [(20, 2, 1)])])

    assert [facts.rank for facts in joined.ranks] == [0, 1, 2]


def test_a_rank_that_nobody_has_looked_at_yet_is_one():
    joined = join([part(0, [(0, 21)], []), part(1, [(1, 21)], [])])

    assert [facts.rank for facts in joined.ranks] == [0, 1]


def test_of_a_part_nothing_counts_that_it_did_or_said_after_the_trial_was_ended():
    """At 9 s; its agent ended it at 10, and another node's rank was gone by then."""
    marks = tuple(Heartbeat(seq=n, t_s=2.0 * n, rank=1, pid=7, phase="step", edge="end", step=n) for n in range(1, 6))
    lost = WorkerResult(id="result-1", status="raised", steps_done=4, exception="ConnectionResetError")
    rank = RankFacts(
        id="rank-1", rank=1, pid=7, heartbeats=marks, heartbeats_total=5, result=lost, exit=Exit(code=1), ended_s=9.9
    )
    said = LogTail(id="log-1", stream="stderr", text="reset by peer", size_bytes=13)
    whole = Evidence(
        steps_wanted=9,
        heartbeats=marks,
        heartbeats_total=5,
        processes=(replace(look(1, 7, 1, 1), t_s=8.5), replace(look(1, 7, 1, 1), t_s=9.5)),
        result=lost,
        ranks=(rank,),
        logs=(said,),
    )
    before = Evidence(steps_wanted=9, ranks=(replace(rank, result=None),))
    outcome = Outcome(ending=Ending.STOPPED_BY_US, duration_s=10.0)

    seen = until(outcome, whole, t_s=9.0, before=before)

    (facts,) = seen.ranks
    assert [mark.t_s for mark in seen.heartbeats] == [mark.t_s for mark in facts.heartbeats] == [2.0, 4.0, 6.0, 8.0]
    assert seen.heartbeats_total == facts.heartbeats_total == 4
    assert seen.silence_s == facts.silence_s == pytest.approx(1.0)
    assert [one.t_s for one in seen.processes] == [8.5]
    assert (seen.result, facts.result, facts.exit, facts.ended_s) == (None, None, None, None)
    assert seen.logs == ()


def test_how_a_rank_had_ended_before_the_trial_was_ended_counts():
    failed = WorkerResult(id="result-1", status="raised", steps_done=0, exception="ValueError")
    gone = RankFacts(id="rank-1", rank=1, pid=7, result=failed, exit=Exit(code=1), ended_s=3.0, silence_s=1.0)
    outcome = Outcome(ending=Ending.STOPPED_BY_US, duration_s=10.0)

    seen = until(outcome, Evidence(steps_wanted=9, ranks=(gone,), silence_s=4.0), t_s=9.0, before=None)

    assert seen.ranks == (gone,)
    assert seen.result == failed
    assert seen.silence_s == pytest.approx(3.0)
