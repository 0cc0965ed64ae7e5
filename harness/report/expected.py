"""Expected: whether the cells of a matrix ended as it expects, and which did not, in the words that lead its report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.campaign import CellStatus
from harness.core.verdict import Kind
from harness.report.text import count, how_many, listed
from harness.report.tried import grouped

if TYPE_CHECKING:
    from harness.core.campaign import CellResult
    from harness.report.findings import Findings
    from harness.report.tried import TrialSet

MOST_NAMED = 4
"""Cells that ended otherwise than expected which are named; the table has all."""

REST = {CellStatus.INCONCLUSIVE: "inconclusive", CellStatus.SKIPPED: "skipped", CellStatus.NOT_RUN: "not run"}


def verdict_by_expectation(findings: Findings) -> tuple[str, str]:
    """Whether all cells ended as expected, else in what instead, and the tone; of a matrix that expects something."""
    results, surprises = findings.results, findings.surprises
    of_all = f"of {count(len(results), 'cell')}"
    if surprises:
        instead = listed(_instead(findings))
        verb = "is" if len(surprises) == 1 else "are"
        return f"{len(surprises)} {of_all} {verb} not as expected: {instead}", "bad"
    as_expected = len(findings.results_that_are(CellStatus.EXPECTED))
    if as_expected == len(results):
        return (f"All {as_expected} cells are as expected" if as_expected > 1 else "The cell is as expected"), "good"
    numbers = {status: len(findings.results_that_are(status)) for status in REST}
    rest = how_many((REST[status], number) for status, number in numbers.items() if number)
    is_skipped_only = as_expected + numbers[CellStatus.SKIPPED] == len(results)
    return f"{as_expected} {of_all} as expected, {rest}", "good" if is_skipped_only else "unsure"


def names_by_expectation(findings: Findings) -> str:
    """``Not as expected: layers=4; layers=8.``, by what they ended in where that is several; empty where none is."""
    ways = _instead(findings)
    texts: list[str] = []
    for way, results in ways.items():
        names = [result.name for result in results[:MOST_NAMED]]
        names += [f"{len(results) - MOST_NAMED} more"] if len(results) > MOST_NAMED else []
        texts.append("; ".join(names) + (f" ({way})" if len(ways) > 1 else ""))
    return f"Not as expected: {'; '.join(texts)}." if texts else ""


def _instead(findings: Findings) -> dict[str, list[CellResult]]:
    """``HANG (deadlock) instead of PASS``, with the cells that did so; first the one that is told of."""
    subject = findings.subject
    cell = subject.trial.point if subject else None
    surprises = sorted(findings.surprises, key=lambda result: result.cell != cell)
    return grouped(surprises, lambda result: f"{_ended(findings, result)} instead of {expected(result)}")


def _ended(findings: Findings, result: CellResult) -> str:
    trials = findings.by_cell.get(result.cell)
    return ending(trials) if trials else result.because


def expected(result: CellResult) -> str:
    """``CRASH (#7)``: what a cell was expected to end in, and what that is known as."""
    return f"{result.expected} ({result.issue})" if result.issue else result.expected


def ending(trials: TrialSet) -> str:
    """What the trials of a cell ended in: ``PASS``, or ``CRASH in some trials, PASS in others``."""
    failures = [word for word in trials.words if word != Kind.PASS]
    if not failures or len(failures) == len(trials.words):
        return listed(trials.words)
    return f"{listed(failures)} in some trials, {Kind.PASS} in others"
