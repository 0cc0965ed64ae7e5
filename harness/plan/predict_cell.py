"""How long a healthy trial of a cell should take: from trials of it, along one axis, or from the nearest cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.point import AxisType
from harness.core.trial import Prediction
from harness.plan.predict import FAR, INSIDE, in_proportion, passed_among, predict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.point import Axis, Point
    from harness.core.record import TrialRecord
    from harness.core.space import Space


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
        here, there = cell.get(axis.name), record.trial.point.get(axis.name)
        if isinstance(here, int | float) and isinstance(there, int | float) and here > there > 0:
            ratio *= here / there
    fixed_s, wide = record.measurement.startup_s or 0.0, FAR if len(differs) > 1 else INSIDE
    total_s, total_high_s = in_proportion(record.outcome.duration_s, ratio, fixed_s=fixed_s, wide=wide)
    silence_s, silence_high_s = in_proportion(record.measurement.longest_silence_s, ratio, wide=wide)
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
