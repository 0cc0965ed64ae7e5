"""The heat map: two axes of a matrix, each cell with its letter and counts, all other axes at one value."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from harness.core.point import assignment, word_of
from harness.core.verdict import Kind
from harness.report.figures.draw import COLOURS, Figure, box, drawing, finish
from harness.report.text import listed
from harness.report.tried import alike_but

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from matplotlib.axes import Axes

    from harness.core.point import Point, Value
    from harness.report.findings import Findings
    from harness.report.tried import TrialSet

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


def figure(findings: Findings, hide: Callable[[str], str]) -> Figure | None:
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
            _box(axes, cells[cell], x=xs.index(cell.get(across)), y=-ys.index(cell.get(down)))
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
    others: list[str] = []
    for name, value in inside[0]:
        if name not in (across, down) and _vary(name, cells):
            others.append(assignment(name, value))
    return across, down, listed(others), inside


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


def _box(axes: Axes, trials: TrialSet, *, x: float, y: float) -> None:
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
