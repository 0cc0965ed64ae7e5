"""Trials of several ranks, from start to verdict, with real processes over gloo."""

from __future__ import annotations

import gc
import json
import os
import sys
from contextlib import closing
from pathlib import Path

import pytest

from harness.clock import WallClock
from harness.conduct import Conducted, Parts, conduct
from harness.core.outcome import Ending, Exit
from harness.core.point import Point
from harness.core.success import Success
from harness.core.trial import Budget, Fault, Limit, Trial
from harness.core.verdict import Kind
from harness.launch.forkserver import ForkserverExecutor
from harness.observe.stacks.table import load_sources
from harness.settings import Settings
from harness.store import layout
from harness.targets.nsa import NsaTarget

SMALL = {
    "model.n_layers": 2,
    "model.dim": 32,
    "train.seq_len": 32,
    "train.steps": 3,
    "train.batch_size": 2,
    "parallel.mode": "ddp",
    "parallel.world": 2,
    "parallel.allow_known_bad": True,
}


def limit(seconds: float) -> Limit:
    return Limit(seconds=seconds, source="test")


@pytest.fixture(scope="module")
def parts():
    clock = WallClock()
    with closing(ForkserverExecutor(python=sys.executable, clock=clock)) as executor:
        yield Parts(
            target=NsaTarget(python=sys.executable),
            executor=executor,
            sources=load_sources(),
            clock=clock,
            child_env=dict(Settings.read().child_env),
        )


def run(parts: Parts, folder: Path, *, fault: str | None = None, gradients: bool = False, **settings: object):
    named = {name.replace("__", "."): value for name, value in settings.items()}
    trial = Trial(
        target="nsa",
        point=Point.of({"fault": fault or ""}),
        repeat=0,
        role="search",
        config=parts.target.config({**SMALL, **named}),
        seed=0,
        code="c",
        machine="m",
        fault=Fault(specimen=fault) if fault else None,
        success=Success(gradients="true") if gradients else None,
        budget=Budget(startup=limit(60), stall=limit(30), total=limit(120)),
    )
    return conduct(trial, trial_dir=folder, parts=parts)


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def everything_is_gone(done: Conducted) -> bool:
    return all(is_gone(rank.pid) for rank in done.evidence.ranks) and done.outcome.cleanup.gone


def test_two_ranks_train_and_their_gradients_are_true(parts: Parts, tmp_path: Path):
    done = run(parts, tmp_path, gradients=True, train__checkpointing="reentrant")
    assert (done.verdict.kind, done.verdict.rule) == (Kind.PASS, "ranks_passed"), done.verdict.because
    assert [(rank.rank, rank.steps_done, rank.exit) for rank in done.evidence.ranks] == [
        (0, 3, Exit(code=0)),
        (1, 3, Exit(code=0)),
    ]
    assert {rank.result.status for rank in done.evidence.ranks} == {"finished"}
    assert len({rank.pid for rank in done.evidence.ranks}) == 2
    truth = done.evidence.gradients
    assert (truth.compared, truth.wrong, truth.missing) == (35, (), ())
    assert truth.worst < 1e-5
    assert everything_is_gone(done)


def test_a_late_bound_closure_trains_to_the_end_with_wrong_gradients_and_is_found_out(parts: Parts, tmp_path: Path):
    done = run(parts, tmp_path, fault="late-binding", gradients=True, train__checkpointing="nonreentrant")
    assert (done.outcome.ending, done.outcome.exit) == (Ending.EXITED, Exit(code=0))
    assert (done.verdict.kind, done.verdict.cause) == (Kind.BELOW_TARGET, "gradients-wrong")
    wrong = done.evidence.gradients.wrong
    assert any(name.startswith("blocks.0.") for name in wrong)
    assert not any(name.startswith("blocks.1.") for name in wrong)  # the last block is recomputed as itself


def test_the_same_closure_makes_reentrant_recomputation_mark_the_last_blocks_parameter_twice(
    parts: Parts, tmp_path: Path
):
    done = run(parts, tmp_path, fault="late-binding", train__checkpointing="reentrant")
    assert (done.verdict.kind, done.verdict.cause, done.verdict.phase) == (Kind.CRASH, "ready-twice", "backward")
    assert "Parameter at index 32 with name blocks.1.mlp.fc2.weight has been marked as ready twice" in (
        done.verdict.because
    )
    assert done.verdict.rank is None


def test_the_rank_that_was_killed_is_named_and_not_the_one_that_complains(parts: Parts, tmp_path: Path):
    done = run(parts, tmp_path, fault="rank-killed")
    assert (done.verdict.kind, done.verdict.cause, done.verdict.rank) == (Kind.CRASH, "SIGKILL", 1)
    left, killed = done.evidence.ranks
    assert killed.exit == Exit(signal=9)
    assert (left.exit, left.result.exception.rpartition(".")[2]) == (Exit(code=1), "RankLost")
    assert everything_is_gone(done)


@pytest.mark.slow
def test_the_rank_that_waits_for_a_lock_in_backward_is_named_and_the_other_is_said_to_wait(
    parts: Parts, tmp_path: Path
):
    done = run(parts, tmp_path, fault="rank-backward-lock")
    verdict = done.verdict
    assert (verdict.kind, verdict.cause, verdict.rank, verdict.phase) == (Kind.HANG, "deadlock", 1, "backward")
    assert verdict.because.startswith("rank 1 does not come: it waits in acquire_in_one_rank")
    assert "rank 0 waits in the all-reduce of gradients, in backward of step 1" in verdict.because
    assert everything_is_gone(done)


def test_the_launcher_says_when_each_rank_began_and_ended_and_the_controller_stays_as_it_was(
    parts: Parts, tmp_path: Path
):
    assert run(parts, tmp_path).verdict.kind is Kind.PASS
    assert not {"MASTER_PORT", "RANK", "WORLD_SIZE"} & set(os.environ)
    rows = [json.loads(line) for line in layout.ranks(tmp_path).read_text().splitlines()]
    assert [(row["event"], row["rank"]) for row in rows[:2]] == [("started", 0), ("started", 1)]
    assert sorted((row["event"], row["rank"], row["code"]) for row in rows[2:]) == [("ended", 0, 0), ("ended", 1, 0)]


def test_a_trial_leaves_no_descriptor_open_in_the_controller(parts: Parts, tmp_path: Path):
    def count() -> int:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    run(parts, tmp_path / "warm")
    before = count()
    gc.disable()  # a descriptor that only waits for the collector is one too many with a thousand trials
    try:
        for number in range(3):
            run(parts, tmp_path / str(number), fault="rank-killed" if number else None)
            assert count() == before
    finally:
        gc.enable()
