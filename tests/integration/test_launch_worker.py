"""The worker as a process: a small training program, added by an entry point as other distributions would."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.clock import WallClock
from harness.core.codec import to_json
from harness.core.command import Command
from harness.core.point import Point
from harness.core.ports import Handle
from harness.core.trial import Budget, Fault, Limit, Trial
from harness.launch.local import LocalExecutor
from harness.observe.answers import read_answers
from harness.observe.heartbeat import Heartbeats
from harness.observe.stacks.faulthandler import Faulthandler
from harness.store import layout
from harness.testing.executors import ENV, wait_exit
from harness.worker.main import EX_IOERR

WORKLOAD = """
import os, resource, threading
from pathlib import Path
from nsa.train.probe import Edge, Phase

class State:
    blocks = (1, 2, 3)
    model = optimizer = None

class Small:
    def __init__(self, config):
        self.config = dict(config)
        if self.config.get("full_disk"):
            resource.setrlimit(resource.RLIMIT_FSIZE, (120, resource.RLIM_INFINITY))

    def effective(self):
        return {**self.config, "default": 1}

    def train(self, probes):
        for probe in probes:
            probe.mark(phase=Phase.BUILD, edge=Edge.BEGIN, step=None)
            probe.resolved([{"op": "add", "kernel": "plain", "reason": "the only one"}])
            probe.built(State())
        for step in range(self.config["steps"]):
            for probe in probes:
                probe.mark(phase=Phase.FORWARD, edge=Edge.BEGIN, step=step)
            if step == self.config.get("raise_at"):
                raise ZeroDivisionError(f"planted at {step}")
            if step == self.config.get("leave_at"):
                raise SystemExit(0)
            if step == self.config.get("wait_at"):
                wait_here()
            for probe in probes:
                probe.step_done(step=step, facts={"loss": 1.0 / (step + 1)})
        print("trained")
        if self.config.get("full_disk") == "until the end":
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

def wait_here():
    Path(__file__).with_name("waits").write_text("now")
    threading.Event().wait()
"""

LIMIT = Limit(seconds=60.0, source="test")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder for sys.path that another distribution installed a workload into."""
    site = tmp_path / "site"
    info = site / "small-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "small_workload.py").write_text(WORKLOAD)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: small\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[nsa_harness.workloads]\nsmall = small_workload:Small\n")
    return site


@contextmanager
def trained(folder: Path, site: Path, *, fault: Fault | None = None, **config: object) -> Iterator[Handle]:
    trial = Trial(
        target="small",
        point=Point.of({"steps": 3}),
        repeat=0,
        role="search",
        config={"steps": 3, **config},
        seed=0,
        code="c",
        machine="m",
        fault=fault,
        budget=Budget(startup=LIMIT, stall=LIMIT, total=LIMIT),
    )
    command = Command(
        argv=(sys.executable, "-P", "-m", "harness.worker", str(folder)),
        env=tuple(sorted({**ENV, "PYTHONPATH": str(site), "NSA_HARNESS_EXTRA": "seen"}.items())),
        trial_dir=str(folder),
        files=(("trial.json", json.dumps(to_json(trial))),),
    )
    executor = LocalExecutor(python=sys.executable)
    try:
        yield executor.start(command)
    finally:
        executor.close()


def text(folder: Path, stream: str) -> str:
    return layout.output(folder, stream).read_text()


def test_a_finished_training_leaves_marks_echo_kernels_and_result(tmp_path: Path, site: Path):
    folder = tmp_path / "t"
    started_s = WallClock().now()
    with trained(folder, site) as handle:
        assert wait_exit(handle).code == 0
        pid = handle.pid
    answers = read_answers(folder, requested={"steps": 3})
    assert answers.failures == ()
    assert answers.result is not None
    assert (answers.result.status, answers.result.steps_done, answers.result.notes) == ("finished", 3, ())
    assert (answers.config_seen, answers.config_differences) == (True, ())
    assert [(k.op, k.kernel, k.reason) for k in answers.kernels] == [("add", "plain", "the only one")]

    beats = Heartbeats(folder, started_s=started_s)
    beats.read()
    beats.close()
    assert (beats.steps_done, beats.unreadable) == (3, 0)
    assert {mark.pid for mark in beats.marks.items()} == {pid}
    assert 0 < beats.marks.items()[0].t_s <= beats.last_t_s < WallClock().now() - started_s

    echo = json.loads(layout.effective(folder).read_text())
    assert echo["config"] == {"steps": 3, "default": 1}
    assert echo["built"] == {"blocks": 3}
    assert echo["environment"]["NSA_HARNESS_EXTRA"] == "seen"
    assert set(echo["environment"]) == {"NSA_HARNESS_EXTRA", "NSA_HARNESS_TRIAL"}
    assert echo["torch"] is None
    assert text(folder, "stdout") == "trained\n"


