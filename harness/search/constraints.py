"""What the rules of a space mean for a search: the order of the axes, how to keep a cell valid, how many cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from harness.core.point import Value
    from harness.core.space import Factor, Rule, Selector, Space

MOST_COUNTED = 200_000
"""Cells of axes that rules tie together that are counted one by one; above, the number is an upper bound."""


def in_order(space: Space, factors: Sequence[Factor]) -> tuple[Factor, ...]:
    """``factors`` by falling priority, but each after those that its bad value requires.

    A cell built up in this order stays valid where any order does, so fewer of its prefixes cannot be asked.
    """
    by_priority = sorted(factors, key=lambda f: -f.priority)
    placed: list[Factor] = []
    done: set[str] = set()

    def place(factor: Factor, above: frozenset[str]) -> None:
        if factor.name in done or factor.name in above:
            return
        before = _required_by(space, factor)
        for other in by_priority:
            if other.name in before:
                place(other, above | {factor.name})
        done.add(factor.name)
        placed.append(factor)

    for factor in by_priority:
        place(factor, frozenset())
    return tuple(placed)


def _required_by(space: Space, factor: Factor) -> set[str]:
    """The axes that must leave their good value when ``factor`` takes its bad one."""
    cell = dict(space.cell({factor.name: factor.bad}))
    required: set[str] = set()
    for rule in space.rules:
        if factor.name in rule.when.names and rule.require is not None and rule.broken(cell):
            required |= lacking(rule.require, cell)
    return required - {factor.name}


def lacking(required: Selector, settings: Mapping[str, Value]) -> set[str]:
    """The axes that do not have a value that is ``required``."""
    return {name for name, values in required.terms if settings[name] not in values}


def count_cells(space: Space) -> tuple[int, bool]:
    """How many cells break no rule, and whether that is exact; it is an upper bound otherwise.

    Axes that no rule mentions only multiply. Axes tied together by rules are counted group by group, so that the
    work depends on the rules and not on the number of cells.
    """
    total, exact = 1, True
    for names in _groups(space):
        group: list[Factor] = []
        product = 1
        for factor in space.factors:
            if factor.name in names:
                group.append(factor)
                product *= len(factor.axis.values)
        rules = [rule for rule in space.rules if rule.names & names]
        if rules and product > MOST_COUNTED:
            exact = False
        elif rules:
            product = 0
            for _ in valid(group, rules, {}):
                product += 1
        total *= product
    return total, exact


def _groups(space: Space) -> list[set[str]]:
    """The axes, those that rules tie together in one group."""
    groups = [{name} for name in space.names]
    for rule in space.rules:
        tied: set[str] = set()
        apart: list[set[str]] = []
        for group in groups:
            if group & rule.names:
                tied |= group
            else:
                apart.append(group)
        groups = [*apart, tied] if tied else apart
    return groups


def valid(factors: Sequence[Factor], rules: Sequence[Rule], partial: Mapping[str, Value]) -> Iterator[dict[str, Value]]:
    """Every completion of ``partial`` by ``factors`` that breaks no rule, good values first.

    A branch is left as soon as a rule is broken already, so a first completion comes after few steps.
    """
    if any(rule.broken_already(partial) for rule in rules):
        return
    open_factors = [f for f in factors if f.name not in partial]
    if not open_factors:
        yield dict(partial)
        return
    factor = open_factors[0]
    for value in sorted(factor.axis.values, key=lambda v: v != factor.good):
        yield from valid(open_factors[1:], rules, {**partial, factor.name: value})


def completed(space: Space, partial: Mapping[str, Value]) -> dict[str, Value] | None:
    """``partial`` with every other axis at its good value where the rules let it; None when no cell contains it.

    Only axes that rules mention are searched; the others simply take their good value.
    """
    plain = {**dict(space.good), **partial}
    if space.broken(plain.items()) is None:
        return plain
    tied: set[str] = set()
    for rule in space.rules:
        tied |= rule.names
    completion = next(valid([f for f in space.factors if f.name in tied], space.rules, partial), None)
    return None if completion is None else {**plain, **completion}
