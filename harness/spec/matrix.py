"""Matrix files: YAML -> core Matrix, every error with file and line."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.command_line import placeholders
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
from harness.spec.load import kind_among
from harness.spec.load import parse as parse_question
from harness.spec.matrix_axes import at, axes_of, axis_of, bundle_of, cell_of, factor_of, selector_of
from harness.spec.schema import matrix_model, validated
from harness.spec.yaml_file import read_file, read_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.core.campaign import CampaignSpec
    from harness.core.point import Axis, Point
    from harness.spec.yaml_file import Lines


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
    data, lines = read_yaml(text, name=name)
    if "axis" in data and "axes" not in data:
        return MatrixFile(matrix=_of_one_axis(parse_question(text, name=name), name), lines=lines)
    keys = validated(data, matrix_model(), lines)
    return MatrixFile(matrix=_matrix(keys, lines), lines=lines)


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


def _matrix(keys: Any, lines: Lines) -> Matrix:
    with at(lines.place("command" if keys.command else "target")):
        if (keys.target == "command") != bool(keys.command):
            raise SpecError("target: command needs command: [program, ..], and only it has one")
    factors = tuple(factor_of(name, axis, command=keys.command, lines=lines) for name, axis in keys.axes.items())
    axes = axes_of(factors)
    with at(lines.place("command")):
        _check_places(keys.command, axes)
    with at(lines.place("base")):
        base = bundle_of(keys.base, keys.env, [], target=keys.target)
    _check_disjoint(factors, dict(base.config), lines)
    with at(lines.place("fault")):
        fault = parse_fault(keys.fault, axes=axes) if keys.fault is not None else None
    space = Space(factors=factors, rules=_rules(keys, factors, axes, lines))
    signatures = {name: _signature(name, row, lines) for name, row in keys.signatures.items()}
    with at(lines.place("strength")):
        if keys.strategy == "pairwise" and keys.strength > len(factors):
            raise SpecError(f"strength {keys.strength} is more than the {len(factors)} axes there are")
    return Matrix(
        name=keys.name,
        description=keys.description,
        incident=tuple(keys.incident),
        asks=tuple(_question(i, row, axes, lines) for i, row in enumerate(keys.asks)),
        target=keys.target,
        command=tuple(keys.command),
        base=base,
        fault=fault,
        space=space,
        strategy=MatrixStrategy(keys.strategy),
        strength=keys.strength,
        include=tuple(_included(i, row, space, axes, lines) for i, row in enumerate(keys.include)),
        limits=_limits(keys.limits, lines, "limits"),
        limits_when=_limits_when(keys, axes, lines),
        resources=_resources(keys, axes, lines),
        success=_success(keys.success, lines),
        signatures=tuple(signatures.values()),
        expect=tuple(_expectation(i, row, axes, signatures, lines) for i, row in enumerate(keys.expect)),
        passes=keys.repeat.passes,
        infra_retries=keys.repeat.infra_retries,
        effort=_effort(keys, lines),
        gpu_seconds=keys.budget.gpu_seconds,
        searches=_searches(keys, space, axes, signatures, lines),
        tags=tuple(keys.tags),
    )


def _check_places(command: Sequence[str], axes: Mapping[str, Axis]) -> None:
    for place in placeholders(command):
        if place.name not in axes or axes[place.name].path != f"args.{place.name}":
            name = place.name
            raise SpecError(f"{{{name}}} is no axis without apply; for a literal {{{name}}} write {{{{{name}}}}}")


def _question(i: int, keys: Any, axes: Mapping[str, Axis], lines: Lines) -> MatrixQuestion:
    """A question: exactly one of ever, always and matters."""
    asks = [ask for ask in Asks if getattr(keys, ask.value) is not None]
    with at(lines.place("asks", i)):
        if len(asks) != 1:
            raise SpecError(f"a question has one of {', '.join(Asks)}, not {len(asks)} of them")
        if keys.matters is not None and keys.matters not in axes:
            raise unknown("axis", keys.matters, axes)
        kinds: list[str] = keys.ever or keys.always or []
        return MatrixQuestion(
            asks=asks[0],
            yes=keys.yes,
            no=keys.no,
            axis=keys.matters or "",
            when=_selector(("asks", i, "when"), keys.when, axes, lines) if keys.when else EVERYWHERE,
            kinds=tuple(_kind(word, lines.place("asks", i)) for word in kinds),
            cause=keys.cause,
            phase=keys.phase,
        )


def _rules(keys: Any, factors: tuple[Factor, ...], axes: Mapping[str, Axis], lines: Lines) -> tuple[Rule, ...]:
    rules: list[Rule] = []
    for factor in factors:
        requires = keys.axes[factor.name].requires
        if requires:
            away = tuple(value for value in factor.axis.values if value != factor.good)
            text = f"{factor.name}!={word_of(factor.good)}"
            when = Selector(terms=((factor.name, away),), text=text)
            rules.append(Rule(when=when, require=_selector(("axes", factor.name, "requires"), requires, axes, lines)))
    for i, row in enumerate(keys.constraints):
        when = _selector(("constraints", i, "when"), row.when, axes, lines)
        require = _selector(("constraints", i, "require"), row.require, axes, lines)
        rules.append(Rule(when=when, require=require, because=row.because))
    for i, row in enumerate(keys.exclude):
        when = _selector(("exclude", i), row, axes, lines)
        rules.append(Rule(when=when))
    return tuple(rules)


def _selector(key: tuple[str | int, ...], terms: Mapping[str, Any], axes: Mapping[str, Axis], lines: Lines) -> Selector:
    with at(lines.place(*key)):
        if not terms:
            raise SpecError("an empty selector would hold everywhere; name an axis")
        return selector_of(terms, axes)


def _check_disjoint(factors: tuple[Factor, ...], base: Mapping[str, object], lines: Lines) -> None:
    """Two axes that set the same thing would hide each other."""

    def places(factor: Factor) -> set[str]:
        names: set[str] = set()
        for bundle in factor.bundles:
            names.update(dict(bundle.config))
            for name, _ in bundle.env:
                names.add(f"${name}")
        return names

    for factor in factors:
        for path in places(factor) & base.keys():
            with at(lines.place("base", path)):
                raise SpecError(f"{path} is held in base and is also set by axis {factor.name!r}; take one of them out")
    for one, other in combinations(factors, 2):
        for path in sorted(places(one) & places(other)):
            with at(lines.place("axes", other.name)):
                raise SpecError(f"axes {one.name!r} and {other.name!r} both set {path}; one would hide the other")


def _included(i: int, row: Mapping[str, Any], space: Space, axes: Mapping[str, Axis], lines: Lines) -> Point:
    with at(lines.place("include", i)):
        cell = space.cell(cell_of(row, axes))
        rule = space.broken(cell)
        if rule is not None:
            raise SpecError(f"this cell ({space.name_of(cell)}) breaks a rule: {rule}")
        return cell


def _limits(keys: Any, lines: Lines, *key: str | int) -> Limits:
    return Limits(
        startup_s=_seconds(keys.startup, lines, *key, "startup"),
        stall_s=_seconds(keys.stall, lines, *key, "stall"),
        total_s=_seconds(keys.total, lines, *key, "total"),
    )


def _limits_when(keys: Any, axes: Mapping[str, Axis], lines: Lines) -> tuple[LimitsWhen, ...]:
    rows: list[LimitsWhen] = []
    for i, row in enumerate(keys.limits_when):
        when = _selector(("limits_when", i, "when"), row.when, axes, lines)
        rows.append(LimitsWhen(when=when, limits=_limits(row, lines, "limits_when", i)))
    return tuple(rows)


def _resources(keys: Any, axes: Mapping[str, Axis], lines: Lines) -> tuple[Resources, ...]:
    rows = [Resources(gpus=keys.resources.gpus)]
    for i, row in enumerate(keys.resources_when):
        when = _selector(("resources_when", i, "when"), row.when, axes, lines)
        rows.append(Resources(when=when, gpus=row.gpus))
    return tuple(rows)


def _seconds(amount: float | str | None, lines: Lines, *key: str | int) -> float | None:
    if amount is None:
        return None
    try:
        return duration(amount if isinstance(amount, str) else f"{amount:g}")
    except ValueError as error:
        raise SpecError(f"{lines.place(*key)}: {error}") from error


def _effort(keys: Any, lines: Lines) -> Effort:
    certify, default = keys.repeat.certify, Effort()
    return Effort(
        confidence=certify.confidence,
        certify=certify.passes,
        max_trials=keys.budget.trials or default.max_trials,
        max_seconds=_seconds(keys.budget.wall, lines, "budget", "wall"),
    )


def _success(keys: Any, lines: Lines) -> Success:
    for name in ("require", "forbid"):
        for i, pattern in enumerate(getattr(keys, name)):
            _check_pattern(pattern, lines.place("success", name, i))
    return Success(
        steps=keys.steps,
        max_memory_gb=keys.max_memory_gb,
        min_tokens_per_s=keys.min_tokens_per_s,
        loss=keys.loss,
        gradients=keys.gradients,
        require=tuple(keys.require),
        forbid=tuple(keys.forbid),
    )


def _signature(name: str, keys: Any, lines: Lines) -> SignatureSpec:
    for part in ("log", "stack"):
        if getattr(keys, part) is not None:
            _check_pattern(getattr(keys, part), lines.place("signatures", name, part))
    kind = _kind(keys.verdict, lines.place("signatures", name, "verdict"))
    return SignatureSpec(name=name, kind=kind, log=keys.log, stack=keys.stack)


def _check_pattern(pattern: str, place: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise SpecError(f"{place}: {pattern!r} is not a regular expression: {error}") from error


def _kind(word: str, place: str) -> Kind:
    with at(place):
        return kind_among(set(Kind) - {Kind.INFRA}, word, what="verdict")


def _expectation(
    i: int, keys: Any, axes: Mapping[str, Axis], signatures: Mapping[str, SignatureSpec], lines: Lines
) -> Expectation:
    kind = _kind(keys.verdict, lines.place("expect", i, "verdict"))
    _check_signature(keys.signature, kind, signatures, lines.place("expect", i, "signature"))
    if keys.since and keys.until and keys.until < keys.since:
        raise SpecError(f"{lines.place('expect', i, 'until')}: until {keys.until} is before since {keys.since}")
    return Expectation(
        when=_selector(("expect", i, "when"), keys.when, axes, lines),
        kind=kind,
        signature=keys.signature,
        issue=keys.issue,
        since=keys.since,
        until=keys.until,
        strict=keys.strict,
        rate=keys.rate,
        seconds=_seconds(keys.seconds, lines, "expect", i, "seconds"),
    )


def _check_signature(name: str | None, kind: Kind | None, signatures: Mapping[str, SignatureSpec], place: str) -> None:
    if name is None:
        return
    with at(place):
        if name not in signatures:
            raise SpecError(
                f"unknown signature {name!r}{suggestion(name, signatures)}; there are {', '.join(signatures) or 'none'}"
            )
        if kind is not None and signatures[name].kind is not kind:
            raise SpecError(f"signature {name!r} is of a {signatures[name].kind}, but {kind} is expected")


def _searches(
    keys: Any, space: Space, axes: Mapping[str, Axis], signatures: Mapping[str, SignatureSpec], lines: Lines
) -> tuple[SearchEntry, ...]:
    entries: dict[str, SearchEntry] = {}
    for i, row in enumerate(keys.searches):
        with at(lines.place("searches", i, "name")):
            if row.name in entries:
                raise SpecError(f"search {row.name!r} is there twice")
        _check_signature(row.signature, None, signatures, lines.place("searches", i, "signature"))
        with at(lines.place("searches", i, "fixed")):
            fixed = cell_of(row.fixed, axes)
        kind = SearchKind(row.kind)
        with at(lines.place("searches", i, "axis")):
            _check_axis(kind, row.axis, axes, fixed)
        with at(lines.place("searches", i)):
            _check_search(kind, row, space, fixed)
        entries[row.name] = SearchEntry(
            name=row.name,
            kind=kind,
            axis=row.axis,
            fixed=tuple(fixed.items()),
            signature=row.signature,
            strength=row.strength,
            causes=row.causes,
        )
    return tuple(entries.values())


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
            raise SpecError(f"the {name} corner ({space.name_of(cell)}) of this search breaks a rule: {rule}")
    if len(set(corners.values())) < len(corners):
        raise SpecError("the good and the bad corner of this search are the same cell")
