"""Ranks at the same place are one group; the odd one comes first; a rank without a stack keeps its reason."""

from __future__ import annotations

import pytest

from harness.core.evidence import Frame, ProcessState, StackSample, ThreadStack, ThreadState
from harness.reading.places import RankSeen, group_ranks, motion_of, sentence, where

SITE = "/venv/lib/python3.11/site-packages"
LIB = "/usr/lib/python3.11"
ALL_REDUCE = (
    Frame(function="all_reduce", file=f"{SITE}/torch/distributed/distributed_c10d.py", line=3252),
    Frame(function="_logged.<locals>.wrapper", file=f"{SITE}/torch/distributed/c10d_logger.py", line=83),
    Frame(function="train_step", file="/home/me/trainer.py", line=120),
    Frame(function="<module>", file="/home/me/trainer.py", line=200),
)
DATA = (
    Frame(function="Queue.get", file=f"{LIB}/multiprocessing/queues.py", line=113),
    Frame(function="_Iter._try_get_data", file=f"{SITE}/torch/utils/data/dataloader.py", line=1291),
    Frame(function="_Iter.__next__", file=f"{SITE}/torch/utils/data/dataloader.py", line=725),
    Frame(function="run_epoch", file="/home/me/trainer.py", line=88),
)


def stack(frames, *, rank, pid, source="py-spy"):
    main = ThreadStack(tid=pid, name="MainThread", frames=tuple(frames))
    return StackSample(id="stack-1", source=source, native=False, t_s=0.0, rank=rank, pid=pid, threads=(main,))


def look(pid, *, id, t_s, since=None, state="S", cpu_s=1.0, switches=10):
    main = ThreadState(
        tid=pid,
        name="python",
        state=state,
        wchan="futex_do_wait",
        cpu_s=cpu_s,
        voluntary_switches=switches,
        involuntary_switches=0,
    )
    return ProcessState(
        id=id,
        t_s=t_s,
        rank=0,
        pid=pid,
        state=state,
        threads=(main,),
        rss_bytes=0,
        minor_faults=0,
        read_bytes=0,
        written_bytes=0,
        children=0,
        undisturbed_since=since,
    )


def seen(rank, frames=ALL_REDUCE, *, state="S", cpu_s=0.0, switches=0, missing="", stacks=None):
    pid = 100 + rank
    first = look(pid, id="a", t_s=0.0, state=state)
    last = look(
        pid,
        id="b",
        t_s=1.0,
        since="a",
        state=state,
        cpu_s=1 + cpu_s,
        switches=10 + switches,
    )
    stacks = stacks or (stack(frames, rank=rank, pid=pid),)
    return RankSeen(rank=rank, pid=pid, stacks=() if missing else stacks, looks=(first, last), missing=missing)


def sentences(ranks):
    return [sentence(group, total=len(ranks)) for group in group_ranks(ranks)]


def test_the_odd_rank_of_eight_comes_first_and_the_rest_is_one_group():
    ranks = [seen(rank, DATA if rank == 3 else ALL_REDUCE) for rank in range(8)]

    assert sentences(ranks) == [
        "rank 3 waits in DataLoader next at trainer.py:88 (run_epoch); nothing moved in 1.0 s (kernel: futex_do_wait)",
        "7 of 8 ranks (0-2, 4-7) wait in all_reduce at trainer.py:120 (train_step); "
        "nothing moved in 1.0 s (kernel: futex_do_wait)",
    ]


def test_all_at_one_place_are_one_group():
    groups = group_ranks([seen(rank) for rank in range(8)])

    assert len(groups) == 1
    assert sentence(groups[0], total=8).startswith("all 8 ranks wait in all_reduce at trainer.py:120 (train_step)")
    assert groups[0].frames == ALL_REDUCE
    assert groups[0].frames[groups[0].telling].function == "all_reduce"


def test_one_rank_is_a_job_too():
    assert sentences([seen(0)])[0].startswith("rank 0 waits in all_reduce")


def test_ranks_that_are_gone_or_refused_are_named_with_their_reason():
    ranks = [seen(0), seen(1), seen(2, missing="has ended"), seen(3, missing="could not be seen: ptrace refused")]

    assert sentences(ranks)[:2] == ["rank 2 has ended", "rank 3 could not be seen: ptrace refused"]
    assert sentences(ranks)[2].startswith("2 of 4 ranks (0, 1) wait in all_reduce")


