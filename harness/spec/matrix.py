"""Matrix files: YAML -> core Matrix, every error with file and line."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import combinations, starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from harness.core.command_line import placeholders, variables_before
from harness.core.errors import SpecError, suggestion, unknown
from harness.core.matrix import (
    EVERYWHERE,
    Asks,
    Expectation,
    LimitsWhen,
    Matrix,
    MatrixQuestion,
    MatrixStrategy,
    Resources,
    SearchEntry,
    SearchKind,
    SignatureSpec,
    Success,
)
from harness.core.point import AxisType, word_of
from harness.core.space import Factor, Rule, Selector, Space
from harness.core.spec import Effort, Limits
from harness.core.verdict import Kind
from harness.spec.amounts import duration
from harness.spec.fault import parse_fault
from harness.spec.matrix_axes import at, axes_of, axis_of, bundle_of, cell_of, factor_of, selector_of
from harness.spec.questions import kind_among
from harness.spec.questions import parse as parse_question
from harness.spec.yaml_file import read_file, read_yaml, validated

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from contextlib import AbstractContextManager

    from _typeshed import DataclassInstance
    from pydantic import BaseModel

    from harness.core.campaign import CampaignSpec
    from harness.core.point import Axis, Point
    from harness.spec.yaml_file import Key, Lines


T = TypeVar("T")
Data = TypeVar("Data", bound="DataclassInstance")


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixFile:
    """A matrix and where each part of it is written."""

    matrix: Matrix
    lines: Lines


def load_matrix(path: Path) -> MatrixFile:
    """The matrix in the file at ``path``.

    Raises:
        SpecError: as :func:`parse_matrix`, or the file cannot be read.
    """
    return parse_matrix(read_file(path, what="matrix"), name=str(path))


def parse_matrix(text: str, *, name: str) -> MatrixFile:
    """The matrix in ``text``; ``name`` stands for the file in messages.

    A question about one axis is a matrix too: no cell is planned in it, and its search is called like the axis.

    Raises:
        SpecError: not YAML, a key given twice, an unknown key, axis, value, setting or signature; the message begins
            with file:line and suggests the nearest known name.
    """
    from harness.spec.matrix_keys import MatrixKeys

    data, lines = read_yaml(text, name=name, as_written=_reaches_program)
    if "axis" in data and "axes" not in data:
        return MatrixFile(matrix=_of_one_axis(parse_question(text, name=name), name), lines=lines)
    keys = validated(data, MatrixKeys, lines)
    return MatrixFile(matrix=_Reader(keys, lines).matrix(), lines=lines)


def _reaches_program(key: Key, names: Collection[str]) -> bool:
    """Whether a program gets what stands at ``key`` of a file with the keys ``names``; our trainer takes numbers."""
    match key:
        case ("env", _) | ("axes", _, "apply", "map", _, "env", _):
            return True
        case ("axes", _, "values" | "good" | "bad", *_):
            return "command" in names
        case _:
            return False


def _of_one_axis(question: CampaignSpec, name: str) -> Matrix:
    """The question of an older file as a matrix of one axis; its controls are those of ``bisect FILE`` alone."""
    axis = question.line.name
    entry = SearchEntry(name=axis, kind=SearchKind.BISECT, axis=axis, bad_kinds=question.bad_kinds)
    return replace(
        question.matrix,
        name=re.sub(r"[^A-Za-z0-9._-]+", "-", Path(name).stem),
        description=question.question,
        searches=(entry,),
    )


class _Reader:
    """Turns the ``keys`` of one file into a matrix; each error names the line that it is about."""

    def __init__(self, keys: Any, lines: Lines) -> None:
        self.keys, self.lines = keys, lines
        self.axes: dict[str, Axis] = {}
        self.signatures: dict[str, SignatureSpec] = {}

    def matrix(self) -> Matrix:
        """The matrix; SpecError for the first thing in it that makes no sense."""
        keys = self.keys
        with self.at("command" if keys.command else "target"):
            if (keys.target == "command") != bool(keys.command):
                raise SpecError("target: command needs command: [program, ..], and only it has one")
        factors = tuple(
            factor_of(name, axis, command=keys.command, lines=self.lines) for name, axis in keys.axes.items()
        )
        self.axes = axes_of(factors)
        with self.at("command"):
            _check_places(keys.command, self.axes)
        with self.at("base"):
            base = bundle_of(keys.base, keys.env, [], target=keys.target)
        self.check_disjoint(factors, dict(base.config))
        with self.at("fault"):
            fault = parse_fault(keys.fault, axes=self.axes) if keys.fault is not None else None
        space = Space(factors=factors, rules=self.rules(factors))
        self.signatures = {name: self.signature(name, row) for name, row in keys.signatures.items()}
        with self.at("strength"):
            if keys.strategy == "pairwise" and keys.strength > len(factors):
                raise SpecError(f"strength {keys.strength} is more than the {len(factors)} axes there are")
        return _same(
            Matrix,
            keys,
            asks=self.rows("asks", self.question),
            base=base,
            fault=fault,
            space=space,
            strategy=MatrixStrategy(keys.strategy or ("list" if keys.include or keys.searches else "full")),
            include=self.rows("include", partial(self.included, space)),
            limits=self.limits(keys.limits, "limits"),
            limits_when=self.rows("limits_when", self.limits_when),
            resources=self.resources(),
            success=self.success(),
            signatures=tuple(self.signatures.values()),
            expect=self.rows("expect", self.expectation),
            passes=keys.repeat.passes,
            infra_retries=keys.repeat.infra_retries,
            effort=self.effort(),
            gpu_seconds=keys.budget.gpu_seconds,
            searches=self.searches(space),
        )

    # -- what several keys have in common

    def at(self, *key: str | int) -> AbstractContextManager[None]:
        """Errors from within begin with the line of ``key``."""
        return at(self.lines.place(*key))

    def rows(self, name: str, read: Callable[[int, Any], T]) -> tuple[T, ...]:
        """What ``read`` makes of each item of the list ``name``, with its number."""
        items: list[Any] = getattr(self.keys, name)
        return tuple(starmap(read, enumerate(items)))

    def when(self, terms: Mapping[str, Any], *key: str | int) -> Selector:
        """The cells that ``terms``, written at ``key``, select."""
        with self.at(*key):
            if not terms:
                raise SpecError("an empty selector would hold everywhere; name an axis")
            return selector_of(terms, self.axes)

    def seconds(self, amount: float | str | None, *key: str | int) -> float | None:
        with self.at(*key):
            if amount is None:
                return None
            return duration(amount if isinstance(amount, str) else f"{amount:g}")

    def kind(self, word: str, *key: str | int) -> Kind:
        with self.at(*key):
            return kind_among(set(Kind) - {Kind.INFRA}, word, what="verdict")

    def check_pattern(self, pattern: str | None, *key: str | int) -> None:
        with self.at(*key):
            try:
                re.compile(pattern or "")
            except re.error as error:
                raise SpecError(f"{pattern!r} is not a regular expression: {error}") from error

    def check_signature(self, name: str | None, kind: Kind | None, *key: str | int) -> None:
        """Refuse a name that no signature has, or one of another kind than ``kind``."""
        if name is None:
            return
        with self.at(*key):
            if name not in self.signatures:
                near = suggestion(name, self.signatures)
                raise SpecError(f"unknown signature {name!r}{near}; there are {', '.join(self.signatures) or 'none'}")
            if kind is not None and self.signatures[name].kind is not kind:
                raise SpecError(f"signature {name!r} is of a {self.signatures[name].kind}, but {kind} is expected")

    # -- one key each

    def check_disjoint(self, factors: tuple[Factor, ...], base: Mapping[str, object]) -> None:
        """Two axes that set the same thing would hide each other."""
        for factor in factors:
            for path in _settings(factor) & base.keys():
                with self.at("base", path):
                    raise SpecError(
                        f"{path} is held in base and is also set by axis {factor.name!r}; take one of them out"
                    )
        for factor in factors:
            for name in sorted(_settings(factor) & {f"${name}" for name in variables_before(self.keys.command)}):
                with self.at("axes", factor.name):
                    raise SpecError(f"axis {factor.name!r} sets {name}, which the command sets itself and so hides")
        for one, other in combinations(factors, 2):
            for path in sorted(_settings(one) & _settings(other)):
                with self.at("axes", other.name):
                    raise SpecError(f"axes {one.name!r} and {other.name!r} both set {path}; one would hide the other")

    def rules(self, factors: tuple[Factor, ...]) -> tuple[Rule, ...]:
        rules: list[Rule] = []
        for factor in factors:
            requires = self.keys.axes[factor.name].requires
            if requires:
                away = tuple(value for value in factor.axis.values if value != factor.good)
                text = f"{factor.name}!={word_of(factor.good)}"
                when = Selector(terms=((factor.name, away),), text=text)
                rules.append(Rule(when=when, require=self.when(requires, "axes", factor.name, "requires")))
        for i, row in enumerate(self.keys.constraints):
            when = self.when(row.when, "constraints", i, "when")
            require = self.when(row.require, "constraints", i, "require")
            rules.append(Rule(when=when, require=require, because=row.because))
        for i, row in enumerate(self.keys.exclude):
            rules.append(Rule(when=self.when(row, "exclude", i)))
        return tuple(rules)

    def signature(self, name: str, row: Any) -> SignatureSpec:
        for part in ("log", "stack"):
            self.check_pattern(getattr(row, part), "signatures", name, part)
        return _same(SignatureSpec, row, name=name, kind=self.kind(row.verdict, "signatures", name, "verdict"))

    def question(self, i: int, row: Any) -> MatrixQuestion:
        """A question: exactly one of ever, always and matters."""
        asks = [ask for ask in Asks if getattr(row, ask.value) is not None]
        with self.at("asks", i):
            if len(asks) != 1:
                raise SpecError(f"a question has one of {', '.join(Asks)}, not {len(asks)} of them")
            if row.matters is not None and row.matters not in self.axes:
                raise unknown("axis", row.matters, self.axes)
        words: list[str] = row.ever or row.always or []
        return _same(
            MatrixQuestion,
            row,
            asks=asks[0],
            axis=row.matters or "",
            when=self.when(row.when, "asks", i, "when") if row.when else EVERYWHERE,
            kinds=tuple(self.kind(word, "asks", i) for word in words),
        )

    def included(self, space: Space, i: int, row: Mapping[str, Any]) -> Point:
        with self.at("include", i):
            cell = space.cell(cell_of(row, self.axes))
            rule = space.broken(cell)
            if rule is not None:
                raise SpecError(f"this cell ({space.name_of(cell)}) breaks a rule: {rule}")
            return cell

    def limits(self, row: Any, *key: str | int) -> Limits:
        names = ("startup", "stall", "total")
        return Limits(**{f"{name}_s": self.seconds(getattr(row, name), *key, name) for name in names})

    def limits_when(self, i: int, row: Any) -> LimitsWhen:
        when = self.when(row.when, "limits_when", i, "when")
        return LimitsWhen(when=when, limits=self.limits(row, "limits_when", i))

    def resources(self) -> tuple[Resources, ...]:
        rows = [Resources(gpus=self.keys.resources.gpus)]
        for i, row in enumerate(self.keys.resources_when):
            rows.append(Resources(when=self.when(row.when, "resources_when", i, "when"), gpus=row.gpus))
        return tuple(rows)

    def success(self) -> Success:
        row = self.keys.success
        for name in ("require", "forbid"):
            for i, pattern in enumerate(getattr(row, name)):
                self.check_pattern(pattern, "success", name, i)
        return _same(Success, row)

    def expectation(self, i: int, row: Any) -> Expectation:
        kind = self.kind(row.verdict, "expect", i, "verdict")
        self.check_signature(row.signature, kind, "expect", i, "signature")
        with self.at("expect", i, "until"):
            if row.since and row.until and row.until < row.since:
                raise SpecError(f"until {row.until} is before since {row.since}")
        when = self.when(row.when, "expect", i, "when")
        return _same(Expectation, row, when=when, kind=kind, seconds=self.seconds(row.seconds, "expect", i, "seconds"))

    def effort(self) -> Effort:
        certify, wanted = self.keys.repeat.certify, self.keys.budget
        return Effort(
            confidence=certify.confidence,
            certify=certify.passes,
            max_trials=wanted.trials or Effort().max_trials,
            max_seconds=self.seconds(wanted.wall, "budget", "wall"),
        )

    def searches(self, space: Space) -> tuple[SearchEntry, ...]:
        entries: dict[str, SearchEntry] = {}
        for i, row in enumerate(self.keys.searches):
            with self.at("searches", i, "name"):
                if row.name in entries:
                    raise SpecError(f"search {row.name!r} is there twice")
            self.check_signature(row.signature, None, "searches", i, "signature")
            with self.at("searches", i, "fixed"):
                fixed = cell_of(row.fixed, self.axes)
            kind = SearchKind(row.kind)
            with self.at("searches", i, "axis"):
                _check_axis(kind, row.axis, self.axes, fixed)
            with self.at("searches", i):
                _check_search(kind, row, space, fixed)
            entries[row.name] = _same(SearchEntry, row, kind=kind, fixed=tuple(fixed.items()))
        return tuple(entries.values())


def _same(core: type[Data], keys: BaseModel, /, **others: Any) -> Data:
    """A ``core`` with the values of ``keys`` where they have the same name, lists as tuples, and with ``others``."""
    values: dict[str, Any] = {}
    for name in {field.name for field in fields(core)} - others.keys():
        if name in type(keys).model_fields:
            value = getattr(keys, name)
            values[name] = tuple(cast("list[Any]", value)) if isinstance(value, list) else value
    return core(**values, **others)


def _check_places(command: Sequence[str], axes: Mapping[str, Axis]) -> None:
    for place in placeholders(command):
        if place.name not in axes or axes[place.name].path != f"args.{place.name}":
            name = place.name
            how = f"{name}: {{type: flag}}" if place.is_flag else f"{name}: {{type: categorical, values: [...]}}"
            cure = "it has apply, which says where it goes" if name in axes else f"add it to axes ({how})"
            raise SpecError(f"{{{name}}} is no axis of the command: {cure}; a literal {{{name}}} is {{{{{name}}}}}")


def _settings(factor: Factor) -> set[str]:
    """What an axis sets: settings, and variables with a dollar sign."""
    names: set[str] = set()
    for bundle in factor.bundles:
        names.update(dict(bundle.config))
        for name, _ in bundle.env:
            names.add(f"${name}")
    return names


def _check_axis(kind: SearchKind, axis: str | None, axes: Mapping[str, Axis], fixed: Mapping[str, object]) -> None:
    if (axis is not None) != (kind is SearchKind.BISECT):
        raise SpecError(f"a search of kind {kind} {'needs' if axis is None else 'takes no'} axis")
    if axis is None:
        return
    # Words are in order as they stand; numbers ascend, or it raises.
    replace(axis_of(axis, axes), type=AxisType.ORDERED)
    if axis in fixed:
        raise SpecError(f"axis {axis!r} is searched and also held fixed; take one of them out")


def _check_search(kind: SearchKind, row: Any, space: Space, fixed: Mapping[str, Any]) -> None:
    """Its corners must be cells that may be run; a held axis is held at both ends."""
    if kind is SearchKind.EXPLORE and row.strength > len(space.factors):
        raise SpecError(f"strength {row.strength} is more than the {len(space.factors)} axes there are")
    corners = {"good": space.cell(fixed)}
    if kind is SearchKind.MINIMISE:
        corners["bad"] = space.cell({**dict(space.bad), **fixed})
    for name, cell in corners.items():
        rule = space.broken(cell)
        if rule is not None:
            mended = space.mended(cell) if name == "bad" else None
            way = f"{mended[0].name}: {word_of(mended[0].good)}" if mended else ""
            instead = f"; hold an axis in this search, e.g. fixed: {{{way}}}" if way else ""
            raise SpecError(f"the {name} corner ({space.name_of(cell)}) of this search breaks a rule: {rule}{instead}")
    if len(set(corners.values())) < len(corners):
        raise SpecError("the good and the bad corner of this search are the same cell")
