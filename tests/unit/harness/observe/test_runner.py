"""The runner, in fake time: what it makes of what the watch asks for, and what it hands on as evidence."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest

from fake_clock import FakeClock
from harness.classify.engine import classify
from harness.core.devices import Collective, CollectiveState
from harness.core.outcome import Ending, Exit, StopReason
from harness.core.point import Point
from harness.core.trial import Budget, Limit, Trial
from harness.core.verdict import Case, Kind
from harness.observe.census import Census
from harness.observe.devices.devices import Devices
from harness.observe.ranks import Ranks, torchrun_ends
from harness.observe.runner import Runner
from harness.observe.watch import AFTERMATH_S
from harness.reading.pace import WATCHED
from harness.reading.stillness import quiet_windows
from harness.store import layout
from scripted_trial import ScriptedHandle, ScriptedView, watch
from stack_sources import ScriptedSource

STALL_S = 30.0


def limit(seconds):
    return Limit(seconds=seconds, source="test")


def trial(*, startup_s=120.0, stall_s=STALL_S, total_s=600.0, world=1):
    return Trial(
        target="nsa",
        point=Point(settings=()),
        repeat=0,
        role="search",
        config={"train": {"steps": 3}, "parallel": {"world": world}},
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
    def run(asked=None, *, source=None, sources=None, interrupted=lambda: False, progress=None, devices=None):
        asked = asked or trial()
        return watch(
            handle=handle,
            trial=asked,
            trial_dir=tmp_path,
            clock=clock,
            sources=sources if sources is not None else (source or ScriptedSource(),),
            progress=progress,
            started_s=clock.began_s,
            interrupted=interrupted,
            view=view,
            devices=devices,
            judge=lambda outcome, evidence: classify(Case(trial=asked, outcome=outcome, evidence=evidence)),
        )

    return run


def falls_silent(handle, *, at=5.0):
    """Two steps of healthy training, then nothing from ``at`` seconds on."""
    handle.train(steps=2, step_s=(at - 1.0) / 2, start_s=1.0)


# -- what ends a trial


def test_a_healthy_trial_passes_undisturbed(handle, run):
    handle.train(steps=3, step_s=4.0)
    handle.exit_at(14.0, code=0)
    source = ScriptedSource()
    outcome, evidence = run(source=source)
    assert (outcome.ending, outcome.exit, outcome.stopped_by) == (Ending.EXITED, Exit(code=0), None)
    assert outcome.duration_s == pytest.approx(14.0, abs=0.2)
    assert handle.stops == 1
    assert evidence.stacks == evidence.processes == ()
    assert (evidence.steps_wanted, evidence.steps_done) == (3, 3)
    assert evidence.measurement.startup_s == 1.0
    assert evidence.measurement.step_s == pytest.approx((4.0, 4.0, 4.0))
    assert evidence.measurement.peak_rss_bytes == 1 << 20
    assert evidence.measurement.facts == (("first_loss", 1.0), ("loss", 1.0))


def test_a_lock_that_nobody_can_give_back_is_ended_long_before_its_limit(handle, run):
    falls_silent(handle)
    outcome, evidence = run(trial(stall_s=7200.0, total_s=86400.0))
    assert outcome.stopped_by is StopReason.CERTAIN
    assert evidence.silence_s < 10.0
    assert len(evidence.stacks) == 3
    assert "1 of 1" not in outcome.why


def raised(trial_dir, rank=0):
    said = {"status": "raised", "steps_done": 2, "exception": "RuntimeError", "message": "something broke"}
    layout.result(trial_dir, rank).write_text(json.dumps(said))


def test_a_trial_that_has_raised_and_hangs_on_its_way_out_is_ended_and_called_a_crash(clock, handle, run, tmp_path):
    falls_silent(handle)
    clock.at(5.5, lambda: raised(tmp_path))
    asked = trial(stall_s=7200.0, total_s=86400.0)
    outcome, evidence = run(asked)
    assert outcome.stopped_by is StopReason.CERTAIN
    assert evidence.silence_s < 10.0
    assert classify(Case(trial=asked, outcome=outcome, evidence=evidence)).kind is Kind.CRASH


def test_a_trial_that_has_raised_and_is_busy_on_its_way_out_is_left_to_it(clock, handle, view, run, tmp_path):
    falls_silent(handle)
    clock.at(5.5, lambda: raised(tmp_path))
    view.cpu_share, view.state = 1.0, "R"
    handle.exit_at(25.0, code=1)
    outcome, _ = run()
    assert (outcome.ending, outcome.exit) == (Ending.EXITED, Exit(code=1))


def test_ranks_of_which_one_has_raised_and_does_not_end_are_ended_soon(clock, handle, view, run, tmp_path):
    handle.start_ranks(2)
    for rank in (0, 1):
        clock.at(2.0, lambda rank=rank: handle.finish_step(step=0, rank=rank))
    clock.at(5.0, lambda: raised(tmp_path, 1))
    view.wchan, view.call, view.outside = "sk_wait_data", "socket-inet", True
    outcome, _ = run(trial(stall_s=7200.0, total_s=86400.0, world=2))
    assert outcome.stopped_by is StopReason.CERTAIN
    assert clock.now() - clock.began_s < 5.0 + AFTERMATH_S + 10.0


@pytest.mark.parametrize(
    "thread",
    [
        {"wchan": "hrtimer_nanosleep", "timed": True, "call": "clock_nanosleep"},
        {"wchan": "rpc_wait_bit_killable", "state": "D", "call": "read"},
        {"wchan": "sk_wait_data", "call": "socket-inet", "outside": True},
        {"wchan": "ep_poll", "call": "epoll_wait", "outside": None},
        {"wchan": "flock_lock_inode_wait", "call": "flock", "outside": True},
        {"wchan": "pipe_read", "call": "pipe-read", "outside": True},
        {"wchan": "do_signal_stop", "state": "T"},
        {"wchan": "", "state": "R", "cpu_share": 1.0},
    ],
    ids=["sleeps", "file system", "socket", "poll", "file lock", "pipe", "stopped", "computes"],
)
def test_what_somebody_outside_or_time_may_end_is_never_ended_before_its_limit(handle, view, run, thread):
    falls_silent(handle)
    for name, value in thread.items():
        setattr(view, name, value)
    _, evidence = run()
    assert evidence.silence_s >= STALL_S


def test_half_an_hour_of_patience_is_watched_in_no_time(clock, handle, view, run):
    falls_silent(handle)
    view.wchan, view.call, view.outside = "sk_wait_data", "socket-inet", True
    outcome, evidence = run(trial(stall_s=450.0, total_s=86400.0))
    assert outcome.stopped_by is StopReason.CERTAIN
    assert evidence.silence_s == pytest.approx(WATCHED * 450.0, abs=10.0)
    assert clock.now() - clock.began_s > WATCHED * 450.0


def test_a_standstill_that_begins_within_a_silence_is_found_when_it_is_asked_again(handle, view, run):
    falls_silent(handle)
    view.cpu_share, view.rests_from_s = 1.0, 100.0
    outcome, evidence = run(trial(stall_s=7200.0, total_s=86400.0))
    assert outcome.stopped_by is StopReason.CERTAIN
    assert 95.0 < evidence.silence_s < 400.0


def test_a_mark_within_a_round_begins_a_new_silence(clock, handle, run):
    falls_silent(handle)
    clock.at(9.0, lambda: handle.beat(phase="backward", edge="end", step=2))
    outcome, evidence = run()
    assert outcome.stopped_by is StopReason.CERTAIN
    assert clock.now() - clock.began_s > 12.0
    assert len([stack for stack in evidence.stacks if stack.t_s > 9.0]) == 3


def test_startup_counts_from_the_last_mark_of_the_build(clock, handle, view, run):
    view.cpu_share, view.state = 1.0, "R"
    for second in (0, 40, 80):
        clock.at(second, lambda: handle.beat(phase="build", edge="progress"))
    outcome, _ = run(trial(startup_s=10.0), source=ScriptedSource(*((f"layer_{i}", "f") for i in range(99))))
    assert outcome.stopped_by in (StopReason.STARTUP, StopReason.TOTAL)
    assert outcome.duration_s >= 80.0 + WATCHED * 10.0


def test_silence_after_the_last_step_is_held_against_the_startup_limit(handle, view, run):
    handle.train(steps=3, step_s=1.0)
    view.wchan, view.call, view.outside = "sk_wait_data", "socket-inet", True
    _, evidence = run(trial(startup_s=100.0, stall_s=10.0))
    assert evidence.silence_s == pytest.approx(WATCHED * 100.0, abs=10.0)


def test_the_total_limit_ends_a_trial_that_still_progresses_without_calling_it_anything(handle, run):
    handle.train(steps=100, step_s=2.0)
    source = ScriptedSource()
    outcome, evidence = run(trial(total_s=60.0), source=source)
    assert outcome.stopped_by is StopReason.TOTAL
    assert outcome.duration_s == pytest.approx(60.0, abs=1.0)
    assert source.samples == []
    assert evidence.steps_done == 29


def test_a_silent_trial_is_looked_into_before_the_total_limit_ends_it(handle, view, run):
    falls_silent(handle)
    view.wchan, view.call, view.outside = "sk_wait_data", "socket-inet", True
    outcome, evidence = run(trial(total_s=20.0))
    assert outcome.stopped_by is StopReason.TOTAL
    assert len([stack for stack in evidence.stacks if stack.t_s > 13.0]) >= 3


@pytest.mark.parametrize(("dump_s", "is_past"), [(0.1, False), (4.0, True)])
def test_a_limit_that_a_slow_dump_overruns_says_why(clock, handle, view, run, dump_s, is_past):
    falls_silent(handle)
    view.wchan, view.call, view.outside = "sk_wait_data", "socket-inet", True
    outcome, _ = run(trial(total_s=20.0), source=ScriptedSource(on_sample=lambda _: clock.sleep(dump_s)))
    assert outcome.stopped_by is StopReason.TOTAL
    assert (outcome.duration_s > 20.5) is is_past
    assert ("to look into its silence took past the limit" in outcome.why) is is_past


def test_an_interrupt_ends_it_at_once(clock, handle, run):
    handle.train(steps=100, step_s=5.0)
    outcome, _ = run(interrupted=lambda: clock.now() - clock.began_s >= 12.0)
    assert outcome.stopped_by is StopReason.INTERRUPT
    assert outcome.duration_s == pytest.approx(12.0, abs=0.3)


def test_an_interrupt_within_a_round_ends_it_at_once(handle, view, run):
    falls_silent(handle)
    source = ScriptedSource()
    outcome, _ = run(source=source, interrupted=lambda: len(source.samples) == 1)
    assert outcome.stopped_by is StopReason.INTERRUPT
    assert len(source.samples) == 1


def test_an_exit_at_the_moment_of_an_interrupt_is_an_exit(handle, run):
    outcome, _ = run(interrupted=lambda: handle.exit(code=0) or True)
    assert (outcome.ending, outcome.exit, outcome.stopped_by) == (Ending.EXITED, Exit(code=0), None)


def test_an_exit_while_it_is_sampled_is_an_exit(handle, run):
    falls_silent(handle)
    outcome, evidence = run(source=ScriptedSource(on_sample=lambda _: handle.exit(signal=11)))
    assert (outcome.ending, outcome.exit, outcome.stopped_by) == (Ending.SIGNALLED, Exit(signal=11), None)
    assert len(evidence.stacks) == 1


# -- what is handed on


def test_every_sample_is_taken_before_the_process_is_stopped(handle, run):
    falls_silent(handle)
    stops = []
    run(source=ScriptedSource(on_sample=lambda _: stops.append(handle.stops)))
    assert stops
    assert set(stops) == {0}


def test_no_dump_lies_within_a_window_and_the_look_after_one_waits_until_its_effect_is_over(handle, run):
    falls_silent(handle)
    _, evidence = run()
    by_id = {look.id: look for look in evidence.processes}
    windows = quiet_windows(evidence.processes)
    assert len(windows) == 3
    for window in windows:
        first, last = by_id[window.first].t_s, by_id[window.last].t_s
        assert not any(first < stack.t_s < last for stack in evidence.stacks)
    for stack in evidence.stacks:
        later = [look.t_s for look in evidence.processes if look.t_s > stack.t_s]
        assert not later or min(later) >= stack.t_s + 0.099


def test_what_a_process_says_when_it_is_ended_does_not_hide_its_silence(handle, run):
    falls_silent(handle)
    end = handle.stop

    def says_goodbye(**asked):
        handle.beat(phase="exit")
        return end(**asked)

    handle.stop = says_goodbye
    _, evidence = run()
    assert evidence.last.phase != "exit"
    assert evidence.last.t_s < min(stack.t_s for stack in evidence.stacks)


def test_what_a_finished_trial_leaves_behind_is_ended_and_counted(handle, run):
    handle.exit_at(3.0, code=0)
    handle.leaves = 2
    outcome, _ = run()
    assert (outcome.ending, outcome.cleanup.ended) == (Ending.EXITED, 2)
    assert "2 processes that it left behind" in outcome.why


def test_a_process_that_cannot_be_ended_is_named(handle, run):
    falls_silent(handle)
    handle.ignores_stop = True
    outcome, _ = run()
    assert not outcome.cleanup.gone
    assert outcome.exit is None


def test_a_lost_supervisor_is_not_called_an_exit_code(handle, run):
    handle.exit_at(3.0)
    outcome, _ = run()
    assert outcome.exit == Exit()
    assert "supervisor" in outcome.why


class Broken(ScriptedSource):
    """Raises what no source may raise, in its first dumps."""

    def __init__(self, *, times):
        super().__init__()
        self.times = times

    def sample(self, **asked):
        self.times -= 1
        if self.times >= 0:
            raise OSError(5, "Input/output error")
        return super().sample(**asked)


def test_a_look_that_fails_ends_no_trial_and_the_next_round_begins_anew(handle, run):
    falls_silent(handle)
    notes = []
    outcome, evidence = run(source=Broken(times=1), progress=lambda facts: notes.append(facts.get("note", "")))
    assert outcome.stopped_by is StopReason.CERTAIN
    assert len(evidence.stacks) == 3
    assert [failure.source for failure in evidence.failures] == ["look"]
    assert "Input/output error" in evidence.failures[0].reason
    assert [note for note in notes if "a look failed" in note] != []


def test_a_trial_into_which_no_look_succeeds_goes_on_to_its_own_end(handle, run):
    falls_silent(handle)
    handle.exit_at(25.0, code=0)
    notes = []
    outcome, evidence = run(source=Broken(times=1000), progress=lambda facts: notes.append(facts.get("note", "")))
    assert (outcome.ending, outcome.exit) == (Ending.EXITED, Exit(code=0))
    assert evidence.stacks == ()
    assert len(evidence.failures) == 1
    assert len([note for note in notes if "a look failed" in note]) == 1


def test_what_was_seen_before_a_look_failed_is_not_judged(handle, view, run, monkeypatch):
    falls_silent(handle)
    look, looks = view.look, []

    def fails_in_the_third(*args, **asked):
        looks.append(asked["t_s"])
        if len(looks) == 3:
            raise ValueError("no such field")
        return look(*args, **asked)

    monkeypatch.setattr(view, "look", fails_in_the_third)
    outcome, evidence = run()
    assert outcome.stopped_by is StopReason.CERTAIN
    assert min(state.t_s for state in evidence.processes) > looks[2], "what came before is not among the evidence"


def test_a_process_that_vanishes_from_proc_is_no_hang(handle, view, run):
    falls_silent(handle)
    view.gone = True
    source = ScriptedSource()
    outcome, evidence = run(source=source)
    assert outcome.stopped_by is StopReason.STALL
    assert evidence.processes == ()
    assert source.samples == []


def test_sources_that_fail_are_reported_once_each_with_the_reason(handle, run):
    falls_silent(handle)
    broken = ScriptedSource(name="broken", fail="not installed")
    _, evidence = run(sources=(broken, ScriptedSource()))
    assert [(f.source, f.reason) for f in evidence.failures] == [("broken", "not installed")]
    assert len(evidence.stacks) == 3


def test_the_files_of_a_worker_become_evidence(handle, run, tmp_path):
    layout.effective(tmp_path).write_text(json.dumps({"config": {"train": {"steps": 2}}, "torch": "2.13"}))
    layout.kernels(tmp_path).write_text(json.dumps([{"op": "selected", "kernel": "gather", "reason": "cpu"}]))
    said = {"status": "finished", "steps_done": 3, "phase": None, "exception": None, "message": None}
    layout.result(tmp_path).write_text(json.dumps(said))
    layout.output(tmp_path, "stdout").write_text("hello\n")
    handle.exit_at(1.0, code=0)
    _, evidence = run()
    assert evidence.config_differences == ("train.steps: requested 3, ran 2", "parallel.world: requested 1, not run")
    assert evidence.kernels[0].kernel == "gather"
    assert (evidence.result.id, evidence.result.status) == ("result", "finished")
    assert [(log.id, log.text) for log in evidence.logs] == [("log-stdout", "hello\n")]


def test_the_user_hears_of_every_look_after_it_and_why_it_is_ended(handle, run):
    falls_silent(handle)
    heard = []
    run(progress=heard.append)
    notes = [facts["note"] for facts in heard if "note" in facts]
    assert notes[0].endswith("looking into it")
    assert notes[-1].startswith("ending it: ")
    steps = [facts["steps_done"] for facts in heard]
    assert steps == sorted(steps)
    assert {"elapsed_s", "silence_s", "phase", "step", "place", "steps_wanted"} <= heard[0].keys()


def test_it_is_looked_after_often_at_first_and_five_times_a_second_later(handle, run):
    handle.train(steps=100, step_s=2.0)
    handle.exit_at(100.0, code=0)
    times = []
    run(progress=lambda facts: times.append(facts["elapsed_s"]))
    gaps = [b - a for a, b in pairwise(times)]
    assert gaps[0] == pytest.approx(0.02)
    assert max(gaps) == pytest.approx(0.2)


# -- several ranks


@pytest.fixture
def ranks(clock, handle):
    """Two ranks that have done a step each after two seconds."""
    handle.start_ranks(2)
    for rank in range(2):
        clock.at(1.0, lambda rank=rank: handle.beat(phase="forward", step=0, rank=rank))
        clock.at(2.0, lambda rank=rank: handle.finish_step(step=0, facts={"loss": 1.0}, rank=rank))
    return handle


def test_every_rank_is_looked_at_by_its_own_pid(ranks, run):
    _, evidence = run(trial(world=2))
    pids = {rank.rank: rank.pid for rank in evidence.ranks}
    assert pids == {0: ranks.pid + 1, 1: ranks.pid + 2}
    assert set(pids.items()) <= {(look.rank, look.pid) for look in evidence.processes}
    assert {(stack.rank, stack.pid) for stack in evidence.stacks} >= set(pids.items())
    ids = [item.id for item in (*evidence.processes, *evidence.stacks)]
    assert len(set(ids)) == len(ids)


def test_each_rank_is_silent_from_its_own_last_mark(clock, ranks, view, run):
    clock.at(6.0, lambda: ranks.beat(phase="reduce", step=1, rank=0))
    _, evidence = run(trial(world=2))
    first, second = evidence.ranks
    assert (first.last.phase, second.last.phase) == ("reduce", "forward")
    assert second.silence_s - first.silence_s == pytest.approx(4.0)
    assert evidence.silence_s == pytest.approx(first.silence_s)


def test_a_step_counts_when_every_rank_has_done_it(clock, ranks, run):
    clock.at(3.0, lambda: ranks.finish_step(step=1, rank=1))
    clock.at(4.0, lambda: ranks.exit(code=0))
    _, evidence = run(trial(world=2))
    assert [rank.steps_done for rank in evidence.ranks] == [1, 2]
    assert evidence.steps_done == 1


def test_the_others_have_time_to_speak_after_a_rank_has_failed_and_are_ended_then(clock, ranks, view, run):
    view.wchan, view.call, view.outside = "sk_wait_data", "socket-inet", True
    clock.at(5.0, lambda: ranks.end_rank(1, signal=9))
    outcome, evidence = run(trial(world=2))
    assert (outcome.ending, outcome.stopped_by) == (Ending.STOPPED_BY_US, StopReason.CERTAIN)
    assert 5.0 + AFTERMATH_S <= outcome.duration_s <= 5.0 + AFTERMATH_S + 6.0
    left, killed = evidence.ranks
    assert (killed.exit, killed.ended_s) == (Exit(signal=9), pytest.approx(5.0))
    assert left.exit is None


@pytest.mark.parametrize("argv", ["/bin/python -m torch.distributed.run train.py", "python /bin/torchrun train.py"])
def test_the_others_have_the_time_that_an_elastic_launcher_gives_them_to_end(clock, ranks, view, run, argv):
    """Asked to end, rank 0 writes its checkpoint for 25 s, and all of them are begun anew."""
    view.wchan, view.call, view.outside, view.argv = "sk_wait_data", "socket-inet", True, argv
    clock.at(5.0, lambda: ranks.end_rank(1, code=1))
    clock.at(30.0, lambda: ranks.exit(code=0))
    outcome, _ = run(trial(world=2))
    assert (outcome.ending, outcome.duration_s) == (Ending.EXITED, pytest.approx(30.0, abs=0.3))


def test_a_rank_that_its_launcher_has_begun_anew_has_not_failed(clock, ranks, view, run, monkeypatch):
    """torchrun starts both again; the new ones read a checkpoint for a while before they say anything."""
    view.wchan, view.call, view.outside = "sk_wait_data", "socket-inet", True
    clock.at(5.0, lambda: ranks.end_rank(1, code=1))
    clock.at(25.0, lambda: ranks.exit(code=0))
    monkeypatch.setattr(Census, "ranks", lambda _: {0: ranks.pid + 1, 1: ranks.pid + 9})
    outcome, _ = run(trial(world=2))
    assert (outcome.ending, outcome.duration_s) == (Ending.EXITED, pytest.approx(25.0, abs=0.3))


def test_a_wrapper_that_pauses_before_it_tries_again_is_not_ended(clock, ranks, view, run, monkeypatch):
    """Of the first attempt nobody is left, though only one of its ranks said how it ended; nobody has looked yet."""
    monkeypatch.setattr(Runner, "_note_absent_ranks", lambda _: None)
    view.wchan, view.timed = "hrtimer_nanosleep", True
    clock.at(5.0, lambda: ranks.end_rank(1, code=1))
    clock.at(5.0, lambda: ranks.lose_rank(0))
    clock.at(25.0, lambda: ranks.exit(code=0))
    outcome, _ = run(trial(world=2))
    assert (outcome.ending, outcome.duration_s) == (Ending.EXITED, pytest.approx(25.0, abs=0.3))


def test_the_others_are_left_alone_while_they_go_on_after_a_failure(clock, ranks, run):
    clock.at(5.0, lambda: ranks.end_rank(1, code=1))
    for second in range(6, 26):
        clock.at(float(second), lambda step=second: ranks.beat(phase="forward", step=step, rank=0))
    clock.at(26.0, lambda: ranks.exit(code=1))
    outcome, evidence = run(trial(world=2))
    assert (outcome.ending, outcome.duration_s) == (Ending.EXITED, pytest.approx(26.0, abs=0.3))
    assert evidence.stacks == ()


def test_what_a_rank_says_because_we_ended_another_is_not_its_own_ending(ranks, run, tmp_path):
    stop = ranks.stop

    def stop_and_complain(**options):
        layout.result(tmp_path, 0).write_text('{"id": "result", "status": "raised", "steps_done": 1}')
        ranks.end_rank(0, code=1)
        return stop(**options)

    ranks.stop = stop_and_complain
    _, evidence = run(trial(world=2))
    assert (evidence.ranks[0].result, evidence.ranks[0].exit) == (None, None)


class Recorders(Devices):
    """Devices whose recorders say what each rank handed over, once they were asked."""

    def __init__(self, *ops):
        super().__init__()
        self.asked_s = []
        self.held = tuple(
            CollectiveState(
                id=f"recorder-{rank}",
                t_s=1.0,
                rank=rank,
                source="x",
                backend="gloo",
                collectives=tuple(Collective(group="0", seq=i + 1, op=op) for i, op in enumerate(called)),
            )
            for rank, called in enumerate(ops)
        )

    def dump(self, job):
        self.asked_s.append(job.t_s)

    @property
    def collectives(self):
        return self.held if self.asked_s else ()


def test_no_window_reaches_across_a_question_to_the_recorders(ranks, view, run):
    view.cpu_share = 0.5
    devices = Recorders((), ())
    _, evidence = run(trial(world=2), devices=devices)
    by_id = {look.id: look for look in evidence.processes}
    windows = [(by_id[look.undisturbed_since].t_s, look.t_s) for look in evidence.processes if look.undisturbed_since]
    assert windows
    assert devices.asked_s
    assert not any(first <= asked < last for first, last in windows for asked in devices.asked_s)


def test_recorders_of_a_single_process_without_a_gpu_are_left_alone(handle, run):
    falls_silent(handle)
    devices = Recorders((), ())
    run(devices=devices)
    assert devices.asked_s == []


def test_the_rules_hear_the_recorders_of_several_ranks_before_they_are_asked(ranks, clock, view, tmp_path):
    devices, heard = Recorders(("all_reduce",), ("barrier",)), []
    asked = trial(world=2)

    def judge(outcome, evidence):
        heard.append(bool(evidence.collectives))
        verdict = classify(Case(trial=asked, outcome=outcome, evidence=evidence))
        return replace(verdict, kind=Kind.HANG, because="rank 1 called another operation")

    outcome, _ = watch(
        handle=ranks, trial=asked, trial_dir=tmp_path, clock=clock, sources=(ScriptedSource(),), progress=None,
        started_s=clock.began_s, interrupted=lambda: False, view=view, devices=devices, judge=judge,
    )  # fmt: skip
    assert heard == [True]
    assert outcome.stopped_by is StopReason.CERTAIN
    assert outcome.why == "rank 1 called another operation"


def test_a_line_of_the_launcher_that_is_torn_or_nonsense_is_counted(tmp_path):
    layout.ranks(tmp_path).write_text('{"event": "started", "rank": 0, "pid": 7, "t": 1.0}\nnonsense\n{"event": "sta')
    ranks = Ranks(tmp_path, started_s=0.0, outer=lambda pid, _: pid)
    ranks.read()
    ranks.close()
    assert (ranks.pids, ranks.unreadable) == ({0: 7}, 1)


TORCHRUN = """
train.py FAILED
------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-21_17:04:03
  host      : localhost
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 9026)  (SIGTERM)
  error_file: <N/A>