def test_a_stopped_rank_is_apart_from_those_that_wait_at_the_same_place():
    ranks = [seen(0), seen(1, state="T"), seen(2)]

    assert sentences(ranks)[0].startswith("rank 1 is stopped (state T) in all_reduce at trainer.py:120")
    assert sentences(ranks)[1].startswith("2 of 3 ranks (0, 2) wait in")


def test_a_line_is_shown_only_where_all_agree_and_every_place_is_told():
    other = (*ALL_REDUCE[:2], Frame(function="train_step", file="/home/me/trainer.py", line=118), ALL_REDUCE[3])
    group = group_ranks([seen(0, other), seen(1), seen(2)])

    assert len(group) == 1
    assert [frame.line for frame in group[0].frames] == [3252, 83, 0, 200]
    assert (
        "all_reduce at trainer.py:118 (train_step) [0], all_reduce at trainer.py:120 (train_step) [1, 2]"
        in sentence(group[0], total=3)
    )


def test_recursion_compares_each_level_with_its_own():
    def fold(*lines):
        return tuple(Frame(function="fold", file="/home/me/fold.py", line=line) for line in lines)

    group = group_ranks([seen(0, fold(7, 5, 5)), seen(1, fold(6, 5, 5))])

    assert [frame.line for frame in group[0].frames] == [0, 5, 5]


def test_the_same_place_named_by_two_dumpers_is_one_group():
    bare = tuple(
        Frame(function=frame.function.rpartition(".")[2], file=frame.file, line=frame.line) for frame in ALL_REDUCE
    )

    assert len(group_ranks([seen(0), seen(1, bare)])) == 1


@pytest.mark.parametrize(
    ("moves", "said"),
    [
        ({"cpu_s": 0.97, "state": "R"}, "rank 0 is in all_reduce"),
        ({"cpu_s": 0.97, "state": "R"}, "moved in 1.0 s: CPU 0.97 s, 0 switches"),
        ({"switches": 900}, "moved in 1.0 s: CPU 0.00 s, 900 switches"),
    ],
)
def test_what_moves_is_not_said_to_wait_or_stand(moves, said):
    text = sentences([seen(0, **moves)])[0]

    assert said in text
    assert "nothing moved" not in text


def test_a_stack_that_changed_between_samples_is_movement():
    stacks = (stack(DATA, rank=0, pid=100), stack(ALL_REDUCE, rank=0, pid=100))

    assert "is in all_reduce" in sentences([seen(0, stacks=stacks)])[0]
    assert "the stack changed" in sentences([seen(0, stacks=stacks)])[0]


def test_without_a_window_nothing_is_said_of_movement():
    rank = RankSeen(rank=0, pid=100, stacks=(stack(DATA, rank=0, pid=100),))

    assert motion_of(rank) is None
    assert sentences([rank]) == [
        "rank 0 is in DataLoader next at trainer.py:88 (run_epoch); whether anything moves was not seen"
    ]


def test_processes_without_ranks_are_named_by_pid():
    ranks = [RankSeen(rank=None, pid=pid, stacks=(stack(ALL_REDUCE, rank=0, pid=pid),)) for pid in (51, 52, 53)]
    odd = RankSeen(rank=None, pid=60, missing="has ended")

    assert sentences([*ranks, odd])[0] == "process 60 has ended"
    assert sentences([*ranks, odd])[1].startswith("3 of 4 processes (51-53) are in all_reduce")


def test_the_programs_own_function_is_named_with_its_file():
    own = (
        Frame(function="wait", file=f"{LIB}/threading.py", line=320),
        Frame(function="grab", file="/me/a.py", line=9),
    )

    assert where(ThreadStack(tid=1, name="MainThread", frames=own)) == "grab (a.py:9)"


def test_no_sentence_says_hang():
    text = " ".join(sentences([seen(0), seen(1, DATA), seen(2, state="T"), seen(3, missing="has ended")]))

    assert "hang" not in text.lower()
    assert "hung" not in text.lower()
