"""Canned runs with fixed numbers: one per finding, one cut off, one empty."""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from figures_once import figures_once
from harness.core.boundary import Boundary, Claim, Count, Finding, ScalingFit
from harness.core.campaign import CampaignAnswer, CampaignSpec, Task, threshold_question
from harness.core.evidence import (
    Evidence,
    Frame,
    Heartbeat,
    KernelResolution,
    LogTail,
    Measurement,
    ProcessState,
    SourceFailure,
    StackSample,
    ThreadStack,
    ThreadState,
    WorkerResult,
)
from harness.core.invocation import Invocation
from harness.core.outcome import Cleanup, Ending, Exit, Outcome, StopReason
from harness.core.point import Axis, AxisType, Point
from harness.core.record import Machine, Run, TrialRecord
from harness.core.spec import Limits
from harness.core.trial import Budget, Condition, Fault, Limit, Prediction, Trial
from harness.core.verdict import Answer, Confidence, Kind, Verdict
from harness.report.apart import here
from harness.report.render import html
from harness.report.write import build
from harness.search.tables import Facts, axis_fits, cell_results, failure_tables
from harness.spec.matrix import parse_matrix
from harness.store import layout
from harness.store.run_store import RunStore

FAULT = Fault(specimen="backward-deadlock", conditions=(Condition(name="n_layers", op=">=", value=5),))

MACHINE = Machine(
    python="3.12.3",
    torch="2.13.0",
    platform="Linux x86_64",
    kernel="6.8.0",
    cpu="Example CPU @ 2.50GHz",
    cores=2,
    memory_bytes=16 * 2**30,
    packages=(("torch", "2.13.0"), ("py-spy", "0.4.1")),
)


def axis(last=12):
    return Axis(name="n_layers", path="model.n_layers", type=AxisType.ORDERED, values=tuple(range(1, last + 1)))


def make_spec(**changes):
    asked = {
        "question": "From which n_layers in 1..12 does training fail?",
        "target": "nsa",
        "axis": axis(),
        "fixed": Point.of({"train.seq_len": 128}),
        "controls": ("no-fault",),
    }
    return threshold_question(**{**asked, **changes})


def make_trial(value, repeat=0, *, role="search", fault=None, attention="nsa", prediction=None, total=None):
    return Trial(
        target="nsa",
        point=Point.of({"n_layers": value}),
        repeat=repeat,
        role=role,
        config={"model": {"n_layers": value, "attention": attention, "dim": 64}, "train": {"seq_len": 128, "steps": 8}},
        seed=0,
        code="0.1.0+0123456789ab",
        machine="machine",
        fault=fault,
        budget=Budget(
            startup=Limit(seconds=120.0, source="default"),
            stall=Limit(seconds=4.0, source="learned from 3 passed trials: 10 x 0.12 s, at least 4 s"),
            total=total or Limit(seconds=30.0, source="learned from 3 passed trials"),
        ),
        prediction=prediction,
    )


def passed(value, repeat=0, *, role="search", each_s=0.2, **changes):
    total_s = round(0.4 + each_s * value + 0.01 * (repeat % 3), 3)
    measurement = Measurement(
        startup_s=0.2,
        step_s=(each_s * value / 8,) * 8,
        longest_silence_s=0.12,
        peak_rss_bytes=(300 + 2 * value) * 2**20,
    )
    record = TrialRecord(
        trial=make_trial(value, repeat, role=role, **changes),
        outcome=Outcome(ending=Ending.EXITED, exit=Exit(code=0), duration_s=total_s, cleanup=Cleanup()),
        verdict=Verdict(
            kind=Kind.PASS,
            rule="passed",
            because="8 of 8 steps done, loss finite, exit 0, nothing left behind",
            cites=("exit", "progress", "cleanup"),
            confidence=Confidence.PROOF,
        ),
        answer=Answer.GOOD,
        measurement=measurement,
        started_at="2026-01-02T03:04:05.000Z",
    )
    return record, Evidence(steps_wanted=8, steps_done=8, config_seen=True, kernels=KERNELS, measurement=measurement)


