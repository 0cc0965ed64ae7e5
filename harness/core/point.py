"""Axis and Point: one named setting, and an assignment of values to settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import TypeAlias

from harness.core.errors import SpecError, suggestion

Value: TypeAlias = int | float | str | bool | None

LARGEST = 2**53
"""The largest number that can be asked for: from here on a float leaves whole numbers out."""


def word_of(value: object) -> str:
    """``value`` as it stands in commands, files and reports alike: a flag is true or false, as in YAML and JSON."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def as_typed(text: str) -> int | float | str:
    """``text`` as the number that :func:`word_of` writes like that; any other stays the text that it is.

    So ``12`` is a number, and ``12.0``, ``1e-3`` and ``010`` reach a program as they were typed (:func:`size_of`).
    """
    size = _number(text)
    for value in () if size is None else (int(size), size):
        if word_of(value) == text:
            return value
    return text


def size_of(value: Value) -> float | None:
    """How large ``value`` is, also where it is a number that is typed in a way of its own; None of a word."""
    if isinstance(value, str):
        return _number(value) if as_typed(value) == value else None
    return None if value is None else float(value)


def _number(text: str) -> float | None:
    """The number that ``text`` stands for, if it is one that can be asked for."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if abs(number) <= LARGEST else None


def assignment(name: str, value: Value) -> str:
    """``n_layers=5``, as it can be typed."""
    return f"{name}={word_of(value)}"


class AxisType(StrEnum):
    """How the values of an axis relate to each other."""

    ORDERED = "ordered"
    CATEGORICAL = "categorical"
    FLAG = "flag"


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One setting that a search may vary.

    ``values`` of an ordered axis ascend, and larger is worse: if a value fails, larger ones are expected to fail
    at least as often. Words on an ordered axis (commits) stand in the order in which they are given, and so do numbers
    that are typed in ways of their own, where they do not ascend. ``path`` is the dotted place in the target's
    configuration that the value is written to.
    """

    name: str
    path: str
    type: AxisType
    values: tuple[Value, ...]
    unit: str = ""
    help: str = ""

    def __post_init__(self) -> None:
        if not self.values:
            raise SpecError(f"axis {self.name!r} has no values; give some, e.g. {self.name}=1..12")
        if len(set(self.values)) != len(self.values):
            raise SpecError(f"axis {self.name!r} lists a value twice: {list(self.values)}")
        is_numbered = self.type is AxisType.ORDERED and not all(isinstance(value, str) for value in self.values)
        if is_numbered and self.is_named:
            raise SpecError(self._why_in_no_order())

    def _why_in_no_order(self) -> str:
        by_size: dict[Value, float] = {}
        for value in self.values:
            size = size_of(value)
            if size is None:
                return f"an ordered axis needs numbers, got {value!r}"
            by_size[value] = size
        ascending = ", ".join(map(word_of, sorted(by_size, key=by_size.__getitem__)))
        return f"ordered axis {self.name!r} must ascend: {ascending}, not {', '.join(map(word_of, self.values))}"

    def index(self, value: Value) -> int:
        """The position of ``value`` on this axis; SpecError with the nearest value when it is not on it."""
        try:
            return self.values.index(value)
        except ValueError:
            close = suggestion(word_of(value), map(word_of, self.values))
            raise SpecError(f"{value!r} is not a value of axis {self.name!r}{close}") from None

    @property
    def is_named(self) -> bool:
        """Whether its values are words, as commits are: they have an order, but no size that grows along it."""
        return not ascend(self.values)

    def size(self, value: Value) -> float | None:
        """How large ``value`` is among the values of this axis; None where they are words."""
        return None if self.is_named else size_of(value)

    def up_to(self, value: Value) -> str:
        """This value and those before it: ``n_layers <= 4``; of words, which have no size, ``mode up to ddp``."""
        if not self.is_named:
            return f"{self.name} <= {word_of(value)}"
        return assignment(self.name, value) if value == self.values[0] else f"{self.name} up to {value}"


@cache
def ascend(values: tuple[Value, ...]) -> bool:
    """Whether all of ``values`` are numbers, none smaller than the one before it."""
    sizes = [size for size in map(size_of, values) if size is not None]
    return len(sizes) == len(values) and sizes == sorted(sizes)


@dataclass(frozen=True, slots=True)
class Point:
    """An assignment of values to named settings; equal points are the same question."""

    settings: tuple[tuple[str, Value], ...] = ()

    @classmethod
    def of(cls, settings: Mapping[str, Value]) -> Point:
        """The point with these settings, in canonical (sorted) order."""
        return cls(tuple(sorted(settings.items())))

    def with_value(self, name: str, value: Value) -> Point:
        """This point with one setting replaced or added."""
        return Point.of({**dict(self.settings), name: value})

    def get(self, name: str, default: Value = None) -> Value:
        """The value of ``name``, or ``default``."""
        return dict(self.settings).get(name, default)

    def __iter__(self) -> Iterator[tuple[str, Value]]:
        return iter(self.settings)

    def __str__(self) -> str:
        return " ".join(assignment(name, value) for name, value in self.settings) or "(defaults)"
