"""Boxes: the heat map of two axes of a matrix, the threshold strip of one, and how often each value fails."""

from __future__ import annotations

from itertools import combinations, starmap
from typing import TYPE_CHECKING

from harness.core.point import assignment, word_of
from harness.core.verdict import Kind
from harness.report.figures.draw import COLOURS, INK, Figure, box, drawing, finish
from harness.report.sections.threshold import LEGEND, mark
from harness.report.text import listed
from harness.report.tried import alike_but

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from matplotlib.axes import Axes

    from harness.core.boundary import Boundary
    from harness.core.point import Point, Value
    from harness.report.findings import Findings
    from harness.report.tried import Cell, TrialSet


WORDS = {"good": "pass", "bad": "FAIL", "slow": "slow", "unsure": "?"}
SHORT = {
    Kind.HANG: "HANG",
    Kind.CRASH: "CRASH",
    Kind.OOM: "OOM",
    Kind.NONFINITE: "NaN",
    Kind.BELOW_TARGET: "BELOW",
    Kind.SLOW: "slow",
}
EDGES = {"good": ("-", 0.8), "bad": ("-", 2.4), "slow": ("-.", 1.2), "unsure": (":", 1.2)}
MOST = 12


def heat_map(findings: Findings, hide: Callable[[str], str]) -> Figure | None:
    """The two axes that most cells span; None when no two axes were varied together, or cells ran several programs."""
    cells = findings.by_cell
    best = None if findings.run.programs else plane(findings, list(cells))
    if best is None:
        return None
    across, down, settings, inside = best
    xs, ys = _values(findings, across, inside), _values(findings, down, inside)
    if len(xs) > MOST or len(ys) > 2 * MOST:
        return None
    with drawing(0.75 + 0.42 * len(ys)) as (canvas, axes):
        for cell in inside:
            _cell_box(axes, cells[cell], x=xs.index(cell.get(across)), y=-ys.index(cell.get(down)))
        axes.set(xlim=(-0.6, len(xs) - 0.4), ylim=(-len(ys) + 0.4, 0.6), xlabel=across, ylabel=down)
        axes.set_xticks(range(len(xs)), list(map(word_of, xs)))
        axes.set_yticks(range(0, -len(ys), -1), list(map(word_of, ys)))
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        title = f"{down} against {across}{', with ' + settings if settings else ''}"
        alt = f"{title}: {_words(cells, inside, across=across, down=down)}."
        return finish(canvas, name="heat", title=title, alt=alt, section="cells", hide=hide)


def plane(findings: Findings, cells: Sequence[Point]) -> tuple[str, str, str, list[Point]] | None:
    """The two axes whose cells, alike in all else, ended in most ways, then the most: (across, down, held, cells)."""
    best: tuple[tuple[int, int], str, str, list[Point]] | None = None
    for one, other in combinations(findings.run.spec.matrix.space.names, 2):
        for inside in alike_but(cells, (one, other)):
            score = (len(set(map(findings.endings.get, inside))), len(inside))
            if _vary(one, inside) and _vary(other, inside) and (best is None or score > best[0]):
                best = (score, one, other, inside)
    if best is None:
        return None
    _, one, other, inside = best
    across, down = (one, other) if _vary(one, inside) >= _vary(other, inside) else (other, one)
    others = [(name, value) for name, value in inside[0] if name not in (across, down) and _vary(name, cells)]
    return across, down, listed(starmap(assignment, others)), inside


def _vary(name: str, cells: Sequence[Point]) -> int:
    """How many values of an axis these cells have, where more than one; else 0."""
    values = _present(name, cells)
    return len(values) if len(values) > 1 else 0


def _present(name: str, cells: Sequence[Point]) -> set[Value]:
    return {cell.get(name) for cell in cells}


def tone(trials: TrialSet) -> str:
    """good, bad, slow or unsure: what the trials of one cell showed."""
    if trials.bad:
        return "bad"
    if trials.good == len(trials):
        return "good"
    return "slow" if Kind.SLOW in trials.kinds else "unsure"


