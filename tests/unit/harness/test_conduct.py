"""When a trial that is still being watched is ended: as soon as what was seen makes a hang, not before."""

from dataclasses import replace
from pathlib import Path

import pytest

from harness.classify.engine import classify
from harness.conduct import decided
from harness.core.outcome import StopReason
from harness.core.pace import LEAST_S, NO_PACE
from harness.core.verdict import Case, Confidence, Kind
from harness.store.cases import read_cases

FOLDER = Path(__file__).parents[2] / "data" / "specimens"
RECORDED = {judged.name: judged.case for judged in read_cases(FOLDER)}


@pytest.mark.parametrize("name", ["child-wait", "file-wait", "peer-wait", "device-wait", "loader-starved"])
def test_what_something_outside_may_end_is_decided_when_four_limits_have_passed_and_no_sooner(name):
    case = without_pace(RECORDED[name])
    limit_s = case.trial.budget.stall.seconds
    for times, told in ((3.9, False), (4.1, True)):
        silent = replace(case.evidence, silence_s=times * limit_s)
        assert bool(decided(replace(case, evidence=silent))) is told


@pytest.mark.parametrize("name", ["child-wait", "file-wait", "peer-wait", "loader-starved"])
def test_the_same_is_decided_sooner_where_it_is_out_of_proportion_to_the_own_pace(name):
    case = RECORDED[name]
    verdict = classify(case)
    assert (verdict.kind, verdict.confidence) == (Kind.HANG, Confidence.MEDIUM)
    assert decided(case) == verdict.because
    assert case.evidence.silence_s < 10.0
    sooner = replace(case.evidence, silence_s=LEAST_S - 0.1)
    assert not decided(replace(case, evidence=sooner))


def without_pace(case: Case) -> Case:
    """``case`` as if its silence had begun before any step was done, and lasted until its limit."""
    outcome = replace(case.outcome, stopped_by=StopReason.STALL)
    return replace(case, outcome=outcome, evidence=replace(case.evidence, pace=NO_PACE))


def test_less_than_conclusive_is_enough_only_then():
    assert classify(RECORDED["child-wait"]).confidence is Confidence.MEDIUM


@pytest.mark.parametrize("name", ["poll-forever", "compile-stall", "page-thrash", "straggler"])
def test_what_is_no_hang_is_never_decided(name):
    assert decided(RECORDED[name]) == ""
