"""Every specimen declares what can be held against it; a representative few are run for real and judged.

The whole table, for real, is ``nsa-harness selftest``.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import pytest

from harness.cli.selftest import card
from harness.clock import WallClock
from harness.conduct import Conducted, Parts, conduct
from harness.core.point import Point
from harness.core.trial import Budget, Fault, Limit, Prediction, Trial
from harness.core.verdict import FAILURES, Case, Confidence, Kind, Verdict
from harness.launch.table import EXECUTORS
from harness.observe.stacks.table import load_sources
from harness.selftest import HOST, JudgedSpecimen, host
from harness.specimens.catalog import SPECIMENS, Needs, Score, Specimen, score
from harness.specimens.family import PID_FILE
from harness.store import layout
from harness.targets.nsa import NsaTarget
from known_ids import known_ids
from nsa.train.probe import Phase

STALL_S = 2.0
"""Short, because a standstill is decided by evidence: a busy machine makes these tests slow, not wrong."""

FOR_REAL = (
    "clean",
    "late-grandchild",
    "lock-deadlock",
    "gil-wait",
    "crash",
    "segfault",
    "oom",
    "nan-loss",
    "exit-early",
    "late-exit",
    "loader-dead",
    "recompute-mismatch",
    "port-in-use",
    "memory-leak",
    "disk-full",
    "rank-nan",
    "other-shape",
)
FOR_REAL_SLOW = ("slow-step", "debugged", "late-binding")
FOR_REAL_LONG = ("sigterm-immune", "infinite-loop", "loader-starved")
"""Their recordings are judged in ``test_recordings``."""


# --- The table -----------------------------------------------------------------------------------------------------


@pytest.fixture(params=SPECIMENS.names())
def specimen(request: pytest.FixtureRequest) -> Specimen:
    return SPECIMENS.load(request.param)


def test_a_specimen_bears_the_name_of_its_row(specimen: Specimen):
    assert SPECIMENS.load(specimen.name) is specimen


def test_a_specimen_strikes_at_a_phase_of_the_trainer_after_a_healthy_step(specimen: Specimen):
    """But for what start-up shows: a long first step, a rank that never gets as far, what DDP refuses in its first
    backward; and what goes on in every step."""
    assert specimen.phase in {*Phase, "start"}
    at_once = specimen.look_alike or specimen.every_step or specimen.phase == "start" or specimen.cause == "ready-twice"
    assert (0 if at_once else 1) <= specimen.step
    assert specimen.step < host(specimen)["train.steps"]


def test_a_specimen_says_what_it_imitates_and_what_each_verdict_must_name(specimen: Specimen):
    assert specimen.imitates
    if specimen.expect in (Kind.HANG, Kind.CRASH):
        assert specimen.cause
    if specimen.expect_frame is not None and specimen.world == 1:
        assert specimen.expect_frame in (specimen.strike.__name__, "<module>")


def test_a_specimen_has_the_ranks_that_it_needs(specimen: Specimen):
    several = specimen.needs in (Needs.GLOO, Needs.NCCL)
    assert (specimen.world > 1) == several
    for rank in (specimen.at_rank, specimen.expect_rank):
        assert rank is None or 0 <= rank < specimen.world


def test_a_look_alike_is_never_to_be_called_a_failure(specimen: Specimen):
    if specimen.look_alike:
        assert not FAILURES & set(specimen.kinds)


def test_what_a_specimen_declares_fits_its_row_of_the_score_card(specimen: Specimen):
    verdict = Verdict(kind=specimen.expect, rule="x", because="x", cites=("exit",), confidence=Confidence.PROOF)
    row = JudgedSpecimen(
        round=1, specimen=specimen, verdict=verdict, seconds=1.0, to_verdict_s=99.9, score=Score(kind=True)
    )
    assert all(len(line) <= 80 for line in card([row] * 10))


def test_only_a_flaky_specimen_may_get_one_of_several_verdicts(specimen: Specimen):
    assert bool(specimen.or_else) == specimen.flaky
    assert len(set(specimen.kinds)) == len(specimen.kinds)


def test_every_kind_that_a_program_can_show_has_a_specimen():
    shown = {SPECIMENS.load(name).expect for name in SPECIMENS}
    assert shown == set(Kind) - {Kind.BELOW_TARGET}  # a question's own bar, which no specimen asks


def test_there_are_thirty_specimens_of_one_process_and_ten_look_alikes():
    every = [SPECIMENS.load(name) for name in SPECIMENS]
    assert sum(specimen.needs is Needs.CPU for specimen in every) >= 30
    assert sum(specimen.look_alike for specimen in every) >= 10


def test_what_specimens_declare_is_read_without_torch():
    look = (
        "import sys; from harness.specimens.catalog import SPECIMENS; [SPECIMENS.load(name) for name in SPECIMENS]; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", look], check=False).returncode == 0


# --- For real ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def parts() -> Iterator[Parts]:
    executor = EXECUTORS.load("forkserver")(python=sys.executable)
    env = {"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    target = NsaTarget(python=sys.executable)
    yield Parts(target=target, executor=executor, sources=load_sources(), clock=WallClock(), child_env=env)
    executor.close()


def trial_of(specimen: Specimen, parts: Parts) -> Trial:
    def limit(seconds: float) -> Limit:
        return Limit(seconds=seconds, source="test")

    return Trial(
        target="nsa",
        point=Point.of({"specimen": specimen.name}),
        repeat=0,
        role="selftest",
        config=parts.target.config(host(specimen)),
        seed=0,
        code="test",
        machine="test",
        fault=None if specimen.name == "clean" else Fault(specimen=specimen.name),
        budget=Budget(
            startup=limit(120.0), stall=limit(specimen.stall_s or STALL_S), total=limit(specimen.total_s or 300.0)
        ),
        prediction=Prediction(total_s=1.0, total_high_s=3.0, silence_s=0.1, silence_high_s=0.3, basis="this test"),
    )


def run(specimen: Specimen, parts: Parts, folder: Path) -> Conducted:
    trial = trial_of(specimen, parts)
    done = conduct(trial, trial_dir=folder, parts=parts)
    assert score(specimen, done.verdict, done.outcome).wrong == ()
    case = Case(trial=trial, outcome=done.outcome, evidence=done.evidence)
    assert set(done.verdict.cites) <= known_ids(case)
    return done


@pytest.mark.parametrize(
    "name",
    [
        *FOR_REAL,
        *(pytest.param(name, marks=pytest.mark.slow) for name in FOR_REAL_SLOW),
        *(pytest.param(name, marks=pytest.mark.long) for name in FOR_REAL_LONG),
    ],
)
def test_a_specimen_gets_its_verdict_and_leaves_nothing_behind(name: str, parts: Parts, tmp_path: Path):
    specimen = SPECIMENS.load(name)
    run(specimen, parts, tmp_path)
    if specimen.leaves_processes:
        grandchild = int((tmp_path / PID_FILE).read_text())
        assert not Path(f"/proc/{grandchild}").exists()


def test_a_flood_of_output_is_bounded(parts: Parts, tmp_path: Path):
    run(SPECIMENS.load("stdout-flood"), parts, tmp_path)
    kept = layout.output(tmp_path, "stdout").stat().st_size + layout.output_tail(tmp_path, "stdout").stat().st_size
    assert 1_000_000 < kept <= 2_100_000


@pytest.mark.slow
@pytest.mark.parametrize("silence_high_s", [0.05, pytest.param(60.0, marks=pytest.mark.long)])
def test_a_slow_backward_is_never_called_a_hang(silence_high_s: float, parts: Parts, tmp_path: Path):
    """A healthy trainer, one silent second allowed where it needs many: busy, whatever was predicted."""
    config = {"model.attention": "legacy-sequential", "model.n_layers": 1, "train.seq_len": 1024, "train.steps": 1}
    trial = trial_of(SPECIMENS.load("clean"), parts)
    assert trial.prediction is not None
    prediction = replace(trial.prediction, silence_high_s=silence_high_s)
    budget = replace(trial.budget, stall=Limit(seconds=0.5, source="test"))
    asked = {f.name: getattr(trial, f.name) for f in fields(trial) if f.init}
    asked |= {"config": parts.target.config({**HOST, **config}), "prediction": prediction, "budget": budget}
    verdict = conduct(Trial(**asked), trial_dir=tmp_path, parts=parts).verdict
    assert verdict.kind in (Kind.UNRESOLVED, Kind.PASS), verdict.because
