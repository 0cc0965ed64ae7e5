"""Dataclasses to JSON and back, by their type hints; unknown keys are errors, missing ones take their default."""

from __future__ import annotations

import dataclasses
import datetime as dt
import types
import typing
from enum import Enum
from functools import cache
from typing import Any, TypeVar

from harness.core.errors import JournalError, suggestion

SCHEMA = 1
"""Version written into every file; raise it when an old reader would misread a new file."""

T = TypeVar("T")

_PLAIN = frozenset({str, int, float, bool, type(None)})


def to_json(value: Any) -> Any:
    """``value`` as JSON-ready data: dataclasses become objects, tuples arrays, enums their value."""
    if type(value) in _PLAIN:
        return value
    if type(value) is dict:
        return {str(k): v if type(v) in _PLAIN else to_json(v) for k, v in typing.cast("dict[Any, Any]", value).items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: to_json(getattr(value, name)) for name in _fields(type(value))}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, list | tuple | frozenset):
        return [to_json(item) for item in typing.cast("list[Any]", value)]
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in typing.cast("dict[Any, Any]", value).items()}
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
    import harness.core.campaign as campaign
    import harness.core.cause as cause
    import harness.core.devices as devices
    import harness.core.evidence as evidence
    import harness.core.matrix as matrix
    import harness.core.outcome as outcome
    import harness.core.point as point
    import harness.core.record as record
    import harness.core.space as space
    import harness.core.spec as spec
    import harness.core.trial as trial
    import harness.core.verdict as verdict

    names: dict[str, Any] = {}
    core = (boundary, campaign, cause, devices, evidence, matrix, outcome, point, record, space, spec, trial, verdict)
    for module in core:
        names.update(vars(module))
    return typing.get_type_hints(cls, localns=names)


@cache
def _fields(cls: type) -> dict[str, bool]:
    """The fields of a dataclass, each with whether its constructor takes it."""
    return {f.name: f.init for f in dataclasses.fields(cls)}


@cache
def _parts(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    return typing.get_origin(hint), typing.get_args(hint)


def _decode(hint: Any, data: Any, *, where: str) -> Any:
    if hint is str or hint is int or hint is bool:
        return data
    origin, args = _parts(hint)
    if hint is Any or hint is object:
        return data
    if origin in (typing.Union, types.UnionType):
        return _decode_union(args, data, where=where)
    if origin is tuple:
        return _decode_tuple(args, data, where=where)
    if origin is dict:
        return dict(data)
    if isinstance(hint, type):
        return _decode_class(hint, data, where=where)
    return data


def _decode_class(cls: type[Any], data: Any, *, where: str) -> Any:
    if issubclass(cls, Enum):
        try:
            return cls(data)
        except ValueError as error:
            raise JournalError(f"{where}: {error}") from error
    if dataclasses.is_dataclass(cls):
        return _decode_dataclass(cls, data, where=where)
    if cls is float and isinstance(data, int):
        return float(data)
    if issubclass(cls, dt.date):
        return dt.date.fromisoformat(str(data))
    return data


def _decode_tuple(args: tuple[Any, ...], data: Any, *, where: str) -> Any:
    if not isinstance(data, list | tuple):
        raise JournalError(f"{where}: expected a list, got {data!r}")
    items: list[Any] = list(typing.cast("list[Any]", data))
    inner: list[Any] = [args[0]] * len(items) if len(args) == 2 and args[1] is Ellipsis else list(args)
    if len(inner) != len(items):
        raise JournalError(f"{where}: expected {len(inner)} items, got {len(items)}")
    pairs = zip(inner, items, strict=True)
    return tuple(_decode(hint, item, where=f"{where}[{i}]") for i, (hint, item) in enumerate(pairs))


def _decode_union(args: tuple[Any, ...], data: Any, *, where: str) -> Any:
    if data is None and type(None) in args:
        return None
    for arg in args:
        is_class = isinstance(arg, type)
        if isinstance(data, dict) and dataclasses.is_dataclass(arg):
            return _decode(arg, typing.cast("Any", data), where=where)
        if isinstance(data, list) and typing.get_origin(arg) is tuple:
            return _decode(arg, typing.cast("Any", data), where=where)
        if is_class and issubclass(arg, Enum | dt.date):
            return _decode(arg, data, where=where)
    if float in args and int not in args and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    return typing.cast("Any", data)


def _decode_dataclass(cls: type[Any], data: Any, *, where: str) -> Any:
    if not isinstance(data, dict):
        raise JournalError(f"{where}: expected an object, got {type(data).__name__} {data!r}")
    given = typing.cast("dict[str, Any]", data)
    fields = _fields(cls)
    for key in given:
        if key not in fields:
            raise JournalError(f"{where}: unknown key {key!r}{suggestion(key, fields)}")
    hints = _hints(cls)
    known = {
        name: _decode(hints[name], given[name], where=f"{where}.{name}")
        for name, is_taken in fields.items()
        if is_taken and name in given
    }
    try:
        return cls(**known)
    except TypeError as error:
        raise JournalError(f"{where}: {error}") from error
