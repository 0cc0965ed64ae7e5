"""The scaling fit: measured times, the line with its 95 % band, what it predicts, and the limit that cut trials off."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from harness.core.fit import at_least, fit_line, medians, student_t, times_beyond
from harness.report.figures.draw import COLOURS, INK, Figure, drawing, finish, whole_ticks
from harness.report.text import count, seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.core.boundary import ScalingFit
    from harness.report.findings import Findings


def figure(findings: Findings, hide: Callable[[str], str]) -> Figure | None:
    """The fit of a threshold search, or the first fit of time of any other run; None when there is none."""
    run = findings.run
    if findings.is_line:
        fit = run.boundary.fit if run.boundary else None
        return draw(fit, axis=run.axis.name, hide=hide) if fit else None
    for axis_fit in findings.answer.fits:
        if axis_fit.fit.is_of_time:
            return draw(axis_fit.fit, axis=axis_fit.axis, hide=hide)
    return None


def draw(fit: ScalingFit, *, axis: str, hide: Callable[[str], str]) -> Figure:
    """Points, line, band; predicted values are open diamonds on the dashed part of the line."""
    xs, last = sorted(dict((*fit.points, *fit.predicted))), fit.sizes[-1]
    grid = [xs[0] + (xs[-1] - xs[0]) * i / 40 for i in range(41)]
    solid, beyond = grid[: bisect_right(grid, last)], grid[bisect_left(grid, last) :]
    band = _band(fit, solid) if fit.law in ("", "n") else []  # a line's band holds for a line, where it was measured
    with drawing(2.7) as (canvas, axes):
        if band:
            low, high = zip(*band, strict=True)
            axes.fill_between(solid, low, high, color=COLOURS["good"], alpha=0.2, linewidth=0, label="95 % of the line")
        axes.plot(solid, _along(fit, solid), color=COLOURS["good"], linewidth=1.8)
        axes.plot(beyond, _along(fit, beyond), color=COLOURS["good"], linewidth=1.4, linestyle="--")
        axes.scatter(*zip(*fit.points, strict=True), s=18, color=INK, zorder=3, label="measured")
        if fit.predicted:
            axes.scatter(*zip(*fit.predicted, strict=True), s=24, marker="D", facecolors="none", edgecolors=INK,
                         zorder=3, label="predicted")  # fmt: skip
        axes.set_ylim(bottom=0)
        axes.set(xlabel=axis, ylabel=fit.quantity)
        whole_ticks(axes, fit.sizes)
        axes.legend(loc="upper left")
        title = f"{fit.quantity.capitalize()} along {axis}"
        return finish(canvas, name="scaling", title=title, alt=_alt(fit, axis), section="scaling", hide=hide)


def _along(fit: ScalingFit, xs: list[float]) -> list[float]:
    return [fit.intercept + fit.slope * x for x in xs]


def _band(fit: ScalingFit, grid: list[float]) -> list[tuple[float, float]]:
    """The 95 % interval of the line itself at each x; empty when it cannot be told."""
    line = fit_line(medians(fit.points) if fit.is_by_value else fit.points)
    if line is None or line.scatter is None:
        return []
    t = student_t(0.95, line.n - 2)
    band: list[tuple[float, float]] = []
    for x in grid:
        wide = t * line.scatter * (1 / line.n + (x - line.mean_x) ** 2 / line.spread_x) ** 0.5
        band.append((max(line.at(x) - wide, 0.0), line.at(x) + wide))
    return band


def _alt(fit: ScalingFit, axis: str) -> str:
    middle = medians(fit.points)
    low, high = min(middle), max(middle)
    usual = " in the median" if len(middle) < len(fit.points) else ""
    prediction = ""
    if fit.predicted:
        x, y = max(fit.predicted)
        least = at_least(times_beyond(x, fit.sizes))
        prediction = f" Predicted at {x:g}: {least}{seconds(y)}."
    return (
        f"{fit.quantity.capitalize()} against {axis}, {count(len(fit.points), 'trial')}: "
        f"{seconds(low[1])} at {low[0]:g}, {seconds(high[1])} at {high[0]:g}{usual}. "
        f"{_rises(fit)}.{prediction}"
    )


def _rises(fit: ScalingFit) -> str:
    """How steep the line is, or that it shows no growth."""
    interval = f" (95 %: {fit.slope_low:.3g} to {fit.slope_high:.3g})" if fit.slope_low != fit.slope_high else ""
    if not fit.is_growth and not fit.may_grow:
        return f"The line through them shows no growth{interval}"
    return f"The line rises by {fit.slope:.3g} s each{interval}, R² = {fit.r_squared:.3f}"
