"""The end of a run of a matrix on a terminal: the answer, the cells, the axes, the way to reproduce."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from harness.core.campaign import Met

if TYPE_CHECKING:
    from harness.core.campaign import CampaignAnswer, CellResult
    from harness.core.cause import Cause
    from harness.core.record import CampaignRun

SHOWN = 40
MARKS = {Met.EXPECTED: "ok", Met.UNEXPECTED: "!!", Met.UNTOLD: "??", Met.SKIPPED: "--", Met.NOT_RUN: "  "}


def text_of(run: CampaignRun) -> str:
    """The whole summary."""
    answer = run.answer
    lines = ["", run.spec.question]
    if answer is None:
        return "\n".join([*lines, f"no answer: {run.ended}"])
    lines += [answer.because, *(f"note: {note}" for note in (*answer.notes, *run.notes))]
    if run.ended != "answered":
        lines.append(f"ended early: {run.ended}")
    if answer.minimised is not None:
        lines += _causes(answer.minimised.causes)
        m = answer.minimised
        lines += [f"  {note}" for note in m.notes]
        lines.append(f"paid: {m.trials} trials, {m.failures} failures waited for, {m.seconds:.0f} s of trials")
    elif answer.explored is not None:
        lines += _causes(answer.explored.causes)
        lines += [f"  {note}" for note in answer.explored.notes]
    elif answer.boundary is None:
        lines += _cells(answer)
    lines += _axes(answer)
    lines += ["", f"run directory: {run.directory}", f"reproduce: {shlex.join(run.argv)}"]
    return "\n".join(lines)


def _causes(causes: tuple[Cause, ...]) -> list[str]:
    lines: list[str] = []
    for cause in causes:
        lines.append(f"  {{{cause}}}: {cause.seen}; {cause.claim}{', certified' if cause.certified else ''}")
        for need in cause.needs:
            shown = f"with {need.axis}={need.last_good} it {need.back}" if need.back else f"kept by {need.kept_by}"
            lines.append(f"    {need}: {shown}")
        if cause.freedom is not None:
            f = cause.freedom
            lines.append(f"    everything else at random: failed {f.failed} of {f.tried}")
    return lines


def _cells(answer: CampaignAnswer) -> list[str]:
    worst_first = sorted(answer.cells, key=lambda r: (r.met is not Met.UNEXPECTED, r.met is Met.EXPECTED))
    lines = [_cell(result) for result in worst_first[:SHOWN]]
    if len(answer.cells) > SHOWN:
        lines.append(f"  .. and {len(answer.cells) - SHOWN} more in the report")
    return lines


def _cell(result: CellResult) -> str:
    seen = ", ".join(f"{words} x{n}" if n > 1 else words for words, n in result.seen) or str(result.met)
    why = "" if result.met is Met.EXPECTED and result.expected == "PASS" else f"\n       {result.because}"
    return f"  {MARKS[result.met]} {result.name:<44} {seen:<20} {result.seconds:5.1f} s{why}"


def _axes(answer: CampaignAnswer) -> list[str]:
    lines: list[str] = []
    for table in answer.failures:
        told = [verdict for verdict in table.axes if verdict.finding.value != "untested"]
        untested = [verdict.axis for verdict in table.axes if verdict.finding.value == "untested"]
        lines += [
            "",
            f"{table.failure}: {table.trials} trials of {table.cells} cells; the axes",
        ]
        lines += [f"  {v.axis}: {v.finding}: {v.because}" for v in told]
        if untested:
            lines.append(f"  untested: {', '.join(untested)}")
    return lines
