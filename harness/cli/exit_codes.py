"""Exit codes: what the end of a command means; every ``--help`` prints its own.

Two are the same everywhere: 130 is Ctrl-C, at whatever moment, and 70 a mistake of ours, so that none looks like an
answer. (``trial`` has 128 for both that and wrong use, since git bisect run takes 70 for a bad commit.)
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.core.boundary import Boundary
    from harness.core.cause import Minimised
    from harness.core.verdict import Verdict
    from harness.report.findings import Findings


class ExitCode(IntEnum):
    """What the command's end means to a script or to CI."""

    OK = 0
    FINDINGS = 1
    USAGE = 2
    BUDGET = 3
    BASELINE = 4
    NOTHING = 5
    INFRA = 6
    INTERNAL = 70
    INTERRUPTED = 130


def of_search(findings: Findings) -> ExitCode:
    """Of a matrix, or of a search in it."""
    from harness.core.campaign import Task
    from harness.core.record import BUDGET_USED_UP
    from harness.core.verdict import Kind

    run, answer = findings.run, findings.run.answer
    if run.ended == "interrupted" or answer is None:
        return ExitCode.INTERRUPTED if run.ended == "interrupted" else ExitCode.BUDGET
    if run.spec.task is Task.CELLS and answer.surprises:
        return ExitCode.FINDINGS
    if run.ended == BUDGET_USED_UP:
        return ExitCode.BUDGET
    if findings.kinds == {Kind.INFRA}:
        return ExitCode.INFRA
    if answer.minimised is not None:
        return _of_causes(findings, answer.minimised)
    if answer.boundary is not None:
        return _of_boundary(findings, answer.boundary)
    if answer.explored is not None:
        return ExitCode.FINDINGS if answer.explored.uncertified else ExitCode.OK
    return _of_cells(findings)


def _of_causes(findings: Findings, minimised: Minimised) -> ExitCode:
    from harness.core.cause import MinimiseFinding
    from harness.core.verdict import Kind

    if minimised.finding in (MinimiseFinding.GOOD_FAILS, MinimiseFinding.BAD_PASSES, MinimiseFinding.REFUSED):
        return ExitCode.BASELINE
    causes = minimised.causes
    if not causes and Kind.INFRA in findings.kinds:
        return ExitCode.INFRA
    sure = causes and all(cause.certified for cause in causes)
    return ExitCode.OK if sure else ExitCode.FINDINGS


def _of_cells(findings: Findings) -> ExitCode:
    """Of cells none of which is a surprise: all told, some inconclusive, or not even run as they should have been."""
    from harness.core.campaign import CellStatus
    from harness.core.verdict import Kind

    statuses = {result.met for result in findings.results}
    if CellStatus.INCONCLUSIVE not in statuses:
        return ExitCode.INFRA if CellStatus.NOT_RUN in statuses else ExitCode.OK
    is_spoiled = Kind.INFRA in findings.kinds
    return ExitCode.INFRA if is_spoiled or CellStatus.NOT_RUN in statuses else ExitCode.BUDGET


def _of_boundary(findings: Findings, boundary: Boundary) -> ExitCode:
    from harness.core.boundary import Finding
    from harness.core.verdict import Kind

    if boundary.finding is Finding.ALL_FAIL:
        return ExitCode.BASELINE
    if boundary.certified:
        return ExitCode.OK
    spoiled = any(cell.kinds == frozenset({Kind.INFRA}) for cell in findings.along)
    return ExitCode.INFRA if spoiled and boundary.finding is Finding.INCONCLUSIVE else ExitCode.FINDINGS


def of_program(findings: Findings) -> ExitCode:
    """Of one program, run once or several times."""
    from harness.core.verdict import Kind

    if findings.run.ended == "interrupted" or not findings.trials:
        return ExitCode.INTERRUPTED
    if findings.failed:
        return ExitCode.FINDINGS
    if findings.kinds == {Kind.PASS}:
        return ExitCode.OK
    return ExitCode.INFRA if Kind.INFRA in findings.kinds else ExitCode.BUDGET


GOOD, BAD, SKIP, ABORT = 0, 1, 125, 128
"""What git bisect takes for good, bad, cannot be tested, and stop."""


def of_trial(findings: Findings) -> int:
    """Of one cell, as ``git bisect run`` reads it: good, bad or skip."""
    from harness.core.verdict import Answer

    run = findings.run
    answers = [trial.record.answer for trial in findings.trials]
    if Answer.BAD in answers:
        return BAD
    if run.ended == "interrupted":
        return ExitCode.INTERRUPTED
    return GOOD if answers.count(Answer.GOOD) >= run.spec.passes else SKIP


def of_watched(verdict: Verdict, *, has_stacks: bool) -> ExitCode:
    """Of the last look at a running job; ``seen``: whether any stack of it was."""
    from harness.classify.rules.unresolved import ENDED, MOVING
    from harness.core.verdict import Kind

    if verdict.cause == ENDED:
        return ExitCode.BUDGET
    if not has_stacks:
        return ExitCode.INFRA
    if verdict.kind is Kind.UNRESOLVED:
        return ExitCode.OK if verdict.cause == MOVING else ExitCode.BUDGET
    return ExitCode.OK if verdict.kind in (Kind.PASS, Kind.SLOW) else ExitCode.FINDINGS


SEARCH = """\b
Exit codes:
  0    answered and certified (also: "no failing value")
  1    answered, but not certified
  2    wrong use: unknown option, axis, fault, file key
  3    budget used up: the report is partial
  4    baseline not reproduced: the smallest value already fails
  5    nothing to do
  6    the machine or the run directory is in the way (disk, processes)
  130  interrupted; everything so far is kept, --resume continues
"""
"""Of a search."""

JOURNAL = """\b
Exit codes:
  0    done
  2    wrong use: unknown option, or a cell that this run does not have
  6    there is no such run, or it cannot be read or written
"""
"""Of a verb of the journal."""
