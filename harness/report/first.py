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


def first(findings: Findings, told: Summary) -> Block:
    """Verdict, answer and claim in one paragraph, then a line for each question that a reader has."""
    run = findings.run
    tried = bool(run.records)
    rows = (
        ("What happened", [md(text) for text in (told.planted, *told.happened) if text]),
        ("How sure", [md(text) for text in (*told.sure, *([f"{told.judged}."] if told.judged else []))]),
        ("Rank and line", [f"{md(told.rank)}, {_place(told)}."] if tried else []),
        ("What next", [_said(step) for step in told.steps[:STEPS]] or ["Nothing: the question is answered."]),
        ("Run", [f"{md(told.tally)}; {md(told.when)}; {code(run.id)}; ended: {md(run.ended)}."]),
        *(("Note", [md(note)]) for note in told.notes),
    )
    word = f" *{told.claim}.*" if told.claim else ""
    body = "\n".join(f"- **{name}:** {' '.join(texts)}" for name, texts in rows if texts)
    lead = f"**{md(told.answer)}**" if told.is_said else f"**{md(told.verdict)}.** {md(told.answer)}"
    return Block(title="", markdown=f"{lead}{word}\n\n{body}")


def _place(told: Summary) -> str:
    return code(told.place.text) if told.place.is_line else md(told.place.text)


def _said(step: NextStep) -> str:
    return f"{md(step.text)} {code(shlex.join(step.command))}" if step.command else md(step.text)
