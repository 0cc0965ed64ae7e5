"""Dataclasses to JSON and back, by their type hints; unknown keys are errors, missing ones take their default."""

from __future__ import annotations

import dataclasses
import types
import typing
from enum import Enum
from functools import cache
from typing import Any, TypeVar

from harness.core.errors import JournalError, suggestion

SCHEMA = 1
"""Version written into every file; raise it when an old reader would misread a new file."""

T = TypeVar("T")


def to_json(value: object) -> Any:
    """``value`` as JSON-ready data: dataclasses become objects, tuples arrays, enums their value."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, list | tuple | frozenset):
        return [to_json(item) for item in value]
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    return value


def from_json(cls: type[T], data: Any) -> T:
    """The ``cls`` that :func:`to_json` made ``data`` from.

    Raises:
        JournalError: a key that ``cls`` does not have, or a value of the wrong shape.
    """
    return _decode(cls, data, where=cls.__name__)


@cache
def _hints(cls: type) -> dict[str, Any]:
    # The core modules name each other under TYPE_CHECKING; resolve against all of them.
    import harness.core.boundary as boundary
    import harness.core.evidence as evidence
    import harness.core.outcome as outcome
    import harness.core.point as point
    import harness.core.record as record
    import harness.core.spec as spec
    import harness.core.trial as trial
    import harness.core.verdict as verdict

    names: dict[str, Any] = {}
    for module in (boundary, evidence, outcome, point, record, spec, trial, verdict):
        names.update(vars(module))
    return typing.get_type_hints(cls, localns=names)


def _decode(hint: Any, data: Any, *, where: str) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or hint is object:
        return data
    if origin in (typing.Union, types.UnionType):
        return _decode_union(args, data, where=where)
    if origin is tuple:
        if not isinstance(data, list | tuple):
            raise JournalError(f"{where}: expected a list, got {data!r}")
        inner = [args[0]] * len(data) if len(args) == 2 and args[1] is Ellipsis else list(args)
        if len(inner) != len(data):
            raise JournalError(f"{where}: expected {len(inner)} items, got {len(data)}")
        return tuple(_decode(h, item, where=f"{where}[{i}]") for i, (h, item) in enumerate(zip(inner, data, strict=True)))
    if origin is dict:
        return dict(data)
    if isinstance(hint, type) and issubclass(hint, Enum):
        try:
            return hint(data)
        except ValueError as error:
            raise JournalError(f"{where}: {error}") from error
    if dataclasses.is_dataclass(hint):
        return _decode_dataclass(typing.cast("type", hint), data, where=where)
    if hint is float and isinstance(data, int):
        return float(data)
    return data


def _decode_union(args: tuple[Any, ...], data: Any, *, where: str) -> Any:
    if data is None and type(None) in args:
        return None
    if isinstance(data, dict):
        for arg in args:
            if dataclasses.is_dataclass(arg):
                return _decode(arg, data, where=where)
    classes = [a for a in args if isinstance(a, type) and issubclass(a, Enum)]
    if classes:
        return _decode(classes[0], data, where=where)
    tuples = [a for a in args if typing.get_origin(a) is tuple]
    if tuples and isinstance(data, list):
        return _decode(tuples[0], data, where=where)
    if float in args and int not in args and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    return data


def _decode_dataclass(cls: type, data: Any, *, where: str) -> Any:
    if not isinstance(data, dict):
        raise JournalError(f"{where}: expected an object, got {type(data).__name__} {data!r}")
    fields = {f.name: f for f in dataclasses.fields(cls)}
    for key in data:
        if key not in fields:
            raise JournalError(f"{where}: unknown key {key!r}{suggestion(key, fields)}")
    hints = _hints(cls)
    known = {
        name: _decode(hints[name], data[name], where=f"{where}.{name}")
        for name, f in fields.items()
        if name in data and f.init
    }
    try:
        return cls(**known)
    except TypeError as error:
        raise JournalError(f"{where}: {error}") from error
