"""When a silence that somebody outside may end is called a hang: after four limits, whatever its own pace was."""

from dataclasses import dataclass, replace

import pytest

from harness.classify.engine import classify
from harness.clock import WallClock
from harness.conduct import Parts, conduct
from harness.core.outcome import Ending, Outcome, StopReason
from harness.core.verdict import Confidence, Kind
from harness.reading.pace import WATCHED
from recordings import specimen


@pytest.mark.parametrize("name", ["file-wait", "peer-wait", "loader-starved"])
def test_what_something_outside_may_end_is_a_hang_when_four_limits_have_passed_and_no_sooner(name):
    case = specimen(name)
    limit_s = case.trial.budget.stall.seconds
    for times, told in ((WATCHED - 0.1, False), (WATCHED + 0.1, True)):
        silent = replace(case, evidence=replace(case.evidence, silence_s=times * limit_s))
        verdict = classify(silent)
        assert (verdict.kind is Kind.HANG) is told, verdict.because
        assert not told or verdict.confidence is Confidence.MEDIUM


@pytest.mark.parametrize("name", ["poll-forever", "page-thrash", "straggler"])
@pytest.mark.parametrize("times", [0.5, 1.1, 4.5, 40.0])
def test_what_moves_is_no_hang_however_long_it_lasts(name, times):
    case = specimen(name)
    silence_s = times * case.trial.budget.stall.seconds
    assert classify(replace(case, evidence=replace(case.evidence, silence_s=silence_s))).kind is not Kind.HANG


@dataclass(frozen=True)
class Elsewhere:
    """Another machine, on which the trial ended so."""

    outcome: Outcome
    evidence: object

    def conduct(self, trial, **_):
        return self.outcome, self.evidence, "2026-01-02T03:04:05.000Z"


@pytest.mark.parametrize(
    ("stopped_by", "why"),
    [
        (StopReason.INTERRUPT, "SIGTERM asked"),
        (StopReason.EXAMINED, "SIGTERM asked"),
        (StopReason.TOTAL, "it ran for 9 s"),
    ],
)
def test_who_asked_to_stop_is_named_of_a_trial_on_other_machines_too(tmp_path, stopped_by, why):
    case = specimen("file-wait")
    outcome = Outcome(ending=Ending.STOPPED_BY_US, stopped_by=stopped_by, why="it ran for 9 s")
    parts = Parts(
        target=None,
        executor=None,
        sources=(),
        clock=WallClock(),
        child_env={},
        elsewhere=Elsewhere(outcome, case.evidence),
        asked=lambda: "SIGTERM asked",
    )
    assert conduct(case.trial, trial_dir=tmp_path, parts=parts).outcome.why == why