KERNELS = (
    KernelResolution(op="compressed", kernel="sdpa", reason="cpu, dense mask"),
    KernelResolution(op="selected", kernel="gather_sdpa", reason="cpu: triton needs a GPU"),
    KernelResolution(op="window", kernel="sdpa", reason="cpu"),
)

STACK = (
    Frame(function="__futex_abstimed_wait_common64", file="/usr/lib/libc.so.6", line=0, native=True),
    Frame(function="PyThread_acquire_lock_timed", file="/opt/v/bin/python3.12", line=0, native=True),
    Frame(function="acquire_forever", file="/home/ada/nsa-harness/harness/specimens/backward_deadlock.py", line=26),
    Frame(function="in_engine", file="/home/ada/nsa-harness/nsa/train/trainer.py", line=140),
    Frame(
        function="_engine_run_backward", file="/opt/v/lib/python3.12/site-packages/torch/autograd/graph.py", line=841
    ),
    Frame(function="backward", file="/opt/v/lib/python3.12/site-packages/torch/_tensor.py", line=630),
    Frame(function="run_step", file="/home/ada/nsa-harness/nsa/train/trainer.py", line=96),
)


def looks(number, t_s):
    threads = (
        ThreadState(
            tid=4100, name="python", state="S", wchan="futex_wait_queue", cpu_s=1.25,
            voluntary_switches=90, involuntary_switches=4,
        ),
        ThreadState(
            tid=4107, name="holder", state="S", wchan="futex_wait_queue", cpu_s=0.0,
            voluntary_switches=1, involuntary_switches=0,
        ),
    )  # fmt: skip
    return ProcessState(
        id=f"proc-{number}", t_s=t_s, rank=0, pid=4100, state="S", threads=threads, rss_bytes=310 * 2**20,
        minor_faults=900, read_bytes=1, written_bytes=1, children=0,
        undisturbed_since=f"proc-{number - 1}" if number > 1 else None,
    )  # fmt: skip


def sample(number, t_s):
    holder = Frame(
        function="hold_forever", file="/home/ada/nsa-harness/harness/specimens/backward_deadlock.py", line=17
    )
    threads = (
        ThreadStack(tid=4100, name="MainThread", frames=STACK),
        ThreadStack(tid=4107, name="holder", frames=(holder,)),
    )
    return StackSample(
        id=f"stack-{number}", source="py-spy", native=True, t_s=t_s, rank=0, pid=4100, threads=threads,
        stopped_s=0.05 * number,
    )  # fmt: skip


def crashed(value, repeat=0):
    """A trial whose two ranks raised alike in the first forward pass, in a kernel."""
    record, evidence = passed(value, repeat)
    because = "all ranks alike: raised RuntimeError in _ops.__call__, in forward of step 0: query and key differ"
    verdict = Verdict(
        kind=Kind.CRASH, rule="rank_failed", because=because, cites=("result", "exit"), confidence=Confidence.PROOF,
        cause="RuntimeError", phase="forward", step=0, signature="CRASH RuntimeError: _ops.__call__ < flash.attention",
    )  # fmt: skip
    traceback = (
        "Traceback (most recent call last):\n"
        '  File "/home/ada/nsa-harness/nsa/kernels/flash.py", line 53, in attention\n    o = forward(q, k, v)\n'
        '  File "/opt/v/lib/python3.12/site-packages/torch/_ops.py", line 1269, in __call__\n    return self._op()\n'
        "RuntimeError: query and key differ\n"
    )
    result = WorkerResult(
        id="result",
        status="raised",
        steps_done=0,
        exception="RuntimeError",
        message="query and key differ",
        traceback=traceback,
    )
    exit_ = dataclasses.replace(record.outcome, exit=Exit(code=1), duration_s=6.0)
    return (
        dataclasses.replace(record, verdict=verdict, answer=Answer.BAD, outcome=exit_, measurement=Measurement()),
        dataclasses.replace(evidence, steps_done=0, result=result),
    )


