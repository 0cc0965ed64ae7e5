"""``--fault``: a specimen, and where it strikes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from harness.core.errors import SpecError, UnknownFaultError, unknown
from harness.core.point import AxisType, word_of
from harness.core.trial import Condition, Fault
from harness.spec.axes import setting
from harness.specimens.catalog import SPECIMENS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from harness.core.point import Axis, Value

OPERATORS = (">=", "<=", "==", "!=", ">", "<")
_MISWRITTEN = {"=": "==", "=>": ">=", "=<": "<=", "<>": "!=", "===": "=="}
_CONDITION = re.compile(r"\s*(?P<name>[^\s<>=!]+)\s*(?P<op>[<>=!]+)\s*(?P<value>[^\s<>=!]+)\s*")
_ORDER = frozenset({">=", "<=", ">", "<"})


def parse_fault(text: str, *, specimens: Iterable[str] | None = None, axes: Mapping[str, Axis] | None = None) -> Fault:
    """The fault that ``text`` describes: ``backward-deadlock@n_layers>=5,seq_len>=256``.

    Without conditions it strikes everywhere; several must hold together. Dashes and underscores in the specimen's
    name are the same. A condition may name one of ``axes`` or any setting of the trainer; an axis comes first.

    Raises:
        SpecError: an unknown specimen, setting or operator, or a value that the setting cannot hold.
    """
    name, at, conditions = text.partition("@")
    specimen = _specimen(name.strip(), SPECIMENS.names() if specimens is None else tuple(specimens))
    if at and not conditions.strip():
        raise SpecError(f"fault {text!r} ends after '@'; say where it strikes, e.g. {specimen}@n_layers>=5")
    parts = conditions.split(",") if at else []
    return Fault(specimen=specimen, conditions=tuple(_condition(part, text, axes or {}) for part in parts))


def _specimen(name: str, specimens: tuple[str, ...]) -> str:
    for row in specimens:
        if row.replace("_", "-") == name.replace("_", "-"):
            return row
    raise unknown("specimen", name, specimens, error=UnknownFaultError)


def _condition(part: str, text: str, axes: Mapping[str, Axis]) -> Condition:
    match = _CONDITION.fullmatch(part)
    if match is None:
        raise SpecError(f"fault {text!r}: {part.strip()!r} is no comparison; write one such as n_layers>=5")
    name, op = match["name"], match["op"]
    if op not in OPERATORS:
        hint = f"; did you mean {_MISWRITTEN[op]!r}?" if op in _MISWRITTEN else ""
        raise SpecError(f"fault {text!r}: unknown operator {op!r}{hint} Known: {' '.join(OPERATORS)}.")
    if name in axes:
        return _on_axis(axes[name], op, match["value"], text)
    where = setting(name)
    try:
        value: Value = where.parsed(match["value"])
    except ValueError as error:
        raise SpecError(f"fault {text!r}: {error}") from error
    if op in _ORDER and where.type not in (int, float):
        raise SpecError(f"fault {text!r}: {where.path} has no order, so {op!r} means nothing; use '==' or '!='")
    return Condition(name=name, op=op, value=value)


def _on_axis(axis: Axis, op: str, word: str, text: str) -> Condition:
    """A condition on an axis: one of its values, or on an ordered one any number."""
    if op in _ORDER and axis.type is not AxisType.ORDERED:
        raise SpecError(f"fault {text!r}: axis {axis.name!r} has no order, so {op!r} means nothing; use '==' or '!='")
    words = {word_of(value).lower(): value for value in axis.values}
    if axis.type is AxisType.FLAG:
        words |= {"0": False, "1": True}
    if word.lower() in words:
        return Condition(name=axis.name, op=op, value=words[word.lower()])
    number = _float(word)
    if op in _ORDER and number is not None:
        return Condition(name=axis.name, op=op, value=number)
    choices = ", ".join(map(word_of, axis.values))
    raise SpecError(f"fault {text!r}: {word!r} is not a value of axis {axis.name!r}; it has {choices}")


def _float(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None
