"""Asked: what the trials answer to each question of a matrix, in words, with the trials that the answer rests on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.core.evidence import GRAPH_NODES
from harness.core.matrix import Asks
from harness.core.point import AxisType
from harness.core.verdict import FAILURES, Kind
from harness.report.campaign.facts import UNTOLD, Pairs, by_cell, name_of, pairs
from harness.report.once import once
from harness.report.text import count, listed, seconds

if TYPE_CHECKING:
    from harness.core.matrix import Asked
    from harness.core.point import Point
    from harness.core.record import Run
    from harness.report.facts import Numbered

YES, NO, NOT_KNOWN = "Yes", "No", "Not known"
FAR_MORE = 3
"""Times the autograd nodes of a trial that passed that explain why another one is slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The answer to one question: ``word`` is Yes, No or Not known, ``says`` the sentence that was decided for.

    ``because`` are the counts, ``trials`` the numbers of those that were counted.
    """

    asks: Asks
    word: str
    says: str
    because: str
    trials: tuple[int, ...]


@once
def answered(run: Run) -> tuple[Answered, ...]:
    """An answer to every question of the matrix; none while no trial has ended."""
    decide = {Asks.EVER: _ever, Asks.ALWAYS: _always, Asks.MATTERS: _matters}
    if not by_cell(run):
        return ()
    return tuple(decide[asked.asks](run, asked) for asked in run.spec.matrix.asks)


def _ever(run: Run, asked: Asked) -> Answered:
    cells = _cells(run, asked)
    trials = [trial for found in cells.values() for trial in found]
    shown = [trial for trial in trials if _shows(trial, asked)]
    if shown:
        where = {trial.record.trial.point for trial in shown}
        because = f"{len(shown)} of {count(len(trials), 'trial')} did, in {len(where)} of {count(len(cells), 'cell')}."
        return _given(asked, YES, because, shown)
    reached = [trial for trial in trials if trial.verdict.kind is Kind.PASS]
    through = f" that got through {asked.phase}" if asked.phase else ""
    if not reached:
        return _given(asked, NOT_KNOWN, f"No trial{through or ' came to its end'}.{_not_reached(cells, asked)}", trials)
    passed = {trial.record.trial.point for trial in reached}
    none = "/".join(kind.value for kind in asked.kinds) or "failure"
    because = f"No {none} in the {count(len(reached), 'trial')} of {count(len(passed), 'cell')}{through}."
    return _given(asked, NO, f"{because}{_not_reached(cells, asked)}", trials)


def _always(run: Run, asked: Asked) -> Answered:
    cells = _cells(run, asked)
    trials = [trial for found in cells.values() for trial in found]
    judged = {cell: found for cell, found in cells.items() if any(t.verdict.kind not in UNTOLD for t in found)}
    each = [cell for cell, found in judged.items() if all(_shows(trial, asked) for trial in found)]
    passed = [cell for cell, found in judged.items() if all(t.verdict.kind is Kind.PASS for t in found)]
    because = f"{len(each)} of {count(len(judged), 'cell')} end so every time; {len(passed)} pass every time."
    if not judged:
        return _given(asked, NOT_KNOWN, "No trial could be judged.", trials)
    return _given(asked, YES if len(each) == len(judged) else NO, because, trials)


def _matters(run: Run, asked: Asked) -> Answered:
    """By the pairs of cells that differ in the axis and in nothing else; unequal limits decide nothing."""
    every = next((p for p in pairs(run) if p.axis == asked.axis), Pairs(axis=asked.axis, alike=(), different=()))
    alike, different = (
        [pair for pair in some if all(asked.when.holds(dict(cell)) for cell in pair)]
        for some in (every.alike, every.different)
    )
    total = len(alike) + len(different)
    trials = [t for pair in (*alike, *different) for cell in pair for t in by_cell(run)[cell]]
    if not total:
        return _given(asked, NOT_KNOWN, f"No two cells that can be compared differ only in {asked.axis}.", trials)
    if different:
        because = f"{len(different)} of {count(total, 'pair')} of cells that differ only in it ended differently."
        return _given(asked, YES, because, trials)
    cut = [pair for pair in alike if all(_ran_out(run, cell) for cell in pair)]
    both = f", {len(cut)} of them out of time on both sides" if cut else ""
    because = f"{len(alike)} of {count(total, 'pair')} of cells that differ only in {asked.axis} ended alike{both}."
    return _given(asked, NO, because, trials)


def _given(asked: Asked, word: str, because: str, trials: list[Numbered]) -> Answered:
    says = {YES: asked.yes, NO: asked.no}.get(word, "")
    numbers = tuple(sorted({trial.number for trial in trials}))
    return Answered(asks=asked.asks, word=word, says=says.rstrip(". "), because=because, trials=numbers)


def _cells(run: Run, asked: Asked) -> dict[Point, list[Numbered]]:
    return {cell: trials for cell, trials in by_cell(run).items() if asked.when.holds(dict(cell))}


def _shows(trial: Numbered, asked: Asked) -> bool:
    verdict = trial.verdict
    is_kind = verdict.kind in (asked.kinds or FAILURES)
    return is_kind and asked.cause in ("", verdict.cause) and asked.phase in ("", verdict.phase)


def _not_reached(cells: dict[Point, list[Numbered]], asked: Asked) -> str:
    """Cells of which no trial passed, and where they were when they ended."""
    cut = {cell: trials for cell, trials in cells.items() if all(t.verdict.kind is not Kind.PASS for t in trials)}
    if not cut:
        return ""
    kinds = Counter((t.verdict.kind, t.verdict.phase or "") for trials in cut.values() for t in trials)
    ended: list[str] = []
    for (kind, phase), n in kinds.most_common():
        how = "ran out of time" if kind is Kind.SLOW else f"ended in {kind}"
        ended.append(f"{count(n, 'trial')} {how}{f' in {phase}' if phase else ''}")
    return f" {count(len(cut), 'cell')} did not get {'there' if asked.phase else 'to the end'}: {listed(ended)}."


def _ran_out(run: Run, cell: Point) -> bool:
    return any(trial.verdict.kind is Kind.SLOW for trial in by_cell(run)[cell])


@dataclass(frozen=True, slots=True, kw_only=True)
class Instead:
    """A cell that was slow, and one that passed and differs from it in ``axis`` alone."""

    axis: str
    slow: Point
    passed: Point


@once
def instead(run: Run) -> Instead | None:
    """What passes in place of a slow cell, by the axis that decides most pairs; of its values the one nearest in size.

    An ordered axis does not count: another value of it is a smaller question, not another way to do the same.
    """
    found: list[tuple[int, float, Instead]] = []
    for pair in pairs(run):
        if run.spec.matrix.space.factor(pair.axis).axis.type is AxisType.ORDERED:
            continue
        for one, other in pair.different:
            slow, passed = (one, other) if _ran_out(run, one) else (other, one)
            if _ran_out(run, slow) and all(trial.verdict.kind is Kind.PASS for trial in by_cell(run)[passed]):
                candidate = Instead(axis=pair.axis, slow=slow, passed=passed)
                found.append((len(pair.different), _nodes(run, passed) or 0.0, candidate))
    if not found:
        return None
    most = max(decided for decided, _, _ in found)
    axis = next(candidate.axis for decided, _, candidate in found if decided == most)
    return max(((nodes, c) for _, nodes, c in found if c.axis == axis), key=lambda item: item[0])[1]


def why_slow(run: Run) -> str:
    """How many autograd nodes a slow trial had built, and how many one that passed builds with one setting changed."""
    other = instead(run)
    built, whole = (_nodes(run, other.slow), _nodes(run, other.passed)) if other else (None, None)
    if other is None or built is None or whole is None or built < FAR_MORE * whole:
        return ""
    return (
        f"{name_of(run, other.slow)} had built {built:,.0f} autograd nodes when its time ran out; with "
        f"{other.axis}={other.passed.get(other.axis)} and nothing else changed a forward pass has {whole:,.0f} in all."
    )


def instead_of_slow(run: Run) -> str:
    """``Use attention=nsa: with nothing else changed it passed 2 of 2, in 34 s at most.``; else empty."""
    other = instead(run)
    if other is None:
        return ""
    trials = by_cell(run)[other.passed]
    most = max(trial.record.outcome.duration_s for trial in trials)
    return (
        f"Use {other.axis}={other.passed.get(other.axis)}: with nothing else changed it passed {len(trials)} of "
        f"{len(trials)}, in {seconds(most)} at most."
    )


def _nodes(run: Run, cell: Point) -> float | None:
    counted = [dict(trial.record.measurement.facts).get(GRAPH_NODES) for trial in by_cell(run)[cell]]
    return max((nodes for nodes in counted if nodes), default=None)
