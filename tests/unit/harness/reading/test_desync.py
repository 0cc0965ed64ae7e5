"""Whose call is the wrong one where two ranks wait in operations of different groups."""

from __future__ import annotations

import pytest

from harness.core.devices import Collective, CollectiveState
from harness.reading.desync import partings

BOTH = (("1", (0, 1)), ("2", (0, 1)))
STEP = (("2", "all_to_all", 2), ("2", "all_to_all", 96), ("1", "all_reduce", 64), ("1", "all_reduce", 8))


def recorder(rank, calls, *, sizes=()):
    """The flight recorder of a rank that handed over ``calls``, of which the last is not over."""
    numbers, made = {}, []
    for place, (group, op, size) in enumerate(calls):
        numbers[group] = numbers.get(group, 0) + 1
        is_last = place == len(calls) - 1
        size = sizes[place % len(sizes)] if sizes and op == "all_to_all" else size
        made.append(
            Collective(
                group=group,
                seq=numbers[group],
                op=op,
                sizes=((size,),),
                done=not is_last,
                state="started" if is_last else "completed",
                where=f"train.py:{20 if group == '1' else 40}",
            )
        )
    return CollectiveState(
        id=f"recorder-{rank}", t_s=9.0, rank=rank, source="pipe", backend="nccl", collectives=tuple(made), groups=BOTH
    )


@pytest.mark.parametrize("sizes", [(), (7, 9, 11)], ids=["same sizes", "sizes of each turn"])
@pytest.mark.parametrize("odd", [0, 1])
def test_who_skips_a_call_of_one_group_and_waits_in_another_is_the_one_that_breaks_with_the_turns_before(odd, sizes):
    goes_on, skips = (*STEP * 3, STEP[0]), (*STEP * 3, STEP[2])
    states = [recorder(rank, skips if rank == odd else goes_on, sizes=sizes) for rank in (0, 1)]
    first, second = partings(states)
    assert (first.mutual, first.by_habit, first.odd, first.group) == (True, True, (odd,), "2")
    assert (second.mutual, second.by_habit, second.odd, second.group) == (True, False, (1 - odd,), "1")


def test_without_turns_before_nothing_shows_whose_call_is_the_wrong_one():
    states = [recorder(0, (STEP[0],)), recorder(1, (STEP[2],))]
    assert {(one.mutual, one.by_habit) for one in partings(states)} == {(True, False)}


def test_who_never_came_and_waits_in_no_other_group_is_missing_as_ever():
    states = [recorder(0, (*STEP, STEP[0])), recorder(1, STEP)]
    (one,) = [d for d in partings(states) if d.group == "2"]
    assert (one.mutual, one.odd) == (False, (1,))


def between_two(rank, *calls, ranks=(0, 1), group="1"):
    """A recorder of ``(name, state)``: those with an arrow are for one other rank, the others of all in group 0."""
    made = []
    for number, (name, state) in enumerate(calls, start=1):
        is_pair = "->" in name or "<-" in name
        made.append(
            Collective(
                group=group if is_pair else "0",
                seq=number,
                op=name,
                state=state,
                done=state == "completed",
                p2p=is_pair,
                where=f"ring.py:{26 if is_pair else 91}",
            )
        )
    groups = ((group, ranks), ("0", ranks))
    return CollectiveState(
        id=f"recorder-{rank}", t_s=9.0, rank=rank, source="pipe", backend="nccl", collectives=tuple(made), groups=groups
    )


def turn(own, other, state="completed"):
    return ((f"send {own}->{other}", "completed"), (f"recv {own}<-{other}", state), ("all_reduce", "completed"))


def test_who_skips_an_exchange_with_one_other_rank_breaks_with_the_turns_before():
    waits = between_two(0, *turn(0, 1), *turn(0, 1), *turn(0, 1, "started")[:2])
    skips = between_two(1, *turn(1, 0), *turn(1, 0), ("all_reduce", "started"))
    first, second = partings([waits, skips])
    assert (first.odd, first.mutual, first.by_habit) == ((1,), True, True)
    assert dict(first.calls)[0].op == "recv 0<-1"
    assert (second.odd, second.by_habit) == ((0,), False)


def test_an_answer_that_stands_behind_another_wait_is_called_in_the_wrong_order():
    waits = between_two(0, ("send 0->1", "completed"), ("recv 0<-1", "started"))
    twisted = between_two(1, ("recv 1<-0", "completed"), ("recv 1<-0", "started"), ("send 1->0", "scheduled"))
    (one,) = partings([waits, twisted])
    assert (one.odd, one.behind.op, dict(one.calls)[0].op) == ((1,), "recv 1<-0", "recv 0<-1")


@pytest.mark.parametrize("state", ["started", "scheduled"])
def test_a_call_whose_answer_is_under_way_parts_nobody(state):
    assert not partings([between_two(0, ("recv 0<-1", "started")), between_two(1, ("send 1->0", state))])


def test_the_numbers_of_a_call_for_one_other_rank_are_those_of_its_group():
    states = [
        between_two(rank, call, ranks=(2, 3))
        for rank, call in ((2, ("recv 0<-1", "started")), (3, ("all_reduce", "completed")))
    ]
    assert partings(states)[0].odd == (3,)
    assert not partings([states[0]])  # of whose recorder nothing is known may have answered


def test_of_a_call_without_an_answer_and_without_turns_before_the_other_rank_is_missing():
    (one,) = partings([between_two(0, ("recv 0<-1", "started")), between_two(1, ("all_reduce", "completed"))])
    assert (one.odd, one.mutual, one.behind) == ((1,), False, None)
