"""The loop over a matrix, with trials that end as scripted: what is run, expected, skipped, resumed and concluded."""

from __future__ import annotations

import datetime as dt
import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fake_clock import FakeClock
from harness.campaign import Campaign
from harness.conduct import Conducted, Parts
from harness.core.campaign import CampaignSpec, CellStatus, Override, Task
from harness.core.cause import AxisFinding
from harness.core.evidence import Evidence, LogTail, Measurement
from harness.core.matrix import Expectation, Matrix, Resources, SignatureSpec
from harness.core.outcome import Ending, Exit, Outcome, StopReason
from harness.core.point import Axis, AxisType, Point
from harness.core.record import Machine, Run
from harness.core.space import Bundle, Factor, Selector, Space
from harness.core.spec import Effort, Limits
from harness.core.trial import Trial
from harness.core.verdict import Answer, Confidence, Kind, Verdict
from harness.launch.claims import Claims
from harness.report.findings import Findings
from harness.report.over_cells import summarise
from harness.store.run_store import RunStore
from harness.targets.nsa import NsaTarget

MACHINE = Machine(python="3", torch="2", platform="Linux", kernel="6", cpu="c", cores=2, memory_bytes=1)
COSTS = {Kind.PASS: 1.0, Kind.HANG: 10.0}
Script = Callable[[Trial], Conducted]


def ordered(name: str, path: str, *values: int) -> Factor:
    axis = Axis(name=name, path=path, type=AxisType.ORDERED, values=values)
    bundles = tuple(Bundle(config=((path, value),)) for value in values)
    return Factor(axis=axis, good=values[0], bad=values[-1], bundles=bundles)


def flag(name: str, path: str) -> Factor:
    axis = Axis(name=name, path=path, type=AxisType.FLAG, values=(False, True))
    return Factor(axis=axis, good=False, bad=True, bundles=tuple(Bundle(config=((path, v),)) for v in axis.values))


SPACE = Space(
    factors=(
        ordered("n_layers", "model.n_layers", 1, 2, 3, 4, 6),
        ordered("seq_len", "train.seq_len", 64, 128, 256),
        flag("tied", "model.tied_head"),
        flag("share", "model.share_kv"),
    )
)
MATRIX = Matrix(name="m", space=SPACE, effort=Effort(certify=3))


def ended(kind: Kind, *, cause: str | None = None, said: str = "", seconds: float | None = None) -> Conducted:
    return Conducted(
        outcome=Outcome(ending=Ending.EXITED, exit=Exit(code=0), duration_s=seconds or COSTS.get(kind, 2.0)),
        evidence=Evidence(
            steps_wanted=5,
            measurement=Measurement(step_s=(0.1,), longest_silence_s=0.1),
            logs=(LogTail(id="log-stderr", stream="stderr", text=said, size_bytes=len(said)),),
        ),
        verdict=Verdict(
            kind=kind, cause=cause, rule="scripted", because="as scripted", cites=(), confidence=Confidence.PROOF
        ),
        started_at="2026-01-01T00:00:00Z",
    )


class Silent:
    """A screen for nobody."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


class World:
    """Runs campaigns whose trials end as ``script(trial)`` says; remembers what was run."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs, self.clock = tmp_path / "runs", FakeClock()
        self.ran: list[Trial] = []
        self.parts = Parts(
            target=NsaTarget(python="python"), executor=None, sources=(), clock=self.clock, child_env={}
        )  # no trial is ever started
        self.script: Script = lambda trial: ended(Kind.PASS)
        monkeypatch.setattr("harness.conduct.conduct", self._conduct)
        monkeypatch.setattr("os.fsync", lambda _: None)  # no power cut is tested here

    def _conduct(self, trial: Trial, **_: object) -> Conducted:
        done = self.script(trial)
        self.ran.append(trial)
        self.clock.sleep(done.outcome.duration_s)
        return done

    def ask(self, task: Task, *, matrix: Matrix = MATRIX, **spec: object) -> Run:
        question = CampaignSpec(question="?", task=task, matrix=matrix, **spec)
        with RunStore.create(self.runs, spec=question, machine=MACHINE, code="c", argv=(), clock=self.clock) as store:
            self.run_dir = store.run_dir
            return Campaign(store=store, parts=self.parts, screen=Silent()).run()

    def resume(self) -> Run:
        with RunStore.open(self.run_dir, clock=self.clock) as store:
            return Campaign(store=store, parts=self.parts, screen=Silent()).run()

    @property
    def keys(self) -> list[str]:
        return [trial.key for trial in self.ran]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def hangs_where(**least: int) -> Script:
    def script(trial: Trial) -> Conducted:
        fails = all(int(trial.point.get(name)) >= value for name, value in least.items())
        return ended(Kind.HANG, cause="deadlock") if fails else ended(Kind.PASS)

    return script


