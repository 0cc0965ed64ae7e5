"""The watch, in fake time: when it looks, when it stops, and what it refuses to call certain."""

import json
import math
from dataclasses import replace
from itertools import pairwise

import pytest

from harness.core.movement import quiet_windows
from harness.core.outcome import Ending, Exit, StopReason
from harness.core.point import Point
from harness.core.ports import ProcessRef
from harness.core.trial import BY_USER, Budget, Limit, Trial
from harness.observe.monitor import watch
from harness.store import layout
from harness.testing.clock import FakeClock
from harness.testing.handles import ScriptedHandle, ScriptedView
from harness.testing.sources import ScriptedSource


def trial(*, startup_s=120.0, stall_s=30.0, total_s=600.0, config=None):
    def limit(seconds):
        return Limit(seconds=seconds, source="test")

    return Trial(
        target="nsa",
        point=Point(settings=()),
        repeat=0,
        role="search",
        config=config or {"train": {"steps": 3}},
        seed=0,
        code="c",
        machine="m",
        budget=Budget(startup=limit(startup_s), stall=limit(stall_s), total=limit(total_s)),
    )


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def handle(clock, tmp_path):
    return ScriptedHandle(clock=clock, trial_dir=tmp_path)


@pytest.fixture
def view():
    return ScriptedView()


@pytest.fixture
def run(clock, handle, view, tmp_path):
    def run(
        asked=None,
        *,
        source=None,
        sources=None,
        interrupted=lambda: False,
        progress=None,
        early=False,
        decided=lambda *_: "",
    ):
        return watch(
            handle=handle,
            trial=asked or trial(),
            trial_dir=tmp_path,
            clock=clock,
            sources=sources if sources is not None else (source or ScriptedSource(),),
            progress=progress,
            started_s=clock.began_s,
            interrupted=interrupted,
            view=view,
            decided=decided,
            suspicious_s=3.0 if early else math.inf,
        )

    return run


def falls_silent(handle, *, at=5.0):
    """Two steps of healthy training, then nothing from ``at`` seconds on."""
    handle.train(steps=2, step_s=(at - 1.0) / 2, start_s=1.0)


def test_healthy_trial_passes_undisturbed(clock, handle, run):
    handle.train(steps=3, step_s=4.0)
    handle.exit_at(14.0, code=0)
    source = ScriptedSource()
    outcome, evidence = run(source=source)
    assert (outcome.ending, outcome.exit) == (Ending.EXITED, Exit(code=0))
    assert outcome.duration_s == pytest.approx(14.0, abs=0.2)
    assert outcome.stopped_by is None
    assert outcome.cleanup.gone
    assert handle.stops == 1
    assert source.samples == []
    assert evidence.stacks == ()
    assert evidence.processes == ()
    assert (evidence.steps_wanted, evidence.steps_done) == (3, 3)
    assert evidence.measurement.startup_s == 1.0
    assert evidence.measurement.step_s == pytest.approx((4.0, 4.0, 4.0))
    assert evidence.measurement.longest_silence_s == pytest.approx(2.0)
    assert evidence.measurement.peak_rss_bytes == 1 << 20
    assert evidence.measurement.facts == (("first_loss", 1.0), ("loss", 1.0))


def test_two_hours_of_silence_are_watched_in_no_time(clock, handle, run):
    falls_silent(handle)
    outcome, evidence = run(trial(stall_s=7200.0, total_s=86400.0))
    assert outcome.stopped_by is StopReason.STALL
    assert evidence.silence_s == pytest.approx(7200.0, abs=10.0)
    assert clock.now() - clock.began_s > 7200.0


def test_silent_process_in_which_nothing_moves_is_ended_after_three_samples(handle, run):
    falls_silent(handle)
    source = ScriptedSource()
    outcome, evidence = run(source=source)
    assert (outcome.ending, outcome.stopped_by) == (Ending.STOPPED_BY_US, StopReason.STALL)
    assert "nothing moved" in outcome.why
    assert evidence.silence_s == pytest.approx(30.0, abs=5.0)
    assert [native for _, native in source.samples] == [False, True, True]
    assert [stack.id for stack in evidence.stacks] == ["stack-1", "stack-2", "stack-3"]
    gaps = [b.t_s - a.t_s for a, b in pairwise(evidence.stacks)]
    assert all(1.0 <= gap <= 1.5 for gap in gaps)
    assert handle.stops == 1


