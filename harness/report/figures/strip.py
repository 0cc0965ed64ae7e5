"""The threshold strip, every value of the axis in a box, with its counts; and how often each value fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.report.figures.draw import COLOURS, INK, Figure, box, drawing, finish
from harness.report.sections.threshold import LEGEND, mark
from harness.report.text import listed

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes

    from harness.core.boundary import Boundary
    from harness.report.findings import Findings
    from harness.report.tried import Cell


A_ROW = 12
STYLES = {".": ("good", "-", 1.0), ",": ("good", "--", 1.0), "X": ("bad", "-", 2.4), "x": ("bad", "--", 1.8),
          "*": ("bad", "-.", 2.4), "o": ("unsure", "-", 1.8), "s": ("slow", "-.", 1.2), "?": ("unsure", ":", 1.2),
          " ": ("none", ":", 0.6)}  # fmt: skip
"""Per mark its colour, line style and width: the boxes differ in print too."""

LETTERS = {".": "pass", ",": "pass", "X": "FAIL", "x": "fail", "*": "FAIL", "o": "other", "s": "slow", "?": "?",
           " ": ""}  # fmt: skip


def figure(findings: Findings, hide: Callable[[str], str]) -> Figure | None:
    """The strip; None when nothing was tried."""
    run = findings.run
    if not run.records or not findings.is_line or len(cells := findings.along) < 2:
        return None
    rows = -(-len(cells) // A_ROW)
    with drawing(0.55 + 0.72 * rows) as (canvas, axes):
        for number, cell in enumerate(cells):
            _box(axes, cell, column=number % A_ROW, row=number // A_ROW)
            if findings.is_threshold(cell.value):
                x, y = number % A_ROW, -(number // A_ROW)
                axes.plot([x - 0.5, x - 0.5], [y - 0.62, y + 0.62], color=INK, linewidth=3)
        axes.set(xlim=(-0.7, min(A_ROW, len(cells)) - 0.3), ylim=(-rows + 0.3, 0.75))
        axes.axis("off")
        axes.set_title(run.axis.name, loc="left", fontsize=10)
        title = f"Trials along {run.axis.name}"
        return finish(canvas, name="strip", title=title, alt=_alt(findings), section="strip", hide=hide)


def _box(axes: Axes, cell: Cell, *, column: int, row: int) -> None:
    colour, line, width = STYLES[mark(cell)]
    fill = COLOURS[colour]
    edge = {"linestyle": line, "linewidth": width}
    box(axes, column - 0.44, -row - 0.45, 0.88, 0.9, fill=fill, alpha=0.0 if fill == "none" else 0.3, edge=edge)
    axes.text(column, -row + 0.2, str(cell.value), ha="center", va="center", weight="bold", fontsize=9)
    axes.text(column, -row - 0.06, LETTERS[mark(cell)], ha="center", va="center", fontsize=8)
    if len(cell):
        number = cell.bad or cell.good or 0
        axes.text(column, -row - 0.29, f"{number}/{len(cell)}", ha="center", va="center", fontsize=7.5)


def _alt(findings: Findings) -> str:
    by_mark: dict[str, list[str]] = {}
    for cell in findings.along:
        counts = f" ({cell.bad or cell.good} of {len(cell)})" if len(cell) else ""
        by_mark.setdefault(mark(cell), []).append(f"{cell.value}{counts}")
    text = "; ".join(f"{LEGEND[m]}: {listed(v, most=40)}" for m, v in by_mark.items())
    return f"{findings.run.axis.name}: {text}."


def curve(findings: Findings, hide: Callable[[str], str]) -> Figure | None:
    """A bar from the lowest to the highest rate that is not ruled out, for every value tried; None without failures."""
    boundary = findings.run.boundary
    if boundary is None or len(boundary.curve) < 2 or boundary.first_bad is None:
        return None
    name = findings.run.axis.name
    names: list[str] = []
    bands: list[str] = []
    for band in boundary.curve:
        names.append(str(band.value))
        bands.append(f"{band.value}: {band.low:.2f} to {band.high:.2f}")
    with drawing(2.1) as (canvas, axes):
        _draw_curve(axes, boundary)
        axes.set_xticks(range(len(names)), names)
        axes.set(xlabel=name, ylabel="failure rate", ylim=(-0.03, 1.03))
        sure = f"{boundary.confidence * 100:g} % for all values at once"
        alt = f"Failure rate along {name}, {sure}: {'; '.join(bands)}."
        title = f"How often each value fails: rates that are not ruled out ({sure}), and a dot for what was seen"
        return finish(canvas, name="curve", title=title, alt=alt, section="strip", hide=hide)


def _draw_curve(axes: Axes, boundary: Boundary) -> None:
    """The band of each value, and in it a point at the share of its trials that failed."""
    counts = {count.value: (count.bad, count.good + count.bad) for count in boundary.counts}
    for place, band in enumerate(boundary.curve):
        axes.bar(place, band.high - band.low, bottom=band.low, width=0.5, color=COLOURS["good"], alpha=0.45)
        bad, runs = counts.get(band.value, (0, 0))
        if runs:
            axes.scatter([place], [bad / runs], s=18, color=INK, zorder=3)