def cells(*settings: dict[str, int]) -> tuple[Point, ...]:
    return tuple(SPACE.cell(row) for row in settings)


def where(**values: object) -> Selector:
    return Selector(
        terms=tuple((name, value if isinstance(value, tuple) else (value,)) for name, value in values.items())
    )


# --- Cells and expectations ----------------------------------------------------------------------------------------


def test_each_cell_is_run_as_often_as_asked_round_by_round(world: World):
    run = world.ask(Task.CELLS, cells=cells({}, {"n_layers": 2}), passes=2)

    assert [(t.point.get("n_layers"), t.repeat) for t in world.ran] == [(1, 0), (2, 0), (1, 1), (2, 1)]
    assert [result.met for result in run.answer.cells] == [CellStatus.EXPECTED, CellStatus.EXPECTED]
    assert run.ended == "answered"


def test_a_failure_nobody_expected_is_a_surprise_and_an_expected_one_is_not(world: World):
    world.script = hangs_where(n_layers=3)
    known = Expectation(when=where(n_layers=(4,)), kind=Kind.HANG)
    run = world.ask(Task.CELLS, matrix=replace(MATRIX, expect=(known,)), cells=cells({"n_layers": 3}, {"n_layers": 4}))

    three, four = run.answer.cells
    assert (three.met, four.met) == (CellStatus.UNEXPECTED, CellStatus.EXPECTED)
    assert three.because == "HANG (deadlock) 1 of 1; expected PASS"
    assert run.answer.surprises == (three,)


def test_another_failure_of_the_same_kind_is_not_taken_for_the_named_one(world: World):
    named = SignatureSpec(name="ready-twice", kind=Kind.CRASH, log="ready only once")
    known = Expectation(when=where(tied=True), kind=Kind.CRASH, signature="ready-twice")
    matrix = replace(MATRIX, signatures=(named,), expect=(known,))
    said = {2: "mark a variable ready only once", 3: "file not found"}
    world.script = lambda trial: ended(Kind.CRASH, said=said[trial.point.get("n_layers")])
    run = world.ask(
        Task.CELLS, matrix=matrix, cells=cells({"n_layers": 2, "tied": True}, {"n_layers": 3, "tied": True})
    )

    assert [result.met for result in run.answer.cells] == [CellStatus.EXPECTED, CellStatus.UNEXPECTED]
    assert run.answer.cells[0].failure == "CRASH (ready-twice)"
    assert [(table.failure, table.trials) for table in run.answer.failures] == [
        ("CRASH (ready-twice)", 1),
        ("CRASH", 1),
    ]


@pytest.mark.parametrize(
    ("expectation", "met"),
    [
        ({"strict": True}, CellStatus.UNEXPECTED),
        ({"strict": False}, CellStatus.EXPECTED),
        ({"strict": True, "until": dt.date(2025, 1, 1)}, CellStatus.EXPECTED),
        ({"strict": True, "since": dt.date(2999, 1, 1)}, CellStatus.EXPECTED),
    ],
)
def test_a_pass_where_a_failure_was_expected_is_a_surprise_only_if_that_is_strict_and_in_force(
    world: World, expectation: dict, met: CellStatus
):
    known = Expectation(when=where(n_layers=(2,)), kind=Kind.HANG, **expectation)
    run = world.ask(Task.CELLS, matrix=replace(MATRIX, expect=(known,)), cells=cells({"n_layers": 2}))
    assert run.answer.cells[0].met is met


def test_fail_fast_stops_at_the_first_surprise(world: World):
    world.script = hangs_where(n_layers=2)
    run = world.ask(Task.CELLS, cells=cells({}, {"n_layers": 2}, {"n_layers": 3}), fail_fast=True)
    assert len(world.ran) == 2
    assert run.ended == "stopped at the first surprise: n_layers=2: HANG (deadlock) 1 of 1; expected PASS"