def hung(value, repeat=0, *, role="search"):
    prediction = Prediction(
        total_s=1.4, total_high_s=1.6, silence_s=0.12, silence_high_s=0.15, basis="3 passed trials at n_layers 1, 2, 4"
    )
    measurement = Measurement(startup_s=0.2, step_s=(0.1,), longest_silence_s=6.1, peak_rss_bytes=310 * 2**20)
    record = TrialRecord(
        trial=make_trial(value, repeat, role=role, fault=FAULT, prediction=prediction),
        outcome=Outcome(
            ending=Ending.STOPPED_BY_US,
            exit=Exit(signal=15),
            stopped_by=StopReason.CERTAIN,
            duration_s=7.4,
            cleanup=Cleanup(signals=((6.6, "SIGTERM", 1),), ended=2),
        ),
        verdict=Verdict(
            kind=Kind.HANG,
            rule="hung",
            because="rank 0 silent for 6.1 s in backward of step 1 (stall limit 4.0 s); nothing moved between 3 looks "
            "and 3 of 3 stacks are identical",
            cites=("stack-1", "stack-2", "stack-3", "proc-1", "proc-3", "progress"),
            confidence=Confidence.HIGH,
            cause="deadlock",
            phase="backward",
            step=1,
            rank=0,
            signature="HANG deadlock: backward_deadlock.acquire_forever < trainer.in_engine",
        ),
        answer=Answer.BAD,
        measurement=measurement,
        started_at="2026-01-02T03:04:11.000Z",
    )
    marks = (
        Heartbeat(seq=11, t_s=0.48, rank=0, pid=4100, phase="forward", edge="end", step=1),
        Heartbeat(seq=12, t_s=0.49, rank=0, pid=4100, phase="backward", edge="begin", step=1),
    )
    evidence = Evidence(
        steps_wanted=8,
        steps_done=1,
        heartbeats=marks,
        heartbeats_total=12,
        silence_s=6.1,
        stacks=(sample(1, 4.6), sample(2, 5.4), sample(3, 6.2)),
        processes=(looks(1, 4.5), looks(2, 5.3), looks(3, 6.5)),
        failures=(SourceFailure(id="stack-x1", source="pystack", reason="not installed"),),
        logs=(
            LogTail(id="log-stdout", stream="stdout", text="step 0 loss 5.54\n", size_bytes=17),
            LogTail(id="log-stderr", stream="stderr", text="", size_bytes=0),
        ),
        kernels=KERNELS,
        config_seen=True,
        measurement=measurement,
    )
    return record, evidence


def slow(value, *, limit=60.0, kind=Kind.SLOW):
    measurement = Measurement(
        startup_s=0.3, step_s=(19.0, 20.1, 19.9), longest_silence_s=2.4, peak_rss_bytes=400 * 2**20
    )
    because = (
        f"3 of 8 steps in 60.0 s, the last 0.2 s before the limit; at this pace it needs {value * 20} s"
        if kind is Kind.SLOW
        else "silent for 40 s, but threads were still running when the limit ended it; the limit may be too short"
    )
    record = TrialRecord(
        trial=make_trial(value, total=Limit(seconds=limit, source="flag --total"), attention="legacy-sequential"),
        outcome=Outcome(
            ending=Ending.STOPPED_BY_US,
            stopped_by=StopReason.TOTAL,
            duration_s=62.3,
            cleanup=Cleanup(signals=((60.0, "SIGTERM", 1), (62.0, "SIGKILL", 1)), ended=1),
        ),
        verdict=Verdict(
            kind=kind,
            rule="slow" if kind is Kind.SLOW else "unclear",
            because=because,
            cites=("progress", "prediction"),
            confidence=Confidence.HIGH if kind is Kind.SLOW else Confidence.LOW,
            phase="forward",
            step=3,
        ),
        answer=Answer.UNRESOLVED,
        measurement=measurement,
        started_at="2026-01-02T03:04:11.000Z",
    )
    marks = tuple(
        Heartbeat(seq=seq, t_s=t_s, rank=0, pid=4100, phase="forward", edge="progress", step=3, detail=f"block {seq}")
        for seq, t_s in enumerate((57.1, 58.4, 59.8))
    )
    evidence = Evidence(
        steps_wanted=8, steps_done=3, heartbeats=marks, heartbeats_total=90, silence_s=0.2, config_seen=True,
        measurement=measurement,
    )  # fmt: skip
    return record, evidence


