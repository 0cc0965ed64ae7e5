"""Curves: measured times with their line, 95 % band, predictions and limit; memory over time, else along the axis."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from typing import TYPE_CHECKING

from harness.core.fit import at_least, fit_line, medians, student_t, times_beyond
from harness.core.point import word_of
from harness.core.verdict import Kind
from harness.report.figures.draw import COLOURS, INK, Figure, drawing, finish, whole_ticks
from harness.report.stacks import rank_name
from harness.report.text import count, listed, seconds, size
from harness.report.tried import grouped

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.core.boundary import ScalingFit
    from harness.core.evidence import Evidence
    from harness.core.record import TrialRecord
    from harness.report.findings import Findings


def scaling(findings: Findings, hide: Callable[[str], str]) -> Figure | None:
    """The fit of a threshold search, or the first fit of time of any other run; None when there is none."""
    run = findings.run
    if findings.is_line:
        fit = run.boundary.fit if run.boundary else None
        return draw_fit(fit, axis=run.axis.name, hide=hide) if fit else None
    for axis_fit in findings.answer.fits:
        if axis_fit.fit.is_of_time:
            return draw_fit(axis_fit.fit, axis=axis_fit.axis, hide=hide)
    return None


def draw_fit(fit: ScalingFit, *, axis: str, hide: Callable[[str], str]) -> Figure:
    """Points, line, band; predicted values are open diamonds on the dashed part of the line."""
    xs, last = sorted(dict((*fit.points, *fit.predicted))), fit.sizes[-1]
    grid = [xs[0] + (xs[-1] - xs[0]) * i / 40 for i in range(41)]
    solid, beyond = grid[: bisect_right(grid, last)], grid[bisect_left(grid, last) :]
    band = _band(fit, solid) if fit.law in ("", "n") else []  # a line's band holds for a line, where it was measured
    with drawing(2.7) as (canvas, axes):
        if band:
            low, high = zip(*band, strict=True)
            axes.fill_between(solid, low, high, color=COLOURS["good"], alpha=0.2, linewidth=0, label="95 % of the line")
        axes.plot(solid, _on_the_line(fit, solid), color=COLOURS["good"], linewidth=1.8)
        axes.plot(beyond, _on_the_line(fit, beyond), color=COLOURS["good"], linewidth=1.4, linestyle="--")
        axes.scatter(*zip(*fit.points, strict=True), s=18, color=INK, zorder=3, label="measured")
        if fit.predicted:
            axes.scatter(*zip(*fit.predicted, strict=True), s=24, marker="D", facecolors="none", edgecolors=INK,
                         zorder=3, label="predicted")  # fmt: skip
        axes.set_ylim(bottom=0)
        axes.set(xlabel=axis, ylabel=fit.quantity)
        whole_ticks(axes, fit.sizes)
        axes.legend(loc="upper left")
        title = f"{fit.quantity.capitalize()} along {axis}"
        return finish(canvas, name="scaling", title=title, alt=_fit_in_words(fit, axis), section="scaling", hide=hide)


def _on_the_line(fit: ScalingFit, xs: list[float]) -> list[float]:
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


def _fit_in_words(fit: ScalingFit, axis: str) -> str:
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


MIB = 2**20
LINES = ("-", "--", "-.", ":")


def memory(findings: Findings, hide: Callable[[str], str]) -> Figure | None:
    """Curves where memory was looked at three times at least; else the peaks along the axis; None without either."""
    subject = findings.subject_evidence
    curves = _curves(*subject) if subject else {}
    if subject and curves:
        return _over_time(curves, str(subject[0].trial.point), hide)
    return _peaks_along(findings, hide) if findings.is_line else None


def _curves(record: TrialRecord, evidence: Evidence) -> dict[str, list[tuple[float, float]]]:
    curves: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for look in evidence.processes:
        name = f"{rank_name(look.rank, record, evidence)}, process"
        curves[name].append((look.t_s, look.rss_bytes / MIB))
    for sample in evidence.gpus:
        if sample.memory_used_bytes is not None:
            name = f"GPU {sample.index}, all processes"
            curves[name].append((sample.t_s, sample.memory_used_bytes / MIB))
    return {name: sorted(points) for name, points in curves.items() if len(points) > 2}


def _over_time(curves: dict[str, list[tuple[float, float]]], where: str, hide: Callable[[str], str]) -> Figure:
    with drawing(2.3) as (canvas, axes):
        highest = 0.0
        parts: list[str] = []
        for number, (name, points) in enumerate(curves.items()):
            colour = COLOURS[("good", "bad", "slow", "unsure")[number % 4]]
            times_s, sizes = zip(*points, strict=True)
            axes.plot(times_s, sizes, color=colour, linestyle=LINES[number % 4], linewidth=1.8, marker=".", label=name)
            highest = max(highest, *sizes)
            parts.append(f"{name} from {size(int(sizes[0] * MIB))} to {size(int(sizes[-1] * MIB))}")
        axes.set(ylim=(0, 1.25 * highest), xlabel="seconds since the start of the trial", ylabel="MiB")
        axes.legend(loc="lower left")
        alt = f"Memory over time at {where}: {listed(parts)}."
        return finish(canvas, name="memory", title="Memory over time", alt=alt, section="failures", hide=hide)


def _peaks_along(findings: Findings, hide: Callable[[str], str]) -> Figure | None:
    axis = findings.run.axis
    points = _points(findings)
    values, sizes, _ = zip(*points, strict=True) if points else ((), (), ())
    if len(set(values)) < 3:
        return None
    by_end = grouped(points, lambda point: point[2])
    with drawing(2.3) as (canvas, axes):
        for has_passed, marker, label in ((True, "o", "passed"), (False, "x", "did not pass")):
            if has_passed in by_end:
                xs, ys, _ = zip(*by_end[has_passed], strict=True)
                axes.scatter(xs, ys, marker=marker, s=26, color=INK, linewidths=1.4, label=label)
        axes.set(ylim=(0, 1.25 * max(sizes)), xlabel=axis.name, ylabel="peak memory, MiB")
        whole_ticks(axes, values)
        axes.legend(loc="lower right")
        low, high = min(points), max(points)
        text = f"{low[1]:.0f} MiB at {word_of(low[0])}, {high[1]:.0f} MiB at {word_of(high[0])}"
        alt = f"Peak memory of each trial along {axis.name}: {text}."
        title = f"Peak memory along {axis.name}"
        return finish(canvas, name="memory", title=title, alt=alt, section="trials", hide=hide)


def _points(findings: Findings) -> list[tuple[float, float, bool]]:
    """Value, MiB and whether it passed, of every trial at a number whose memory was measured."""
    points: list[tuple[float, float, bool]] = []
    for trial in findings.trials:
        at = findings.run.axis.size(trial.cell.get(findings.run.axis.name))
        peak_bytes = trial.record.measurement.peak_rss_bytes
        if at is not None and peak_bytes:
            points.append((at, peak_bytes / MIB, trial.verdict.kind is Kind.PASS))
    return points
