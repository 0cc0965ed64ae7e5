"""Scaling: how the time of passed trials grows along the axis."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from harness.core.boundary import LEAST_FOR_GROWTH
from harness.core.fit import at_least, times_beyond
from harness.core.ports import Block
from harness.report.text import bullets, code, count, listed, md, seconds, table
from harness.report.words import grows, other_settings, unit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.core.boundary import ScalingFit
    from harness.core.campaign import AxisFit
    from harness.report.findings import Findings


def section(findings: Findings) -> Block | None:
    """The fitted line, what it rests on, and what it predicts; over many cells a row a fit. None when there is none."""
    run = findings.run
    if not findings.is_line:
        return of_cells(findings)
    fit = run.boundary.fit if run.boundary else None
    if fit is None:
        return None
    head = (run.axis.name, "passed", f"measured {fit.quantity} (median)", "line")
    body = table(head, _rows(findings, fit), right=(0, 2, 3))
    parts = [sentence(findings, fit), body, bullets(map(md, _others(findings, fit)))]
    return Block(title="Time along the axis", markdown="\n\n".join(filter(None, parts)))


def _others(findings: Findings, fit: ScalingFit) -> Iterator[str]:
    """What else was measured along the axis, one sentence each."""
    boundary = findings.run.boundary
    for other in boundary.fits if boundary else ():
        if other.quantity != fit.quantity:
            interval = f"95 %: {other.slope_low:.4g} .. {other.slope_high:.4g}"
            what = f"{other.quantity[0].upper()}{other.quantity[1:]}"
            more = f"more per {unit(findings)}"
            if other.is_growth:
                scatter = f"R² = {other.r_squared:.3f}, power {power(other)}"
                yield f"{what}: {other.slope:.4g} {more} ({interval}), {scatter}."
            elif len(other.sizes) >= LEAST_FOR_GROWTH:
                yield f"{what}: no growth is shown ({interval} {more})."
            else:
                yield f"{what}: {other.note}."


def sentence(findings: Findings, fit: ScalingFit) -> str:
    """The fit in words, with its interval and how well it describes the points."""
    axis = findings.run.axis.name
    parts = [md(grows(findings, fit))]
    if fit.is_growth:
        over = "the median of each value, of" if fit.is_by_value else "over"
        parts.append(
            f"{md(fit.quantity.capitalize())} = {fit.intercept:.3g} + {fit.slope:.3g} x {axis}; "
            f"least squares {over} {count(len(fit.points), 'trial')}, R² = {fit.r_squared:.3f}."
        )
        if fit.exponent is not None:
            parts.append(f"The best power of {axis} is {power(fit)} (1 is a line).")
    if fit.note:
        parts.append(f"{md(fit.note[0].upper() + fit.note[1:])}.")
    return " ".join(filter(None, parts))


def _rows(findings: Findings, fit: ScalingFit) -> list[tuple[object, ...]]:
    times_by_value: dict[float, list[float]] = {}
    for value, time_s in fit.points:
        times_by_value.setdefault(value, []).append(time_s)
    predicted = dict(fit.predicted)
    rows: list[tuple[object, ...]] = []
    for value in findings.run.axis.values:
        size = findings.run.axis.size(value)
        if size is None:
            continue
        times = times_by_value.get(size, [])
        line = seconds(max(fit.intercept + fit.slope * size, 0.0))
        if times:
            good = min(findings.at_value(value).good, len(times))  # one that was cut off has steps too
            passes = count(good, "pass") if good == len(times) else f"{good} of {len(times)}"
            rows.append((value, passes, seconds(median(times)), line))
        elif size in predicted:
            least = at_least(times_beyond(size, times_by_value))
            text = f"{least}{seconds(predicted[size])} (predicted{_most(fit, size)})"
            rows.append((value, "-", "-", text))
    return rows


def _most(fit: ScalingFit, value: float) -> str:
    """The limit of a prediction, or that none can be named; nothing in runs of earlier versions, which had none."""
    if not fit.limits:
        return ""
    limit = dict(fit.limits).get(value)
    return "; no limit can be named" if limit is None else f"; at most {seconds(limit)}, 95 %, if it grows on alike"


def of_cells(findings: Findings) -> Block | None:
    """A row per fit; None without any."""
    fits = findings.answer.fits
    if not fits:
        return None
    head = ("axis", "quantity", "points", "more for each", "95 %", "R²", "best power", "held at")
    body = table(head, (_row(findings, fit) for fit in fits), right=(2, 3, 5, 6))
    notes = [f"{md(fit.axis)}: {md(fit.fit.note)}." for fit in fits if fit.fit.note]
    return Block(title="Growth along the axes", markdown="\n\n".join([body, *notes]))


def power(fit: ScalingFit) -> str:
    """The best exponent with its interval: ``1.0 (95 %: 0.9 .. 1.1)``."""
    if fit.exponent is None:
        return "not known"
    if fit.exponent_low is None or fit.exponent_high is None:
        return f"{fit.exponent:.1f}"
    return f"{fit.exponent:.1f} (95 %: {fit.exponent_low:.1f} .. {fit.exponent_high:.1f})"


def _row(findings: Findings, growth: AxisFit) -> tuple[object, ...]:
    fit = growth.fit
    interval = f"{fit.slope_low:.3g} .. {fit.slope_high:.3g}" if fit.slope_low != fit.slope_high else "not known"
    return (
        md(growth.axis),
        md(fit.quantity),
        count(len(fit.points), "trial"),
        f"{fit.slope:.3g} s" if fit.is_of_time else f"{fit.slope:.3g}",
        interval,
        f"{fit.r_squared:.3f}",
        power(fit) if fit.exponent is not None and fit.is_growth else "-",
        listed(map(code, other_settings(findings, growth))) or "the good values",
    )