def fit(points, predicted=(), *, each_s=0.2):
    return ScalingFit(
        quantity="seconds per step",
        intercept=0.0,
        slope=each_s / 8,
        slope_low=0.9 * each_s / 8,
        slope_high=1.1 * each_s / 8,
        r_squared=0.998,
        points=tuple((float(v), each_s * v / 8) for v in points),
        predicted=tuple((float(v), each_s * v / 8) for v in predicted),
        exponent=1.0,
    )


@dataclass
class Canned:
    """What a run is made of."""

    spec: CampaignSpec
    trials: list = field(default_factory=list)
    boundary: Boundary | None = None
    ended: str = "answered"
    seconds: float = 41.7
    options: tuple = (("--axis", "n_layers"), ("--seq-len", "128"))
    answer: CampaignAnswer | None = None


def threshold():
    trials = [passed(1), passed(2), passed(3), passed(4), hung(5)]
    trials += [passed(4, k, role="certify") for k in range(1, 15)]
    trials += [hung(5, 1, role="confirm")]
    trials += [passed(5, k, role="control no-fault") for k in range(3)]
    boundary = Boundary(
        axis="n_layers",
        finding=Finding.THRESHOLD,
        last_good=4,
        first_bad=5,
        counts=(Count(value=4, good=15), Count(value=5, bad=2)),
        untested=(6, 7, 8, 9, 10, 11, 12),
        certified=True,
        certificate_passes=15,
        excluded_rate=1 - 0.05 ** (1 / 15),
        posterior=0.99631,
        claim=Claim.ISOLATED,
        because="n_layers=5 failed 2 of 2, n_layers=4 passed 15 of 15.",
        fit=fit([1, 2, 3, *[4] * 15], range(5, 13)),
    )
    return Canned(
        make_spec(fault=FAULT),
        trials,
        boundary,
        options=(("--axis", "n_layers"), ("--fault", "backward-deadlock@n_layers>=5")),
    )


def no_failure():
    trials = [passed(v) for v in range(1, 13)] + [passed(12, k, role="certify") for k in range(1, 29)]
    boundary = Boundary(
        axis="n_layers",
        finding=Finding.NO_FAILURE,
        last_good=12,
        certified=True,
        certificate_passes=29,
        excluded_rate=1 - 0.05 ** (1 / 29),
        claim=Claim.REPRODUCED,
        because="n_layers=12 passed 29 of 29, the largest value asked for.",
        fit=fit([*range(1, 13), *[12] * 28]),
    )
    return Canned(make_spec(controls=("dense",)), trials, boundary)


def all_fail():
    boundary = Boundary(
        axis="n_layers",
        finding=Finding.ALL_FAIL,
        first_bad=1,
        certified=True,
        untested=tuple(range(2, 13)),
        claim=Claim.REPRODUCED,
        because="n_layers=1 failed 2 of 2; it is the smallest value asked for.",
    )
    return Canned(make_spec(controls=()), [hung(1), hung(1, 1, role="confirm")], boundary)


