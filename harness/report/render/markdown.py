"""Markdown, as GitHub shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.report.text import details, md

if TYPE_CHECKING:
    from harness.core.ports import Block
    from harness.report.build import Report


def render(report: Report) -> str:
    """The whole report; ends in a newline."""
    parts = [f"# {md(report.title)}", *(_block(block) for _, block in report.blocks)]
    return "\n\n".join(parts) + "\n"


def _block(block: Block) -> str:
    if block.folded:
        return details(f"<b>{block.title}</b>", block.markdown)
    return f"## {block.title}\n\n{block.markdown}" if block.title else block.markdown
