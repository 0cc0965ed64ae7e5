"""How long a healthy trial should take, and the limits of one: how long it may be silent and run, each with its source.

Learned from trials that passed, more careful the further it reaches.
"""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING

from harness.core.evidence import GRAPH_NODES
from harness.core.fit import FAR_RATIO, fit_line, times_beyond
from harness.core.point import AxisType
from harness.core.trial import Budget, Limit, Prediction
from harness.core.verdict import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.evidence import Measurement
    from harness.core.point import Axis, Point, Value
    from harness.core.record import TrialRecord
    from harness.core.space import Space
    from harness.core.spec import Limits


INSIDE = 3.0
"""Within the values seen and up to ``FAR_RATIO`` times the largest, an upper limit is at most so many times the fit."""
FAR = 6.0
"""The same beyond that: a line may miss that the time grows faster than linearly."""


def predict(records: Sequence[TrialRecord], *, axis: Axis, value: Value) -> Prediction | None:
    """What a healthy trial at ``value`` should take, or None when none of ``records`` has passed.

    They are trials of the same program that differ along ``axis`` only. The upper limits are those of the 95 %
    prediction interval of a line, at least the largest time seen; while there are too few trials for an interval, three
    times the line.
    """
    passed = passed_among(records)
    size = axis.size(value)
    if size is None:
        passed = [r for r in passed if r.trial.point.get(axis.name) == value]
    if not passed:
        return None
    x, fixed_s = size or 0.0, math.inf
    sizes: list[float] = []
    totals: list[tuple[float, float]] = []
    silences: list[tuple[float, float]] = []
    measured: list[Measurement] = []
    for record in passed:
        at = axis.size(record.trial.point.get(axis.name)) or 0.0
        sizes.append(at)
        totals.append((at, record.outcome.duration_s))
        silences.append((at, longest_silence_s(record)))
        measured.append(record.measurement)
        fixed_s = min(fixed_s, record.measurement.startup_s or 0.0)
    total_s, total_high_s = estimate(totals, at=x, fixed_s=fixed_s)
    silence_s, silence_high_s = estimate(silences, at=x)
    return Prediction(
        total_s=total_s,
        total_high_s=total_high_s,
        silence_s=silence_s,
        silence_high_s=silence_high_s,
        basis=_basis(passed, axis, sizes),
        beyond=times_beyond(x, sizes),
        node_s=node_seconds(measured),
    )


def longest_silence_s(record: TrialRecord) -> float:
    """How long a passed trial was silent at most, seconds: where no step was seen, all of it may have been."""
    return record.measurement.longest_silence_s or record.outcome.duration_s


