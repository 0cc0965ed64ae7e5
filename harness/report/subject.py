"""Subject: the one trial that a report looks at closely, and its evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.verdict import FAILURES, Answer, Kind
from harness.store.run_store import read_evidence

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.core.evidence import Evidence
    from harness.core.point import Point
    from harness.core.record import TrialRecord
    from harness.report.findings import Findings

GRAVITY = (Kind.HANG, Kind.CRASH, Kind.OOM, Kind.NONFINITE, Kind.SLOW, Kind.BELOW_TARGET, Kind.UNRESOLVED, Kind.INFRA)
"""The gravest first: what a report speaks of when several things went wrong."""


def to_tell_of(records: Sequence[TrialRecord], *, answered: Sequence[Point] = ()) -> TrialRecord | None:
    """The first trial that failed, of those that showed the failure sought if any did; else the gravest; None without.

    Of a hang and a crash the first is told of, not the graver one: it is what whoever runs it meets first. Where a
    search named causes, whose cells are ``answered``, it is the first failure of the first of those: another one, of
    a cell that holds more, is not what was answered.
    """
    wrong = [r for r in records if r.verdict.kind is not Kind.PASS and not r.trial.is_control]

    def order(record: TrialRecord) -> tuple[bool, int, int]:
        gravity = -1 if record.verdict.kind in FAILURES else GRAVITY.index(record.verdict.kind)
        cell = record.trial.point
        place = answered.index(cell) if cell in answered else len(answered)
        return record.answer is not Answer.BAD, place, gravity

    return min(wrong, key=order, default=None)


def subject_evidence(findings: Findings, run_dir: Path) -> tuple[TrialRecord, Evidence] | None:
    """The subject with its evidence; None when there is neither."""
    record = findings.subject
    evidence = read_evidence(run_dir, record.trial.key) if record else None
    return (record, evidence) if record and evidence else None