def test_every_sample_is_taken_before_the_process_is_stopped(handle, run):
    falls_silent(handle)
    source = ScriptedSource(on_sample=lambda number: stops.append(handle.stops))
    stops = []
    run(source=source)
    assert stops == [0, 0, 0]


def test_windows_without_a_dumper_cover_half_of_the_limit_and_a_second_between_samples(handle, run):
    falls_silent(handle)
    _, evidence = run()
    windows = quiet_windows(evidence.processes)
    assert windows[0].seconds == pytest.approx(15.0, abs=0.5)
    assert all(1.0 <= window.seconds <= 1.2 for window in windows[1:])
    assert len(windows) == 3
    by_id = {look.id: look for look in evidence.processes}
    for window in windows:
        between = (by_id[window.first].t_s, by_id[window.last].t_s)
        assert not any(between[0] < stack.t_s < between[1] for stack in evidence.stacks)


def test_silence_before_the_first_step_is_held_against_the_startup_limit(clock, handle, run):
    clock.at(0.0, lambda: handle.beat(phase="build"))
    outcome, evidence = run(trial(startup_s=100.0, stall_s=10.0))
    assert outcome.stopped_by is StopReason.STARTUP
    assert evidence.silence_s == pytest.approx(100.0, abs=5.0)
    assert evidence.measurement.startup_s is None


def test_startup_limit_counts_from_the_last_mark_of_the_build(clock, handle, run):
    for second in (0, 40, 80):
        clock.at(second, lambda: handle.beat(phase="build", edge="progress"))
    outcome, _ = run(trial(startup_s=60.0))
    assert outcome.duration_s == pytest.approx(140.0, abs=5.0)


def test_standstill_is_ended_long_before_its_limit(handle, run):
    falls_silent(handle)
    source = ScriptedSource()
    outcome, evidence = run(trial(stall_s=7200.0, total_s=86400.0), source=source, early=True)
    assert outcome.stopped_by is StopReason.CERTAIN
    assert "limit 7200 s, not waited for" in outcome.why
    assert evidence.silence_s < 10.0
    assert [native for _, native in source.samples] == [False, True, True]


def test_what_a_process_says_when_it_is_ended_does_not_hide_its_silence(clock, handle, run):
    falls_silent(handle)
    end = handle.stop

    def says_goodbye(**asked):
        handle.beat(phase="exit")
        return end(**asked)

    handle.stop = says_goodbye
    _, evidence = run()
    assert evidence.last.phase != "exit"
    assert evidence.last.t_s < min(stack.t_s for stack in evidence.stacks)


def test_standstill_that_begins_within_a_silence_is_found_when_it_is_asked_again(handle, view, run):
    falls_silent(handle)
    view.cpu_share, view.rests_from_s = 1.0, 100.0
    outcome, evidence = run(trial(stall_s=7200.0, total_s=86400.0), early=True)
    assert outcome.stopped_by is StopReason.CERTAIN
    assert 100.0 < evidence.silence_s < 400.0


def test_merely_slow_process_is_asked_again_and_never_dumped_before_its_limit(clock, handle, view, run):
    falls_silent(handle)
    view.cpu_share, view.state = 1.0, "R"
    source = ScriptedSource()
    clock.at(34.0, lambda: handle.exit(code=0))
    outcome, _ = run(source=source, early=True)
    assert outcome.ending is Ending.EXITED
    assert source.samples == []


@pytest.mark.parametrize(
    ("state", "wchan", "timed"),
    [
        ("T", "do_signal_stop", None),
        ("S", "hrtimer_nanosleep", True),
        ("D", "rpc_wait_bit_killable", None),
        ("S", "sk_wait_data", False),
        ("S", "ep_poll", False),
        ("S", "do_wait", False),
    ],
    ids=["stopped", "sleeps", "waits for a device", "waits for a socket", "polls", "waits for a child"],
)
def test_what_something_outside_could_wake_is_never_ended_before_its_limit(handle, view, run, state, wchan, timed):
    falls_silent(handle)
    view.state, view.wchan, view.timed = state, wchan, timed
    outcome, evidence = run(early=True)
    assert outcome.stopped_by is StopReason.STALL
    assert evidence.silence_s >= 30.0


