"""Of a threshold search: the axis at a glance, readable without colour; how time grows along it; the controls."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from harness.core.boundary import LEAST_FOR_GROWTH, Finding
from harness.core.dotted import leaves
from harness.core.fit import at_least, times_beyond
from harness.core.ports import Block
from harness.core.verdict import Kind
from harness.report.text import bullets, code, count, details, fence, listed, md, seconds, table
from harness.report.words import grows, of, other_settings, unit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.core.boundary import ScalingFit
    from harness.core.campaign import AxisFit
    from harness.core.trial import Trial
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

STRIP_WIDTH = 76


def strip_section(findings: Findings) -> Block | None:
    """The threshold strip with its legend; None when nothing was tried."""
    if not findings.run.records:
        return None
    parts = [fence(strip_text(findings)), legend(findings), _subjects(findings)]
    return Block(title="Threshold", markdown="\n\n".join(filter(None, parts)))


def strip_text(findings: Findings, *, width: int = STRIP_WIDTH) -> str:
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
    marks = set(map(mark, findings.along)) | ({"|"} if "|" in strip_text(findings) else set[str]())
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


def scaling_section(findings: Findings) -> Block | None:
    """The fitted line, what it rests on, and what it predicts; over many cells a row a fit. None when there is none."""
    run = findings.run
    if not findings.is_line:
        return _growth_of_cells(findings)
    fit = run.boundary.fit if run.boundary else None
    if fit is None:
        return None
    head = (run.axis.name, "passed", f"measured {fit.quantity} (median)", "line")
    body = table(head, _measured_rows(findings, fit), right=(0, 2, 3))
    parts = [fit_in_words(findings, fit), body, bullets(map(md, _others(findings, fit)))]
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


def fit_in_words(findings: Findings, fit: ScalingFit) -> str:
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


def _measured_rows(findings: Findings, fit: ScalingFit) -> list[tuple[object, ...]]:
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
            text = f"{least}{seconds(predicted[size])} (predicted{_limit_in_words(fit, size)})"
            rows.append((value, "-", "-", text))
    return rows


def _limit_in_words(fit: ScalingFit, value: float) -> str:
    """The limit of a prediction, or that none can be named; nothing in runs of earlier versions, which had none."""
    if not fit.limits:
        return ""
    limit = dict(fit.limits).get(value)
    return "; no limit can be named" if limit is None else f"; at most {seconds(limit)}, 95 %, if it grows on alike"


def _growth_of_cells(findings: Findings) -> Block | None:
    """A row per fit; None without any."""
    fits = findings.answer.fits
    if not fits:
        return None
    head = ("axis", "quantity", "points", "more for each", "95 %", "R²", "best power", "held at")
    body = table(head, (_fit_row(findings, fit) for fit in fits), right=(2, 3, 5, 6))
    notes = [f"{md(fit.axis)}: {md(fit.fit.note)}." for fit in fits if fit.fit.note]
    return Block(title="Growth along the axes", markdown="\n\n".join([body, *notes]))


def power(fit: ScalingFit) -> str:
    """The best exponent with its interval: ``1.0 (95 %: 0.9 .. 1.1)``."""
    if fit.exponent is None:
        return "not known"
    if fit.exponent_low is None or fit.exponent_high is None:
        return f"{fit.exponent:.1f}"
    return f"{fit.exponent:.1f} (95 %: {fit.exponent_low:.1f} .. {fit.exponent_high:.1f})"


def _fit_row(findings: Findings, growth: AxisFit) -> tuple[object, ...]:
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


def controls_section(findings: Findings) -> Block | None:
    """A row per control; that none was run is said where a control would have mattered."""
    controls, boundary = findings.controls, findings.run.boundary
    if not controls:
        is_needed = boundary is not None and boundary.finding in (Finding.THRESHOLD, Finding.ALL_FAIL)
        text = "No control was run, so nothing here says which setting the failure depends on."
        return Block(title="Controls", markdown=text) if is_needed else None
    failing = findings.failing
    rows: list[tuple[object, ...]] = []
    for name, trials in controls.items():
        verdicts = ", ".join(dict.fromkeys(md(trial.verdict) for trial in trials))
        changed = differences(failing.first.record.trial, trials.first.record.trial) if failing else []
        passes, settings = of(trials.passed, len(trials)), "; ".join(map(code, changed)) or "-"
        rows.append((md(name), findings.value_of(trials.first), passes, verdicts, settings))
    head = ("control", findings.run.axis.name, "passed", "verdicts", "differs from the failing trial in")
    return Block(title="Controls", markdown=table(head, rows, right=(1,)))


def differences(failed: Trial, control: Trial) -> list[str]:
    """Every setting in which the control differs from the failing trial, wanted or not: ``name: before -> after``."""
    old, new = _settings(failed), _settings(control)
    changed: list[str] = []
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name), new.get(name)
        if before != after:
            changed.append(f"{name}: {before} -> {after}")
    return changed


def _settings(trial: Trial) -> dict[str, Any]:
    settings = leaves(trial.config)
    for name, value in trial.env:
        settings[f"env {name}"] = value
    return settings | {"fault": str(trial.fault or "none"), "code": trial.code, "machine": trial.machine}
