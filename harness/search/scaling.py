"""How time, memory and the graph grow along an axis: the line, the law that predicts best, the exponent if it shows."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from harness.core.boundary import SECONDS_PER_STEP, SECONDS_PER_TRIAL, ScalingFit
from harness.core.evidence import GRAPH_NODES
from harness.core.fit import fit_line, medians, student_t
from harness.core.laws import LEAST_ERROR, fitted, growth, power, straight
from harness.core.verdict import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.point import Axis
    from harness.core.record import TrialRecord

EXPONENTS = tuple(round(0.1 * i, 1) for i in range(1, 41))
MIB = 2**20
WIDEST_INTERVAL = 1.0
"""An exponent is reported only when its 95 % interval is no wider than this."""


def fit_scaling(
    quantity: str, points: Sequence[tuple[float, float]], predict_for: Sequence[float] = ()
) -> ScalingFit | None:
    """The line through ``points`` (value, seconds), or None with fewer than two different values.

    Costs scatter in proportion to their size, and are weighed so; where one is not above zero, all weigh the same.

    Each value counts once (``core.fit.medians``): the scatter of a certificate is no error of a slope. Two values give
    a line without an interval: ``slope_low == slope_high == slope``, and ``note`` says so. Other values are predicted
    by the law that predicts best (``laws.growth``), with a limit where one can be named; by the line, and without a
    limit, where too few values were measured to tell laws apart. A law is named, and an exponent given, only where
    growth is shown: the interval of the line's slope or of the law's scale is above zero. A line alone would miss a
    steep law, whose bend it takes for noise.
    """
    every = sorted(points)
    ordered = medians(every)
    line = fit_line(ordered)
    if line is None:
        return None
    weighed = straight(ordered)
    start, slope = (line.intercept, line.slope) if weighed is None else (weighed.start, weighed.scale)
    error = line.slope_error() if weighed is None else weighed.scale_error(points=len(ordered))
    note = "two values: no interval can be given" if error is None else ""
    margin = error or 0.0
    grown = growth(ordered)
    is_shown = error is not None and (slope > error or (grown is not None and grown.is_shown))
    exponents = growth_exponent(ordered) if is_shown else None
    law = grown.law if grown else weighed or line
    predicted: list[tuple[float, float]] = []
    limits: list[tuple[float, float | None]] = []
    for value in predict_for:
        predicted.append((value, max(law.at(value), 0.0)))
        limits.append((value, None if grown is None else grown.limit(value)))
    return ScalingFit(
        quantity=quantity,
        intercept=start,
        slope=slope,
        slope_low=slope - margin,
        slope_high=slope + margin,
        r_squared=line.r_squared,
        points=tuple(every),
        predicted=tuple(predicted),
        limits=tuple(limits),
        law=grown.law.name if grown and is_shown else "",
        other_laws=grown.others if grown and is_shown else (),
        exponent=None if exponents is None else exponents[0],
        exponent_low=None if exponents is None else exponents[1],
        exponent_high=None if exponents is None else exponents[2],
        note=note,
        is_by_value=True,
    )


def slope_through(points: Sequence[tuple[float, float]]) -> float | None:
    """The slope of that line alone."""
    fit = fit_scaling("", points)
    return None if fit is None else fit.slope


def growth_exponent(points: Sequence[tuple[float, float]]) -> tuple[float, float, float] | None:
    """The e of the best ``y = c + b * value**e`` with b > 0 and its 95 % interval, or None where it does not show.

    They tell it when there are at least four different positive values over a range of four, and the 95 % profile
    interval of e (F test on the relative errors squared, three parameters) lies inside 0.1..4 and is at most
    ``WIDEST_INTERVAL`` wide.
    """
    if len(points) < 4:
        return None
    sizes, costs = zip(*points, strict=True)
    if len(set(sizes)) < 4 or min(sizes) <= 0 or max(sizes) < 4 * min(sizes) or min(costs) <= 0:
        return None
    tried: list[tuple[float, float]] = []
    for exponent in EXPONENTS:
        law = fitted(points, name="", grows=power(exponent))
        if law is not None:
            tried.append((law.error, exponent))
    if not tried:
        return None
    least, best = min(tried)
    dof = len(points) - 3
    # With one numerator degree of freedom F is the square of t.
    bound = least * (1 + student_t(0.95, dof) ** 2 / dof) + len(points) * LEAST_ERROR**2
    inside = [exponent for error, exponent in tried if error <= bound]
    is_bounded = EXPONENTS[0] < inside[0] and inside[-1] < EXPONENTS[-1]
    return (best, inside[0], inside[-1]) if is_bounded and inside[-1] - inside[0] <= WIDEST_INTERVAL else None


def scaling_of(records: Sequence[TrialRecord], *, axis: Axis) -> ScalingFit | None:
    """How the time of one training step grows along ``axis``, from the search's trials that passed or were slow.

    Each trial counts once, with its median step, so that a first step that warms up does not bend the line. The
    finished steps of a trial that a limit cut off are as good as any other. Where steps were not measured, the
    whole time of passed trials is fitted instead. Values at which no step was finished are predicted.
    """
    steps: list[tuple[float, float]] = []
    whole: list[tuple[float, float]] = []
    for record in records:
        size, kind, step_s = _number(record, axis), record.verdict.kind, record.measurement.step_s
        if size is None or record.trial.is_control:
            continue
        if step_s and kind in (Kind.PASS, Kind.SLOW):
            steps.append((size, median(step_s)))
        if kind is Kind.PASS:
            whole.append((size, record.outcome.duration_s))
    return _along(axis, SECONDS_PER_STEP, steps) or _along(axis, SECONDS_PER_TRIAL, whole)


def fits_along(records: Sequence[TrialRecord], *, axis: Axis) -> tuple[ScalingFit, ...]:
    """Time, peak memory and autograd nodes against ``axis``, each where it was measured at two values at least."""
    memory: list[tuple[float, float]] = []
    nodes: list[tuple[float, float]] = []
    for record in records:
        if record.trial.is_control or record.verdict.kind is not Kind.PASS:
            continue
        size = _number(record, axis)
        if not size:
            continue
        if record.measurement.peak_rss_bytes > 0:
            memory.append((size, record.measurement.peak_rss_bytes / MIB))
        counted = dict(record.measurement.facts).get(GRAPH_NODES)
        if counted:
            nodes.append((size, counted))
    fits = (
        scaling_of(records, axis=axis),
        _along(axis, "peak memory, MiB", memory),
        _along(axis, "autograd nodes of a forward pass", nodes),
    )
    return tuple(filter(None, fits))


def _number(record: TrialRecord, axis: Axis) -> float | None:
    return axis.size(record.trial.point.get(axis.name))


def _along(axis: Axis, quantity: str, points: Sequence[tuple[float, float]]) -> ScalingFit | None:
    """How ``quantity`` grows, with a prediction for every size of ``axis`` at which it was not measured."""
    measured = dict(points)
    missing = [size for size in map(axis.size, axis.values) if size is not None and size not in measured]
    return fit_scaling(quantity, points, missing)