def _cell_box(axes: Axes, trials: TrialSet, *, x: float, y: float) -> None:
    colour = tone(trials)
    line, width = EDGES[colour]
    edge = {"linestyle": line, "linewidth": width}
    box(axes, x - 0.46, y - 0.44, 0.92, 0.88, fill=COLOURS[colour], alpha=0.3, edge=edge)
    kind = trials.kind_counts.most_common(1)[0][0]
    word = SHORT.get(kind, WORDS[colour]) if colour != "good" else WORDS["good"]
    axes.text(x, y + 0.14, word, ha="center", va="center", fontsize=8.5, weight="bold")
    axes.text(x, y - 0.2, f"{trials.bad or trials.good}/{len(trials)}", ha="center", va="center", fontsize=7.5)


def _values(findings: Findings, name: str, cells: Sequence[Point]) -> list[Value]:
    present = _present(name, cells)
    return [value for value in findings.run.spec.matrix.space.factor(name).axis.values if value in present]


def _words(cells: Mapping[Point, TrialSet], inside: Sequence[Point], *, across: str, down: str) -> str:
    """What each row of cells ended in, at which columns."""
    rows: dict[tuple[str, str], list[str]] = {}
    for cell in inside:
        rows.setdefault((word_of(cell.get(down)), tone(cells[cell])), []).append(word_of(cell.get(across)))
    words = {"good": "passed at", "bad": "failed at", "slow": "ran out of time at", "unsure": "inconclusive at"}
    return "; ".join(f"{down}={row} {words[t]} {across} {listed(names, most=24)}" for (row, t), names in rows.items())


A_ROW = 12
STYLES = {".": ("good", "-", 1.0), ",": ("good", "--", 1.0), "X": ("bad", "-", 2.4), "x": ("bad", "--", 1.8),
          "*": ("bad", "-.", 2.4), "o": ("unsure", "-", 1.8), "s": ("slow", "-.", 1.2), "?": ("unsure", ":", 1.2),
          " ": ("none", ":", 0.6)}  # fmt: skip
"""Per mark its colour, line style and width: the boxes differ in print too."""

LETTERS = {".": "pass", ",": "pass", "X": "FAIL", "x": "fail", "*": "FAIL", "o": "other", "s": "slow", "?": "?",
           " ": ""}  # fmt: skip


def strip(findings: Findings, hide: Callable[[str], str]) -> Figure | None:
    """The strip; None when nothing was tried."""
    run = findings.run
    if not run.records or not findings.is_line or len(cells := findings.along) < 2:
        return None
    rows = -(-len(cells) // A_ROW)
    with drawing(0.55 + 0.72 * rows) as (canvas, axes):
        for number, cell in enumerate(cells):
            _value_box(axes, cell, column=number % A_ROW, row=number // A_ROW)
            if findings.is_threshold(cell.value):
                x, y = number % A_ROW, -(number // A_ROW)
                axes.plot([x - 0.5, x - 0.5], [y - 0.62, y + 0.62], color=INK, linewidth=3)
        axes.set(xlim=(-0.7, min(A_ROW, len(cells)) - 0.3), ylim=(-rows + 0.3, 0.75))
        axes.axis("off")
        axes.set_title(run.axis.name, loc="left", fontsize=10)
        title = f"Trials along {run.axis.name}"
        return finish(canvas, name="strip", title=title, alt=_strip_in_words(findings), section="strip", hide=hide)


def _value_box(axes: Axes, cell: Cell, *, column: int, row: int) -> None:
    colour, line, width = STYLES[mark(cell)]
    fill = COLOURS[colour]
    edge = {"linestyle": line, "linewidth": width}
    box(axes, column - 0.44, -row - 0.45, 0.88, 0.9, fill=fill, alpha=0.0 if fill == "none" else 0.3, edge=edge)
    axes.text(column, -row + 0.2, str(cell.value), ha="center", va="center", weight="bold", fontsize=9)
    axes.text(column, -row - 0.06, LETTERS[mark(cell)], ha="center", va="center", fontsize=8)
    if len(cell):
        number = cell.bad or cell.good or 0
        axes.text(column, -row - 0.29, f"{number}/{len(cell)}", ha="center", va="center", fontsize=7.5)


def _strip_in_words(findings: Findings) -> str:
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
    names = [str(band.value) for band in boundary.curve]
    bands = [f"{band.value}: {band.low:.2f} to {band.high:.2f}" for band in boundary.curve]
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
