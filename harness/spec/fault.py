"""``--fault``: a specimen, and where it strikes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from harness.core.errors import SpecError, unknown
from harness.core.trial import Condition, Fault
from harness.spec.axes import setting
from harness.specimens.catalog import SPECIMENS
from nsa.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.core.point import Value

OPERATORS = (">=", "<=", "==", "!=", ">", "<")
_MISWRITTEN = {"=": "==", "=>": ">=", "=<": "<=", "<>": "!=", "===": "=="}
_CONDITION = re.compile(r"\s*(?P<name>[^\s<>=!]+)\s*(?P<op>[<>=!]+)\s*(?P<value>[^\s<>=!]+)\s*")
_ORDER = frozenset({">=", "<=", ">", "<"})


def parse_fault(text: str, *, specimens: Iterable[str] | None = None) -> Fault:
    """The fault that ``text`` describes: ``backward-deadlock@n_layers>=5,seq_len>=256``.

    Without conditions it strikes everywhere; several must hold together. Dashes and underscores in the specimen's
    name are the same.

    Raises:
        SpecError: an unknown specimen, setting or operator, or a value that the setting cannot hold.
    """
    name, at, conditions = text.partition("@")
    specimen = _specimen(name.strip(), SPECIMENS.names() if specimens is None else tuple(specimens))
    if at and not conditions.strip():
        raise SpecError(f"fault {text!r} ends after '@'; say where it strikes, e.g. {specimen}@n_layers>=5")
    parts = conditions.split(",") if at else []
    return Fault(specimen=specimen, conditions=tuple(_condition(part, text) for part in parts))


def _specimen(name: str, known: tuple[str, ...]) -> str:
    for row in known:
        if row.replace("_", "-") == name.replace("_", "-"):
            return row
    raise unknown("specimen", name, known)


def _condition(part: str, text: str) -> Condition:
    match = _CONDITION.fullmatch(part)
    if match is None:
        raise SpecError(f"fault {text!r}: {part.strip()!r} is no comparison; write one such as n_layers>=5")
    name, op = match["name"], match["op"]
    if op not in OPERATORS:
        meant = f"; did you mean {_MISWRITTEN[op]!r}?" if op in _MISWRITTEN else ""
        raise SpecError(f"fault {text!r}: unknown operator {op!r}{meant} Known: {' '.join(OPERATORS)}.")
    where = setting(name)
    try:
        value: Value = where.parsed(match["value"])
    except ConfigError as error:
        raise SpecError(f"fault {text!r}: {error}") from error
    if op in _ORDER and where.type not in (int, float):
        raise SpecError(f"fault {text!r}: {where.path} has no order, so {op!r} means nothing; use '==' or '!='")
    return Condition(name=name, op=op, value=value)
