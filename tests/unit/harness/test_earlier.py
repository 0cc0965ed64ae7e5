"""Trials of earlier runs of a question along one axis: which count, what they spare, and what stays the same."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fake_clock import FakeClock
from harness.campaign import Campaign
from harness.conduct import Conducted, Parts
from harness.core.boundary import Claim
from harness.core.campaign import CampaignSpec, threshold_question
from harness.core.evidence import Evidence, LogTail, Measurement
from harness.core.outcome import Ending, Exit, Outcome, StopReason
from harness.core.point import Axis, AxisType, Point
from harness.core.record import Machine, Run, TrialRecord
from harness.core.spec import Effort, Limits
from harness.core.trial import Condition, Fault, Trial
from harness.core.verdict import Confidence, Kind, Verdict
from harness.replay import replay
from harness.report.write import summary_text, write
from harness.store import layout
from harness.store.history import History, read_evidence
from harness.store.run_store import RunStore, read_run
from harness.targets.nsa import NsaTarget

AXIS = Axis(name="n_layers", path="model.n_layers", type=AxisType.ORDERED, values=(1, 2, 3, 4, 5, 6))
MACHINE = Machine(python="3", torch="2", platform="Linux", kernel="6", cpu="c", cores=2, memory_bytes=1)
ASKED = {"question": "Where?", "axis": AXIS, "effort": Effort(certify=3), "reuse": True}


def asked(**changes: object) -> CampaignSpec:
    return threshold_question(**{**ASKED, **changes})


QUESTION = asked()
SECONDS = {Kind.PASS: 1.0, Kind.HANG: 10.0, Kind.SLOW: 20.0}


def ended(kind: Kind, *, cause: str | None = None, **outcome: object) -> Conducted:
    facts = {"ending": Ending.EXITED, "exit": Exit(code=0), "duration_s": SECONDS.get(kind, 2.0), **outcome}
    log = LogTail(id="log1", stream="stdout", text=f"said {kind}", size_bytes=9)
    return Conducted(
        outcome=Outcome(**facts),  # the test's own keywords
        evidence=Evidence(steps_wanted=5, measurement=Measurement(step_s=(0.1,), longest_silence_s=0.1), logs=(log,)),
        verdict=Verdict(
            kind=kind, cause=cause, rule="scripted", because="as scripted", cites=(), confidence=Confidence.PROOF
        ),
        started_at="2026-01-01T00:00:00Z",
    )


def hangs_from(threshold: int) -> Callable[[Trial], Conducted]:
    def script(trial: Trial) -> Conducted:
        is_bad = trial.point.get("n_layers") >= threshold and not trial.role.startswith("control")
        return ended(Kind.HANG, cause="deadlock") if is_bad else ended(Kind.PASS)

    return script


@dataclass
class World:
    """Runs questions in one folder; trials end as ``script(trial)`` says, and ``ran`` lists their keys."""

    runs: Path
    script: Callable[[Trial], Conducted] = field(default_factory=lambda: hangs_from(4))
    ran: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    clock: FakeClock = field(default_factory=FakeClock)

    def ask(
        self, spec: CampaignSpec = QUESTION, *, code: str = "c", machine: Machine = MACHINE, program: str = ""
    ) -> Run:
        self.clock.sleep(60)  # run folders are named by the second, and the order of names is that of time
        begun = {"spec": spec, "machine": machine, "code": code, "program": program, "argv": (), "clock": self.clock}
        with RunStore.create(self.runs, **begun) as store:
            return self._bisect(store)

    def resume(self, run: Run) -> Run:
        with RunStore.open(self.runs / run.id, clock=self.clock) as store:
            return self._bisect(store)

    def _bisect(self, store: RunStore) -> Run:
        parts = Parts(
            target=NsaTarget(python="python"), executor=None, sources=(), clock=self.clock, child_env={}
        )  # no trial is ever started
        with patch("harness.conduct.conduct", self._conduct):
            return Campaign(store=store, parts=parts, screen=self).run()

    def _conduct(self, trial: Trial, **_: object) -> Conducted:
        done = self.script(trial)
        self.ran.append(trial.key)
        self.clock.sleep(done.outcome.duration_s)
        return done

    def noted(self, text: str) -> None:
        self.said.append(text)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    return World(tmp_path / "runs")


def own(run: Run) -> list[TrialRecord]:
    return [record for record in run.records if not record.run]


def taken_over(run: Run) -> list[TrialRecord]:
    return [record for record in run.records if record.run]


def test_a_question_asked_again_is_answered_by_what_the_first_run_found(world: World):
    first = world.ask()
    paid = len(world.ran)
    again = world.ask()
    assert len(world.ran) == paid, "everything was known"
    assert again.boundary == first.boundary
    assert [record.trial.key for record in taken_over(again)] == [record.trial.key for record in first.records]
    assert {record.run for record in again.records} == {first.id}
    (note,) = again.notes
    assert world.said == [note]
    assert note == f"{paid} trials of earlier runs count here: {first.id}. --fresh runs all anew."


def test_the_report_and_the_journal_say_which_trials_were_taken_over_and_show_their_evidence(world: World):
    first = world.ask()
    again = world.ask(asked(effort=Effort(certify=5)))
    text = write(again, world.runs / again.id, hide=()).read_text()
    assert text.count(f"(taken over from `{first.id}`)") == len(taken_over(again)) == len(first.records)
    assert "2 trials in 2.0 s: 2 PASS; 8 trials taken over from earlier runs: 6 PASS, 2 HANG" in text
    assert "taken over from earlier runs" in " ".join(summary_text(again).split())
    for record in taken_over(again):
        evidence = read_evidence(world.runs / again.id, record.trial.key)
        assert evidence is not None
        assert evidence.logs[0].text == f"said {record.verdict.kind}"
    events = [row.split('"')[3] for row in layout.journal(world.runs / again.id).read_text().splitlines()]
    assert events[1:8] == ["reuse"] * 7, "before anything else is asked"


def test_a_trial_taken_over_survives_the_run_that_it_is_of(world: World):
    first = world.ask()
    again = world.ask()
    for path in sorted((world.runs / first.id).rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    key = taken_over(again)[0].trial.key
    assert read_evidence(world.runs / again.id, key) is not None
    assert read_run(world.runs / again.id).boundary == again.boundary


OTHERS = {
    "other code": {"code": "d"},
    "another machine": {"machine": replace(MACHINE, torch="3")},
    "another commit of the program": {"program": "9f3c"},
    "other variables": {"machine": replace(MACHINE, environment="OMP_NUM_THREADS=1")},
}


@pytest.mark.parametrize("other", OTHERS)
def test_trials_of_other_code_another_machine_or_other_variables_are_told_and_not_counted(world: World, other: str):
    first = world.ask()
    again = world.ask(**OTHERS[other])
    assert taken_over(again) == []
    assert len(own(again)) == len(first.records)
    (note,) = again.notes
    assert note.startswith("8 trials of earlier runs do not count: other code, another machine or other variables")


FAULT = Fault(specimen="crash", conditions=(Condition(name="n_layers", op=">=", value=4),))
CHANGES = {
    "a setting": {"fixed": Point.of({"train.seq_len": 64})},
    "a planted fault, also below where it strikes": {"fault": FAULT},
    "a limit that the user set": {"limits": Limits(total_s=5.0)},
    "how trials are started": {"executor": "local"},
    "a variable": {"env": (("OMP_NUM_THREADS", "1"),)},
    "the seed": {"seed": 1},
    "nothing, but all is to be run afresh": {"reuse": False},
}


@pytest.mark.parametrize("change", CHANGES)
def test_nothing_of_another_question_counts(world: World, change: str):
    first = world.ask()
    again = world.ask(asked(**CHANGES[change]))
    assert taken_over(again) == []
    assert again.notes == ()
    assert len(own(again)) == len(first.records)


def test_another_part_of_the_axis_counts_only_what_lies_on_it(world: World):
    world.ask()
    part = world.ask(asked(axis=replace(AXIS, values=(3, 4, 5))))
    assert {record.trial.point.get("n_layers") for record in taken_over(part)} == {3, 4}
    assert (part.boundary.last_good, part.boundary.first_bad, part.boundary.untested) == (3, 4, (5,))


@pytest.mark.parametrize("kind", [Kind.INFRA, Kind.SLOW, Kind.UNRESOLVED, Kind.BELOW_TARGET])
def test_what_told_nothing_is_asked_again(world: World, kind: Kind):
    def script(trial: Trial) -> Conducted:
        return ended(kind) if trial.point.get("n_layers") == 6 else ended(Kind.PASS)

    world.script = script
    first = world.ask()
    told = [record for record in first.records if record.verdict.kind is Kind.PASS]
    world.script = hangs_from(7)
    again = world.ask()
    assert [record.trial.key for record in taken_over(again)] == [record.trial.key for record in told]
    assert (again.boundary.last_good, again.boundary.certified) == (6, True)


def test_a_trial_that_a_soft_limit_cut_off_and_one_that_nobody_saw_end_are_asked_again(world: World):
    def script(trial: Trial) -> Conducted:
        if trial.point.get("n_layers") < 4:
            return ended(Kind.PASS)
        if trial.budget.soft:
            cut_s = trial.budget.total.seconds
            return ended(Kind.UNRESOLVED, ending=Ending.STOPPED_BY_US, stopped_by=StopReason.TOTAL, duration_s=cut_s)
        if len(world.ran) > 8:
            return ended(Kind.UNRESOLVED, ending=Ending.STOPPED_BY_US, stopped_by=StopReason.INTERRUPT)
        return ended(Kind.HANG, cause="spin")

    world.script = script
    first = world.ask(asked(effort=Effort(certify=3, soft_limit=True)))
    assert any(record.is_cut for record in first.records)
    again = world.ask()
    assert {record.verdict.kind for record in taken_over(again)} <= {Kind.PASS, Kind.HANG}
    assert not any(record.is_cut for record in taken_over(again))


def test_a_failure_that_is_not_sought_now_is_asked_again(world: World):
    world.script = lambda trial: ended(Kind.OOM) if trial.point.get("n_layers") >= 4 else ended(Kind.PASS)
    world.ask()
    world.script = hangs_from(4)
    again = world.ask(asked(bad=(Kind.HANG,)))
    assert {record.verdict.kind for record in taken_over(again)} == {Kind.PASS}
    assert again.boundary.first_bad == 4


def test_what_earlier_runs_paid_is_not_taken_from_the_limits_of_this_one(world: World):
    first = world.ask()
    seconds = sum(record.outcome.duration_s for record in first.records)
    more = Effort(certify=7, max_trials=5, max_seconds=seconds / 2)
    again = world.ask(asked(effort=more))
    assert (again.ended, len(own(again)), again.boundary.certified) == ("answered", 4, True)
    assert len({record.trial.key for record in again.records}) == len(again.records) == 12, "no key twice"
    fewer = world.ask(asked(effort=Effort(certify=9, max_trials=1)))
    assert (fewer.ended, len(own(fewer))) == ("budget used up", 1)
    assert "The search was ended early by the limit of 1 trials." in fewer.boundary.notes


FAR_FAULT = Fault(specimen="crash", conditions=(Condition(name="n_layers", op=">=", value=6),))


@pytest.mark.parametrize(("control", "fault"), [("dense", None), ("no-fault", FAR_FAULT)])
def test_a_control_is_run_beside_the_failure_that_it_is_held_against(world: World, control: str, fault: Fault | None):
    question = asked(controls=(control,), fault=fault)
    first = world.ask(question)
    again = world.ask(question)
    assert not any(record.trial.role.startswith("control") for record in taken_over(again))
    assert [record.trial.role for record in own(again)] == [f"control {control}"] * 3
    assert first.boundary.claim is again.boundary.claim is Claim.ISOLATED


def test_of_two_trials_under_one_key_the_later_one_counts(world: World):
    world.script = hangs_from(7)
    world.ask()
    world.script = hangs_from(4)
    world.ask(asked(reuse=False))
    again = world.ask()
    at_four = [record.verdict.kind for record in taken_over(again) if record.trial.point.get("n_layers") == 4]
    assert Kind.HANG in at_four
    assert Kind.PASS not in at_four


def test_replaying_the_journal_decides_the_same(world: World):
    world.ask(asked(effort=Effort(certify=3, max_trials=3)))
    again = world.ask(asked(effort=Effort(certify=3, max_trials=5)))
    played = replay(world.runs / again.id)
    assert played.steps
    assert played.differing == ()


@pytest.mark.parametrize(("cut", "dies"), [(3, 2), (6, 0)])
def test_a_run_that_took_trials_over_and_was_killed_goes_on_with_them(world: World, cut: int, dies: int):
    certify = asked(effort=Effort(certify=9))
    whole = World(world.runs.parent / "alone").ask(certify)
    world.ask(asked(effort=Effort(certify=9, max_trials=cut)))
    last = _killed_and_resumed(world, hangs_from(4), certify, after=dies)
    assert (len(taken_over(last)), len(world.ran)) == (cut, len(whole.records))
    assert len(set(world.ran)) == len(world.ran), "no key twice"
    assert last.boundary == whole.boundary


@dataclass(frozen=True)
class Program:
    """Fails from ``threshold`` on, at ``rate``; what a trial does depends on its value and repeat alone."""

    threshold: int
    rate: float
    seed: int

    def __call__(self, trial: Trial) -> Conducted:
        value = trial.point.get("n_layers")
        draw = random.Random(f"{self.seed} {value} {trial.repeat}").random()
        is_bad = value >= self.threshold and draw < self.rate
        return ended(Kind.HANG, cause="deadlock", duration_s=10.0) if is_bad else ended(Kind.PASS, duration_s=1.0)


@given(
    program=st.builds(
        Program, threshold=st.integers(1, 7), rate=st.sampled_from([1.0, 0.7, 0.3]), seed=st.integers(0, 10**6)
    ),
    cuts=st.lists(st.integers(1, 12), min_size=1, max_size=3),
    dies=st.integers(0, 15),
)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_runs_that_go_on_from_one_another_answer_as_one_run_that_did_it_all(
    program: Program, cuts: list[int], dies: int
):
    """However often it was cut off or killed: same answer, same certificate, same trials, none of them twice."""
    with tempfile.TemporaryDirectory() as folder, patch.object(os, "fsync", lambda _: None):
        alone = World(Path(folder) / "alone", script=program)
        whole = alone.ask()

        parted = World(Path(folder) / "parted", script=program)
        for cut in cuts:
            parted.ask(asked(effort=Effort(certify=3, max_trials=cut)))
        last = _killed_and_resumed(parted, program, QUESTION, after=dies)

        assert last.boundary == whole.boundary
        assert sorted(parted.ran) == sorted(alone.ran)
        assert len(set(parted.ran)) == len(parted.ran)
        assert {r.trial.key for r in last.records} == {r.trial.key for r in whole.records}


class Killed(Exception):
    """The controller is gone."""


def _killed_and_resumed(world: World, program: Callable[[Trial], Conducted], spec: CampaignSpec, *, after: int) -> Run:
    """A run that dies once ``after`` trials of it were recorded, and is then taken up again."""
    before = len(world.ran)

    def dies(trial: Trial) -> Conducted:
        if len(world.ran) - before >= after:
            raise Killed
        return program(trial)

    world.script = dies
    try:
        return world.ask(spec)
    except Killed:
        world.script = program
        newest = max(world.runs.iterdir())
        assert History.read(newest).started_not_finished()
        return world.resume(read_run(newest))
