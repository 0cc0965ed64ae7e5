"""First: the block under the title of any report in Markdown; what happened, how sure, where, what next."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from harness.core.ports import Block
from harness.report.text import code, md

if TYPE_CHECKING:
    from harness.report.findings import Findings
    from harness.report.next_steps import NextStep
    from harness.report.summary import Summary

STEPS = 2
"""Next steps that stand here; the page and the JSON have them all."""


def first(findings: Findings, summary: Summary) -> Block:
    """Verdict, answer and claim in one paragraph, then a line for each question that a reader has."""
    run = findings.run
    has_trials = bool(run.records)
    rows = (
        ("What happened", list(map(md, filter(None, (summary.planted, *summary.happened))))),
        ("How sure", list(map(md, (*summary.sure, *([f"{summary.judged}."] if summary.judged else []))))),
        ("Rank and line", [f"{md(summary.before_place)} {_place(summary)}.".lstrip()] if has_trials else []),
        ("What next", list(map(_step_line, summary.steps[:STEPS])) or ["Nothing: the question is answered."]),
        ("Run", [f"{md(summary.tally)}; {md(summary.when)}; {code(run.id)}; ended: {md(run.ended)}."]),
        *(("Note", [md(note)]) for note in summary.notes),
    )
    word = f" *{summary.claim}.*" if summary.claim else ""
    body = "\n".join(f"- **{name}:** {' '.join(texts)}" for name, texts in rows if texts)
    two_parts = f"**{md(summary.verdict)}.** {md(summary.answer)}"
    lead = f"**{md(summary.answer)}**" if summary.begins_with_verdict else two_parts
    return Block(title="", markdown=f"{lead}{word}\n\n{body}")


def _place(summary: Summary) -> str:
    return code(summary.place.text) if summary.place.is_line else md(summary.place.text)


def _step_line(step: NextStep) -> str:
    return f"{md(step.text)} {code(shlex.join(step.command))}" if step.command else md(step.text)