def test_limit_that_passes_while_a_standstill_is_looked_into_is_not_looked_into_again(clock, handle, view, run):
    """On a busy machine looking takes long: what was seen by then is judged as at the limit, once."""
    falls_silent(handle)
    view.state, view.wchan, view.timed = "T", "do_signal_stop", None
    source = ScriptedSource(on_sample=lambda _: clock.sleep(12.0))
    outcome, _ = run(source=source, early=True)
    assert outcome.stopped_by is StopReason.STALL
    assert "limit 30 s, test" in outcome.why
    assert len(source.samples) == 3


def test_still_process_without_native_frames_is_not_ended_before_its_limit(handle, run):
    falls_silent(handle)
    outcome, evidence = run(source=ScriptedSource(native=False), early=True)
    assert outcome.stopped_by is StopReason.STALL
    assert evidence.silence_s >= 30.0


def test_silence_after_the_last_step_is_held_against_the_startup_limit(handle, run):
    handle.train(steps=3, step_s=1.0)
    outcome, evidence = run(trial(startup_s=100.0, stall_s=10.0))
    assert outcome.stopped_by is StopReason.STARTUP
    assert evidence.silence_s == pytest.approx(100.0, abs=5.0)
    assert evidence.measurement.longest_silence_s < 2.0


def test_busy_process_is_watched_on_to_four_times_the_limit(handle, view, run):
    falls_silent(handle)
    view.cpu_share, view.state = 1.0, "R"
    outcome, evidence = run()
    assert outcome.stopped_by is StopReason.STALL
    assert evidence.silence_s == pytest.approx(120.0, abs=5.0)
    assert "CPU 1.1" in outcome.why
    silence_began_s = 5.0
    taken_s = [stack.t_s - silence_began_s for stack in evidence.stacks]
    assert [round(t_s / 30.0) for t_s in taken_s] == [1, 1, 1, 2, 3, 4, 4, 4, 4, 4, 4]
    assert [t_s < 120.0 for t_s in taken_s] == [True] * 8 + [False] * 3


def ends_in_a_hang_after(seconds):
    return lambda _, evidence: "it hangs" if evidence.silence_s >= seconds else ""


def test_watch_ends_with_four_times_the_limit_when_the_samples_taken_by_then_decide(handle, view, run):
    falls_silent(handle)
    view.wchan = "sk_wait_data"
    outcome, evidence = run(decided=ends_in_a_hang_after(120.0))
    assert evidence.silence_s == pytest.approx(120.1, abs=0.3)
    assert outcome.why == "decided by what was seen so far: it hangs"
    closing = [stack for stack in evidence.stacks if stack.t_s > 5.0 + 100.0]
    assert [stack.native for stack in closing] == [True, True, True]
    assert [look.t_s for look in evidence.processes][-1] - 5.0 >= 120.0
    assert [window.seconds for window in quiet_windows(evidence.processes)][-2:] == pytest.approx([1.1, 1.1], abs=0.4)


def test_slow_dumper_does_not_prolong_the_watch_by_more_than_one_sample(clock, handle, view, run):
    falls_silent(handle)
    view.wchan = "sk_wait_data"
    source = ScriptedSource(on_sample=lambda _: clock.sleep(2.5))
    _, evidence = run(trial(stall_s=4.0), source=source, decided=ends_in_a_hang_after(16.0))
    assert 16.0 <= evidence.silence_s <= 16.0 + 2.5 + 1.1


def test_mark_while_the_watch_runs_out_lets_it_go_on(clock, handle, view, run):
    falls_silent(handle)
    view.wchan = "sk_wait_data"
    clock.at(124.0, lambda: handle.beat(phase="backward", edge="end", step=2))
    handle.exit_at(130.0, code=0)
    outcome, _ = run(decided=ends_in_a_hang_after(120.0))
    assert outcome.ending is Ending.EXITED