def test_a_cell_that_could_not_pass_within_its_limit_is_skipped_and_not_called_hung(world: World):
    world.script = lambda trial: ended(Kind.PASS, seconds=4.0 * trial.point.get("n_layers"))
    matrix = replace(MATRIX, limits=Limits(total_s=20.0))
    run = world.ask(Task.CELLS, matrix=matrix, cells=cells(*({"n_layers": n} for n in (1, 2, 3, 4, 6))))

    assert [trial.point.get("n_layers") for trial in world.ran] == [1, 2, 3, 4]
    six = run.answer.cells[-1]
    assert (six.met, six.name) == (CellStatus.SKIPPED, "n_layers=6")
    assert "24 s to pass" in six.because
    assert "could not tell slow from hung" in six.because
    assert six.predicted_s == pytest.approx(24.0)


def test_a_cell_is_not_skipped_for_what_another_setting_without_a_size_took(world: World):
    """Only its limits are learned from that: it is not said what it should take, nor judged by it."""
    world.script = lambda trial: ended(Kind.PASS, seconds=4.0 * trial.point.get("n_layers"))
    matrix = replace(MATRIX, limits=Limits(total_s=20.0))
    run = world.ask(Task.CELLS, matrix=matrix, cells=cells({"n_layers": 4}, {"n_layers": 6, "tied": True}))

    assert [trial.point.get("n_layers") for trial in world.ran] == [4, 6]
    assert world.ran[-1].prediction is None
    assert "differs in n_layers, tied" in world.ran[-1].budget.stall.source
    assert run.answer.cells[-1].predicted_s is None


def test_what_the_machine_spoiled_is_run_again_and_never_counted(world: World):
    spoiled = iter([Kind.INFRA, Kind.INFRA, Kind.PASS])
    world.script = lambda trial: ended(next(spoiled))
    run = world.ask(Task.CELLS, cells=cells({}))
    assert len(world.ran) == 3
    assert (run.answer.cells[0].met, run.answer.cells[0].count.good) == (CellStatus.EXPECTED, 1)


def test_gpu_seconds_end_the_run_with_a_partial_answer(world: World):
    matrix = replace(MATRIX, resources=(Resources(gpus=0),), gpu_seconds=3.0)
    matrix = replace(matrix, resources=(Resources(gpus=2),))
    question = CampaignSpec(
        question="?", task=Task.CELLS, matrix=matrix, cells=cells(*({"n_layers": n} for n in (1, 2, 3)))
    )
    with RunStore.create(world.runs, spec=question, machine=MACHINE, code="c", argv=(), clock=world.clock) as store:
        run = Campaign(store=store, parts=world.parts, screen=Silent(), gpus=("0", "1")).run()
    assert (len(run.records), run.ended, run.answer.gpu_seconds) == (2, "budget used up", 4.0)
    assert run.answer.cells[-1].met is CellStatus.NOT_RUN


# --- Searches ------------------------------------------------------------------------------------------------------


def test_the_settings_that_a_hang_needs_are_found_with_their_certificates(world: World):
    world.script = hangs_where(n_layers=3, tied=1)
    run = world.ask(Task.MINIMISE, matrix=replace(MATRIX, effort=Effort(certify=18)))

    (cause,) = run.answer.minimised.causes
    assert str(cause) == "n_layers>=3, tied=true"
    assert cause.certified
    (table,) = run.answer.failures
    about = {verdict.axis: verdict.finding for verdict in table.axes}
    assert (about["n_layers"], about["seq_len"], about["share"]) == (
        AxisFinding.IMPLICATED, AxisFinding.NOT_NECESSARY, AxisFinding.NOT_NECESSARY,
    )  # fmt: skip


