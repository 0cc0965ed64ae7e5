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
