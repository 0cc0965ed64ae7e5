"""Dataclasses to JSON and back, by their type hints; unknown keys are errors, missing ones take their default.

What is to be done with a type is worked out once; a run of five hundred trials holds a hundred thousand values.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import types
import typing
from collections.abc import Callable
from enum import Enum
from functools import cache
from operator import attrgetter
from typing import Any, TypeAlias, TypeVar

from harness.core.errors import JournalError, suggestion

SCHEMA = 1
"""Version written into every file; raise it when an old reader would misread a new file."""

T = TypeVar("T")

Turn: TypeAlias = Callable[[Any], Any]
"""Turns one value into its JSON, or back."""

RETIRED: dict[str, frozenset[str]] = {
    "ProcessState": frozenset({"others_cpu_s", "others_may_move", "movers", "others_waits"}),
}
"""Fields that older versions wrote and that mean nothing any more, by class: they are read and dropped."""

PLAIN = frozenset({str, int, float, bool, type(None)})
"""Types whose values are JSON already."""


def to_json(value: Any) -> Any:
    """``value`` as JSON-ready data: dataclasses become objects, tuples arrays, enums their value."""
    return value if type(value) in PLAIN else _encoder(value.__class__)(value)


def from_json(cls: type[T], data: Any) -> T:
    """The ``cls`` that :func:`to_json` made ``data`` from.

    Raises:
        JournalError: a key that ``cls`` does not have, or a value of the wrong shape.
    """
    decode = decoder(cls)
    try:
        return decode(data) if decode else data
    except WrongError as error:
        raise JournalError(f"{cls.__name__}{''.join(reversed(error.path))}: {error}") from error


class WrongError(Exception):
    """What is wrong with a value; ``path`` says where, the innermost first."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.path: list[str] = []


@cache
def _encoder(cls: type) -> Turn:
    if issubclass(cls, Enum):
        return lambda value: value.value
    if issubclass(cls, dt.date):
        return lambda value: value.isoformat()
    if issubclass(cls, list | tuple | frozenset):
        return lambda value: [item if type(item) in PLAIN else to_json(item) for item in value]
    if issubclass(cls, dict):
        return lambda value: {str(key): to_json(item) for key, item in value.items()}
    if dataclasses.is_dataclass(cls):
        return _object_of(_names_of(cls))
    return lambda value: value


def _names_of(cls: Any) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(cls))


def _object_of(names: tuple[str, ...]) -> Turn:
    if len(names) < 2:  # attrgetter gives a tuple from two names on
        return lambda value: {name: to_json(getattr(value, name)) for name in names}
    values = attrgetter(*names)

    def encode(value: Any) -> dict[str, Any]:
        pairs = zip(names, values(value), strict=True)
        return {name: item if type(item) in PLAIN else to_json(item) for name, item in pairs}

    return encode


