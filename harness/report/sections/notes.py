"""Notes: what people wrote that lies beside a run, and what the linter says to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.ports import Block
from harness.report.claims import lint
from harness.report.clean import clean
from harness.report.text import listed, md
from harness.store import layout

if TYPE_CHECKING:
    from harness.report.findings import Findings


def section(findings: Findings) -> Block | None:
    """``notes.md`` of the run, as it is; None without one. Words that claim too much are pointed at."""
    path = layout.notes(findings.run_dir)
    if not path.is_file():
        return None
    title, _, body = clean(path.read_text(encoding="utf-8", errors="replace")).strip().partition("\n")
    problems = lint(body)
    if problems:
        body += f"\n\n**These notes claim more than trials can show:** {md(listed(problems, most=5))}."
    return Block(title=title.lstrip("# "), markdown=body.strip())