------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-21_17:04:03
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 9030)  (SIGKILL)
  error_file: <N/A>
"""


def test_torchruns_summary_tells_who_ended_how_and_not_whom_it_ended_itself():
    assert torchrun_ends(TORCHRUN) == {9030: Exit(signal=9)}
    assert torchrun_ends(TORCHRUN.replace("-9", "3")) == {9030: Exit(code=3)}
    assert torchrun_ends("exitcode  : -9 (pid: 9030)") == {}


def test_a_rank_of_which_only_torchrun_tells_has_that_ending(clock, ranks, run, tmp_path):
    pid = ranks.pid + 2
    layout.output(tmp_path, "stderr").write_text(TORCHRUN.replace("9030", str(pid)))
    clock.at(5.0, lambda: ranks.exit(code=1))
    _, evidence = run(trial(world=2))
    assert [rank.exit for rank in evidence.ranks] == [None, Exit(signal=9)]


def test_a_rank_whose_process_is_gone_has_ended_though_nobody_says_so(handle, run):
    """Ranks that a shell started: it tells nobody that one of them was aborted."""
    handle.start_ranks(2)
    handle.train(steps=2, step_s=2.0, start_s=1.0)
    handle.clock.at(4.5, lambda: handle._ended.add(1))
    _, evidence = run(trial(world=2))
    zero, one = evidence.ranks
    assert (zero.exit, one.exit, one.ended_s is not None) == (None, Exit(), True)


def test_what_a_launcher_says_of_an_end_comes_before_what_was_merely_seen(handle, run):
    handle.start_ranks(2)
    handle.train(steps=2, step_s=2.0, start_s=1.0)
    handle.clock.at(4.5, lambda: handle._ended.add(1))
    handle.clock.at(8.0, lambda: handle.end_rank(1, signal=6))
    _, evidence = run(trial(world=2))
    assert evidence.ranks[1].exit == Exit(signal=6)


def test_what_torchrun_says_of_an_end_comes_before_what_was_merely_seen(handle, run, tmp_path):
    handle.start_ranks(2)
    handle.train(steps=2, step_s=2.0, start_s=1.0)
    handle.clock.at(4.5, lambda: handle._ended.add(1))
    layout.output(tmp_path, "stderr").write_text(TORCHRUN.replace("9030", str(handle.pid + 2)))
    _, evidence = run(trial(world=2))
    assert evidence.ranks[1].exit == Exit(signal=9)


@pytest.mark.parametrize("anew", [False, True])
def test_a_rank_that_was_gone_is_no_failure_of_a_trial_that_ended_well(anew, handle, run):
    """The other had more to do; or a launcher began the first anew."""
    handle.start_ranks(2)
    handle.train(steps=2, step_s=2.0, start_s=1.0)
    handle.clock.at(4.5, lambda: handle._ended.add(1))
    if anew:
        handle.clock.at(11.0, lambda: handle.start_ranks(2))
    handle.exit_at(11.5, code=0)
    outcome, evidence = run(trial(world=2), source=ScriptedSource(("forward", "<module>"), ("loss", "<module>")))
    assert (outcome.ending, [rank.exit for rank in evidence.ranks]) == (Ending.EXITED, [None, None])
