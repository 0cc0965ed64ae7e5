"""One trial from start to verdict where the stack dumper is missing or refused."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import closing
from pathlib import Path

import pytest

from harness.clock import WallClock
from harness.conduct import Parts, conduct
from harness.core.outcome import Ending
from harness.core.point import Point
from harness.core.trial import Budget, Fault, Limit, Trial
from harness.core.verdict import Kind
from harness.launch.forkserver import ForkserverExecutor
from harness.observe.stacks.faulthandler import Faulthandler
from harness.observe.stacks.pyspy import PySpy
from harness.settings import Settings
from harness.store import layout
from harness.targets.nsa import NsaTarget

pytestmark = pytest.mark.usefixtures("_without_figures")

SMALL = {"model.n_layers": 1, "model.dim": 32, "train.seq_len": 64, "train.steps": 2}


def limit(seconds: float) -> Limit:
    return Limit(seconds=seconds, source="test")


def trial(parts: Parts, *, fault: str | None = None) -> Trial:
    return Trial(
        target="nsa",
        point=Point.of({"n_layers": 1}),
        repeat=0,
        role="search",
        config=parts.target.config(SMALL),
        seed=0,
        code="c",
        machine="m",
        fault=Fault(specimen=fault) if fault else None,
        budget=Budget(startup=limit(60), stall=limit(1.0), total=limit(120)),
    )


@pytest.fixture(scope="module")
def parts():
    clock = WallClock()
    with closing(ForkserverExecutor(python=sys.executable, clock=clock)) as executor:
        yield Parts(
            target=NsaTarget(python=sys.executable),
            executor=executor,
            sources=(),
            clock=clock,
            child_env=dict(Settings.read().child_env),
        )


def without(parts: Parts, tool: Path) -> Parts:
    return Parts(
        target=parts.target,
        executor=parts.executor,
        sources=(PySpy(tool=str(tool)), Faulthandler()),
        clock=parts.clock,
        child_env=parts.child_env,
    )


def refusing(tmp_path: Path) -> Path:
    tool = tmp_path / "py-spy"
    tool.write_text("#!/bin/sh\necho 'Permission Denied: Try running again with elevated permissions' >&2\nexit 1\n")
    tool.chmod(0o755)
    return tool


@pytest.mark.slow
@pytest.mark.parametrize("why", [pytest.param("missing", marks=pytest.mark.long), "refused"])
def test_without_py_spy_a_deadlock_is_still_found_and_the_reason_said(parts: Parts, tmp_path: Path, why: str):
    tool = refusing(tmp_path) if why == "refused" else tmp_path / "nowhere" / "py-spy"

    done = conduct(trial(parts, fault="lock-deadlock"), trial_dir=tmp_path / "trial", parts=without(parts, tool))

    # What nobody can end is the kernel's to say; without native frames only the kind of lock stays unknown.
    assert (done.verdict.kind, done.verdict.cause) == (Kind.HANG, "unseen-wait")
    assert "acquire_twice" in done.verdict.because
    reasons = [f.reason for f in done.evidence.failures if f.source == "py-spy"]
    assert reasons
    assert ("ptrace refused" if why == "refused" else "nowhere") in reasons[0]
    assert {stack.source.partition(" ")[0] for stack in done.evidence.stacks} == {"faulthandler"}


def test_no_socket_and_no_named_pipe_stays_among_the_files_of_a_trial(parts: Parts, tmp_path: Path):
    """At a pipe without a writer, ``grep -r`` over a run would wait for good; archives refuse sockets."""
    os.mkfifo(layout.recorder_pipe(tmp_path, 1))
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(layout.recorder_socket(tmp_path, 1)))

    conduct(trial(parts, fault="exit-early"), trial_dir=tmp_path, parts=parts)

    assert layout.heartbeat(tmp_path, 0).exists()
    assert [path for path in tmp_path.iterdir() if path.is_fifo() or path.is_socket()] == []


def test_a_trial_that_cannot_start_is_infra_and_says_why(parts: Parts, tmp_path: Path):
    nowhere = ForkserverExecutor(python=str(tmp_path / "python"), clock=parts.clock)
    with closing(nowhere):
        broken = Parts(target=parts.target, executor=nowhere, sources=(), clock=parts.clock, child_env=parts.child_env)
        done = conduct(trial(parts), trial_dir=tmp_path / "trial", parts=broken)

    assert done.outcome.ending is Ending.NEVER_STARTED
    assert done.verdict.kind is Kind.INFRA
    assert str(tmp_path / "python") in done.verdict.because
