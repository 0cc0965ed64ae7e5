"""A clock that stands still until told, and the smallest question, trial and record."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from harness.core.campaign import threshold_question
from harness.core.evidence import Measurement
from harness.core.outcome import Ending, Exit, Outcome
from harness.core.point import Axis, AxisType, Point
from harness.core.record import Machine, TrialRecord
from harness.core.trial import Budget, Limit, Trial
from harness.core.verdict import Answer, Confidence, Kind, Verdict
from harness.store.run_store import RunStore


class FakeClock:
    def __init__(self):
        self.seconds = 0.0

    def now(self):
        return self.seconds

    def wall(self):
        at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC) + timedelta(seconds=self.seconds)
        return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def sleep(self, seconds):
        self.seconds += seconds


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def machine():
    return Machine(
        python="3.12.1", torch="2.13.0", platform="Linux x86_64", kernel="6.1", cpu="cpu", cores=2, memory_bytes=1
    )


@pytest.fixture
def spec():
    axis = Axis(name="n_layers", path="model.n_layers", type=AxisType.ORDERED, values=tuple(range(1, 13)))
    return threshold_question(question="From how many layers does training get stuck?", target="nsa", axis=axis)


@pytest.fixture
def make_trial():
    def make(value=1, repeat=0, **changes):
        limit = Limit(seconds=30.0, source="default")
        settings = {
            "target": "nsa",
            "point": Point.of({"n_layers": value}),
            "repeat": repeat,
            "role": "search",
            "config": {"model": {"n_layers": value}, "shape": [1, 2]},
            "seed": 0,
            "code": "code",
            "machine": "machine",
            "budget": Budget(startup=limit, stall=limit, total=limit),
        }
        return Trial(**{**settings, **changes})

    return make


@pytest.fixture
def make_record(make_trial):
    def make(value=1, repeat=0, **changes):
        return TrialRecord(
            trial=make_trial(value, repeat, **changes),
            outcome=Outcome(ending=Ending.EXITED, exit=Exit(code=0), duration_s=1.5),
            verdict=Verdict(
                kind=Kind.PASS, rule="passed", because="8 of 8 steps done", cites=("exit",), confidence=Confidence.PROOF
            ),
            answer=Answer.GOOD,
            measurement=Measurement(step_s=(0.1, 0.2), facts=(("loss", 5.5),)),
            started_at="2026-01-02T03:04:05.000Z",
        )

    return make


@pytest.fixture
def create(tmp_path, spec, machine, clock):
    def make(runs=None, **changes):
        asked = {
            "spec": spec,
            "machine": machine,
            "code": "0.1+abc",
            "argv": ("nsa-harness", "bisect", "--axis", "n_layers"),
            "clock": clock,
        }
        return RunStore.create(runs or tmp_path / "runs", **{**asked, **changes})

    return make