def has_a_pace(handle, *, step_s=0.4):
    """Four quick steps, the first a second after the start, and the beginning of a fifth; the time of its last mark."""
    handle.train(steps=4, step_s=step_s)
    last_s = 1.0 + 4 * step_s + 0.1
    handle.clock.at(last_s, lambda: handle.beat(phase="forward", step=4))
    return last_s


FIVE_STEPS = {"train": {"steps": 5}}


def test_standstill_out_of_proportion_to_the_own_pace_is_told_within_ten_seconds(handle, view, run):
    last_s = has_a_pace(handle)
    view.wchan = "sk_wait_data"
    source = ScriptedSource()
    outcome, evidence = run(trial(config=FIVE_STEPS), source=source, early=True, decided=ends_in_a_hang_after(8.5))
    assert outcome.stopped_by is StopReason.PACE
    assert outcome.why == "decided by what was seen so far: it hangs"
    assert 8.5 <= evidence.silence_s < 9.0
    assert [native for _, native in source.samples] == [False, True, True]
    assert evidence.processes[-1].t_s - last_s >= 8.5
    assert (evidence.pace.steps, evidence.pace.longest_s) == (4, pytest.approx(0.3))


def test_samples_that_came_late_are_decided_upon_at_once(handle, view, run):
    """On a busy machine stacks take seconds; another second of watching would show nothing new."""
    has_a_pace(handle)
    view.wchan = "sk_wait_data"
    source = ScriptedSource(on_sample=lambda _: handle.clock.sleep(2.0))
    outcome, evidence = run(trial(config=FIVE_STEPS), source=source, early=True, decided=ends_in_a_hang_after(8.5))
    assert outcome.stopped_by is StopReason.PACE
    last_s = evidence.stacks[-1].t_s + 2.0 - evidence.heartbeats[-1].t_s
    assert evidence.silence_s - last_s < 0.5


def test_longer_steps_are_given_three_of_them_more(handle, view, run):
    has_a_pace(handle, step_s=6.0)
    view.wchan = "sk_wait_data"
    outcome, evidence = run(trial(config=FIVE_STEPS), early=True, decided=ends_in_a_hang_after(0.0))
    assert outcome.stopped_by is StopReason.PACE
    assert evidence.silence_s == pytest.approx(6.0 + 3 * 3.1, abs=0.5)


def test_loop_out_of_proportion_to_the_own_pace_is_asked_about_with_native_frames(handle, view, run):
    has_a_pace(handle, step_s=0.02)
    view.state, view.cpu_share = "R", 1.0
    source = ScriptedSource()
    outcome, evidence = run(trial(config=FIVE_STEPS), source=source, early=True, decided=ends_in_a_hang_after(8.5))
    assert outcome.stopped_by is StopReason.PACE
    assert 8.5 <= evidence.silence_s < 9.0
    assert [native for _, native in source.samples] == [False, True, True, True]


def test_standstill_is_not_taken_for_a_loop_where_loops_are_told_soon(handle, view, run):
    """It can be told for certain, before the patience that a loop is due."""
    has_a_pace(handle, step_s=0.02)
    source = ScriptedSource()
    outcome, evidence = run(trial(config=FIVE_STEPS), source=source, early=True, decided=ends_in_a_hang_after(8.5))
    assert outcome.stopped_by is StopReason.CERTAIN
    assert evidence.silence_s < 7.0
    assert [native for _, native in source.samples] == [False, True, True]


def test_what_computes_is_left_alone_for_a_hundred_gaps(handle, view, run):
    has_a_pace(handle)
    view.state, view.cpu_share = "R", 1.0
    source = ScriptedSource()
    handle.exit_at(16.0, code=0)
    run(trial(config=FIVE_STEPS), source=source, early=True, decided=ends_in_a_hang_after(8.5))
    assert source.samples == []


