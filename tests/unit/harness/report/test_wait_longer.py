"""A hang that the trial's own pace told from a wait for the outside leads to more time, first of all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.core.outcome import StopReason
from harness.core.verdict import Answer, Confidence
from harness.report.findings import Findings
from harness.report.next_steps import next_steps


def ended(run, *, stopped_by, confidence):
    def told(record):
        if record.answer is not Answer.BAD:
            return record
        return replace(
            record,
            outcome=replace(record.outcome, stopped_by=stopped_by),
            verdict=replace(record.verdict, confidence=confidence),
        )

    return replace(run, records=tuple(map(told, run.records)))


@pytest.mark.parametrize(
    ("stopped_by", "confidence", "proposed"),
    [
        (StopReason.PACE, Confidence.MEDIUM, True),
        (StopReason.PACE, Confidence.HIGH, False),
        (StopReason.STALL, Confidence.MEDIUM, False),
    ],
)
def test_a_longer_limit_is_proposed_where_the_outside_may_only_have_been_late(
    make_run, stopped_by, confidence, proposed
):
    run, _ = make_run("threshold")
    first = next_steps(Findings(run=ended(run, stopped_by=stopped_by, confidence=confidence)))[0]
    assert (first.command[-2:] == ("--stall", "60s")) is proposed
