"""Laws of the leases, over random trials that arrive and end in any order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from harness.core.errors import LaunchError
from harness.core.point import Point
from harness.core.ports import CellRequest
from harness.plan.leases import PATIENCE, Lease, Queue

GPUS, SLOTS = 4, 3


def queue(*, gpus: int, slots: int) -> Queue:
    """A queue of cells that say themselves how many GPUs they need."""
    return Queue(gpus=gpus, slots=slots, gpus_at=lambda cell: int(str(cell.get("gpus"))))


def wide(gpus: int) -> CellRequest:
    return CellRequest(cell=Point.of({"gpus": gpus}), role="search", reason="")


def granted(leases: Queue) -> list[Lease]:
    found = []
    while (lease := leases.grant()) is not None:
        found.append(lease)
    return found


class AnyOrder(RuleBasedStateMachine):
    """Trials are offered, granted and ended in any order that Hypothesis can think of."""

    def __init__(self) -> None:
        super().__init__()
        self.leases = queue(gpus=GPUS, slots=SLOTS)
        self.next_id = 0
        self.overtakers: dict[int, int] = {}
        self.arrivals = 0

    @rule(gpus=st.integers(0, GPUS))
    def offer(self, gpus: int) -> None:
        self.next_id += 1
        self.leases.offer(wide(gpus))
        self.overtakers[self.next_id] = 0

    @rule()
    def grant(self) -> None:
        for lease in granted(self.leases):
            del self.overtakers[lease.id]
            for other in self.overtakers:
                self.overtakers[other] += other < lease.id

    @precondition(lambda self: self.leases.running)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        self.leases.release(data.draw(st.sampled_from(self.leases.running)))

    @invariant()
    def nothing_is_leased_twice(self) -> None:
        gpus = [gpu for lease in self.leases.running for gpu in lease.gpus]
        assert len(gpus) == len(set(gpus))
        assert set(gpus) <= set(range(GPUS))
        assert all(len(lease.gpus) == lease.need for lease in self.leases.running)
        assert len(self.leases.running) <= SLOTS

    @invariant()
    def nobody_is_overtaken_for_ever(self) -> None:
        assert all(count <= PATIENCE for count in self.overtakers.values())

    def teardown(self) -> None:
        # Whatever waits is served once the running ones end, one by one, oldest first.
        for _ in range(2 * self.next_id + 1):
            granted(self.leases)
            if self.leases.running:
                self.leases.release(self.leases.running[0])
        assert not self.leases.waiting


TestAnyOrder = AnyOrder.TestCase


@given(st.lists(st.integers(1, 2), min_size=1, max_size=8))
def test_a_wide_trial_waits_for_no_narrow_one_that_came_later(widths: list[int]):
    leases = queue(gpus=4, slots=99)
    leases.offer(wide(1))
    first = leases.grant()
    assert first is not None
    leases.offer(wide(4))
    for gpus in widths:
        leases.offer(wide(gpus))
    assert leases.grant() is None, "what the wide trial waits for is reserved"
    leases.release(first)
    lease = leases.grant()
    assert lease is not None
    assert lease.id == 2


def test_narrow_trials_use_what_a_reservation_leaves():
    leases = queue(gpus=4, slots=99)
    leases.offer(wide(3))
    leases.offer(wide(3))
    leases.offer(wide(1))
    assert [(lease.id, lease.gpus) for lease in granted(leases)] == [(1, (0, 1, 2)), (3, (3,))]


@given(at_once=st.integers(1, 3), most=st.integers(3, 9))
def test_each_pass_of_a_certificate_is_run_under_its_own_number(at_once: int, most: int):
    """All passes were begun as "pass 1 of 9", as each was asked for before the first was over."""
    leases, begun, done = queue(gpus=0, slots=at_once), list[str](), 0
    while done < 9:
        numbers = range(done + 1, min(done + most, 9) + 1)
        asked = [CellRequest(cell=Point.of({"gpus": 0}), role="certify", reason=str(number)) for number in numbers]
        leases.want(asked)
        begun += [lease.request.reason for lease in granted(leases)]
        leases.release(leases.running[0])
        done += 1
    assert begun == [str(number) for number in range(1, 10)]


def test_a_trial_that_can_never_run_here_is_refused():
    leases = queue(gpus=2, slots=1)
    with pytest.raises(LaunchError, match="needs 4 GPUs, but 2 are visible"):
        leases.offer(wide(4))


def test_a_narrow_trial_is_not_starved_by_wide_ones_that_keep_coming():
    leases = queue(gpus=2, slots=99)
    leases.offer(wide(1))
    for later in range(1, 3 * PATIENCE):
        leases.offer(wide(2))
        lease = leases.grant()
        assert lease is not None
        if lease.id == 1:
            assert later == PATIENCE + 1
            return
        leases.release(lease)
    pytest.fail("it never ran")
