"""What moved between two looks: nothing is still unless everything is."""

from dataclasses import replace

import pytest

from harness.core.codec import from_json, to_json
from harness.core.evidence import ProcessState, ThreadState
from harness.core.movement import movement, quiet_windows

THREAD = ThreadState(
    tid=7,
    name="python",
    state="S",
    wchan="futex_do_wait",
    cpu_s=1.5,
    voluntary_switches=10,
    involuntary_switches=5,
    timed=False,
)
LOOK = ProcessState(
    id="proc-1",
    t_s=10.0,
    rank=0,
    pid=7,
    state="S",
    threads=(THREAD,),
    rss_bytes=4096,
    minor_faults=100,
    read_bytes=50,
    written_bytes=60,
    children=1,
    others_cpu_s=3.0,
    others_may_move="",
)


def later(seconds=1.0, *, thread=None, since="proc-1", **changes):
    threads = (replace(THREAD, **(thread or {})),)
    return replace(
        LOOK, **{"id": "proc-2", "t_s": 10.0 + seconds, "threads": threads, "undisturbed_since": since} | changes
    )


def test_nothing_moved():
    moved = movement(LOOK, later())
    assert moved.still
    assert str(moved).startswith("in 1.0 s: CPU 0.000 s, other processes 0.000 s, 0 context switches")


@pytest.mark.parametrize(
    "change",
    [
        {"thread": {"cpu_s": 1.51}},
        {"thread": {"voluntary_switches": 13}},
        {"thread": {"involuntary_switches": 8}},
        {"thread": {"state": "R"}},
        {"minor_faults": 103},
        {"read_bytes": 51},
        {"written_bytes": 61},
        {"children": 2},
        {"others_cpu_s": 3.01},
        {"others_cpu_s": 2.0},
        {"threads": ()},
        {"threads": (THREAD, replace(THREAD, tid=8, cpu_s=0.0, voluntary_switches=0, involuntary_switches=0))},
    ],
    ids=lambda change: next(iter(change.get("thread", change))),
)
def test_any_one_thing_that_moved_is_movement(change):
    assert not movement(LOOK, later(**change)).still


def test_new_thread_brings_all_of_its_cpu_time():
    new = replace(THREAD, tid=8, cpu_s=0.5)
    assert movement(LOOK, later(threads=(THREAD, new))).cpu_share == pytest.approx(0.5)


def test_window_of_no_length_has_no_cpu_share():
    assert movement(LOOK, later(0.0, thread={"cpu_s": 2.0})).cpu_share == 0.0


def test_only_looks_without_a_dumper_in_between_make_a_window():
    middle = later(1.0)
    longest = later(2.0, id="proc-3")
    after_a_dump = later(5.0, id="proc-4", since=None)
    (window,) = quiet_windows((LOOK, middle, longest, after_a_dump))
    assert (window.first, window.last, window.seconds) == ("proc-1", "proc-3", 2.0)


def test_window_whose_opening_was_not_kept_is_left_out():
    assert quiet_windows((later(since="proc-0"),)) == ()


def test_look_survives_the_journal():
    assert from_json(ProcessState, to_json(later())) == later()
