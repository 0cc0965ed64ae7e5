"""Laws of the leases, over random trials that arrive and end in any order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from harness.core.errors import LaunchError
from harness.plan.leases import PATIENCE, Demand, Lease, Leases

GPUS, SLOTS = 4, 3


def granted(leases: Leases) -> list[Lease]:
    found = []
    while (lease := leases.grant()) is not None:
        found.append(lease)
    return found


class AnyOrder(RuleBasedStateMachine):
    """Trials are offered, granted and ended in any order that Hypothesis can think of."""

    def __init__(self) -> None:
        super().__init__()
        self.leases = Leases(gpus=GPUS, slots=SLOTS)
        self.next_id = 0
        self.overtakers: dict[int, int] = {}
        self.arrivals = 0

    @rule(gpus=st.integers(0, GPUS))
    def offer(self, gpus: int) -> None:
        self.next_id += 1
        self.leases.offer(Demand(id=self.next_id, gpus=gpus))
        self.overtakers[self.next_id] = 0

    @rule()
    def grant(self) -> None:
        for lease in granted(self.leases):
            del self.overtakers[lease.need.id]
            for other in self.overtakers:
                self.overtakers[other] += other < lease.need.id

    @precondition(lambda self: self.leases.running)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        self.leases.release(data.draw(st.sampled_from(self.leases.running)))

    @invariant()
    def nothing_is_leased_twice(self) -> None:
        gpus = [gpu for lease in self.leases.running for gpu in lease.gpus]
        assert len(gpus) == len(set(gpus))
        assert set(gpus) <= set(range(GPUS))
        assert all(len(lease.gpus) == lease.need.gpus for lease in self.leases.running)
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
    leases = Leases(gpus=4, slots=99)
    leases.offer(Demand(id=0, gpus=1))
    first = leases.grant()
    assert first is not None
    leases.offer(Demand(id=1, gpus=4))
    for number, gpus in enumerate(widths):
        leases.offer(Demand(id=number + 2, gpus=gpus))
    assert leases.grant() is None, "what the wide trial waits for is reserved"
    leases.release(first)
    lease = leases.grant()
    assert lease is not None
    assert lease.need.id == 1


def test_narrow_trials_use_what_a_reservation_leaves():
    leases = Leases(gpus=4, slots=99)
    leases.offer(Demand(id=0, gpus=3))
    leases.offer(Demand(id=1, gpus=3))
    leases.offer(Demand(id=2, gpus=1))
    assert [(lease.need.id, lease.gpus) for lease in granted(leases)] == [(0, (0, 1, 2)), (2, (3,))]


def test_a_trial_that_can_never_run_here_is_refused():
    leases = Leases(gpus=2, slots=1)
    with pytest.raises(LaunchError, match="needs 4 GPUs, but 2 are visible"):
        leases.offer(Demand(id=0, gpus=4))


def test_a_narrow_trial_is_not_starved_by_wide_ones_that_keep_coming():
    leases = Leases(gpus=2, slots=99)
    leases.offer(Demand(id=0, gpus=1))
    for later in range(1, 3 * PATIENCE):
        leases.offer(Demand(id=later, gpus=2))
        lease = leases.grant()
        assert lease is not None
        if lease.need.id == 0:
            assert later == PATIENCE + 1
            return
        leases.release(lease)
    pytest.fail("it never ran")
