"""What the agents of several nodes saw, put together."""

from __future__ import annotations

from harness.core.evidence import Evidence, ProcessState, RankFacts
from harness.core.node import PIDS, Node
from harness.core.outcome import Ending, Outcome
from harness.reading.join import join

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