@cache
def decoder(hint: Any) -> Turn | None:
    """What makes a ``hint`` of JSON data, and raises :class:`WrongError`; None where the data are it already."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _union_of(args)
    if origin is tuple:
        return _tuple_of(args)
    if origin is dict or hint is dict:
        return _of(dict)
    return _class_of(hint) if isinstance(hint, type) else None


def _class_of(cls: type[Any]) -> Turn | None:
    if issubclass(cls, Enum):
        return _enum_of(cls)
    if dataclasses.is_dataclass(cls):
        return _dataclass_of(cls)
    if cls is float:
        return _float
    if cls in _NAMES:
        return _of(cls)
    return _date if issubclass(cls, dt.date) else None


_NAMES = {str: "a text", int: "a whole number", bool: "true or false", float: "a number", dict: "an object"}


def _of(cls: type) -> Turn:
    """Takes what is a ``cls`` and refuses what is not."""

    def decode(data: Any) -> Any:
        if type(data) is not cls:
            raise WrongError(f"expected {_NAMES[cls]}, got {data!r:.80}")
        return data

    return decode


def _float(data: Any) -> float:
    if type(data) not in (int, float):
        raise WrongError(f"expected {_NAMES[float]}, got {data!r:.80}")
    return float(data)


def _date(data: Any) -> dt.date:
    try:
        return dt.date.fromisoformat(data)
    except (TypeError, ValueError):
        raise WrongError(f"expected a date, got {data!r:.80}") from None


def _enum_of(cls: type[Enum]) -> Turn:
    members = {member.value: member for member in cls}

    def decode(data: Any) -> Enum:
        try:
            return members[data]
        except (KeyError, TypeError):
            raise WrongError(f"{data!r} is not a valid {cls.__name__}") from None

    return decode


def _tuple_of(args: tuple[Any, ...]) -> Turn:
    is_open = len(args) == 2 and args[1] is Ellipsis
    inner = [decoder(arg) for arg in args if arg is not Ellipsis]

    def decode(data: Any) -> tuple[Any, ...]:
        if not isinstance(data, list | tuple):
            raise WrongError(f"expected a list, got {data!r}")
        elements = typing.cast("list[Any]", data)
        if is_open and not elements:
            return ()
        if not is_open and len(inner) != len(elements):
            raise WrongError(f"expected {len(inner)} items, got {len(elements)}")
        items: list[Any] = []
        try:
            for item, turn in zip(elements, inner * len(elements) if is_open else inner, strict=True):
                items.append(turn(item) if turn else item)
        except WrongError as error:
            error.path.append(f"[{len(items)}]")
            raise
        return tuple(items)

    return decode


def _union_of(args: tuple[Any, ...]) -> Turn | None:
    """A dataclass for an object, a tuple for an array, an enum or a date for the rest; None for bare values alone."""
    objects: list[Turn | None] = []
    arrays: list[Turn | None] = []
    words: list[Turn | None] = []
    for arg in args:
        if dataclasses.is_dataclass(arg):
            objects.append(decoder(arg))
        elif typing.get_origin(arg) is tuple:
            arrays.append(decoder(arg))
        elif isinstance(arg, type) and issubclass(arg, Enum | dt.date):
            words.append(decoder(arg))
    plain = {typing.get_origin(arg) or arg for arg in args} & {*PLAIN, dict}
    is_float = float in args and int not in args
    is_open = Any in args or object in args

    def decode(data: Any) -> Any:
        kind: type = data.__class__
        if is_float and kind is int:
            return float(data)
        if kind in plain and not (words and kind is str):
            return data
        for turn in (objects if kind is dict else arrays if kind is list else words)[:1]:
            return turn(data) if turn else data
        if is_open or kind in plain:
            return data
        raise WrongError(f"a value of another kind was expected, got {data!r:.80}")

    return decode


def _dataclass_of(cls: type[Any]) -> Turn:
    names = _names_of(cls)
    upgraded: Turn | None = getattr(cls, "upgraded", None)

    @cache  # worked out when it is needed, not before: a type may hold itself
    def decoders() -> dict[str, Turn | None]:
        hint_of = hints(cls)
        return {f.name: decoder(hint_of[f.name]) for f in dataclasses.fields(cls) if f.init}

    def decode(data: Any) -> Any:
        if not isinstance(data, dict):
            raise WrongError(f"expected an object, got {type(data).__name__} {data!r}")
        fields = typing.cast("dict[str, Any]", upgraded(data) if upgraded else data)
        for key in fields.keys() - RETIRED.get(cls.__name__, frozenset()):
            if key not in names:
                raise WrongError(f"unknown key {key!r}{suggestion(key, names)}")
        arguments: dict[str, Any] = {}
        name = ""
        try:
            for name, turn in decoders().items():
                if name in fields:
                    arguments[name] = turn(fields[name]) if turn else fields[name]
        except WrongError as error:
            error.path.append(f".{name}")
            raise
        try:
            return cls(**arguments)
        except TypeError as error:
            raise WrongError(str(error)) from error

    return decode


@cache
def hints(cls: type) -> dict[str, Any]:
    """The types of a dataclass's fields; its module may import those of evidence for the type checker alone."""
    from harness.core import evidence

    return typing.get_type_hints(cls, localns=vars(evidence))