def test_a_search_for_a_named_failure_does_not_follow_another_one(world: World):
    named = SignatureSpec(name="deadlock", kind=Kind.HANG, log="waiting")

    def script(trial: Trial) -> Conducted:
        if trial.point.get("seq_len") >= 128 and not trial.point.get("share"):
            return ended(Kind.CRASH, said="another failure on the way")
        hangs = trial.point.get("n_layers") >= 3 and trial.point.get("tied")
        return ended(Kind.HANG, said="waiting") if hangs else ended(Kind.PASS)

    world.script = script
    run = world.ask(Task.MINIMISE, matrix=replace(MATRIX, signatures=(named,)), signature="deadlock")
    assert [str(cause) for cause in run.answer.minimised.causes] == ["n_layers>=3, tied=true"]
    assert all((r.answer is Answer.BAD) == (r.verdict.kind is Kind.HANG) for r in run.records)


def test_a_second_failure_beside_the_one_that_is_sought_is_named_with_the_way_to_seek_it(world: World):
    def script(trial: Trial) -> Conducted:
        if trial.point.get("n_layers") == 2:
            return ended(Kind.HANG, cause="deadlock")
        return ended(Kind.CRASH, cause="ValueError") if trial.point.get("n_layers") >= 3 else ended(Kind.PASS)

    world.script = script
    run = world.ask(Task.MINIMISE)
    assert str(run.answer.minimised.causes[0]) == "n_layers>=3"
    (note,) = run.answer.notes
    assert note.startswith("Another failure was seen and not followed: HANG (deadlock), ")
    assert " with n_layers=2" in note
    assert note.endswith(" Seek it with --bad hang.")


def test_a_report_is_of_the_failure_that_is_answered_not_of_another_one_that_came_first(world: World):
    crash = SignatureSpec(name="crash", kind=Kind.CRASH)

    def script(trial: Trial) -> Conducted:
        if trial.point == SPACE.bad:
            return ended(Kind.CRASH, cause="ValueError")
        return ended(Kind.CRASH, cause="exit-9") if trial.point.get("n_layers") >= 3 else ended(Kind.PASS)

    world.script = script
    run = world.ask(Task.MINIMISE, matrix=replace(MATRIX, signatures=(crash,)), signature="crash")
    findings = Findings(run=run, run_dir=world.run_dir)
    assert [str(cause) for cause in run.answer.minimised.causes] == ["n_layers>=3"]
    first = next(r for r in run.records if r.verdict.kind is Kind.CRASH)
    assert str(first.verdict) == "CRASH (ValueError)"
    assert str(findings.subject.verdict) == "CRASH (exit-9)"
    assert findings.subject.trial.point == run.answer.minimised.causes[0].seen.cell
    shown = summarise(findings)
    assert shown.verdict.startswith("CRASH (exit-9) in ")
    assert shown.verdict.endswith(" cells, and CRASH (ValueError) in 1")
    assert shown.judged.startswith("CRASH (exit-9) by rule")


def test_a_trial_that_ended_well_and_missed_a_target_did_not_crash(world: World):
    named = SignatureSpec(name="twice", kind=Kind.CRASH, log="twice")

    def script(trial: Trial) -> Conducted:
        crashes = trial.point.get("n_layers") >= 3 and trial.point.get("tied")
        if crashes:
            return ended(Kind.CRASH, said="marked twice")
        return ended(Kind.BELOW_TARGET if trial.point.get("tied") else Kind.PASS)

    world.script = script
    run = world.ask(Task.MINIMISE, matrix=replace(MATRIX, signatures=(named,)), signature="twice")
    (cause,) = run.answer.minimised.causes
    assert (str(cause), cause.certified) == ("n_layers>=3, tied=true", True)


def test_a_threshold_beside_a_matrix_is_found_with_the_rest_held(world: World):
    world.script = hangs_where(n_layers=4)
    run = world.ask(Task.BISECT, axis="n_layers", good=SPACE.cell({"tied": True}))
    assert (run.answer.boundary.last_good, run.answer.boundary.first_bad) == (3, 4)
    assert all(trial.point.get("tied") for trial in world.ran)


def test_explain_tries_the_cause_with_everything_else_at_random(world: World):
    world.script = hangs_where(n_layers=3)
    run = world.ask(Task.MINIMISE, explain=4)
    (cause,) = run.answer.minimised.causes
    assert (cause.freedom.tried, cause.freedom.failed) == (4, 4)
    assert set(cause.freedom.free) <= {"seq_len", "tied", "share"}
    assert cause.freedom.free


# --- Killed, resumed, taken back -----------------------------------------------------------------------------------


class Killed(BaseException):
    """The controller is gone, with nothing written down about it."""


