"""When a trial that is still being watched is ended: as soon as what was seen makes a hang, not before."""

from dataclasses import replace
from pathlib import Path

import pytest

from harness.classify.engine import classify
from harness.conduct import decided
from harness.core.verdict import Confidence, Kind
from harness.store.cases import read_cases

FOLDER = Path(__file__).parents[2] / "data" / "specimens"
RECORDED = {judged.name: judged.case for judged in read_cases(FOLDER)}


@pytest.mark.parametrize("name", ["child-wait", "file-wait", "peer-wait", "device-wait", "loader-starved"])
def test_what_something_outside_may_end_is_decided_when_four_limits_have_passed_and_no_sooner(name):
    case = RECORDED[name]
    verdict = classify(case)
    assert verdict.kind is Kind.HANG
    assert decided(case) == verdict.because
    limit_s = case.trial.budget.stall.seconds
    for times, told in ((3.9, False), (4.1, True)):
        silent = replace(case.evidence, silence_s=times * limit_s)
        assert bool(decided(replace(case, evidence=silent))) is told


def test_less_than_conclusive_is_enough_only_then():
    assert classify(RECORDED["child-wait"]).confidence is Confidence.MEDIUM


@pytest.mark.parametrize("name", ["poll-forever", "compile-stall", "page-thrash", "straggler"])
def test_what_is_no_hang_is_never_decided(name):
    assert decided(RECORDED[name]) == ""