def test_limit_that_the_user_set_is_waited_for_whatever_the_pace_was(handle, view, run):
    has_a_pace(handle)
    view.wchan = "sk_wait_data"
    asked = trial(config=FIVE_STEPS)
    given = replace(asked, budget=replace(asked.budget, stall=Limit(seconds=30.0, source=f"{BY_USER} (--stall)")))
    outcome, evidence = run(given, early=True, decided=ends_in_a_hang_after(8.5))
    assert outcome.stopped_by is StopReason.STALL
    assert evidence.silence_s >= 30.0


def test_two_steps_are_no_pace_and_an_end_has_none(handle, view, run):
    falls_silent(handle)
    view.wchan = "sk_wait_data"
    outcome, evidence = run(early=True, decided=ends_in_a_hang_after(8.5))
    assert (outcome.stopped_by, evidence.silence_s >= 30.0) == (StopReason.STALL, True)


def test_silence_after_the_last_step_is_not_held_against_the_pace(handle, view, run):
    handle.train(steps=4, step_s=0.4)
    view.wchan = "sk_wait_data"
    four = trial(config={"train": {"steps": 4}})
    outcome, evidence = run(four, early=True, decided=ends_in_a_hang_after(8.5))
    assert (outcome.stopped_by, evidence.silence_s >= 120.0) == (StopReason.STARTUP, True)


def test_standstill_that_its_pace_does_not_decide_is_watched_on_as_before(handle, view, run):
    has_a_pace(handle)
    view.wchan = "sk_wait_data"
    asked_s: list[float] = []

    def decided(_, evidence):
        asked_s.append(evidence.silence_s)
        return "it hangs" if evidence.silence_s >= 120.0 else ""

    outcome, evidence = run(trial(config=FIVE_STEPS), early=True, decided=decided)
    assert outcome.stopped_by is StopReason.STALL
    assert evidence.silence_s == pytest.approx(120.1, abs=0.3)
    assert asked_s[0] == pytest.approx(8.5, abs=0.3)
    assert len(asked_s) <= 10


def test_learned_limit_that_passes_meanwhile_does_not_delay_what_the_pace_decides(handle, view, run):
    has_a_pace(handle)
    view.wchan = "sk_wait_data"
    asked = trial(config=FIVE_STEPS, stall_s=4.0)
    outcome, evidence = run(asked, early=True, decided=ends_in_a_hang_after(8.5))
    assert outcome.stopped_by is StopReason.PACE
    assert 8.5 <= evidence.silence_s < 9.0


def test_native_frames_that_the_limit_asked_for_count_for_the_loop(handle, view, run):
    has_a_pace(handle)
    view.state, view.cpu_share = "R", 1.0
    source = ScriptedSource()
    asked = trial(config=FIVE_STEPS, stall_s=10.0)
    outcome, evidence = run(asked, source=source, decided=ends_in_a_hang_after(16.0))
    assert outcome.stopped_by is StopReason.PACE
    assert evidence.silence_s == pytest.approx(20.0, abs=0.3)
    assert [native for _, native in source.samples] == [False, True, True, True]


def test_mark_while_a_standstill_is_held_against_the_pace_lets_it_go_on(clock, handle, view, run):
    last_s = has_a_pace(handle, step_s=1.0)
    view.wchan = "sk_wait_data"
    clock.at(last_s + 8.2, lambda: handle.beat(phase="backward", step=4))
    asked = trial(config=FIVE_STEPS, stall_s=60.0)
    outcome, evidence = run(asked, early=True, decided=ends_in_a_hang_after(8.5))
    assert outcome.stopped_by is StopReason.PACE
    # The gap that ended so late is part of its pace now.
    assert evidence.silence_s == pytest.approx(6.0 + 3 * 8.2, abs=0.3)


def test_process_that_waits_for_a_working_child_is_watched_on(handle, view, run):
    falls_silent(handle)
    view.others_cpu_share = 0.9
    _, evidence = run()
    assert evidence.silence_s == pytest.approx(120.0, abs=5.0)


@pytest.mark.parametrize(
    ("state", "wchan", "timed"),
    [
        ("S", "hrtimer_nanosleep", True),
        ("D", "folio_wait_bit_common", None),
        ("S", "sk_wait_data", False),
        ("S", "do_wait", False),
    ],
    ids=["sleeps", "waits for a device", "waits for a socket", "waits for a child"],
)
def test_process_that_may_wake_by_itself_is_watched_on(handle, view, run, state, wchan, timed):
    falls_silent(handle)
    view.state, view.wchan, view.timed = state, wchan, timed
    _, evidence = run()
    assert evidence.silence_s == pytest.approx(120.0, abs=5.0)