@pytest.mark.parametrize("after", [1, 6, 11])
def test_killed_anywhere_a_resumed_search_repeats_no_trial_and_answers_the_same(world: World, after: int):
    world.script = hangs_where(n_layers=3, tied=1)
    whole = world.ask(Task.MINIMISE)
    asked = world.keys
    world.ran.clear()

    script = world.script

    def dies(trial: Trial) -> Conducted:
        if len(world.ran) == after:
            raise Killed
        return script(trial)

    world.script = dies
    with pytest.raises(Killed):
        world.ask(Task.MINIMISE)
    world.script = script
    resumed = world.resume()

    assert world.keys == asked, "the same trials in the same order, none twice"
    assert resumed.answer.minimised == whole.answer.minimised


def test_an_interrupted_trial_is_run_again_and_the_rest_is_kept(world: World):
    def script(trial: Trial) -> Conducted:
        if len(world.ran) == 1:
            world.script = lambda trial: ended(Kind.PASS)
            stopped = ended(Kind.UNRESOLVED)
            return replace(stopped, outcome=replace(stopped.outcome, stopped_by=StopReason.INTERRUPT))
        return ended(Kind.PASS)

    world.script = script
    first = world.ask(Task.CELLS, cells=cells({}, {"n_layers": 2}))
    assert (first.ended, len(first.records)) == ("interrupted", 1)
    assert first.asked == "the user asked to stop"
    second = world.resume()
    assert second.asked == ""
    assert (second.ended, len(second.records)) == ("answered", 2)
    assert world.keys[1] == world.keys[2]


def test_what_is_taken_back_is_asked_again_under_a_new_key(world: World):
    world.ask(Task.CELLS, cells=cells({}, {"n_layers": 2}))
    with RunStore.open(world.run_dir, clock=world.clock) as store:
        store.add_undo(1)
    run = world.resume()
    assert [trial.point.get("n_layers") for trial in world.ran] == [1, 2, 2]
    assert len(set(world.keys)) == 3
    assert len(run.records) == 2


def test_a_cell_that_somebody_skipped_is_not_run_and_says_who_skipped_it(world: World):
    world.script = hangs_where(n_layers=2)
    world.ask(Task.CELLS, cells=cells({}, {"n_layers": 2}), fail_fast=True)
    with RunStore.open(world.run_dir, clock=world.clock) as store:
        store.add_undo(1)
        store.add_override(
            Override(cell=SPACE.cell({"n_layers": 2}), answer=Answer.UNRESOLVED, by="a user", why="known to be broken")
        )
    run = world.resume()
    assert run.answer.cells[1].met is CellStatus.SKIPPED
    assert run.answer.cells[1].said == "a user: known to be broken"


def test_trials_of_earlier_runs_count_when_code_and_machine_are_the_same(world: World):
    world.script = hangs_where(n_layers=3)
    first = world.ask(Task.MINIMISE)
    paid = len(world.ran)
    again = world.ask(Task.MINIMISE, reuse=True)
    assert len(world.ran) == paid, "everything was known"
    assert (len(again.reused), len(again.own)) == (paid, 0)
    assert again.answer.minimised.causes == first.answer.minimised.causes
    assert any("count here" in note for note in again.notes)
    assert world.resume().answer.minimised.causes == first.answer.minimised.causes


def test_a_failure_of_an_earlier_run_beside_the_line_does_not_become_the_one_that_is_sought(world: World):
    world.script = lambda trial: ended(Kind.CRASH, cause="ValueError") if trial.point.get("tied") else ended(Kind.PASS)
    world.ask(Task.CELLS, cells=cells({}, {"n_layers": 2, "tied": True}, {"n_layers": 3, "seq_len": 128}))
    world.script = hangs_where(n_layers=3)
    run = world.ask(Task.BISECT, axis="n_layers", good=SPACE.good, reuse=True)
    assert [record.trial.point for record in run.reused] == [SPACE.good]
    boundary = run.answer.boundary
    assert (boundary.last_good, boundary.first_bad, boundary.certified) == (2, 3, True)