def passed_among(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Those of ``records`` that passed."""
    return [record for record in records if record.verdict.kind is Kind.PASS]


def node_seconds(measured: Sequence[Measurement]) -> float | None:
    """Seconds of a step for each autograd node of its forward pass, where most were built; None when none counted them.

    The median step of that trial, so that it holds what does not grow with the nodes, as far as it still weighs.
    """
    counted: list[tuple[float, tuple[float, ...]]] = []
    for measurement in measured:
        nodes = dict(measurement.facts).get(GRAPH_NODES)
        if nodes and measurement.step_s:
            counted.append((nodes, measurement.step_s))
    if not counted:
        return None
    most_nodes, step_s = max(counted)
    return median(step_s) / most_nodes


def estimate(points: Sequence[tuple[float, float]], *, at: float, fixed_s: float = 0.0) -> tuple[float, float]:
    """Seconds ``at`` a size, and their upper limit, from ``points`` (size, seconds).

    ``fixed_s`` of them are start-up, which matters while only one size is known: a line tells it by itself.
    """
    sizes, seconds = zip(*points, strict=True)
    largest_x, largest_s = max(sizes), max(seconds)
    line = fit_line(points)
    if line is None:
        # No less for a smaller value than what was seen.
        mean_s = sum(seconds) / len(points)
        expected, high = in_proportion(mean_s, times_beyond(at, [largest_x]), fixed_s=fixed_s)
        return expected, max(high, largest_s)
    # A line through noise may cross zero; a smaller value never takes less than nothing.
    expected = max(line.at(at), min(seconds) if at <= largest_x else largest_s)
    upper = line.upper(at)
    high = INSIDE * expected if upper is None else min(max(upper, expected), INSIDE * expected)
    if times_beyond(at, [largest_x]) > FAR_RATIO:
        high *= FAR / INSIDE
    return expected, max(high, largest_s)


def in_proportion(seconds: float, times: float, *, fixed_s: float = 0.0, wide: float = INSIDE) -> tuple[float, float]:
    """Seconds of a size ``times`` larger than the one that took ``seconds``, and the limit, ``wide`` or ``FAR`` times.

    ``fixed_s``, the start-up, do not grow; the limit lets them, since a larger model also takes longer to build.
    """
    fixed_s = min(fixed_s, seconds)
    return fixed_s + times * (seconds - fixed_s), times * seconds * (FAR if times > FAR_RATIO else wide)


def _basis(records: Sequence[TrialRecord], axis: Axis, sizes: Sequence[float]) -> str:
    values = sorted(set(sizes))
    span = f"{values[0]:g}..{values[-1]:g}" if len(values) > 1 else f"{values[0]:g}"
    first = records[0].trial.point.get(axis.name)
    if axis.size(first) is None:
        span = str(first)
    plural = "s" if len(records) > 1 else ""
    return f"{len(records)} passed trial{plural} at {axis.name} {span}"


def predict_cell(records: Sequence[TrialRecord], *, space: Space, cell: Point) -> Prediction | None:
    """What a healthy trial of ``cell`` should take, or None when nothing has passed yet.

    Trials of the cell itself say it best, then those that differ along one ordered axis (a line through them, with
    its upper limit). Failing both, the nearest cell that passed is scaled in proportion on every ordered axis that
    differs, with a wide upper limit. What differs in a setting without a size, as another attention, predicts nothing.
    """
    ordered = _ordered(space)
    sized = {axis.name for axis in ordered}
    passed = _along(passed_among(records), sized, cell)
    if not passed:
        return None
    same = _along(passed, set(), cell)
    if same and ordered:
        return predict(same, axis=ordered[0], value=cell.get(ordered[0].name))
    line: Axis | None = None
    longest: list[TrialRecord] = []
    for axis in ordered:
        mine = _along(passed, {axis.name}, cell)
        if len(mine) > max(len(longest), 1):
            line, longest = axis, mine
    if line is not None:
        return predict(longest, axis=line, value=cell.get(line.name))
    return _nearest(passed, ordered, cell)


def guess_cell(records: Sequence[TrialRecord], *, space: Space, cell: Point) -> Prediction | None:
    """What the nearest cell that passed says, whatever it differs in: good for limits, not for telling or judging."""
    passed = passed_among(records)
    return _nearest(passed, _ordered(space), cell) if passed else None


def _ordered(space: Space) -> list[Axis]:
    return [f.axis for f in space.factors if f.axis.type is AxisType.ORDERED]


def _along(records: Sequence[TrialRecord], names: set[str], cell: Point) -> list[TrialRecord]:
    """Trials that differ from ``cell`` in the axes ``names`` at most."""
    return [record for record in records if _differing(record.trial.point, cell) <= names]


def _nearest(records: Sequence[TrialRecord], ordered: Sequence[Axis], cell: Point) -> Prediction:
    record = min(reversed(records), key=lambda r: len(_differing(r.trial.point, cell)))
    differs = _differing(record.trial.point, cell)
    ratio = 1.0
    for axis in ordered:
        here, there = axis.size(cell.get(axis.name)), axis.size(record.trial.point.get(axis.name))
        if here and there and here > there > 0:
            ratio *= here / there
    fixed_s, wide = record.measurement.startup_s or 0.0, FAR if len(differs) > 1 else INSIDE
    total_s, total_high_s = in_proportion(record.outcome.duration_s, ratio, fixed_s=fixed_s, wide=wide)
    silence_s, silence_high_s = in_proportion(longest_silence_s(record), ratio, wide=wide)
    return Prediction(
        total_s=total_s,
        total_high_s=total_high_s,
        silence_s=silence_s,
        silence_high_s=silence_high_s,
        basis=f"1 passed trial that differs in {', '.join(sorted(differs)) or 'nothing'}",
        beyond=ratio,
    )


def _differing(one: Point, other: Point) -> set[str]:
    return {name for name, _ in set(one.settings) ^ set(other.settings)}


STARTUP = Limit(seconds=120.0, source="default: not learned from passed trials")
STALL_S = 30.0
TOTAL_S = 600.0
STALL_FACTOR = 10.0
LEAST_STALL_S = 4.0
MOST_STALL_S = 300.0
TOTAL_FACTOR = 5.0
LEAST_TOTAL_S = 30.0
WATCHED_STALLS = 5.0
SOFT_FACTOR = 5.0
LEAST_SOFT_S = 10.0
"""A soft limit leaves time for a hang to be told by what is seen of it; only what nothing tells by then is cut off."""


def budget(limits: Limits, prediction: Prediction | None, *, soft: bool = False) -> Budget:
    """The limits of one trial: what the user set, else what passed trials teach, else the defaults.

    ``soft`` asks for the soft limit where it is shorter than the whole one: a few times what a pass takes here.
    """
    stall = _user_limit("stall_s", limits.stall_s) or _stall(prediction)
    total = _user_limit("total_s", limits.total_s) or _total(prediction, stall)
    cut = _soft(prediction) if soft and prediction is not None else total
    return Budget(
        startup=_user_limit("startup_s", limits.startup_s) or STARTUP,
        stall=stall,
        total=min(cut, total, key=lambda limit: limit.seconds),
        soft=cut.seconds < total.seconds,
    )


def _soft(prediction: Prediction) -> Limit:
    how = f"soft limit: {SOFT_FACTOR:g} x {prediction.total_high_s:.3g} s, {_longest('time', prediction)}"
    return _learned(SOFT_FACTOR * prediction.total_high_s, how, least=LEAST_SOFT_S)


def limits_set(budget: Budget) -> tuple[float | None, ...]:
    """The limits of a budget that the user set, in seconds, None for those that were learned or are defaults."""
    limits = (budget.startup, budget.stall, budget.total)
    return tuple(limit.seconds if limit.by_user else None for limit in limits)


def _user_limit(name: str, seconds: float | None) -> Limit | None:
    return None if seconds is None else Limit(seconds=seconds, source=f"set by the user ({name})", by_user=True)


def _default(seconds: float) -> Limit:
    return Limit(seconds=seconds, source="default: no comparable trial has passed yet")


def _stall(prediction: Prediction | None) -> Limit:
    if prediction is None:
        return _default(STALL_S)
    how = f"learned: {STALL_FACTOR:g} x {prediction.silence_high_s:.3g} s, {_longest('silence', prediction)}"
    return _learned(STALL_FACTOR * prediction.silence_high_s, how, least=LEAST_STALL_S, most=MOST_STALL_S)


def _total(prediction: Prediction | None, stall: Limit) -> Limit:
    if prediction is None:
        return _default(TOTAL_S)
    # A silence that is still being watched must not be cut off: the watch may last four times the stall limit.
    watched = WATCHED_STALLS * stall.seconds
    how = (
        f"learned: {TOTAL_FACTOR:g} x {prediction.total_high_s:.3g} s, {_longest('time', prediction)}, "
        f"and {watched:.3g} s to watch a silence"
    )
    return _learned(TOTAL_FACTOR * prediction.total_high_s + watched, how, least=LEAST_TOTAL_S)


def _longest(what: str, prediction: Prediction) -> str:
    """What an upper limit of a prediction is: more than anything that was seen."""
    return f"the longest {what} to expect after {prediction.basis}"


def _learned(seconds: float, how: str, *, least: float, most: float = math.inf) -> Limit:
    """The limit that passed trials teach, within its bounds."""
    if seconds < least:
        return Limit(seconds=least, source=f"{how}, at least {least:g} s")
    if seconds > most:
        return Limit(seconds=most, source=f"{how}, at most {most:g} s")
    return Limit(seconds=seconds, source=how)
