"""Terminal: the answer of a run in a few lines of at most 80 columns, without colour."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.boundary import Finding
from harness.report.clean import clean
from harness.report.next_steps import reproduce
from harness.report.sections.onward import own_commands_on_terminal
from harness.report.sections.threshold import legend, strip_text
from harness.report.summary import COMPARISON
from harness.report.text import command, line_width, named_path, wrap
from harness.report.watched import job_lines
from harness.report.words import grows

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.report.findings import Findings
    from harness.report.summary import Summary
    from harness.report.write import Report


def of_report(report: Report, *, hide: Callable[[str], str] = str) -> str:
    """Any report as a terminal shows it, hidden names and all."""
    return hide(text(report, Path(report.run.directory) / "report.md")) + "\n"


def text(report: Report, report_path: Path) -> str:
    """Answer, what carries it, the axis at a glance, counts, what next, the report's path, the command to reproduce.

    Only a path or a single word of a command can be wider than a line: neither can be broken and still be used.
    """
    summary, findings = report.summary, report.findings
    is_enough = summary.begins_with_verdict or (summary.tone == "good" and not findings.expects)
    lines = wrap(clean(summary.answer if is_enough else f"{summary.verdict}. {summary.answer}"))
    for sentence in _sentences(findings, summary):
        lines += wrap(clean(sentence), indent="  ")
    is_search = findings.is_line and summary.kind != COMPARISON
    if is_search and findings.trials:
        lines += ["", *(f"  {line}" for line in strip_text(findings, width=line_width() - 2).splitlines())]
        lines += wrap(legend(findings).replace("`", ""), indent="  ")
    lines += ["", *wrap(clean(summary.tally), indent="  ")]
    if is_search:
        lines += wrap(_growth(findings), indent="  ")
    for note in summary.notes:
        lines += wrap(f"note: {clean(note)}", indent="  ")
    for step in summary.steps[:1]:
        lines += wrap(f"next: {step.text}", indent="  ")
        lines += command(step.command, indent="    ")
    lines += job_lines(summary.job)
    lines += ["", *named_path("report", report_path), "reproduce:"]
    lines += command(reproduce(findings), indent="  ")
    return "\n".join([*lines, *own_commands_on_terminal(findings)])


def _sentences(findings: Findings, summary: Summary) -> list[str]:
    """What stands under the answer: what was planted, how sure it is and by which rule, what happened, and where."""
    if not findings.run.records:
        return []
    sure, *more = summary.sure
    claim = f"{summary.claim}: {sure}" if summary.claim else sure
    place = f"{summary.before_place}{summary.place.text}"
    at_fault = (f"{summary.judged}.", *summary.happened, place) if summary.judged else summary.happened
    return list(filter(None, (summary.planted, claim, *more, *at_fault)))


def _growth(findings: Findings) -> str:
    """How the time grows along the axis; empty where the answer says it, or nothing does."""
    boundary = findings.run.boundary
    if boundary is None or boundary.fit is None or boundary.finding is Finding.NO_THRESHOLD_SLOW:
        return ""
    return grows(findings, boundary.fit)