def test_a_search_for_a_cause_seeks_what_its_bad_corner_shows_and_not_what_an_earlier_run_saw_elsewhere(world: World):
    world.script = lambda trial: ended(Kind.CRASH, cause="ValueError") if trial.point.get("tied") else ended(Kind.PASS)
    world.ask(Task.CELLS, cells=cells({}, {"n_layers": 2, "tied": True}))
    world.script = hangs_where(n_layers=3)
    run = world.ask(Task.MINIMISE, reuse=True)
    assert [record.trial.point for record in run.reused] == [SPACE.good]
    (cause,) = run.answer.minimised.causes
    assert (str(cause), cause.certified) == ("n_layers>=3", True)


def test_trials_of_other_code_are_shown_and_not_counted(world: World):
    world.ask(Task.CELLS, cells=cells({}))
    question = CampaignSpec(question="?", task=Task.CELLS, matrix=MATRIX, cells=cells({}), reuse=True)
    with RunStore.create(world.runs, spec=question, machine=MACHINE, code="new", argv=(), clock=world.clock) as store:
        run = Campaign(store=store, parts=world.parts, screen=Silent()).run()
    assert len(world.ran) == 2
    assert run.reused == ()
    (note,) = run.notes
    assert note.startswith("1 trial of earlier runs does not count: other code")


LEARNED, SET = Limits(), Limits(total_s=9.0)


@pytest.mark.parametrize(
    ("kind", "limits"),
    [(Kind.SLOW, LEARNED), (Kind.UNRESOLVED, LEARNED), (Kind.INFRA, LEARNED), (Kind.PASS, SET)],
)
def test_what_told_nothing_or_ran_under_other_limits_is_no_answer_for_a_later_run(world: World, kind: Kind, limits):
    world.script = lambda trial: ended(kind)
    world.ask(Task.CELLS, matrix=replace(MATRIX, limits=limits), cells=cells({}))
    world.script = lambda trial: ended(Kind.PASS)
    again = world.ask(Task.CELLS, cells=cells({}), reuse=True)
    assert again.reused == ()
    assert [record.verdict.kind for record in again.records] == [Kind.PASS]
    assert again.notes == ()


def test_how_long_a_cell_takes_is_learned_across_runs_and_code(world: World):
    world.script = lambda trial: ended(Kind.PASS, seconds=4.0 * trial.point.get("n_layers"))
    world.ask(Task.CELLS, cells=cells(*({"n_layers": n} for n in (1, 2, 3, 4))))
    question = CampaignSpec(
        question="?", task=Task.CELLS, matrix=replace(MATRIX, limits=Limits(total_s=20.0)), cells=cells({"n_layers": 6})
    )
    with RunStore.create(world.runs, spec=question, machine=MACHINE, code="new", argv=(), clock=world.clock) as store:
        run = Campaign(store=store, parts=world.parts, screen=Silent()).run()
    assert run.records == ()
    assert run.answer.cells[0].met is CellStatus.SKIPPED


# --- Side by side --------------------------------------------------------------------------------------------------


class Gate:
    """Conducts trials that wait for each other: none ends before ``together`` of them run."""

    def __init__(self, together: int) -> None:
        self.barrier = threading.Barrier(together, timeout=30)
        self.lock = threading.Lock()
        self.seen: list[tuple[str, ...]] = []
        self.now: list[str] = []

    def conduct(self, trial: Trial, *, parts: Parts, **_: object) -> Conducted:
        gpus = parts.child_env["CUDA_VISIBLE_DEVICES"].split(",")
        with self.lock:
            assert not set(gpus) & set(self.now), "a GPU is used twice"
            self.now += gpus
            self.seen.append(tuple(gpus))
        self.barrier.wait()
        with self.lock:
            self.now = [gpu for gpu in self.now if gpu not in gpus]
        self.barrier.wait()
        return ended(Kind.PASS)


def side_by_side(
    world: World, matrix: Matrix, *, lanes: int, gpus: tuple[str, ...], n: int, strangers: str = "", **more: object
):
    class Alone:
        def on(self, names: tuple[str, ...]) -> str:
            return strangers

    question = CampaignSpec(
        question="?", task=Task.CELLS, matrix=matrix, cells=cells(*({"n_layers": n} for n in (1, 2, 3, 4)[:n]))
    )
    with RunStore.create(world.runs, spec=question, machine=MACHINE, code="c", argv=(), clock=world.clock) as store:
        campaign = Campaign(store=store, parts=[world.parts] * lanes, screen=Silent(), gpus=gpus, **more)
        campaign.lanes.neighbours = Alone()
        return campaign.run()


