"""Space: the axes of a matrix, the rules on which values go together, and what a cell may look like."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

from harness.core.errors import SpecError, unknown
from harness.core.point import Axis, Point, Value, assignment, word_of

BASELINE = "baseline"
"""The name of the cell in which every axis has its good value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """What one value of an axis changes in a trial: arguments, environment variables, dotted settings.

    ``python`` is the interpreter that runs it, ``commit`` the revision of the program; None leaves them as they are.
    """

    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    config: tuple[tuple[str, Value], ...] = ()
    python: str | None = None
    commit: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """An axis of a matrix: its known-good and known-bad value, and what each value does.

    A higher ``priority`` is suspected first. ``bundles`` go with ``axis.values``, one each.
    """

    axis: Axis
    good: Value
    bad: Value
    priority: int = 0
    bundles: tuple[Bundle, ...] = ()

    def __post_init__(self) -> None:
        for value in (self.good, self.bad):
            self.axis.index(value)
        if self.bundles and len(self.bundles) != len(self.axis.values):
            raise SpecError(
                f"axis {self.name!r} has {len(self.axis.values)} values, but {len(self.bundles)} of them do something"
            )

    @property
    def name(self) -> str:
        """The axis' name."""
        return self.axis.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """Some axes, each limited to some of its values; without any it holds everywhere. ``text`` is as it was written."""

    terms: tuple[tuple[str, tuple[Value, ...]], ...] = ()
    text: str = ""

    def holds(self, cell: Mapping[str, Value]) -> bool:
        """Whether every axis named here has one of its values; an axis that is not in ``cell`` never has."""
        return all(name in cell and cell[name] in values for name, values in self.terms)

    def can_hold(self, partial: Mapping[str, Value]) -> bool:
        """Whether it could hold once the axes missing from ``partial`` are chosen."""
        return all(name not in partial or partial[name] in values for name, values in self.terms)

    @property
    def names(self) -> tuple[str, ...]:
        """The axes that are named."""
        return tuple(name for name, _ in self.terms)

    def __str__(self) -> str:
        return self.text or ", ".join(f"{name}={'|'.join(map(word_of, values))}" for name, values in self.terms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Where ``when`` holds, ``require`` must hold too; without ``require`` such cells are left out altogether."""

    when: Selector
    require: Selector | None = None
    because: str = ""

    def broken(self, cell: Mapping[str, Value]) -> bool:
        """Whether ``cell``, with every axis that this rule names, breaks it."""
        return self.when.holds(cell) and (self.require is None or not self.require.holds(cell))

    def broken_already(self, partial: Mapping[str, Value]) -> bool:
        """Whether ``partial`` breaks this rule whatever the missing axes will be."""
        return self.when.holds(partial) and (self.require is None or not self.require.can_hold(partial))

    @property
    def names(self) -> frozenset[str]:
        """Every axis that this rule looks at."""
        return frozenset((*self.when.names, *(self.require.names if self.require else ())))

    def __str__(self) -> str:
        rule = f"{self.when} requires {self.require}" if self.require else f"{self.when} is excluded"
        return f"{rule} ({self.because})" if self.because else rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """Every cell there could be: one value for each factor, no rule broken."""

    factors: tuple[Factor, ...]
    rules: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        for name in self.names:
            if self.names.count(name) > 1:
                raise SpecError(f"axis {name!r} is there twice")
        for rule in self.rules:
            for name in rule.names:
                if name not in self.names:
                    raise unknown("axis", name, self.names)

    @property
    def names(self) -> tuple[str, ...]:
        """The axes, in order."""
        return tuple(factor.name for factor in self.factors)

    @property
    def bundles(self) -> tuple[Bundle, ...]:
        """What the values of all axes set."""
        return tuple(chain.from_iterable(factor.bundles for factor in self.factors))

    @property
    def good(self) -> Point:
        """The known-good corner."""
        return Point.of({f.name: f.good for f in self.factors})

    @property
    def bad(self) -> Point:
        """The known-bad corner."""
        return Point.of({f.name: f.bad for f in self.factors})

    def factor(self, name: str) -> Factor:
        """The factor called ``name``; UnknownNameError with the nearest one otherwise."""
        for factor in self.factors:
            if factor.name == name:
                return factor
        raise unknown("axis", name, self.names)

    def cell(self, settings: Mapping[str, Value]) -> Point:
        """The cell with these values, every other axis at its good one."""
        for name, value in settings.items():
            self.factor(name).axis.index(value)
        return Point.of({**dict(self.good), **settings})

    def broken(self, cell: Iterable[tuple[str, Value]]) -> Rule | None:
        """The first rule that ``cell`` breaks, or None when it may be run."""
        settings = dict(cell)
        for rule in self.rules:
            if rule.broken(settings):
                return rule
        return None

    def mended(self, cell: Point) -> tuple[Factor, Point] | None:
        """An axis of the rule that ``cell`` breaks, and ``cell`` with it at its good value; None if that breaks one."""
        rule = self.broken(cell)
        for name in reversed(rule.when.names if rule else ()):
            factor = self.factor(name)
            other = cell.with_value(name, factor.good)
            if self.broken(other) is None:
                return factor, other
        return None

    def name_of(self, cell: Point) -> str:
        """A short name: the values that are not the good ones, in the order of the axes; ``baseline`` when all are.

        Axes that ``cell`` leaves open are left out. Where there is one axis, its value is the name.
        """
        settings = dict(self.good) | dict(cell)
        is_one = len(self.factors) == 1
        changed = [assignment(f.name, settings[f.name]) for f in self.factors if is_one or settings[f.name] != f.good]
        return ",".join(changed) or BASELINE