def no_threshold_slow():
    trials = [passed(v, attention="legacy-sequential", each_s=9.0) for v in (1, 2, 4)] + [slow(8)]
    boundary = Boundary(
        axis="n_layers",
        finding=Finding.NO_THRESHOLD_SLOW,
        last_good=4,
        excluded_rate=0.95,
        untested=(3, 5, 6, 7, 9, 10, 11, 12),
        unresolved=(8,),
        because="n_layers=8 still made progress when its limit ran out; n_layers=4 passed 1 of 1.",
        notes=("Larger values take longer still and were not tried; nothing is claimed about them.",),
        fit=fit([1, 2, 4], (3, 5, 6, 7, 8, 9, 10, 11, 12), each_s=9.0),
    )
    return Canned(make_spec(limits=Limits(total_s=60.0)), trials, boundary, seconds=127.0)


def inconclusive():
    trials = [passed(1), passed(4), slow(6, kind=Kind.UNRESOLVED), hung(8)]
    boundary = Boundary(
        axis="n_layers",
        finding=Finding.INCONCLUSIVE,
        last_good=4,
        first_bad=8,
        untested=(2, 3, 5, 7, 9, 10, 11, 12),
        unresolved=(6,),
        excluded_rate=0.95,
        because="n_layers=4 passed 1 of 1, n_layers=8 failed 1 of 1; the values between could not all be told.",
        notes=("The search was ended early by --budget 60s.",),
    )
    return Canned(make_spec(), trials, boundary, ended="budget used up", seconds=61.0)


def aborted():
    return Canned(make_spec(), [passed(1), passed(2), hung(5)], None, ended="interrupted", seconds=12.0)


def empty():
    return Canned(make_spec(), [], None, ended="interrupted", seconds=0.4)


RUNS = {f.__name__: f for f in (threshold, no_failure, all_fail, no_threshold_slow, inconclusive, aborted, empty)}


class StillClock:
    def now(self):
        return 0.0

    def wall(self):
        return "2026-01-02T03:04:05.000Z"

    def sleep(self, seconds):
        raise AssertionError("a report does not wait")


def keep(canned: Canned, runs: Path) -> tuple[Run, Path]:
    """Write a canned run as a session does, and read it back."""
    with RunStore.create(
        runs,
        spec=canned.spec,
        machine=MACHINE,
        code="0.1.0+0123456789ab",
        invocation=Invocation(verb=("bisect",), options=canned.options),
        clock=StillClock(),
    ) as store:
        for record, evidence in canned.trials:
            store.write_evidence(record.trial.key, evidence)
            store.add_record(record)
        answer = canned.answer
        if canned.boundary is not None:
            answer = CampaignAnswer(boundary=canned.boundary, because=canned.boundary.because)
        store.add_end(why=canned.ended, seconds=canned.seconds, answer=answer)
        run = store.run()
    return dataclasses.replace(run, directory=f"runs/{run.id}"), store.run_dir


@pytest.fixture(autouse=True)
def _disk_without_waiting(monkeypatch):
    """Canned runs need not survive a power cut; the store's own tests see to that."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def _each_figure_drawn_once(monkeypatch):
    """For tests of what is done with figures; what they show, and that they repeat their bytes, others test."""
    monkeypatch.setattr("harness.report.apart.figures_of", figures_once)


@pytest.fixture
def make_run(tmp_path):
    """``make_run(name or Canned)`` gives the run and its folder."""

    def make(canned):
        return keep(RUNS[canned]() if isinstance(canned, str) else canned, tmp_path / "runs")

    return make


@pytest.fixture
def parts():
    """The pieces that canned runs are made of."""
    return {
        "Canned": Canned, "spec": make_spec, "passed": passed, "hung": hung, "slow": slow, "layout": layout,
        "crashed": crashed, "clock": StillClock(), **RUNS,
    }  # fmt: skip


@pytest.fixture(scope="session")
def drawn(tmp_path_factory):
    """The run with everything in it, its report with figures, and its page: drawn once, for all who look at it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        run, run_dir = keep(threshold(), tmp_path_factory.mktemp("drawn") / "runs")
    report = build(run, run_dir, draw=here)
    return run_dir, report, html.render(report, hide=str)