@pytest.mark.parametrize("early", [False, True])
def test_still_process_with_a_child_that_will_wake_is_watched_on(handle, view, run, early):
    falls_silent(handle)
    view.others_may_move = "sleep (process 8) waits with a time limit (hrtimer_nanosleep)"
    outcome, evidence = run(early=early)
    assert evidence.silence_s == pytest.approx(120.0, abs=5.0)
    assert "sleep (process 8)" in outcome.why


def test_what_is_decided_by_the_evidence_so_far_is_not_watched_any_longer(handle, view, run):
    falls_silent(handle)
    view.state, view.cpu_share = "R", 1.0
    asked: list[tuple[float, int]] = []

    def decided(outcome, evidence):
        assert outcome.stopped_by is StopReason.STALL
        asked.append((evidence.silence_s, len(evidence.stacks)))
        return "a loop that ends never" if len(asked) == 2 else ""

    outcome, evidence = run(decided=decided)
    assert [round(silence_s / 30.0) for silence_s, _ in asked] == [1, 2]
    assert [stacks for _, stacks in asked] == [3, 4]
    assert evidence.silence_s == pytest.approx(60.0, abs=5.0)
    assert outcome.why == "decided by what was seen so far: a loop that ends never"


def test_stopped_process_is_ended_at_once_without_native_frames(handle, view, run):
    falls_silent(handle)
    view.state, view.wchan, view.timed = "T", "do_signal_stop", None
    outcome, evidence = run(source=ScriptedSource(native=False))
    assert evidence.silence_s == pytest.approx(30.0, abs=5.0)
    assert "stopped (state T)" in outcome.why
    assert all(look.state == "T" for look in evidence.processes)


def test_still_process_without_native_frames_is_watched_on(handle, run):
    falls_silent(handle)
    outcome, evidence = run(source=ScriptedSource(native=False))
    assert evidence.silence_s == pytest.approx(120.0, abs=5.0)
    assert "0 with native frames" in outcome.why


def test_native_stack_that_changes_is_watched_on(handle, run):
    falls_silent(handle)
    stacks = [(f"kernel_{number}", "backward") for number in range(11)]
    outcome, evidence = run(source=ScriptedSource(*stacks))
    assert evidence.silence_s == pytest.approx(120.0, abs=5.0)
    assert "native stacks differ" in outcome.why


def test_python_stack_that_changes_is_watched_on(handle, run):
    falls_silent(handle)
    outcome, evidence = run(source=ScriptedSource(("one", "f"), ("two", "f"), ("two", "f"), ("one", "f"), ("two", "f")))
    assert evidence.silence_s == pytest.approx(120.0, abs=5.0)
    assert outcome.stopped_by is StopReason.STALL


def test_process_that_comes_to_rest_while_it_is_watched_is_judged_by_its_rest(handle, view, run):
    falls_silent(handle)
    view.cpu_share, view.rests_from_s = 1.0, 40.0
    outcome, evidence = run()
    assert evidence.silence_s == pytest.approx(120.0, abs=5.0)
    assert "nothing moved" in outcome.why


def test_long_silence_that_ends_before_the_limit_leaves_no_trace(clock, handle, run):
    falls_silent(handle)
    clock.at(30.0, lambda: handle.beat(phase="backward", edge="end", step=2))
    handle.exit_at(31.0, code=0)
    outcome, evidence = run()
    assert outcome.ending is Ending.EXITED
    assert evidence.processes == ()


def test_look_after_a_dump_waits_until_its_effect_is_over(handle, run):
    falls_silent(handle)
    _, evidence = run()
    for stack in evidence.stacks:
        later = [look.t_s for look in evidence.processes if look.t_s > stack.t_s]
        assert min(later) >= stack.t_s + 0.099


