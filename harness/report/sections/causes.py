"""Causes: what a search for the settings that a failure needs has found, each need with its step back."""

from __future__ import annotations

from itertools import starmap
from typing import TYPE_CHECKING

from harness.core.point import assignment
from harness.core.ports import Block
from harness.report.text import code, count, listed, md, table
from harness.report.words import what_passes_miss

if TYPE_CHECKING:
    from harness.core.cause import Cause
    from harness.report.findings import Findings


def section(findings: Findings) -> Block | None:
    """Every cause with its certificate; None when no such search was made."""
    search = findings.answer.minimised or findings.answer.explored
    if search is None:
        return None
    parts = [md(search.because), *starmap(_of_cause, enumerate(search.causes, start=1))]
    return Block(title="What the failure needs", markdown="\n\n".join(filter(None, parts)))


def _of_cause(number: int, cause: Cause) -> str:
    rows: list[tuple[str, ...]] = []
    for need in cause.needs:
        back = f"{need.back}{what_passes_miss(need.back, failing=cause.seen)}" if need.back else "-"
        certified = md(need.kept_by) or f"no: {need.required or 'more'} asked for"
        if need.certified:
            certified = f"yes, {need.required} passes"
        rows.append((code(need), code(assignment(need.axis, need.last_good)), md(back), certified))
    body = table(("needs", "with this instead", "then it", "certified"), rows)
    free = cause.freedom
    text = f"Cause {number}, {cause.claim.value}: {{{md(cause)}}} {md(cause.seen)}.\n\n{body}"
    if free is None:
        return text
    free_text = f"With everything else set anew it failed in {free.failed} of {count(free.tried, 'cell')}."
    free_text += f" Took several values while it always failed: {md(listed(free.free))}." if free.free else ""
    return f"{text}\n\n{free_text}"
