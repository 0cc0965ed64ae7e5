"""A large value as columns: each different part of it once, field by field. For evidence that crosses a wire.

Most of what looks at a node's ranks show is the same from look to look and from rank to rank: the frames, the threads
that sleep, the marks. As objects in objects (``harness.core.codec``) a rank's evidence is 54 kB of text, and a head
with 8,000 of them reads for half a minute. Here every class has a table, a list for each of its fields: ``{"Frame":
{"function": [..], "line": [..]}, ..}``, those first that are parts of others. A field that holds a dataclass has its
number in that class's table, one that holds a tuple of them their numbers, everything else is as the codec has it. The
last table's only row is the whole. That is a quarter of the text, is read column by column in a tenth of the time, and
equal parts are one object at the head too.
"""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeVar

from harness.core.codec import PLAIN, WrongError, decoder, hints, to_json
from harness.core.errors import JournalError

T = TypeVar("T")


class _Field(NamedTuple):
    """``part`` is the dataclass that the field holds, None where it holds none; ``many`` says a tuple of them.

    Values of the types ``right`` are what they are in JSON; others ``turn`` makes, and refuses what is wrong.
    """

    name: str
    part: type | None
    many: bool
    right: frozenset[Any]
    turn: Callable[[Any], Any] | None


def to_columns(value: Any, *, change: Callable[[str, Any], Any] = lambda _, item: item) -> dict[str, Any]:
    """``value``, a dataclass, as JSON-ready columns; what is no number goes through ``change(name, value)`` first."""
    tables: dict[str, dict[str, list[Any]]] = {}
    at: dict[str, dict[str, int]] = {}
    for cls in _parts(value.__class__):
        tables[cls.__name__] = {field.name: [] for field in _fields(cls)}
        at[cls.__name__] = {}

    def put(item: Any) -> int:
        row: list[Any] = []
        for name, part, many, _, _ in _fields(item.__class__):
            content = getattr(item, name)
            if part is None:
                row.append(change(name, content if type(content) in PLAIN else to_json(content)))
            elif many:
                row.append(list(map(put, content)))
            else:
                row.append(None if content is None else put(content))
        name, key = item.__class__.__name__, repr(row)
        if key not in at[name]:
            at[name][key] = len(at[name])
            for column, one in zip(tables[name].values(), row, strict=True):
                column.append(one)
        return at[name][key]

    put(value)
    return {name: table for name, table in tables.items() if at[name]}


def from_columns(cls: type[T], data: Any) -> T:
    """The ``cls`` that :func:`to_columns` made ``data`` from.

    Raises:
        JournalError: these are no columns of a ``cls``, or those of another version.
    """
    made: dict[type, list[Any]] = {}
    try:
        for part in _parts(cls):
            if part.__name__ in data:
                made[part] = _read(part, data[part.__name__], made)
        (whole,) = made[cls]
    except (WrongError, AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        raise JournalError(f"no columns of {cls.__name__}: {type(error).__name__}: {error}") from error
    return whole


def _read(cls: type, table: Mapping[str, Sequence[Any]], made: Mapping[type, Sequence[Any]]) -> list[Any]:
    """Every row of a class's table. Without ``__init__``, which takes most of the time and checks nothing here."""
    fields = _fields(cls)
    rows = len(next(iter(table.values())))
    if [field.name for field in fields] != [*table] or any(len(column) != rows for column in table.values()):
        raise WrongError(f"{cls.__name__} has other fields there")
    read: list[Any] = [object.__new__(cls) for _ in range(rows)]
    for field, column in zip(fields, table.values(), strict=True):
        put: Callable[[Any, Any], None] = getattr(cls, field.name).__set__
        deque(map(put, read, _values(field, column, made)), maxlen=0)
    return read


def _values(field: _Field, column: Sequence[Any], made: Mapping[type, Sequence[Any]]) -> Sequence[Any]:
    if field.part is not None:
        rows = made.get(field.part, ())
        if field.many:
            return [tuple([rows[number] for number in one]) for one in column]
        return [None if number is None else rows[number] for number in column]
    types_ = set(map(type, column))
    if types_ == {str} and str in field.right:
        return list(map(sys.intern, column))
    return column if field.turn is None or types_ <= field.right else list(map(field.turn, column))


@cache
def _fields(cls: type) -> tuple[_Field, ...]:
    rows: list[_Field] = []
    for field in dataclasses.fields(cls):
        hint = hints(cls)[field.name]
        part, many = _part(hint)
        rows.append(_Field(field.name, part, many, _choices(hint) & PLAIN, decoder(hint)))
    return tuple(rows)


def _choices(hint: Any) -> frozenset[Any]:
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return frozenset(typing.get_args(hint) if is_union else (hint,))


def _part(hint: Any) -> tuple[type | None, bool]:
    """The dataclass that a field of this hint holds by itself, or None, or in a tuple; None where it holds another."""
    args = typing.get_args(hint)
    many = typing.get_origin(hint) is tuple and args[1:] == (...,)
    rest = args[:1] if many else list(_choices(hint) - {type(None)})
    only = rest[0] if len(rest) == 1 else None
    return (only, many) if isinstance(only, type) and dataclasses.is_dataclass(only) else (None, False)


@cache
def _parts(cls: type) -> tuple[type, ...]:
    """All dataclasses in ``cls``, each before those that hold it, and ``cls``."""
    parts: list[type] = []
    for field in _fields(cls):
        if field.part is not None:
            parts += _parts(field.part)
    return tuple(dict.fromkeys([*parts, cls]))
