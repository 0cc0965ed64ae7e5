"""Which cells a person means by ``n_layers=5,attention=nsa`` or ``n_layers>=5``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from harness.core.errors import SpecError
from harness.core.space import BASELINE
from harness.spec.matrix_axes import axes_of, cell_of, selector_of, typed_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.core.matrix import Matrix
    from harness.core.point import Point, Value
    from harness.core.space import Selector, Space

_TERM = re.compile(r"\s*(?P<name>[^\s<>=!]+)\s*(?P<op>>=|<=|!=|==|>|<|=)\s*(?P<value>.+?)\s*")


def parse_cell(text: str, space: Space) -> Point:
    """The cell that ``text`` names: ``n_layers=5,attention=nsa``, every other axis at its good value.

    ``baseline`` (or ``good``, or nothing) has every good value, ``bad`` every bad one.

    Raises:
        SpecError: no such axis or value, with the nearest, or a cell that breaks a rule.
    """
    axes = axes_of(space.factors)
    if text.strip() in ("", "good", BASELINE, "bad"):
        cell = space.bad if text.strip() == "bad" else space.good
    else:
        values: dict[str, Value] = {}
        for match in _terms(text, ("=", "==")):
            name = match["name"]
            values[name] = typed_value(axes.get(name), match["value"])
        cell = space.cell(cell_of(values, axes))
    rule = space.broken(cell)
    if rule is not None:
        raise SpecError(f"cell {space.name_of(cell)} breaks a rule: {rule}")
    return cell


def parse_selector(texts: Iterable[str], space: Space) -> Selector:
    """The cells for which all of ``texts`` hold: ``n_layers>=5``, ``attention=nsa|dense``, ``fa2=1``.

    Raises:
        SpecError: no such axis or value, with the nearest.
    """
    axes, terms = axes_of(space.factors), dict[str, object]()
    for text in texts:
        for match in _terms(text, None):
            name, op, value = match["name"], match["op"], match["value"]
            axis = axes.get(name)
            if op in ("=", "=="):
                parts = [typed_value(axis, part) for part in value.split("|")]
                terms[name] = parts[0] if len(parts) == 1 else parts
            else:
                terms[name] = f"{op}{value}"
    return selector_of(terms, axes)


def chosen_cells(
    matrix: Matrix, planned: Iterable[Point], *, cells: Iterable[str], only: Sequence[str], gpus: int | None
) -> tuple[Point, ...]:
    """The cells that ``--cell``, ``--only`` and ``--gpus`` choose, which a shard is a part of; else those ``planned``.

    Raises:
        SpecError: no such axis or value, or a cell that breaks a rule.
    """
    by_name = [parse_cell(text, matrix.space) for text in cells]
    if by_name and not only:
        return tuple(by_name)
    selector = parse_selector(only, matrix.space)
    chosen = dict.fromkeys(by_name)
    for cell in planned:
        is_as_large = gpus is None or matrix.gpus_at(cell) == gpus
        if is_as_large and selector.holds(dict(cell)):
            chosen[cell] = None
    return tuple(chosen)


def shard_of(cells: Sequence[Point], number: int, shards: int) -> tuple[Point, ...]:
    """Every ``shards``-th cell from the ``number``-th on, so that neighbours, which cost alike, are spread."""
    return tuple(cells[number - 1 :: shards])


def parse_shard(text: str) -> tuple[int, int]:
    """``2/3`` as its two numbers.

    Raises:
        SpecError: it is not K/N.
    """
    number, slash, shards = text.partition("/")
    if not slash or not number.isdigit() or not shards.isdigit() or not 1 <= int(number) <= int(shards):
        raise SpecError(f"--shard {text!r} is not K/N; write for example 1/4")
    return int(number), int(shards)


def _terms(text: str, allowed: tuple[str, ...] | None) -> list[re.Match[str]]:
    matches: list[re.Match[str]] = []
    for part in text.split(","):
        match = _TERM.fullmatch(part)
        if match is None or (allowed is not None and match["op"] not in allowed):
            raise SpecError(f"{part.strip()!r} is not axis=value; write for example n_layers=5,attention=nsa")
        matches.append(match)
    return matches
