"""Answer: what happened, how sure, what next; readable in ten seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.ports import Block
from harness.report.campaign.summary import summarise
from harness.report.text import code, md

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.record import CampaignRun


def section(run: CampaignRun, run_dir: Path) -> Block | None:
    """The block that stands right under the title."""
    told = summarise(run, run_dir)
    word = f" *{told.claim}.*" if told.claim else ""
    where = [f"{md(told.rank)}, {code(told.place)}."] if run.records or run.reused else []
    rows = [
        ("What happened", [md(text) for text in (told.planted, *told.happened) if text]),
        ("How sure", [md(text) for text in told.sure]),
        ("Rank and line", where),
        ("What next", [md(step.text) for step in told.steps[:2]] or ["Nothing: the question is answered."]),
        ("Run", [f"{md(told.tally)}; {md(told.when)}; {code(run.id)}; ended: {md(run.ended)}."]),
        *(("Note", [md(note)]) for note in told.notes),
    ]
    body = "\n".join(f"- **{name}:** {' '.join(texts)}" for name, texts in rows if texts)
    return Block(title="", markdown=f"**{md(told.answer)}**{word}\n\n{body}")
