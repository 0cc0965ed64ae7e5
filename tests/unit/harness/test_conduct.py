"""When a silence that somebody outside may end is called a hang: after four limits, whatever its own pace was."""

from dataclasses import replace
from pathlib import Path

import pytest

from harness.classify.engine import classify
from harness.core.verdict import Confidence, Kind
from harness.reading.pace import WATCHED
from harness.store.cases import read_cases

FOLDER = Path(__file__).parents[2] / "data" / "specimens"
RECORDED = {judged.name: judged.case for judged in read_cases(FOLDER)}


@pytest.mark.parametrize("name", ["file-wait", "peer-wait", "loader-starved"])
def test_what_something_outside_may_end_is_a_hang_when_four_limits_have_passed_and_no_sooner(name):
    case = RECORDED[name]
    limit_s = case.trial.budget.stall.seconds
    for times, told in ((WATCHED - 0.1, False), (WATCHED + 0.1, True)):
        silent = replace(case, evidence=replace(case.evidence, silence_s=times * limit_s))
        verdict = classify(silent)
        assert (verdict.kind is Kind.HANG) is told, verdict.because
        assert not told or verdict.confidence is Confidence.MEDIUM


@pytest.mark.parametrize("name", ["poll-forever", "page-thrash", "straggler"])
@pytest.mark.parametrize("times", [0.5, 1.1, 4.5, 40.0])
def test_what_moves_is_no_hang_however_long_it_lasts(name, times):
    case = RECORDED[name]
    silence_s = times * case.trial.budget.stall.seconds
    assert classify(replace(case, evidence=replace(case.evidence, silence_s=silence_s))).kind is not Kind.HANG
