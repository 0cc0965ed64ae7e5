"""The real trainer, forked from a server with everything imported."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.core.point import Point
from harness.core.trial import Budget, Fault, Limit, Trial
from harness.launch import procs
from harness.launch.forkserver import ForkserverExecutor
from harness.observe.answers import read_answers
from harness.store import layout
from harness.targets.nsa import NsaTarget
from harness.testing.executors import stop, wait_exit

ENV = {"PATH": os.defpath, "LC_ALL": "C.UTF-8"}
LIMIT = Limit(seconds=60.0, source="test")
CONFIG = {"model.n_layers": 1, "model.dim": 32, "train.steps": 2, "train.seq_len": 32}


@pytest.fixture(scope="module")
def executor() -> Iterator[ForkserverExecutor]:
    made = ForkserverExecutor(python=sys.executable)
    yield made
    made.close()


def trial(*, fault: Fault | None = None) -> Trial:
    return Trial(
        target="nsa",
        point=Point.of({"n_layers": 1}),
        repeat=0,
        role="search",
        config=NsaTarget(python=sys.executable).config(CONFIG),
        seed=0,
        code="c",
        machine="m",
        fault=fault,
        budget=Budget(startup=LIMIT, stall=LIMIT, total=LIMIT),
    )


def test_two_trials_in_a_row_train_and_agree(executor: ForkserverExecutor, tmp_path: Path):
    losses = []
    for name in ("one", "two"):
        asked, folder = trial(), tmp_path / name
        handle = executor.start(NsaTarget(python=sys.executable).command(asked, trial_dir=folder, env=ENV))
        ended = wait_exit(handle)
        assert stop(handle, grace_s=0.0).gone
        assert ended.code == 0, layout.output(folder, "stderr").read_text()
        answers = read_answers(folder, requested=asked.config)
        assert answers.result is not None
        assert (answers.result.status, answers.result.steps_done) == ("finished", 2)
        assert (answers.config_seen, answers.config_differences, answers.failures) == (True, (), ())
        assert answers.kernels
        echo = json.loads(layout.effective(folder).read_text())
        assert (echo["built"], echo["threads"]) == ({"blocks": 1}, 1)
        last = layout.heartbeat(folder).read_text().splitlines()[-1]
        losses.append(json.loads(last)["facts"]["loss"])

    assert losses[0] == losses[1]


def test_an_exception_in_a_forked_worker_is_exit_code_1(executor: ForkserverExecutor, tmp_path: Path):
    asked = trial(fault=Fault(specimen="crash"))
    handle = executor.start(NsaTarget(python=sys.executable).command(asked, trial_dir=tmp_path, env=ENV))
    ended = wait_exit(handle)
    stop(handle, grace_s=0.0)

    assert ended.code == 1
    result = read_answers(tmp_path, requested={}).result
    assert result is not None
    assert (result.status, result.exception, result.phase) == ("raised", "ValueError", "forward")
    assert "planted" in layout.output(tmp_path, "stderr").read_text()


def test_a_server_with_everything_imported_has_one_thread(executor: ForkserverExecutor, tmp_path: Path):
    executor.prepare(NsaTarget(python=sys.executable).command(trial(), trial_dir=tmp_path, env=ENV))
    servers = [
        process for process in procs.descendants(os.getpid(), procs.everything()) if process.command == "nsa-forkserver"
    ]

    # A fork copies one thread: locks that others hold stay locked in the child for ever.
    assert [server.threads for server in servers] == [1]
