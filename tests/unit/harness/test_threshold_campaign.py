"""The loop, with trials that end as scripted: what is asked, told, run again, controlled and concluded."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from fake_clock import FakeClock
from harness.campaign import Campaign
from harness.cli.campaigns import allowance_of
from harness.cli.exit_codes import ExitCode, of_search
from harness.cli.journal_text import status_lines
from harness.conduct import Conducted, Parts
from harness.core.boundary import Claim, Finding
from harness.core.campaign import threshold_question
from harness.core.errors import ResumeError
from harness.core.evidence import Evidence, Measurement
from harness.core.invocation import Invocation
from harness.core.outcome import Cleanup, Ending, Exit, Outcome, StopReason, Survivor
from harness.core.point import Axis, AxisType
from harness.core.record import SURVIVED, Machine
from harness.core.spec import Allowance, Effort
from harness.core.trial import Fault, Trial
from harness.core.verdict import Confidence, Kind, Verdict
from harness.replay import replay
from harness.report.findings import Findings
from harness.report.next_steps import next_steps
from harness.store.run_store import RunStore, read_run
from harness.targets.nsa import NsaTarget

AXIS = Axis(name="n_layers", path="model.n_layers", type=AxisType.ORDERED, values=(1, 2, 3, 4, 5, 6))
MACHINE = Machine(python="3", torch="2", platform="Linux", kernel="6", cpu="c", cores=2, memory_bytes=1)
COSTS = {Kind.PASS: 1.0, Kind.HANG: 10.0}


class Silent:
    """A screen for nobody."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


def conducted(kind: Kind, *, cause: str | None = None, **outcome: object) -> Conducted:
    facts = {"ending": Ending.EXITED, "exit": Exit(code=0), "duration_s": COSTS.get(kind, 2.0), **outcome}
    return Conducted(
        outcome=Outcome(**facts),  # the test's own keywords
        evidence=Evidence(steps_wanted=5, measurement=Measurement(step_s=(0.1,), longest_silence_s=0.1)),
        verdict=Verdict(
            kind=kind, cause=cause, rule="scripted", because="as scripted", cites=(), confidence=Confidence.PROOF
        ),
        started_at="2026-01-01T00:00:00Z",
    )


