"""A matrix about somebody's program, from its command line: ``--axis depth=1..8 -- python train.py {amp:--amp}``."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.core.command_line import PYTHON, flag, removable_variables
from harness.core.errors import CommandError, suggestion
from harness.core.matrix import Matrix
from harness.core.point import Axis, AxisType, word_of
from harness.core.space import Bundle, Factor, Space
from harness.spec.amounts import items_of
from harness.spec.axes import numbers_of
from harness.spec.inline import elsewhere_factor, factor_along, name_of_axes
from harness.spec.matrix_axes import places_of, prove_distinct_when_hidden, prove_interpreter, typed_value, value_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from harness.core.command_line import Placeholder
    from harness.core.point import Value

TARGET = "command"


def program_matrix(
    command: Sequence[str],
    *,
    axes: Iterable[str],
    settings: Mapping[str, Value],
    env: Sequence[tuple[str, str]],
    environ: Mapping[str, str],
    repository: Path,
) -> Matrix:
    """The matrix of ``command``: its axes are those that are named, and every flag in it that is not held.

    ``settings`` are those of the target ``command``; ``args.NAME`` holds a place of the command line, and an axis of
    that name at one of its values. ``environ`` is what the program inherits, ``repository`` has its commits.

    Raises:
        CommandError: an axis without values or without a place, a place that is neither varied nor held, or a
            variable that is in ``environ`` and so could not be taken away.
    """
    places = places_of(command)
    fixed = {path.removeprefix("args."): value for path, value in settings.items() if path.startswith("args.")}
    factors: list[Factor] = []
    base = dict(settings)
    for text in axes:
        if (factor := elsewhere_factor(text, repository=repository)) is not None:
            prove_interpreter(factor, command)
            factors.append(factor)
            continue
        factor = _factor(text, places)
        if factor.name not in fixed:
            factors.append(factor)
            continue
        base[factor.axis.path] = value_of(factor.axis, typed_value(factor.axis, word_of(fixed[factor.name])))
    names = [factor.name for factor in factors]
    for name, place in places.items():
        if place.is_flag and name not in names and name not in fixed:
            names.append(name)
            factors.append(_factor(name, places))
    _check_places(places, varied=set(names), fixed=fixed)
    if not factors:
        raise CommandError(f"nothing to vary: {_example(places)}")
    for name, place in removable_variables(command):
        if name in environ and place not in fixed:
            raise CommandError(
                f"{name} is set in this shell, so leaving it out would not take it away; "
                f"unset it first, or give both values: {name}={{{place}:1|0}}"
            )
    return Matrix(
        name=name_of_axes(names),
        target=TARGET,
        command=tuple(command),
        base=Bundle(config=tuple(base.items()), env=tuple(env)),
        space=Space(factors=tuple(factors)),
    )


def _factor(text: str, places: Mapping[str, Placeholder]) -> Factor:
    """One axis: its first value is good and its last bad. Numbers that ascend have thresholds."""
    name, _, listing = map(str.strip, text.partition("="))
    _prove_name(name, places)
    items = items_of(listing)
    if places[name].is_flag:
        values = tuple(flag(name, item) for item in items) or (False, True)
        axis = Axis(name=name, path=f"args.{name}", type=AxisType.FLAG, values=values)
    elif not items:
        raise CommandError(f"axis {name!r} of a command needs its values, e.g. {name}=1..12 or {name}=first,second")
    else:
        axis = _axis(name, items)
    factor = factor_along(axis)
    prove_distinct_when_hidden(factor)
    return factor


def _prove_name(name: str, places: Mapping[str, Placeholder]) -> None:
    """CommandError where ``name`` cannot be an axis, or has no place in the command."""
    if not re.fullmatch(r"[A-Za-z_]\w*", name) or name == PYTHON:
        raise CommandError(f"{name!r} cannot be the name of an axis; use letters, digits and _, e.g. n_layers=1..12")
    if name not in places:
        near = suggestion(name, places)
        raise CommandError(f"axis {name!r} has no place in the command{near}; write {{{name}}} where its value belongs")


def _axis(name: str, items: Sequence[str]) -> Axis:
    numbers = numbers_of(name, items)
    if numbers is None and len(items) < 2:
        raise CommandError(f"axis {name!r}: {items[0]!r} is one word; give two or more, the good one first, or numbers")
    kind = AxisType.CATEGORICAL if numbers is None else AxisType.ORDERED
    return Axis(name=name, path=f"args.{name}", type=kind, values=tuple(items) if numbers is None else numbers)


def in_order(factor: Factor) -> Factor:
    """``factor`` for a search that needs an order: words and flags stand in the order in which they were given."""
    axis = factor.axis
    if axis.type is AxisType.ORDERED:
        return factor
    words = tuple(map(word_of, axis.values))
    ordered = replace(axis, type=AxisType.ORDERED, values=words)
    return replace(factor, axis=ordered, good=words[0], bad=words[-1])


def _check_places(places: Mapping[str, Placeholder], *, varied: set[str], fixed: Mapping[str, Value]) -> None:
    with_value = {*varied, *fixed}
    for name in places:
        if name not in with_value:
            raise CommandError(
                f"the command has {{{name}}}, but {name} has no value: vary it with --axis {name}=V,V.. or hold it "
                f"with --set {name}=VALUE{suggestion(name, with_value)}; for a literal {{{name}}} write {{{{{name}}}}}"
            )
    for name in fixed.keys() - places.keys():
        raise CommandError(
            f"{name} is set, but the command has no {{{name}}}{suggestion(name, places)}; write it where the value "
            f"belongs, e.g. --{name.replace('_', '-')} {{{name}}}"
        )


def _example(places: Mapping[str, Placeholder]) -> str:
    first = next(iter(places), None)
    if first is not None:
        return f"every place is held by --set; vary one, e.g. --axis {first}"
    words = shlex.join(["--axis", "layers=1..12"])
    return f"write {words} and {{layers}} in the command where the value belongs, or a flag as {{amp:--amp}}"
