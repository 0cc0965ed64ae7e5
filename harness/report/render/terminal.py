"""Terminal: the answer of a run in a few lines of at most 80 columns, without colour."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.boundary import Finding
from harness.report import own_command
from harness.report.clean import clean
from harness.report.sections import strip
from harness.report.summary import COMPARISON
from harness.report.text import command, named_path, wrap
from harness.report.words import grows

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.report.build import Report
    from harness.report.findings import Findings
    from harness.report.summary import Summary

WIDTH = 80


def of_report(report: Report, *, hide: Callable[[str], str] = lambda text: text) -> str:
    """Any report as a terminal shows it, hidden names and all."""
    return hide(text(report, Path(report.run.directory) / "report.md")) + "\n"


def text(report: Report, report_path: Path, *, width: int = WIDTH) -> str:
    """Answer, what carries it, the axis at a glance, counts, what next, the report's path, the command to reproduce.

    Only a path or a single word of a command can be wider than ``width``: neither can be broken and still be used.
    """
    told, findings = report.summary, report.findings
    is_enough = told.is_said or told.tone == "good"
    found = wrap(clean(told.answer if is_enough else f"{told.verdict}. {told.answer}"), width=width)
    for sentence in _sentences(findings, told):
        found += wrap(clean(sentence), width=width, indent="  ")
    is_search = findings.is_line and told.kind != COMPARISON
    if is_search and findings.trials:
        found += ["", *(f"  {line}" for line in strip.text(findings, width=width - 2).splitlines())]
        found += wrap(strip.legend(findings).replace("`", ""), width=width, indent="  ")
    found += ["", *wrap(clean(told.tally), width=width, indent="  ")]
    if is_search:
        found += wrap(_growth(findings), width=width, indent="  ")
    for note in told.notes:
        found += wrap(f"note: {clean(note)}", width=width, indent="  ")
    for step in told.steps[:1]:
        found += wrap(f"next: {step.text}", width=width, indent="  ")
        found += [f"    {line}" for line in command(step.command, width=width - 4)]
    found += ["", *named_path("report", report_path, width=width), "reproduce:"]
    found += [f"  {line}" for line in command(report.run.argv, width=width - 2)]
    return "\n".join([*found, *own_command.terminal(findings, width=width)])


def _sentences(findings: Findings, told: Summary) -> list[str]:
    """What stands under the answer: what was planted, how sure it is and by which rule, what happened, and where."""
    if not findings.run.records:
        return []
    sure, *more = told.sure
    claimed = f"{told.claim}: {sure}" if told.claim else sure
    at_fault = (f"{told.judged}.", *told.happened, f"{told.rank}, {told.place.text}") if told.judged else told.happened
    return [sentence for sentence in (told.planted, claimed, *more, *at_fault) if sentence]


def _growth(findings: Findings) -> str:
    """How the time grows along the axis; empty where the answer says it, or nothing does."""
    boundary = findings.run.boundary
    if boundary is None or boundary.fit is None or boundary.finding is Finding.NO_THRESHOLD_SLOW:
        return ""
    return grows(findings, boundary.fit)