class World:
    """Runs sessions whose trials end as ``script(trial)`` says; remembers what was run."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs, self.clock, self.ran = tmp_path / "runs", FakeClock(), []
        self.parts = Parts(target=NsaTarget(python="python"), executor=None, sources=(), clock=self.clock, child_env={})
        self.script: Callable[[Trial], Conducted] = lambda trial: conducted(Kind.PASS)
        monkeypatch.setattr("harness.conduct.conduct", self._conduct)

    def _conduct(self, trial: Trial, **_: object) -> Conducted:
        done = self.script(trial)
        self.ran.append((trial.point.get("n_layers"), trial.role, trial.repeat))
        self.clock.sleep(done.outcome.duration_s)
        return done

    def ask(self, *, controls: tuple[str, ...] = (), fault: str | None = None, **effort: object):
        spec = threshold_question(
            question="Where?",
            target="nsa",
            axis=AXIS,
            controls=controls,
            fault=Fault(specimen=fault) if fault else None,
            effort=Effort(**{"certify": 3, **effort}),
        )
        with RunStore.create(self.runs, spec=spec, machine=MACHINE, code="c", argv=(), clock=self.clock) as store:
            self.run_dir = store.run_dir
            return self._session(store).run()

    def resume(self, allowance: Allowance | None = None):
        with RunStore.open(self.run_dir, clock=self.clock, allowance=allowance) as store:
            return self._session(store).run()

    def _session(self, store: RunStore) -> Campaign:
        return Campaign(store=store, parts=self.parts, screen=Silent())


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def hangs_from(threshold: int) -> Callable[[Trial], Conducted]:
    def script(trial: Trial) -> Conducted:
        value = trial.point.get("n_layers")
        controlled = trial.role.startswith("control")
        return conducted(Kind.HANG, cause="deadlock") if value >= threshold and not controlled else conducted(Kind.PASS)

    return script


def test_a_threshold_is_found_confirmed_and_isolated_by_its_control(world: World):
    world.script = hangs_from(4)

    run = world.ask(controls=("dense",))

    assert run.ended == "answered"
    assert (run.boundary.finding, run.boundary.last_good, run.boundary.first_bad) == (Finding.THRESHOLD, 3, 4)
    assert run.boundary.claim is Claim.ISOLATED
    assert [value for value, role, _ in world.ran if role == "control dense"] == [4, 4, 4]


def test_a_control_that_fails_too_isolates_nothing(world: World):
    world.script = lambda trial: (
        conducted(Kind.HANG, cause="deadlock") if trial.point.get("n_layers") >= 4 else conducted(Kind.PASS)
    )

    run = world.ask(controls=("dense",))

    assert run.boundary.claim is Claim.REPRODUCED
    assert any("does not pass" in note for note in run.boundary.notes)


def test_a_spoiled_trial_is_asked_again_and_not_counted(world: World):
    spoil = iter([True])
    world.script = lambda trial: conducted(Kind.INFRA) if next(spoil, False) else conducted(Kind.PASS)

    run = world.ask()

    assert run.boundary.finding is Finding.NO_FAILURE
    assert world.ran[0][0] == world.ran[1][0] == 1
    assert sum(c.unresolved for c in run.boundary.counts) == 0


def test_a_value_that_the_machine_spoils_again_and_again_is_unresolved_and_named(world: World):
    world.script = lambda trial: conducted(Kind.INFRA) if trial.point.get("n_layers") == 6 else conducted(Kind.PASS)

    run = world.ask()

    assert [value for value, _, _ in world.ran].count(6) == 3
    assert run.boundary.unresolved == (6,)
    assert run.boundary.finding is not Finding.NO_FAILURE


def test_a_different_failure_is_not_the_one_that_is_sought(world: World):
    def script(trial: Trial) -> Conducted:
        value = trial.point.get("n_layers")
        if value >= 5:
            return conducted(Kind.OOM)
        return conducted(Kind.HANG, cause="deadlock") if value >= 3 else conducted(Kind.PASS)

    world.script = script
    run = world.ask()

    kinds = {record.verdict.kind: str(record.answer) for record in run.records}
    failures = [k for k in (Kind.HANG, Kind.OOM) if kinds.get(k) == "bad"]
    assert len(failures) == 1, kinds


def test_an_interrupted_trial_is_not_recorded_and_resume_asks_it_again(world: World):
    world.script = hangs_from(4)
    whole = world.ask()
    asked = list(world.ran)
    world.ran.clear()

    def until_third(trial: Trial) -> Conducted:
        if len(world.ran) == 2:
            return conducted(Kind.UNRESOLVED, ending=Ending.STOPPED_BY_US, stopped_by=StopReason.INTERRUPT)
        return hangs_from(4)(trial)

    world.script = until_third
    stopped = world.ask()
    assert (stopped.ended, stopped.boundary, len(stopped.records)) == ("interrupted", None, 2)

    world.script = hangs_from(4)
    resumed = world.resume()

    assert world.ran[:2] + world.ran[3:] == asked
    assert resumed.boundary == whole.boundary
    assert len({record.trial.key for record in resumed.records}) == len(resumed.records)


def test_a_used_up_budget_is_called_that(world: World):
    run = world.ask(max_trials=2)

    assert run.ended == "budget used up"
    assert len(run.records) == 2


def test_a_process_that_cannot_be_ended_stops_the_run(world: World):
    left = Cleanup(survivors=(Survivor(pid=7, state="D", command="python"),))
    world.script = lambda trial: conducted(Kind.PASS, cleanup=left)

    run = world.ask()

    assert (run.ended, run.survivors, len(world.ran)) == (SURVIVED, left.survivors, 1)
    assert len(run.records) == 1  # what was seen of it is kept
    assert of_search(Findings(run=run)) is ExitCode.INFRA
    world.script = hangs_from(4)
    resumed = world.resume()
    assert (resumed.ended, resumed.survivors) == ("answered", ())


def test_limits_are_learned_from_what_passed(world: World):
    run = world.ask()

    first, *_, last = run.records
    assert first.trial.budget.stall.source.startswith("default")
    assert last.trial.budget.stall.source.startswith("learned")
    assert last.trial.prediction is not None


def hangs_that_nothing_tells(threshold: int) -> Callable[[Trial], Conducted]:
    """From ``threshold`` on a trial hangs in a way that only its whole limit of 300 s tells."""

    def script(trial: Trial) -> Conducted:
        if trial.point.get("n_layers") < threshold:
            return conducted(Kind.PASS)
        if trial.budget.soft:
            cut_s = trial.budget.total.seconds
            cut = {"ending": Ending.STOPPED_BY_US, "stopped_by": StopReason.TOTAL, "duration_s": cut_s}
            return conducted(Kind.UNRESOLVED, **cut)
        return conducted(Kind.HANG, cause="spin", duration_s=300.0)

    return script


def test_with_a_soft_limit_one_whole_limit_is_paid_and_the_claim_counts_only_what_was_seen(world: World):
    world.script = hangs_that_nothing_tells(4)
    hard = world.ask(certify=18, soft_limit=False)
    soft = world.ask(certify=18)
    for run in (hard, soft):
        assert (run.boundary.last_good, run.boundary.first_bad, run.boundary.certified) == (3, 4, True)
    hangs = [[r for r in run.records if r.verdict.kind is Kind.HANG] for run in (hard, soft)]
    assert [len(seen) for seen in hangs] == [2, 1]
    assert [r.is_cut for r in soft.records].count(True) == 1
    assert soft.seconds < hard.seconds - 250
    assert (hard.boundary.claim, soft.boundary.claim) == (Claim.REPRODUCED, Claim.OBSERVED)
    assert any(note.startswith("Cut off by the soft limit") for note in soft.boundary.notes)


def test_a_value_that_is_only_slow_is_not_called_failing_because_a_soft_limit_cut_it_off(world: World):
    def script(trial: Trial) -> Conducted:
        needed_s = 40.0 if trial.point.get("n_layers") >= 4 else 1.0
        if trial.budget.soft and trial.budget.total.seconds < needed_s:
            cut_s = trial.budget.total.seconds
            return conducted(Kind.SLOW, ending=Ending.STOPPED_BY_US, stopped_by=StopReason.TOTAL, duration_s=cut_s)
        return conducted(Kind.PASS, duration_s=needed_s)

    world.script = script
    run = world.ask(soft_limit=True)
    assert (run.boundary.finding, run.boundary.last_good, run.boundary.first_bad) == (Finding.NO_FAILURE, 6, None)
    assert any(record.is_cut for record in run.records)


def test_a_search_with_a_soft_limit_goes_on_after_a_crash_where_it_was(world: World):
    world.script = hangs_that_nothing_tells(4)
    whole = world.ask(soft_limit=True)
    few = world.ask(soft_limit=True, max_trials=len(whole.records) - 2)
    assert few.ended == "budget used up"
    again = world.resume()
    assert [r.trial.key for r in again.records] == [r.trial.key for r in few.records]
    assert again.boundary.counts == few.boundary.counts


BEGUN = Invocation(verb=("bisect",), options=(("--axis", "n_layers"), ("--max-trials", "4")))


def typed(*options: tuple[str, str | None]) -> Invocation:
    return Invocation(verb=("bisect",), options=(*options, ("--resume", None)))


def allowed(world: World, *options: tuple[str, str | None], **limits: object) -> Allowance | None:
    run = dataclasses.replace(read_run(world.run_dir), invocation=BEGUN)
    return allowance_of(run, typed(*options), {"max_trials": None, "budget": None, **limits})


def test_the_command_that_a_used_up_budget_ends_with_goes_on_to_the_answer(world: World):
    world.script = hangs_from(4)
    run = world.ask(max_trials=4)
    assert (run.ended, len(run.records)) == ("budget used up", 4)

    for _ in range(4):
        step = next_steps(Findings(run=run))[0]
        assert f"next: {step.text}" in status_lines(world.run_dir)
        option, value = step.command[2:4]
        assert (option, value) == ("--max-trials", str(2 * len(run.records)))
        run = world.resume(allowed(world, (option, value), max_trials=int(value)))
        if run.ended == "answered":
            break

    assert (run.ended, run.boundary.first_bad) == ("answered", 4)
    assert status_lines(world.run_dir)[-1] == "next: nothing; every question is answered"
    assert read_run(world.run_dir) == run  # what it may spend is in the run: whoever reads it sees the same
    assert not replay(world.run_dir).differing


def test_a_used_up_time_is_doubled_and_counts_every_session(world: World):
    world.script = hangs_from(4)
    run = world.ask(max_seconds=5)
    assert run.ended == "budget used up"
    trials = len(run.records)

    step = next_steps(Findings(run=run))[0]
    assert step.command[2] == "--budget"
    assert len(world.resume().records) == trials
    seconds = float(step.command[3].removesuffix("s"))
    assert len(world.resume(allowed(world, tuple(step.command[2:4]), budget=seconds)).records) > trials


def test_what_would_ask_another_question_is_refused_beside_resume(world: World):
    world.script = hangs_from(4)
    world.ask(max_trials=4)
    assert allowed(world, ("--axis", "n_layers"), ("--max-trials", "4"), ("--jobs", "2"), max_trials=4) is None
    for option, why in (
        (("--stall", "5s"), "--stall cannot be changed with --resume"),
        (("--axis", "seq_len"), "--axis cannot be changed with --resume"),
        (("--dry-run", None), "nsa-harness status"),
    ):
        with pytest.raises(ResumeError, match=why):
            allowed(world, option)
    with pytest.raises(ResumeError, match=r"has spent 4 trials; give more, e\.g\. --max-trials 8"):
        allowed(world, ("--max-trials", "3"), max_trials=3)
    with pytest.raises(ResumeError, match="counts all of the run, which has spent"):
        allowed(world, ("--budget", "1s"), budget=1.0)


def never_starts(trial: Trial) -> Conducted:
    return conducted(Kind.INFRA, cause="never-started", ending=Ending.NEVER_STARTED, exit=None, why="gone is not there")


def test_what_never_started_in_three_trials_is_not_started_again(world: World):
    world.script = never_starts
    run = world.ask()
    assert (len(world.ran), run.ended, run.boundary.finding) == (3, "answered", Finding.INCONCLUSIVE)
    assert next_steps(Findings(run=run))[0].text.startswith("Put right what keeps it from starting (gone is not there)")
    assert of_search(Findings(run=run)) == ExitCode.INFRA


def test_a_trial_that_starts_again_after_one_that_did_not_goes_on(world: World):
    healthy = hangs_from(4)
    world.script = lambda trial: never_starts(trial) if len(world.ran) % 3 == 1 else healthy(trial)
    run = world.ask()
    assert run.boundary.first_bad == 4
    assert not next_steps(Findings(run=run))[0].text.startswith("Put right")