def test_supervisor_is_none_of_the_others(handle, view, run, monkeypatch):
    falls_silent(handle)
    processes = (ProcessRef(handle.pid, 1), ProcessRef(view.parent(handle.pid), 1), ProcessRef(77, 1))
    monkeypatch.setattr(handle, "processes", lambda: processes)
    _, evidence = run()
    assert {look.children for look in evidence.processes} == {1}


def test_heartbeat_while_it_is_examined_lets_the_watch_go_on(clock, handle, run):
    falls_silent(handle)
    clock.at(36.5, lambda: handle.beat(phase="backward", edge="end", step=2))
    handle.exit_at(40.0, code=0)
    source = ScriptedSource()
    outcome, evidence = run(source=source)
    assert outcome.ending is Ending.EXITED
    assert len(source.samples) in (1, 2)
    assert len(evidence.stacks) == len(source.samples)
    assert evidence.last.step == 2
    assert evidence.silence_s == pytest.approx(3.5, abs=0.3)
    assert evidence.measurement.longest_silence_s == pytest.approx(31.5)


def test_new_silence_after_a_heartbeat_is_examined_afresh(clock, handle, run):
    falls_silent(handle)
    clock.at(36.5, lambda: handle.beat(phase="backward", edge="end", step=2))
    outcome, evidence = run()
    assert outcome.stopped_by is StopReason.STALL
    assert evidence.silence_s == pytest.approx(30.0, abs=5.0)
    assert len([stack for stack in evidence.stacks if stack.t_s > 60.0]) == 3


def test_exit_while_it_is_sampled_is_an_exit(clock, handle, run):
    falls_silent(handle)
    outcome, evidence = run(source=ScriptedSource(on_sample=lambda number: handle.exit(signal=11)))
    assert (outcome.ending, outcome.exit, outcome.stopped_by) == (Ending.SIGNALLED, Exit(signal=11), None)
    assert len(evidence.stacks) == 1


def test_exit_while_the_last_sample_is_taken_at_the_total_limit_is_an_exit(clock, handle, run):
    handle.train(steps=30, step_s=5.0)
    outcome, _ = run(
        trial(total_s=60.0), source=ScriptedSource(on_sample=lambda n: handle.exit(code=0) if n == 3 else None)
    )
    assert (outcome.ending, outcome.stopped_by) == (Ending.EXITED, None)


def test_exit_at_the_moment_of_an_interrupt_is_an_exit(handle, run):
    outcome, _ = run(interrupted=lambda: handle.exit(code=0) or True)
    assert (outcome.ending, outcome.exit, outcome.stopped_by) == (Ending.EXITED, Exit(code=0), None)


def test_process_that_vanishes_from_proc_is_no_error(handle, view, run):
    falls_silent(handle)
    view.gone = True
    outcome, evidence = run(source=ScriptedSource(fail="process 7 is gone"))
    assert outcome.stopped_by is StopReason.STALL
    assert evidence.processes == ()
    assert [failure.reason for failure in evidence.failures] == ["process 7 is gone"]


def test_total_limit_ends_a_trial_that_still_progresses_after_looking_at_it(handle, view, run):
    handle.train(steps=100, step_s=5.0)
    view.cpu_share, view.state = 1.0, "R"
    outcome, evidence = run(trial(total_s=60.0))
    assert outcome.stopped_by is StopReason.TOTAL
    assert outcome.duration_s == pytest.approx(63.0, abs=2.0)
    assert len(evidence.stacks) == 3
    assert evidence.steps_done == 12
    assert evidence.silence_s < 5.0
    assert all(window.cpu_share > 0.9 for window in quiet_windows(evidence.processes))


def test_marks_do_not_cut_the_look_at_a_trial_whose_time_is_up(handle, view, run):
    handle.train(steps=1000, step_s=0.4)
    view.cpu_share, view.state = 1.0, "R"
    _, evidence = run(trial(total_s=60.0))
    assert [window.seconds for window in quiet_windows(evidence.processes)] == pytest.approx([1.1, 1.1], abs=0.01)


def test_total_limit_comes_before_a_longer_stall_limit(handle, run):
    falls_silent(handle)
    outcome, evidence = run(trial(stall_s=30.0, total_s=20.0))
    assert outcome.stopped_by is StopReason.TOTAL
    assert len(evidence.stacks) == 3


