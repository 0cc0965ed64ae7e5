"""The heat map: two axes of a matrix, each cell with its letter and counts, all other axes at one value."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from harness.core.verdict import Answer, Kind
from harness.report.campaign.facts import by_cell, ending
from harness.report.figures.draw import COLOURS, INK, Figure, drawing, finish
from harness.report.text import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from harness.core.point import Point, Value
    from harness.core.record import Run
    from harness.report.facts import Numbered

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


def figure(run: Run, run_dir: Path, hide: Callable[[str], str]) -> Figure | None:
    """The two axes that most cells span; None when no two axes were varied together."""
    cells = by_cell(run)
    chosen = plane(run, list(cells))
    if chosen is None:
        return None
    across, down, held, inside = chosen
    xs, ys = _values(run, across, inside), _values(run, down, inside)
    if len(xs) > MOST or len(ys) > 2 * MOST:
        return None
    with drawing(0.75 + 0.42 * len(ys)) as (canvas, axes):
        for cell in inside:
            _box(axes, cells[cell], x=xs.index(cell.get(across)), y=-ys.index(cell.get(down)))
        axes.set_xlim(-0.6, len(xs) - 0.4)
        axes.set_ylim(-len(ys) + 0.4, 0.6)
        axes.set_xticks(range(len(xs)), [_word(value) for value in xs])
        axes.set_yticks([-i for i in range(len(ys))], [_word(value) for value in ys])
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.set_xlabel(across)
        axes.set_ylabel(down)
        return finish(
            canvas,
            name="heat",
            title=f"{down} against {across}" + (f", with {held}" if held else ""),
            alt=_alt(cells, inside, across=across, down=down, held=held),
            section="cells",
            hide=hide,
        )


def plane(run: Run, cells: Sequence[Point]) -> tuple[str, str, str, list[Point]] | None:
    """The two axes whose cells, alike in all else, ended in most ways, then the most: (across, down, held, cells)."""
    names = [f.name for f in run.spec.matrix.space.factors]
    ends = {cell: ending(trials) for cell, trials in by_cell(run).items()}
    best: tuple[tuple[int, int], str, str, list[Point]] | None = None
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            rest = Counter(tuple(s for s in cell if s[0] not in (one, other)) for cell in cells)
            common, number = rest.most_common(1)[0] if rest else ((), 0)
            inside = [cell for cell in cells if tuple(s for s in cell if s[0] not in (one, other)) == common]
            spans = all(len({cell.get(name) for cell in inside}) > 1 for name in (one, other))
            score = (len({ends[cell] for cell in inside}), number)
            if spans and (best is None or score > best[0]):
                best = (score, one, other, inside)
    if best is None:
        return None
    _, one, other, inside = best
    wide = len({cell.get(one) for cell in inside}) >= len({cell.get(other) for cell in inside})
    across, down = (one, other) if wide else (other, one)
    varied = {name for name in names if len({cell.get(name) for cell in cells}) > 1}
    held = listed(f"{name}={_word(v)}" for name, v in inside[0] if name not in (across, down) and name in varied)
    return across, down, held, inside


def tone(trials: Sequence[Numbered]) -> str:
    """good, bad, slow or unsure: what the trials of one cell showed."""
    answers = {trial.record.answer for trial in trials}
    if Answer.BAD in answers:
        return "bad"
    if answers == {Answer.GOOD}:
        return "good"
    return "slow" if any(trial.verdict.kind is Kind.SLOW for trial in trials) else "unsure"


def _box(axes: object, trials: Sequence[Numbered], *, x: float, y: float) -> None:
    from matplotlib.axes import Axes
    from matplotlib.patches import Rectangle

    assert isinstance(axes, Axes)
    found = tone(trials)
    line, width = EDGES[found]
    box = ((x - 0.46, y - 0.44), 0.92, 0.88)
    axes.add_patch(Rectangle(*box, facecolor=COLOURS[found], alpha=0.3, linewidth=0))
    axes.add_patch(Rectangle(*box, fill=False, edgecolor=INK, linestyle=line, linewidth=width))
    kind = Counter(trial.verdict.kind for trial in trials).most_common(1)[0][0]
    word = SHORT.get(kind, WORDS[found]) if found != "good" else WORDS["good"]
    axes.text(x, y + 0.14, word, ha="center", va="center", fontsize=8.5, weight="bold")
    passed = sum(t.record.answer is Answer.GOOD for t in trials)
    failed = sum(t.record.answer is Answer.BAD for t in trials)
    axes.text(x, y - 0.2, f"{failed or passed}/{len(trials)}", ha="center", va="center", fontsize=7.5)


def _values(run: Run, name: str, cells: Sequence[Point]) -> list[Value]:
    tried = {cell.get(name) for cell in cells}
    return [value for value in run.spec.matrix.space.factor(name).axis.values if value in tried]


def _word(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _alt(cells: dict[Point, list[Numbered]], inside: Sequence[Point], *, across: str, down: str, held: str) -> str:
    rows: dict[tuple[str, str], list[str]] = {}
    for cell in inside:
        rows.setdefault((_word(cell.get(down)), tone(cells[cell])), []).append(_word(cell.get(across)))
    words = {"good": "passed at", "bad": "failed at", "slow": "ran out of time at", "unsure": "not told at"}
    said = "; ".join(f"{down}={row} {words[t]} {across} {listed(names, most=24)}" for (row, t), names in rows.items())
    return f"{down} against {across}{', with ' + held if held else ''}: {said}."
