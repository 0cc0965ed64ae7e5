"""Scaling: how the time of passed trials grows along the axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.ports import Block
from harness.report.facts import cells
from harness.report.text import count, md, seconds, table
from harness.report.words import per_step

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.boundary import ScalingFit
    from harness.core.record import Run


def section(run: Run, run_dir: Path) -> Block | None:
    """The fitted line, what it rests on, and what it predicts; None when there is no fit."""
    fit = run.boundary.fit if run.boundary else None
    if fit is None:
        return None
    rows = [(value, count(n, "pass"), median, fitted) for value, n, median, fitted in _rows(run, fit)]
    body = table((run.spec.axis.name, "passed", "measured (median)", "line"), rows, right=(0, 2, 3))
    return Block(title="Time along the axis", markdown=f"{sentence(run, fit)}\n\n{body}")


def sentence(run: Run, fit: ScalingFit) -> str:
    """The fit in words, with its interval and how well it describes the points."""
    text = (
        f"{md(fit.quantity.capitalize())} = {fit.intercept:.3g} s + {md(per_step(run, fit))}; "
        f"least squares over {count(len(fit.points), 'passed trial')}, R² = {fit.r_squared:.3f}."
    )
    if fit.exponent is not None:
        text += f" The best power of {run.spec.axis.name} is {fit.exponent:.1f} (1 is a line)."
    if fit.note:
        text += f" {md(fit.note[0].upper() + fit.note[1:])}."
    return text


def _rows(run: Run, fit: ScalingFit) -> list[tuple[object, int, str, str]]:
    predicted = dict(fit.predicted)
    rows: list[tuple[object, int, str, str]] = []
    for cell in cells(run):
        if not isinstance(cell.value, int | float):
            continue
        passed = sum(t.verdict.kind == "PASS" for t in cell.trials)
        line = fit.intercept + fit.slope * cell.value
        if cell.pass_s is not None:
            rows.append((cell.value, passed, seconds(cell.pass_s), seconds(max(line, 0.0))))
        elif cell.value in predicted:
            rows.append((cell.value, 0, "-", f"{seconds(predicted[cell.value])} (predicted)"))
    return rows
