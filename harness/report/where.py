"""Where: the fewest settings that tell the cells which ended in one way from all others that were tried."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from harness.core.point import AxisType, assignment, word_of
from harness.report.text import count

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from harness.core.point import Point, Value
    from harness.report.findings import Findings

    Setting = tuple[str, Value]


def where(findings: Findings, verdict: str) -> str:
    """``in all 3 cells with attention=nsa, and in no other``; empty when no three settings tell them apart.

    Said of the cells that were tried; whether the settings are the reason is for pairs that differ in nothing else.
    """
    inside: list[Point] = []
    outside: list[Point] = []
    undecided = 0
    for cell, trials in findings.by_cell.items():
        if verdict in trials.words:
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
    """The fewest settings that tell ``inside`` from ``outside``: one, or else two, or else three; else empty."""
    alone = (_from_on(findings, inside, outside), _shared(findings, inside, outside, size=1))
    settings = ", ".join(filter(None, alone))
    return settings or _shared(findings, inside, outside, size=2) or _shared(findings, inside, outside, size=3)


def names_of(findings: Findings, cells: Sequence[Point], *, most: int = 2) -> str:
    """The names of ``cells``, or how many there are."""
    return " and ".join(map(findings.name_of, cells)) if len(cells) <= most else count(len(cells), "cell")


def _from_on(findings: Findings, inside: Sequence[Point], outside: Sequence[Point]) -> str:
    """``n_layers>=5``, where one ordered axis tells them apart and more than one of its values is inside."""
    for factor in findings.run.spec.matrix.space.factors:
        if factor.axis.type is AxisType.ORDERED:
            at = sorted({factor.axis.index(cell.get(factor.name)) for cell in inside})
            if len(at) > 1 and all(factor.axis.index(cell.get(factor.name)) < at[0] for cell in outside):
                return f"{factor.name}>={word_of(factor.axis.values[at[0]])}"
    return ""


def _shared(findings: Findings, inside: Sequence[Point], outside: Collection[Point], *, size: int) -> str:
    """Settings, ``size`` of them together, that all of ``inside`` share and none of ``outside`` has.

    Where several sets of the same size do it, all of them are said: these cells do not tell which of them it is.
    """
    first, *rest = map(set, inside)
    others = list(map(set, outside))
    sets = combinations(sorted(first.intersection(*rest), key=str), size)
    telling: set[Setting] = set()
    for some in sets:
        if not any(map(set(some).issubset, others)):
            telling.update(some)
    settings, names = dict(telling), findings.run.spec.matrix.space.names
    return ", ".join(assignment(name, settings[name]) for name in names if name in settings)