def test_an_exception_is_in_the_result_and_on_stderr_with_exit_code_1(tmp_path: Path, site: Path):
    folder = tmp_path / "t"
    with trained(folder, site, raise_at=1) as handle:
        assert wait_exit(handle).code == 1
    result = read_answers(folder, requested={}).result
    assert result is not None
    assert (result.status, result.steps_done, result.phase) == ("raised", 1, "forward")
    assert (result.exception, result.message) == ("ZeroDivisionError", "planted at 1")
    assert result.traceback is not None
    assert "small_workload.py" in result.traceback
    assert text(folder, "stderr").rstrip().endswith("ZeroDivisionError: planted at 1")


def test_leaving_early_with_status_0_is_not_finished(tmp_path: Path, site: Path):
    folder = tmp_path / "t"
    with trained(folder, site, leave_at=1) as handle:
        assert wait_exit(handle).code == 0
    result = read_answers(folder, requested={}).result
    assert result is not None
    assert (result.status, result.steps_done, result.exception) == ("raised", 1, "SystemExit")


def test_a_disk_that_is_full_for_a_while_loses_marks_and_says_so(tmp_path: Path, site: Path):
    folder = tmp_path / "t"
    with trained(folder, site, full_disk="until the end") as handle:
        assert wait_exit(handle).code == 0
    result = read_answers(folder, requested={}).result
    assert result is not None
    assert (result.status, result.steps_done) == ("finished", 3)
    assert len(result.notes) == 1
    assert "heartbeats were lost" in result.notes[0]
    assert "heartbeats cannot be written" in text(folder, "stderr")


def test_a_result_that_cannot_be_written_is_not_exit_code_0(tmp_path: Path, site: Path):
    folder = tmp_path / "t"
    with trained(folder, site, full_disk="for good") as handle:
        assert wait_exit(handle).code == EX_IOERR
    assert not layout.result(folder).exists()
    assert "result_rank0.json cannot be written" in text(folder, "stderr")
    assert text(folder, "stdout") == "trained\n"


def test_an_unknown_setting_is_an_error_of_the_worker_not_a_default(tmp_path: Path, site: Path):
    folder = tmp_path / "t"
    with trained(folder, site, fault=Fault(specimen="no-such-fault")) as handle:
        assert wait_exit(handle).code == 1
    result = read_answers(folder, requested={}).result
    assert result is not None
    assert (result.status, result.exception) == ("raised", "harness.core.errors.UnknownNameError")


def test_a_planted_fault_strikes_after_its_mark_was_written(tmp_path: Path, site: Path):
    folder = tmp_path / "t"
    with trained(folder, site, fault=Fault(specimen="exit-early")) as handle:
        assert wait_exit(handle).code == 0
    answers = read_answers(folder, requested={})
    assert answers.result is None
    beats = Heartbeats(folder, started_s=0.0)
    beats.read()
    beats.close()
    assert beats.last is not None
    assert (beats.last.phase, beats.last.step, beats.steps_done) == ("forward", 1, 1)


def test_a_worker_that_waits_shows_its_stack_when_asked(tmp_path: Path, site: Path):
    os.mkfifo(site / "waits")
    with trained(tmp_path / "t", site, wait_at=1) as handle:
        assert (site / "waits").read_text() == "now"  # which comes when the worker has come there
        asked = {"pid": handle.pid, "rank": 0, "t_s": 1.0, "native": False, "number": 1, "trial_dir": tmp_path / "t"}
        answer = Faulthandler().sample(**asked)
        assert handle.poll() is None
    assert "wait_here" in [frame.function for frame in answer.threads[-1].frames]


def test_a_worker_without_a_trial_says_so(tmp_path: Path):
    executor = LocalExecutor(python=sys.executable)
    folder = tmp_path / "t"
    try:
        handle = executor.start(
            Command(
                argv=(sys.executable, "-P", "-m", "harness.worker", str(folder)),
                env=(("PATH", os.defpath),),
                trial_dir=str(folder),
            )
        )
        assert wait_exit(handle).code == 1
    finally:
        executor.close()
    assert "no readable trial" in text(folder, "stderr")
