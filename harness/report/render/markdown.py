"""Markdown, as GitHub shows it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.report.text import details, md

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.core.ports import Block
    from harness.report.build import Report


def render(report: Report, *, hide: Callable[[str], str] = lambda text: text, figures: str = "") -> str:
    """The whole report; ends in a newline. ``figures`` is the folder beside it that its figures lie in, if any."""
    parts = [hide(f"# {md(report.title)}")]
    for name, block in report.blocks:
        parts.append(section_text(replace(block, title=hide(block.title), markdown=hide(block.markdown))))
        parts += [hide(f"![{_alt(f.alt)}]({figures}/{f.name}.svg)") for f in report.figures_of(name) if figures]
    return "\n\n".join(parts) + "\n"


def section_text(block: Block, *, as_folded: bool = False) -> str:
    """One section; ``as_folded`` folds it whatever it asks for itself."""
    if block.folded or (as_folded and block.title):
        return details(f"<b>{block.title}</b>", block.markdown)
    return f"## {block.title}\n\n{block.markdown}" if block.title else block.markdown


def _alt(text: str) -> str:
    return md(text).replace("[", "\\[").replace("]", "\\]")
