"""What a card's figures say of the processes on it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.core.devices import GpuActivity, GpuProcess, GpuSample
from harness.reading.gpus import Gpus

OURS = GpuProcess(pid=7, ours=True, memory_bytes=2**30, sm_percent=90)
BUSY = GpuProcess(pid=8, ours=False, memory_bytes=2**30, sm_percent=40)
IDLE = GpuProcess(pid=8, ours=False, memory_bytes=2**20, sm_percent=None)


def sample(t_s: float, *others: GpuProcess, power_w: float = 0.0, ours: GpuProcess = OURS) -> GpuSample:
    power_w = power_w or (300.0 if BUSY in others else 124.0)
    return GpuSample(
        id=f"gpu-{t_s}", t_s=t_s, index=0, name="card", utilisation=100, memory_utilisation=0, memory_used_bytes=2**31,
        memory_total_bytes=2**37, power_w=power_w, power_limit_w=700.0, sm_clock_mhz=1980,
        processes=(ours, *others), xids=(),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("others", "occupied"),
    [
        ([(), (), (), ()], True),
        ([(BUSY,), (), (), (), ()], True),  # it has gone, or computes no longer, for three seconds
        ([(BUSY,), (IDLE,), (IDLE,), (IDLE,), (IDLE,)], True),
        ([(BUSY,), (BUSY,), (), (), ()], False),  # two seconds are too few
        ([(), (), (), (), (BUSY,)], False),
        ([(BUSY,), (), (BUSY,), (), (BUSY,)], False),
    ],
    ids=["alone", "gone", "rests", "too short", "comes", "now and then"],
)
def test_a_card_that_others_used_before_is_judged_by_what_came_since(others, occupied):
    (view,) = Gpus([sample(float(n), *processes) for n, processes in enumerate(others, 1)]).of({7})
    assert view.occupied_by_nothing is occupied


SPINS = GpuProcess(pid=8, ours=False, memory_bytes=2**30, sm_percent=60)
AWAY = GpuProcess(pid=7, ours=True, memory_bytes=2**30, sm_percent=0)


def test_a_card_on_which_nothing_is_computed_at_all_is_shared_by_waits():
    samples = [sample(float(n), SPINS) for n in range(1, 5)]
    (view,) = Gpus(samples).of({7})
    assert view.occupied_by_nothing


def test_it_is_full_of_the_other_where_ours_was_not_on_it():
    samples = [sample(float(n), SPINS, ours=AWAY) for n in range(1, 5)]
    (view,) = Gpus(samples).of({7})
    assert not view.occupied_by_nothing


@pytest.mark.parametrize(
    ("percent", "seconds"),
    [((20, 2, None, None), 2.0), ((2, 2, 2, 2), 3.0), ((0, 0, 20, 0), 0.0), ((20, 20, 20, 20), 0.0)],
    ids=["went", "never there", "now and then", "there"],
)
def test_it_rests_for_a_process_since_it_was_last_on_it(percent, seconds):
    """The driver's share of a process is a mean: some percent are still told seconds after its last kernel."""
    ours = [replace(OURS, sm_percent=share) for share in percent]
    (view,) = Gpus(sample(float(n), SPINS, ours=one) for n, one in enumerate(ours, 1)).of({7})
    assert view.rests_for_them.seconds == seconds


def test_of_the_time_alone_every_sample_counts():
    samples = [sample(0.5, BUSY), *(sample(float(n)) for n in range(1, 6))]
    samples[4] = sample(4.0, power_w=500.0)
    (view,) = Gpus(samples).of({7})
    assert not view.occupied_by_nothing


@pytest.mark.parametrize(("rests", "occupied"), [(5, False), (6, True)], ids=["four seconds", "five seconds"])
@pytest.mark.parametrize("before", [{"utilisation": 34}, {"power_w": 500.0}, {"memory_utilisation": 40}])
def test_a_card_that_did_something_early_in_the_silence_works_on_nothing_once_it_rests(before, rests, occupied):
    samples = [replace(sample(0.5), **before), *(sample(float(n)) for n in range(1, rests + 1))]
    (view,) = Gpus(samples).of({7})
    assert view.occupied_by_nothing is occupied
    (view,) = Gpus([*samples, replace(sample(9.0), **before)]).of({7})
    assert not view.occupied_by_nothing


POLLS = GpuActivity(floating=0.0, integer=0.04, memory=0.0005)
MOVES = GpuActivity(floating=0.0, integer=0.04, memory=0.00305)


@pytest.mark.parametrize(
    ("activities", "seconds"),
    [
        ([None, POLLS, POLLS, POLLS], 3.0),
        ([None, MOVES, MOVES, POLLS, POLLS], 2.0),  # from the end of the last work
        ([None, POLLS, None, POLLS], 3.0),  # the next one tells of it, too
        ([None, MOVES, None, POLLS], 2.0),
        ([None, POLLS, POLLS, MOVES], 0.0),
        ([None, None, None], 0.0),
    ],
    ids=["polls", "worked before", "a look too soon", "too soon behind work", "works", "counts nothing"],
)
def test_the_seconds_of_polling_begin_when_the_last_work_ended(activities, seconds):
    samples = [replace(sample(float(n)), activity=activity) for n, activity in enumerate(activities)]
    (view,) = Gpus(samples).of({7}, since_s=-1.0)
    assert view.polls.seconds == seconds
