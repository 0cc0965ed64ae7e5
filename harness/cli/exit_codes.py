"""What the end of a command means: its exit code, which every ``--help`` prints; of one without an answer, the words.

Two codes are the same everywhere: 130 is Ctrl-C, at whatever moment, and 70 a mistake of ours, so that none looks like
an answer. (``trial`` has 128 for both that and wrong use, since git bisect run takes 70 for a bad commit.)
"""

from __future__ import annotations

import shlex
import sys
from enum import IntEnum
from typing import TYPE_CHECKING

from harness.cli.fitting import fitting
from harness.core.errors import GOES_ON, CleanupError, HarnessError, LaunchError, StoreError, raised_at

if TYPE_CHECKING:
    from harness.core.boundary import Boundary
    from harness.core.cause import Minimised
    from harness.core.invocation import Invocation
    from harness.core.record import Run
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


def tell_survivors(run: Run) -> None:
    """Say on standard error, behind the result, which processes of a run's trials cannot be ended; if there are any."""
    from harness.core.record import SURVIVED

    if run.survivors:
        tell(CleanupError(f"{SURVIVED}: {'; '.join(map(str, run.survivors))}"), invocation=run.invocation)


def of_search(findings: Findings) -> ExitCode:
    """Of a matrix, or of a search in it."""
    from harness.core.campaign import Task
    from harness.core.record import BUDGET_USED_UP
    from harness.core.verdict import Kind

    run, answer = findings.run, findings.run.answer
    if run.ended == "interrupted" or answer is None:
        return ExitCode.INTERRUPTED if run.ended == "interrupted" else ExitCode.BUDGET
    if run.survivors:
        return ExitCode.INFRA
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
    if findings.run.survivors:
        return ExitCode.INFRA
    if findings.failed:
        return ExitCode.FINDINGS
    if findings.kinds == {Kind.PASS}:
        return ExitCode.OK
    return ExitCode.INFRA if Kind.INFRA in findings.kinds else ExitCode.BUDGET


GOOD, BAD, SKIP, ABORT = 0, 1, 125, 128
"""What git bisect takes for good, bad, cannot be tested, and stop."""


def of_trial(findings: Findings) -> int:
    """Of one cell, as ``git bisect run`` reads it: good, bad or skip."""
    from harness.core.record import SURVIVED
    from harness.core.verdict import Answer

    run = findings.run
    if run.ended == SURVIVED:
        return SKIP
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


REPORT_IT = "This is a bug of nsa-harness: please report this line and the command. What was written before is safe."

MOST_LINES, LONGEST_LINE = 10, 360
"""Of things that are wrong with one file, a line each."""


def short(line: str) -> str:
    """``line``, without its middle where that is longer than anybody reads."""
    line = line.strip()
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 100]} .. {line[-90:]}"


def tell(error: BaseException, *, invocation: Invocation | None = None) -> ExitCode:
    """Say on standard error what ``error`` means and what to do; the exit code that means the same.

    ``invocation`` is what was typed, where that is known: a search goes on, and looks for the run in the same place.
    """
    what, then, code = _meaning(error)
    if invocation is None or not invocation.is_search:
        then = then.replace(f"; {GOES_ON}", "")
    for runs in invocation.values_of("--runs")[-1:] if invocation else ():
        then = then.replace(GOES_ON, f"{GOES_ON} --runs {shlex.quote(runs)}")
    rows = [short(line) for line in what.splitlines() if line.strip()]
    more = [f"and {len(rows) - MOST_LINES} more"] if len(rows) > MOST_LINES else []
    lines = "\n".join((f"nsa-harness: {rows[0] if rows else ''}", *rows[1:MOST_LINES], *more, f"  next: {then}"))
    sys.stderr.write(f"{fitting(lines, to=sys.stderr)}\n")
    return code


def _meaning(error: BaseException) -> tuple[str, str, ExitCode]:
    # Up to Python 3.11 what is raised in a class's __set_name__ becomes the cause of a RuntimeError.
    if isinstance(error, KeyboardInterrupt) or isinstance(error.__cause__, KeyboardInterrupt):
        then = f"What was written before is safe; {GOES_ON}."
        return "interrupted", then, ExitCode.INTERRUPTED
    if isinstance(error, HarnessError):
        is_ours = isinstance(error, StoreError | LaunchError | CleanupError)
        return str(error), error.help, ExitCode.INFRA if is_ours else ExitCode.USAGE
    if isinstance(error, OSError):
        then = f"Put right what this line names. What was written before is safe; {GOES_ON}."
        return f"the machine is in the way: {error} ({raised_at(error)})", then, ExitCode.INFRA
    return f"internal error: {type(error).__name__}: {error} ({raised_at(error)})", REPORT_IT, ExitCode.INTERNAL
