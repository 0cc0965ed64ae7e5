"""A search beside a matrix, as a question of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.core.campaign import CampaignSpec, Task
from harness.core.errors import NoSearchError, choices
from harness.core.matrix import SearchKind
from harness.core.point import AxisType
from harness.core.space import Space

if TYPE_CHECKING:
    from harness.core.matrix import Matrix, SearchEntry


def search_spec(matrix: Matrix, name: str, *, file: str) -> CampaignSpec:
    """The question that the search called ``name`` asks.

    Raises:
        NoSearchError: the file has no such search; the message has the nearest name.
    """
    entries = {entry.name: entry for entry in matrix.searches}
    if name not in entries:
        others = choices(name, entries) if entries else ", nor any other"
        raise NoSearchError(f"{file} has no search {name!r}{others}")
    entry = entries[name]
    space, fixed = matrix.space, dict(entry.fixed)
    return CampaignSpec(
        question=_question(entry),
        task=Task(entry.kind.value),
        matrix=matrix if entry.axis is None else ordered(matrix, entry.axis),
        file=file,
        search=entry.name,
        good=space.cell(fixed),
        bad=space.cell({**dict(space.bad), **fixed}) if entry.kind is SearchKind.MINIMISE else None,
        axis=entry.axis,
        signature=entry.signature,
        bad_kinds=entry.bad_kinds,
        strength=entry.strength,
        causes=entry.causes,
    )


def ordered(matrix: Matrix, axis: str) -> Matrix:
    """``matrix`` for a threshold along ``axis``: words and flags are in the order in which they stand there.

    Raises:
        UnknownNameError: it has no such axis.
        SpecError: its values are numbers that do not ascend.
    """
    factor = matrix.space.factor(axis)
    along = replace(factor, axis=replace(factor.axis, type=AxisType.ORDERED))
    factors = list(matrix.space.factors)
    factors[factors.index(factor)] = along
    return replace(matrix, space=Space(factors=tuple(factors), rules=matrix.space.rules))


def _question(entry: SearchEntry) -> str:
    failure = entry.signature or "it fail"
    match entry.kind:
        case SearchKind.BISECT:
            return f"From which {entry.axis} on does {failure} {'show' if entry.signature else ''}?".replace(" ?", "?")
        case SearchKind.MINIMISE:
            return f"Which settings does {entry.signature or 'the failure'} need?"
        case SearchKind.EXPLORE:
            return f"Which combinations of {entry.strength} settings fail?"