def test_interrupt_ends_it_at_once_and_without_samples(clock, handle, run):
    handle.train(steps=100, step_s=5.0)
    source = ScriptedSource()
    outcome, _ = run(source=source, interrupted=lambda: clock.now() - clock.began_s >= 12.0)
    assert outcome.stopped_by is StopReason.INTERRUPT
    assert outcome.duration_s == pytest.approx(12.0, abs=0.3)
    assert source.samples == []


def test_interrupt_while_it_is_examined_ends_it_at_once(clock, handle, run):
    falls_silent(handle)
    source = ScriptedSource()
    outcome, _ = run(source=source, interrupted=lambda: len(source.samples) == 1)
    assert outcome.stopped_by is StopReason.INTERRUPT
    assert len(source.samples) == 1


def test_what_a_finished_trial_leaves_behind_is_ended_and_counted(handle, run):
    handle.exit_at(3.0, code=0)
    handle.leaves = 2
    outcome, _ = run()
    assert outcome.ending is Ending.EXITED
    assert outcome.cleanup.ended == 2
    assert "2 processes that it left behind" in outcome.why


def test_process_that_cannot_be_ended_is_named(handle, run):
    falls_silent(handle)
    handle.ignores_stop = True
    outcome, _ = run()
    assert not outcome.cleanup.gone
    assert outcome.exit is None


def test_lost_supervisor_is_not_called_an_exit_code(handle, run):
    handle.exit_at(3.0)
    outcome, _ = run()
    assert outcome.exit == Exit()
    assert "supervisor" in outcome.why


def test_sources_that_fail_are_reported_once_each_with_the_reason(handle, run):
    falls_silent(handle)
    broken = ScriptedSource(name="broken", fail="not installed")
    _, evidence = run(sources=(broken, ScriptedSource()))
    assert [(f.source, f.reason) for f in evidence.failures] == [("broken", "not installed")]
    assert len(evidence.stacks) == 3


def test_worker_files_become_evidence(handle, run, tmp_path):
    layout.effective(tmp_path).write_text(json.dumps({"config": {"train": {"steps": 2}}, "torch": "2.13"}))
    layout.kernels(tmp_path).write_text(json.dumps([{"op": "selected", "kernel": "gather", "reason": "cpu"}]))
    said = {"status": "finished", "steps_done": 3, "phase": None, "exception": None, "message": None}
    layout.result(tmp_path).write_text(json.dumps(said))
    layout.output(tmp_path, "stdout").write_text("hello\n")
    handle.exit_at(1.0, code=0)
    _, evidence = run()
    assert evidence.config_seen
    assert evidence.config_differences == ("train.steps: requested 3, ran 2",)
    assert evidence.kernels[0].kernel == "gather"
    assert (evidence.result.id, evidence.result.status) == ("result", "finished")
    assert [(log.id, log.text) for log in evidence.logs] == [("log-stdout", "hello\n")]


def test_progress_hears_of_every_look_and_of_the_samples(handle, run):
    falls_silent(handle)
    heard = []
    run(progress=heard.append)
    notes = [facts["note"] for facts in heard if "note" in facts]
    assert [note.split(": ")[1] for note in notes[:3]] == [f"stack sample {n} of 3" for n in (1, 2, 3)]
    assert notes[3].startswith("ending it: ")
    steps = [facts["steps_done"] for facts in heard]
    assert steps == sorted(steps)
    assert {"elapsed_s", "silence_s", "phase", "step", "steps_wanted"} <= heard[0].keys()


def test_looks_come_fast_at_first_and_five_times_a_second_later(clock, handle, run):
    handle.train(steps=100, step_s=5.0)
    handle.exit_at(100.0, code=0)
    times = []
    run(progress=lambda facts: times.append(facts["elapsed_s"]))
    gaps = [b - a for a, b in pairwise(times)]
    assert gaps[0] == pytest.approx(0.02)
    assert max(gaps) == pytest.approx(0.2)
    assert all(b >= a - 1e-9 for a, b in pairwise(gaps[:-1]))
