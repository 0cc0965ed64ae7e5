"""The watch over several ranks, in fake time: who is looked at, when the rest is ended, and what is certain."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from harness.core.devices import Collective, CollectiveState
from harness.core.evidence import Frame, StackSample, ThreadStack
from harness.core.outcome import Ending, Exit, StopReason
from harness.core.point import Point
from harness.core.trial import Budget, Limit, Trial
from harness.observe.certainty import nobody_moves
from harness.observe.devices.certain import told_apart
from harness.observe.devices.devices import Devices
from harness.observe.monitor import AFTERMATH_S, watch
from harness.observe.ranks import Ranks, torchrun_ends
from harness.store import layout
from harness.testing.clock import FakeClock
from harness.testing.handles import ScriptedHandle, ScriptedView
from harness.testing.sources import ScriptedSource


def limit(seconds: float) -> Limit:
    return Limit(seconds=seconds, source="test")


TRIAL = Trial(
    target="nsa",
    point=Point(settings=()),
    repeat=0,
    role="search",
    config={"train": {"steps": 3}, "parallel": {"world": 2}},
    seed=0,
    code="c",
    machine="m",
    budget=Budget(startup=limit(120.0), stall=limit(30.0), total=limit(600.0)),
)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def handle(clock, tmp_path):
    handle = ScriptedHandle(clock=clock, trial_dir=tmp_path)
    handle.start_ranks(2)
    for rank in range(2):
        clock.at(1.0, lambda rank=rank: handle.beat(phase="forward", step=0, rank=rank))
        clock.at(2.0, lambda rank=rank: handle.finish_step(step=0, facts={"loss": 1.0}, rank=rank))
    return handle


@pytest.fixture
def run(clock, handle, tmp_path):
    def run(*, early=False, devices=None, decided=lambda *_: "", source=None):
        return watch(
            handle=handle,
            trial=TRIAL,
            trial_dir=tmp_path,
            clock=clock,
            sources=(source or ScriptedSource(),),
            progress=None,
            started_s=clock.began_s,
            interrupted=lambda: False,
            view=ScriptedView(cpu_share=0.5) if devices else ScriptedView(),
            devices=devices,
            decided=decided,
            suspicious_s=3.0 if early else math.inf,
        )

    return run


def test_every_rank_is_looked_at_by_its_own_pid(handle, run):
    _, evidence = run()
    pids = {rank.rank: rank.pid for rank in evidence.ranks}
    assert pids == {0: handle.pid + 1, 1: handle.pid + 2}
    assert {(look.rank, look.pid) for look in evidence.processes} == set(pids.items())
    assert {(stack.rank, stack.pid) for stack in evidence.stacks} == set(pids.items())
    assert len({item.id for item in (*evidence.processes, *evidence.stacks)}) == len(evidence.processes) + len(
        evidence.stacks
    )


def test_each_rank_is_silent_from_its_own_last_mark(clock, handle, run):
    clock.at(6.0, lambda: handle.beat(phase="reduce", step=1, rank=0))
    outcome, evidence = run()
    first, second = evidence.ranks
    assert (first.last.phase, second.last.phase) == ("reduce", "forward")
    assert second.silence_s - first.silence_s == pytest.approx(4.0)
    assert evidence.silence_s == pytest.approx(first.silence_s)
    assert outcome.stopped_by is StopReason.STALL
    assert evidence.steps_done == 1


def test_a_step_counts_when_every_rank_has_done_it(clock, handle, run):
    clock.at(3.0, lambda: handle.finish_step(step=1, rank=1))
    clock.at(4.0, lambda: handle.exit(code=0))
    _, evidence = run()
    assert [rank.steps_done for rank in evidence.ranks] == [1, 2]
    assert evidence.steps_done == 1


def test_the_others_have_time_to_speak_after_a_rank_has_failed_and_are_ended_then(clock, handle, run):
    clock.at(5.0, lambda: handle.end_rank(1, signal=9))
    outcome, evidence = run()
    assert (outcome.ending, outcome.stopped_by) == (Ending.STOPPED_BY_US, StopReason.CERTAIN)
    assert outcome.duration_s == pytest.approx(5.0 + AFTERMATH_S, abs=4.0)
    assert outcome.why.startswith("rank 1 ended (signal 9) at 5.0 s")
    left, killed = evidence.ranks
    assert (killed.exit, killed.ended_s) == (Exit(signal=9), pytest.approx(5.0))
    assert left.exit is None
    assert {look.rank for look in evidence.processes} == {0}


def test_the_others_are_left_alone_while_they_go_on_after_a_failure(clock, handle, run):
    clock.at(5.0, lambda: handle.end_rank(1, code=1))
    for second in range(6, 26):
        clock.at(float(second), lambda step=second: handle.beat(phase="forward", step=step, rank=0))
    clock.at(26.0, lambda: handle.exit(code=1))
    outcome, evidence = run()
    assert (outcome.ending, outcome.duration_s) == (Ending.EXITED, pytest.approx(26.0, abs=0.3))
    assert evidence.stacks == ()


def test_a_rank_that_ended_well_is_no_failure(clock, handle, run):
    clock.at(5.0, lambda: handle.end_rank(1, code=0))
    outcome, _ = run()
    assert outcome.stopped_by is StopReason.STALL


def test_what_a_rank_says_because_we_ended_another_is_not_its_own_ending(clock, handle, run, tmp_path):
    stop = handle.stop

    def stop_and_complain(**options):
        layout.result(tmp_path, 0).write_text('{"id": "result", "status": "raised", "steps_done": 1}')
        handle.end_rank(0, code=1)
        return stop(**options)

    handle.stop = stop_and_complain
    _, evidence = run()
    assert (evidence.ranks[0].result, evidence.ranks[0].exit) == (None, None)


class AskingInside(Devices):
    """Devices whose recorder answers from inside the process, which shows in its counters."""

    def __init__(self, view: ScriptedView) -> None:
        super().__init__()
        self.view, self.asked_s = view, []

    def dump(self, job):
        self.asked_s.append(job.t_s)


def test_no_window_reaches_across_a_question_to_the_ranks_recorders(clock, handle, run):
    devices = AskingInside(ScriptedView())
    _, evidence = run(devices=devices)
    by_id = {look.id: look for look in evidence.processes}
    windows = [(by_id[look.undisturbed_since].t_s, look.t_s) for look in evidence.processes if look.undisturbed_since]
    assert windows
    assert devices.asked_s
    assert not any(first <= asked < last for first, last in windows for asked in devices.asked_s)


def recorded(*ops: tuple[str, ...]) -> tuple[CollectiveState, ...]:
    """What each rank handed over, none of it done."""
    return tuple(
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


class Recorders(AskingInside):
    """Devices whose recorders have something to say once they were asked."""

    def __init__(self, *ops: tuple[str, ...]) -> None:
        super().__init__(ScriptedView())
        self.held = recorded(*ops)

    @property
    def collectives(self):
        return self.held if self.asked_s else ()


def test_what_recorders_contradict_is_ended_without_the_frames_that_take_long_to_get(clock, handle, run):
    asked = []

    def decided(outcome, evidence):
        asked.append((outcome.stopped_by, [stack.native for stack in evidence.stacks]))
        return "rank 1 called another operation"

    outcome, evidence = run(devices=Recorders(("all_reduce",), ("barrier",)), decided=decided)
    assert asked == [(StopReason.STALL, [False, False])]
    assert outcome.why == "decided by what was seen so far: rank 1 called another operation"
    assert evidence.silence_s == pytest.approx(30.0, abs=2.0)


def test_ranks_that_compute_while_they_wait_are_told_apart_before_any_limit(clock, handle, run):
    """Inside NCCL a rank that waits burns a core: it never stands still, and nobody has to stop it to know."""
    asked = []

    def decided(outcome, evidence):
        asked.append((outcome.stopped_by, [stack.native for stack in evidence.stacks]))
        return "rank 1 called another operation"

    outcome, evidence = run(early=True, devices=Recorders(("all_reduce",), ("barrier",)), decided=decided)
    assert asked == [(StopReason.CERTAIN, [False] * 6)]  # two to know that they are apart, and one to say why
    assert outcome.stopped_by is StopReason.CERTAIN
    assert evidence.silence_s < 6.0


def test_recorders_of_ranks_whose_python_moves_on_are_left_alone(clock, handle, run, tmp_path):
    devices = Recorders(("all_reduce",), ("barrier",))
    clock.at(29.0, lambda: handle.exit(code=0))
    run(early=True, devices=devices, source=ScriptedSource(*((f"layer_{i}", "<module>") for i in range(99))))
    assert devices.asked_s == []


def test_recorders_are_asked_once_while_it_is_looked_into(clock, handle, run):
    devices, samples = Recorders(("all_reduce",), ("barrier",)), []

    def decided(outcome, evidence):
        samples.append(len(evidence.stacks) // 2)
        return "" if len(samples) < 3 else "now it is known"

    run(devices=devices, decided=decided)
    assert samples == [1, 2, 3]
    assert len(devices.asked_s) == 3  # while it is looked into, to see whether it is certain, and when it is ended


def test_what_recorders_do_not_contradict_is_looked_into_to_the_end(clock, handle, run):
    """Until then no other rule is asked: some take a standstill for certain that is still being looked into."""
    samples = []

    def decided(outcome, evidence):
        samples.append(len(evidence.stacks) // 2)
        return "it hangs"

    run(devices=Recorders(("all_reduce",), ("all_reduce",)), decided=decided)
    assert samples == [3]


@pytest.mark.parametrize(
    ("ops", "frames", "apart"),
    [
        ((("all_reduce",), ("barrier",)), ("LOCK", "LOCK"), True),  # the calls alone say it
        ((("all_reduce",), ()), ("all_reduce", "barrier"), True),  # missing there, and waits for the others elsewhere
        ((("all_reduce",), ()), ("all_reduce", "LOCK"), False),  # missing, and where it is, it may come from
        ((("all_reduce",), ("all_reduce",)), ("all_reduce", "all_reduce"), False),
    ],
)
def test_recorders_tell_apart_only_ranks_that_can_never_meet(ops, frames, apart):
    seen = job(*(LOCK if name == "LOCK" else in_collective(name) for name in frames))
    assert told_apart(ranks=seen["ranks"], stacks=seen["stacks"], collectives=recorded(*ops), world=2) is apart


def test_a_line_of_the_launcher_that_is_torn_or_nonsense_is_counted(tmp_path):
    layout.ranks(tmp_path).write_text('{"event": "started", "rank": 0, "pid": 7, "t": 1.0}\nnonsense\n{"event": "sta')
    ranks = Ranks(tmp_path, started_s=0.0)
    ranks.read()
    ranks.close()
    assert (ranks.pids, ranks.unreadable) == ({0: 7}, 1)


# --- What is certain of a job --------------------------------------------------------------------------------------

C10D = "/site/torch/distributed/distributed_c10d.py"
STEP = Frame(function="step", file="/src/train.py", line=20)
LOCK = (Frame(function="acquire", file="/src/hooks.py", line=9), STEP)


def in_collective(name: str) -> tuple[Frame, ...]:
    return (Frame(function=name, file=C10D, line=3000), STEP)


def job(*frames: tuple[Frame, ...], **view: object):
    """Looks and stacks of ranks that are where ``frames`` say, over three samples."""
    looker = ScriptedView(**view)
    looks, stacks = [], []
    for rank, where in enumerate(frames):
        pid = 100 + rank
        for i in range(6):
            since = f"{pid}-{i - 1}" if i % 2 else None
            looks.append(looker.look(pid, id=f"{pid}-{i}", t_s=float(i), rank=rank, since=since))
        thread = ThreadStack(tid=pid, name="MainThread", frames=where)
        stacks += [
            StackSample(
                id=f"s{pid}-{i}", source="t", native=True, t_s=1.5 + 2 * i, rank=rank, pid=pid, threads=(thread,)
            )
            for i in range(3)
        ]
    return {"ranks": {rank: 100 + rank for rank in range(len(frames))}, "looks": looks, "stacks": stacks}


def test_a_job_stands_still_when_the_rank_that_is_missing_does():
    verdict = nobody_moves(**job(in_collective("all_reduce"), LOCK), alone=True)
    assert verdict.certain
    assert verdict.because == "rank 1 makes no progress, and 1 wait for it"


def test_a_job_may_go_on_while_the_rank_that_is_missing_may():
    seen = job(in_collective("all_reduce"), LOCK)
    busy = [replace(look, threads=(replace(look.threads[0], cpu_s=look.t_s),)) for look in seen["looks"][6:]]
    verdict = nobody_moves(**{**seen, "looks": [*seen["looks"][:6], *busy]})
    assert not verdict.certain
    assert verdict.because.startswith("rank 1 may go on: it moved")


def test_different_collectives_never_meet_and_the_same_one_may_be_slow():
    assert nobody_moves(**job(in_collective("all_reduce"), in_collective("barrier")), alone=True).certain
    same = nobody_moves(**job(in_collective("all_reduce"), in_collective("all_reduce")))
    assert not same.certain
    assert "may only be slow" in same.because


def test_waiting_for_a_gpu_says_nothing_about_which_collective_it_is():
    gpu = (Frame(function="cuStreamSynchronize", file="/libcuda.so", line=0, native=True), STEP)
    assert not nobody_moves(**job(gpu, in_collective("barrier"))).certain


def test_a_transport_thread_that_ticks_does_not_make_a_job_move():
    seen = job(in_collective("all_reduce"), LOCK)
    ticking = [
        replace(
            look,
            threads=(
                *look.threads,
                replace(
                    look.threads[0],
                    tid=999,
                    name="gloo_tcp_loop",
                    timed=True,
                    voluntary_switches=int(100 * look.t_s),
                    cpu_s=0.004 * look.t_s,
                ),
            ),
        )
        for look in seen["looks"]
    ]
    assert nobody_moves(**{**seen, "looks": ticking}, alone=True).certain
    renamed = [replace(look, threads=(look.threads[0], replace(look.threads[1], name="python"))) for look in ticking]
    assert not nobody_moves(**{**seen, "looks": renamed}, alone=True).certain


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


def test_a_rank_of_which_only_torchrun_tells_has_that_ending(clock, handle, run, tmp_path):
    pid = handle.pid + 2
    layout.output(tmp_path, "stderr").write_text(TORCHRUN.replace("9030", str(pid)))
    clock.at(5.0, lambda: handle.exit(code=1))
    _, evidence = run()
    assert [rank.exit for rank in evidence.ranks] == [None, Exit(signal=9)]


def test_a_lock_between_processes_may_be_given_back_by_whoever_started_the_ranks():
    shared = (Frame(function="wait", file="/lib/python3.12/multiprocessing/synchronize.py", line=3), STEP)
    seen = job(in_collective("init_process_group"), shared)
    verdict = nobody_moves(**seen, alone=True)
    assert not verdict.certain
    assert "whoever started the ranks may give it back" in verdict.because
    assert nobody_moves(**seen).certain


class OnePolls(ScriptedView):
    """Rank 0 asks a hundred times a second whether rank 1 is there; rank 1 waits for good, or else does ``rank_1``."""

    def __init__(self, *, share: float = 0.03, **rank_1: object):
        super().__init__(**rank_1)
        self.share = share

    def look(self, pid, *, id, t_s, rank=0, others=(), since=None):
        look = super().look(pid, id=id, t_s=t_s, rank=rank, others=others, since=since)
        if rank == 1:
            return look
        polls = replace(
            look.threads[0],
            state="S",
            timed=True,
            wchan="hrtimer_nanosleep",
            cpu_s=self.share * t_s,
            voluntary_switches=int(100 * t_s),
        )
        return replace(look, threads=(polls,))


class Places(ScriptedSource):
    """Rank 0 is in the rendezvous, rank 1 in a lock."""

    def sample(self, *, pid, rank, **rest):
        sample = super().sample(pid=pid, rank=rank, **rest)
        frames = LOCK if rank else in_collective("init_process_group")
        return replace(sample, threads=(replace(sample.threads[0], frames=frames),))


@pytest.mark.parametrize(
    ("view", "reason"),
    [
        (OnePolls(), StopReason.CERTAIN),
        (OnePolls(share=0.5), StopReason.STARTUP),  # works on something: not looked into before its limit
        (OnePolls(timed=True), StopReason.STARTUP),
        (OnePolls(state="R", cpu_share=1.0), StopReason.STARTUP),
    ],
)
def test_rank_that_never_joins_is_told_while_the_other_asks_for_it(clock, tmp_path, view, reason):
    """Before any mark, because both are known to be there."""
    handle = ScriptedHandle(clock=clock, trial_dir=tmp_path)
    handle.start_ranks(2)
    source = Places()
    outcome, evidence = watch(
        handle=handle,
        trial=TRIAL,
        trial_dir=tmp_path,
        clock=clock,
        sources=(source,),
        progress=None,
        started_s=clock.began_s,
        interrupted=lambda: False,
        view=view,
    )
    assert outcome.stopped_by is reason
    assert (evidence.silence_s < 8.0) == (reason is StopReason.CERTAIN)


def test_nothing_is_certain_before_every_rank_is_there(clock, tmp_path):
    handle = ScriptedHandle(clock=clock, trial_dir=tmp_path)
    handle.start_ranks(1)
    outcome, _ = watch(
        handle=handle,
        trial=TRIAL,
        trial_dir=tmp_path,
        clock=clock,
        sources=(ScriptedSource(),),
        progress=None,
        started_s=clock.began_s,
        interrupted=lambda: False,
        view=ScriptedView(),
    )
    assert outcome.stopped_by is StopReason.STARTUP
