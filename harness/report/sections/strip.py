"""Strip: the axis at a glance, readable without colour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.ports import Block
from harness.core.verdict import Kind
from harness.report.text import details, fence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.report.findings import Findings
    from harness.report.tried import Cell

LEGEND = {
    ".": "passed every time",
    "X": "failed every time",
    "x": "failed in some trials",
    "*": "failed every time, in several ways",
    "o": "failed in another way than the one sought",
    ",": "passed in some trials, undecided in others",
    "s": "ran out of time, still making progress",
    "?": "inconclusive",
    " ": "not tried",
    "|": "the first failing value follows",
}
"""What the marks mean; each mark is a different character, so that colour is never needed."""

WIDTH = 76


def section(findings: Findings) -> Block | None:
    """The threshold strip with its legend; None when nothing was tried."""
    if not findings.run.records:
        return None
    parts = [fence(text(findings)), legend(findings), _subjects(findings)]
    return Block(title="Threshold", markdown="\n\n".join(filter(None, parts)))


def text(findings: Findings, *, width: int = WIDTH) -> str:
    """``n_layers  1 . 2 . 3 . 4 . | 5 X 6   7   8   12``, in as many lines as it needs."""
    name = f"{findings.run.axis.name}  "
    lines = [""]
    for item in _items(findings):
        if lines[-1] and len(name) + len(lines[-1]) + len(item) > width:
            lines.append("")
        lines[-1] += item
    margin = " " * len(name)
    return name + f"\n{margin}".join(map(str.rstrip, lines))


def _subjects(findings: Findings) -> str:
    """Every commit of the axis with its mark and its subject; empty where its values are none."""
    lines = [f"{mark(cell)} {cell.value}  {findings.subjects.get(cell.value, '')}" for cell in findings.along]
    return details(f"Commits ({len(lines)}), the oldest first", fence("\n".join(lines))) if findings.subjects else ""


def mark(cell: Cell) -> str:
    """The character that stands for what the trials at one value showed."""
    others = sum(trial.has_failed_otherwise for trial in cell)
    if not len(cell):
        return " "
    if cell.bad:
        return _mark_of_failing(cell, others)
    if others:
        return "o"
    if cell.good:
        return "." if cell.good == len(cell) else ","
    return "s" if cell.kinds == {Kind.SLOW} else "?"


def _mark_of_failing(cell: Cell, others: int) -> str:
    if cell.bad == len(cell):
        return "X"
    return "*" if cell.bad + others == len(cell) else "x"


def legend(findings: Findings) -> str:
    """The marks that occur, with their meaning."""
    marks = set(map(mark, findings.along)) | ({"|"} if "|" in text(findings) else set[str]())
    parts: list[str] = []
    for sign, meaning in LEGEND.items():
        if sign in marks:
            parts.append(f"{'blank:' if sign == ' ' else f'`{sign}`'} {meaning}")
    return " · ".join(parts)


def _items(findings: Findings) -> Sequence[str]:
    items: list[str] = []
    for cell in findings.along:
        if findings.is_threshold(cell.value):
            items.append("| ")
        items.append(f"{cell.value} {mark(cell)} ")
    return items
