"""Axis and Point: one named setting, and an assignment of values to settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from harness.core.errors import SpecError, suggestion

Value: TypeAlias = int | float | str | bool | None


def word_of(value: object) -> str:
    """``value`` as it stands in commands, files and reports alike: a flag is true or false, as in YAML and JSON."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


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
    at least as often. Words on an ordered axis (commits) stand in the order in which they are given. ``path`` is the
    dotted place in the target's configuration that the value is written to.
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
        if is_numbered and list(self.values) != sorted(self.values, key=_as_number):
            raise SpecError(f"ordered axis {self.name!r} must ascend, got {list(self.values)}")

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
        return isinstance(self.values[0], str)

    def up_to(self, value: Value) -> str:
        """This value and those before it: ``n_layers <= 4``; of words, which have no size, ``mode up to ddp``."""
        if not self.is_named:
            return f"{self.name} <= {word_of(value)}"
        return assignment(self.name, value) if value == self.values[0] else f"{self.name} up to {value}"


def _as_number(value: Value) -> float:
    if isinstance(value, int | float):
        return float(value)
    raise SpecError(f"an ordered axis needs numbers, got {value!r}")


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