def test_cells_run_side_by_side_on_gpus_of_their_own_among_those_inherited(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    gate = Gate(together=2)
    monkeypatch.setattr("harness.conduct.conduct", gate.conduct)
    matrix = replace(MATRIX, resources=(Resources(gpus=2),))
    run = side_by_side(world, matrix, lanes=2, gpus=("3", "5", "6", "7"), n=4)
    assert sorted(gate.seen) == [("3", "5"), ("3", "5"), ("6", "7"), ("6", "7")]
    assert [result.met for result in run.answer.cells] == [CellStatus.EXPECTED] * 4


def test_gpus_that_another_controller_has_are_left_to_it(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def claims() -> Claims:
        return Claims(tmp_path / "leases", identity=str, sleep=time.sleep)

    gate = Gate(together=1)
    monkeypatch.setattr("harness.conduct.conduct", gate.conduct)
    matrix = replace(MATRIX, resources=(Resources(gpus=1),))
    with claims().gpus(1, among=("3",)):
        run = side_by_side(world, matrix, lanes=2, gpus=("3", "5"), n=3, claims=claims())
    assert gate.seen == [("5",)] * 3, "one lane had nothing to run on"
    assert [result.met for result in run.answer.cells] == [CellStatus.EXPECTED] * 3
    (journal,) = world.runs.glob("*/journal.jsonl")
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    assert [event["data"]["gpus"] for event in events if event["event"] == "decision"] == [["5"]] * 3
    free = claims().try_gpus(2, among=("3", "5"))
    assert free is not None, "everything was given back"
    free.release()


def test_a_controller_waits_for_gpus_until_the_user_stops_it(world: World, tmp_path: Path):
    told: list[str] = []
    claims = Claims(tmp_path / "leases", identity=str, sleep=time.sleep)
    matrix = replace(MATRIX, resources=(Resources(gpus=2),))

    class Listening(Silent):
        def noted(self, text: str) -> None:
            told.append(text)

    question = CampaignSpec(question="?", task=Task.CELLS, matrix=matrix, cells=cells({"n_layers": 1}))
    with (
        claims.gpus(1, among=("0",)),
        RunStore.create(world.runs, spec=question, machine=MACHINE, code="c", argv=(), clock=world.clock) as store,
    ):
        run = Campaign(
            store=store, parts=world.parts, screen=Listening(), gpus=("0", "1"), claims=claims,
            interrupted=lambda: bool(told),
        ).run()  # fmt: skip
    assert run.ended == "interrupted"
    assert told == [f"waiting for GPUs that process {os.getpid()} of this machine use"]
    assert run.records == ()


def test_a_stranger_on_the_gpu_spoils_the_trial(world: World):
    matrix = replace(MATRIX, resources=(Resources(gpus=1),), infra_retries=1)
    run = side_by_side(world, matrix, lanes=1, gpus=("0",), n=1, strangers="PID 7 on GPU 0")
    assert {record.verdict.rule for record in run.records} == {"contaminated"}
    assert world.ran == [], "it was not even begun"
    assert run.answer.cells[0].met is CellStatus.INCONCLUSIVE


def test_a_certificate_is_earned_side_by_side(world: World):
    world.script = hangs_where(n_layers=3)
    beside: dict[str, int] = {}
    question = CampaignSpec(question="?", task=Task.MINIMISE, matrix=replace(MATRIX, effort=Effort(certify=6)))
    with RunStore.create(world.runs, spec=question, machine=MACHINE, code="c", argv=(), clock=world.clock) as store:
        campaign = Campaign(store=store, parts=[world.parts] * 3, screen=Silent())

        class Counting(Silent):
            def started(self, trial: Trial, **_: object) -> None:
                beside[trial.role] = max(beside.get(trial.role, 0), campaign.lanes.busy + 1)

        campaign.attempts.screen = Counting()
        run = campaign.run()
    assert beside == {"search": 1, "certify": 3, "confirm": 1}
    assert [str(cause) for cause in run.answer.minimised.causes] == ["n_layers>=3"]
    assert len({record.trial.key for record in run.records}) == len(run.records)
