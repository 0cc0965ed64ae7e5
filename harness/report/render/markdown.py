"""Markdown, as GitHub shows it: the whole report, the answer alone, and what the summary of a job has room for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.report.next_steps import reproduce
from harness.report.sections.onward import own_commands
from harness.report.summary import job_line, missing_evidence, with_command
from harness.report.text import code, command, details, fence, listed, md

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.report.write import Report


def render(report: Report, *, hide: Callable[[str], str] = str, figures: str = "") -> str:
    """The whole report; ends in a newline. ``figures`` is the folder beside it that its figures lie in, if any."""
    parts = [hide(f"# {md(report.title)}")]
    for name, block in report.blocks:
        title = hide(block.title)
        parts += [f"## {title}"] if title else []
        parts.append(hide(block.markdown))
        for figure in report.figures_of(name) if figures else ():
            alt = md(figure.alt).replace("[", "\\[").replace("]", "\\]")
            parts.append(hide(f"![{alt}]({figures}/{figure.name}.svg)"))
    return "\n\n".join(parts) + "\n"


SIGN = {"good": "✅", "bad": "❌", "slow": "🐢", "unsure": "❔"}
MOST_BYTES = 1024 * 1024
"""What GitHub takes as the summary of one step; more is refused as a whole."""

RESERVE_BYTES = 4096


def short(report: Report, *, hide: Callable[[str], str] = str) -> str:
    """The answer in a few lines of Markdown."""
    summary = report.summary
    lines = [
        f"{SIGN[summary.tone]} **{md(summary.verdict)}** · {md(report.title)}",
        "",
        " ".join(map(md, filter(None, (summary.answer, summary.planted)))),
        "",
    ]
    word = f"{summary.claim}. " if summary.claim else ""
    lines.append(f"- How sure: {word}{md(summary.sure[0])}" + (f" {md(summary.judged)}." if summary.judged else ""))
    lines.append(f"- Rank and line: {f'{md(summary.before_place)} '.lstrip()}{code(summary.place.text)}")
    lines += [f"- Next: {with_command(step)}" for step in summary.steps[:1]]
    lines += [f"- Job: {job_line(summary.job)}"] if summary.job is not None else []
    lines.append(f"- Run: {md(summary.tally)}; {code(report.run.id)}; {md(summary.when)}")
    lines += [f"- Note: {md(note)}" for note in missing_evidence(report.findings)]
    lines += ["", fence("\n".join(command(reproduce(report.findings))), "bash")]
    own = own_commands(report.findings)
    lines += ["", own] if own else []
    return hide("\n".join(lines)) + "\n"


def joined(texts: Sequence[str]) -> str:
    """Several of these in at most ``MOST_BYTES``: as many as there is room for, from the first; the rest is counted."""
    room, parts = MOST_BYTES - RESERVE_BYTES, list[str]()
    for text in texts:
        room -= len(text.encode()) + 1
        if room < 0:
            break
        parts.append(text)
    left_out = len(texts) - len(parts)
    if left_out:
        parts.append(f"Left out to stay within GitHub's limit: {left_out} of {len(texts)} reports.\n")
    return "\n".join(parts)


def step_summary(report: Report, *, hide: Callable[[str], str] = str) -> str:
    """The report as Markdown in at most ``MOST_BYTES``: whole sections from the top, the rest named.

    The sections that fit are kept whole, so that no table and no fold is cut through.
    """
    text = short(report, hide=hide)
    room = MOST_BYTES - RESERVE_BYTES - len(text.encode())
    left_out: list[str] = []
    for name, block in report.blocks:
        if name == "answer":
            continue
        text_of = f"## {block.title}\n\n{block.markdown}"
        if name not in ("strip", "cells"):
            text_of = details(f"<b>{block.title}</b>", block.markdown)
        part = hide(f"\n{text_of}\n")
        if len(part.encode()) <= room:
            text += part
            room -= len(part.encode())
        else:
            left_out.append(block.title)
    if left_out:
        text += f"\nLeft out to stay within GitHub's limit: {md(listed(left_out, most=20))}. They are in report.html.\n"
    return text
