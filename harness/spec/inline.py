"""A matrix from the command line: ``--axis n_layers=1..12 --axis tied_head=false,true``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.errors import SpecError
from harness.core.matrix import Matrix
from harness.core.point import Axis, AxisType, Value
from harness.core.space import Bundle, Factor, Space
from harness.spec.amounts import items_of
from harness.spec.axes import parse_axis, setting
from harness.spec.elsewhere import elsewhere_factor, is_elsewhere
from harness.spec.fault import parse_fault
from harness.spec.matrix_axes import axes_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nsa.config import ConfigPath

HERE = Path()


def inline_matrix(
    axes: Iterable[str], *, fixed: Mapping[str, Value] | None = None, fault: str | None = None, repository: Path = HERE
) -> Matrix:
    """The matrix of these axes, on our own trainer; ``repository`` has its commits.

    Numbers ascend, and the smallest is the good value; of words and flags the first is good and the last bad.

    Raises:
        SpecError: an unknown setting or value, with the nearest, or no axis at all.
    """
    factors: list[Factor] = []
    for text in axes:
        if is_elsewhere(text):
            factors.append(elsewhere_factor(text, repository=repository))
        else:
            factors.append(_factor(text))
    if not factors:
        raise SpecError("nothing to vary: name a matrix file, or axes such as --axis n_layers=1..12")
    base = _base_bundle(factors, fixed or {})
    by_name = axes_of(factors)
    return Matrix(
        name=name_of_axes(by_name),
        space=Space(factors=tuple(factors)),
        base=base,
        fault=None if fault is None else parse_fault(fault, axes=by_name),
    )


def _base_bundle(factors: Iterable[Factor], fixed: Mapping[str, Value]) -> Bundle:
    """What is the same in every cell; SpecError where an axis varies it."""
    for factor in factors:
        if factor.axis.path in fixed:
            value = fixed[factor.axis.path]
            raise SpecError(f"{factor.axis.path} is held fixed at {value!r} and varied by --axis {factor.name}; choose")
    return Bundle(config=tuple(sorted(fixed.items())))


def name_of_axes(names: Iterable[str]) -> str:
    """What a matrix that was typed is called, and so the folder of its run."""
    return "-".join(re.findall(r"\w+", " ".join(names)))[:40]


def fixed_settings(pairs: Iterable[tuple[str, str]]) -> dict[str, Value]:
    """Names and values as texts, as settings of our own trainer by path; SpecError for an unknown one."""
    fixed: dict[str, Value] = {}
    for name, text in pairs:
        where = setting(name)
        fixed[where.path] = _parsed(where, text)
    return fixed


def _factor(text: str) -> Factor:
    name, equals, values = map(str.strip, text.partition("="))
    where = setting(name)
    axis = parse_axis(text) if where.type in (int, float) else _in_words(where, name, values if equals else "")
    return factor_along(axis)


def factor_along(axis: Axis) -> Factor:
    """The factor whose first value is good and whose last is bad, each value the setting that the axis is about."""
    bundles = tuple(Bundle(config=((axis.path, value),)) for value in axis.values)
    return Factor(axis=axis, good=axis.values[0], bad=axis.values[-1], bundles=bundles)


def _in_words(where: ConfigPath, name: str, values: str) -> Axis:
    """An axis of words or of a flag; SpecError where it has fewer than two."""
    words = tuple(_parsed(where, word) for word in items_of(values))
    if len(words) < 2:
        raise SpecError(f"axis {name!r} needs its values, the good one first, e.g. {name}={_example(where)}")
    kind = AxisType.FLAG if where.type is bool else AxisType.CATEGORICAL
    return Axis(name=name, path=where.path, type=kind, values=words)


def _parsed(where: ConfigPath, word: str) -> Value:
    try:
        return where.parsed(word.strip())
    except ValueError as error:
        raise SpecError(str(error)) from error


def _example(where: ConfigPath) -> str:
    return "false,true" if where.type is bool else f"{where.default},.."