MATRIX = """
version: 1
name: canned
description: Which of depth, closure and recomputation does the crash need?
base: {train.steps: 8}
axes:
  n_layers: {type: ordered, range: [1, 12], priority: 9}
  ckpt: {type: categorical, values: [none, reentrant], apply: {config: train.checkpointing}}
  seq_len: {type: ordered, values: [128, 256, 512], apply: {config: train.seq_len}}
strategy: list
include:
  - {}
  - {n_layers: 12}
  - {ckpt: reentrant}
  - {n_layers: 12, ckpt: reentrant}
  - {n_layers: 12, ckpt: reentrant, seq_len: 512}
expect:
  - {when: {seq_len: 512}, verdict: hang}
"""


def cell_trial(matrix, settings, kind, repeat=0):
    """One trial of a cell that passed, hung, was slow, or passed ``late``, after a slow one's limit; its evidence."""
    value = settings.get("n_layers", 1)
    if kind == "slow":
        record, evidence = slow(value)
    elif kind == "crash":
        record, evidence = crashed(value, repeat)
    elif kind == "untold":
        record, evidence = passed(value, repeat)
        unsure = Verdict(
            kind=Kind.UNRESOLVED, rule="unresolved", because="cut off in silence", cites=(), confidence=Confidence.LOW
        )
        record = dataclasses.replace(record, verdict=unsure, answer=Answer.UNRESOLVED)
    elif kind == "late":
        record, evidence = passed(value, repeat, each_s=12.0, attention="legacy-sequential")
    else:
        record, evidence = {"pass": passed, "hang": hung}[kind](value, repeat)
    trial = dataclasses.replace(record.trial, point=matrix.space.cell(settings), fault=None, repeat=repeat)
    return dataclasses.replace(record, trial=trial), evidence


def keep_campaign(runs: Path, trials, *, text=MATRIX, ended="answered", answered=True, signature=""):
    """Write a canned run of ``text``'s cells as a campaign does, and read it back; crashes match ``signature``."""
    matrix = parse_matrix(text, name="canned.yaml").matrix
    trials = [cell_trial(matrix, *one) for one in trials]
    spec = CampaignSpec(
        question=matrix.description, task=Task.CELLS, matrix=matrix, file="canned.yaml", cells=matrix.include
    )
    records = tuple(record for record, _ in trials)
    crashes = [r.trial.key for r in records if signature and r.verdict.kind is Kind.CRASH]
    names = dict.fromkeys(crashes, (signature,))
    facts = Facts(records=records, names=names, ran={}, predicted_s={}, overrides={})
    answer = CampaignAnswer(
        cells=cell_results(matrix, matrix.include, facts, today=dt.date(2026, 1, 2)),
        failures=failure_tables(matrix.space, facts),
        fits=axis_fits(matrix.space, facts),
    )
    invocation = Invocation(verb=("matrix", "run"), operands=("canned.yaml",))
    with RunStore.create(
        runs, spec=spec, machine=MACHINE, code="0.1.0+0123456789ab", invocation=invocation, clock=StillClock()
    ) as store:
        for record, evidence in trials:
            store.write_evidence(record.trial.key, evidence)
            store.add_record(record)
        store.add_end(why=ended, seconds=41.7, answer=answer if answered else None)
        run = store.run()
    return dataclasses.replace(run, directory=f"runs/{run.id}"), store.run_dir


@pytest.fixture
def make_campaign(tmp_path):
    """``make_campaign([(settings, "pass" or "hang" or "slow", repeat), ..])`` gives the run and its folder."""

    def make(trials, **options):
        return keep_campaign(tmp_path / "runs", trials, **options)

    return make
