"""Where: the fewest settings that tell the cells which ended in one way from all others that were tried."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from harness.core.point import AxisType, assignment, word_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from harness.core.point import Axis, Point
    from harness.report.findings import Findings


def where(findings: Findings, verdict: str) -> str:
    """``in all 3 cells with attention=nsa, and in no other``; empty when no three settings tell them apart.

    ``verdict`` may be the name of a signature's failure. Said of the cells that were tried; whether the settings are
    the reason is for pairs that differ in nothing else.
    """
    inside: list[Point] = []
    outside: list[Point] = []
    undecided = 0
    if findings.run.programs:
        return ""  # the commit, and not a setting, may be what tells them apart
    for cell, trials in findings.by_cell.items():
        if verdict in trials.words or verdict in findings.named.get(cell, ()):
            inside.append(cell)
        elif trials.is_undecided:
            undecided += 1
        else:
            outside.append(cell)
    if not inside:
        return ""
    if not outside:
        return f"in each of {len(inside)} cells" if len(inside) > 1 and not undecided else ""
    if len(inside) == 1:
        return f"in one cell of {len(findings.by_cell)}, {findings.name_of(inside[0])}"
    settings = _settings(findings, inside, outside)
    if not settings:
        return ""
    all_of = "both" if len(inside) == 2 else f"all {len(inside)}"
    return f"in {all_of} cells with {settings}, and in no other{' that could be told' if undecided else ''}"


def _settings(findings: Findings, inside: Sequence[Point], outside: Sequence[Point]) -> str:
    """The fewest settings that tell ``inside`` from ``outside``: one, or else two, or else three; else empty.

    Where several sets of the same size do it, all of them are said: these cells do not tell which of them it is.
    """
    traits = list(_shared(findings, inside))
    for size in (1, 2, 3):
        telling: set[_Trait] = set()
        for some in combinations(traits, size):
            if not any(_has_all(cell, some) for cell in outside):
                telling.update(some)
        if telling:
            return ", ".join(trait.text for trait in traits if trait in telling)
    return ""


@dataclass(frozen=True, slots=True, eq=False)
class _Trait:
    """What cells share of one axis: its name, the places of its values on the axis that count, and both in words."""

    axis: Axis
    places: range
    text: str


def _shared(findings: Findings, inside: Sequence[Point]) -> Iterator[_Trait]:
    """What all of ``inside`` have in common: a value, ``attention=nsa``, or on an ordered axis a least, ``n>=5``."""
    for factor in findings.run.spec.matrix.space.factors:
        axis = factor.axis
        at = sorted({axis.index(cell.get(factor.name)) for cell in inside})
        word = word_of(axis.values[at[0]])
        if len(at) == 1:
            yield _Trait(axis, range(at[0], at[0] + 1), assignment(factor.name, axis.values[at[0]]))
        elif axis.type is AxisType.ORDERED:
            yield _Trait(axis, range(at[0], len(axis.values)), f"{factor.name}>={word}")


def _has_all(cell: Point, traits: Iterable[_Trait]) -> bool:
    return all(trait.axis.index(cell.get(trait.axis.name)) in trait.places for trait in traits)
