"""Questions of files: that of a search beside a matrix, and those of earlier versions, on one axis of our trainer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.core.campaign import CampaignSpec, Task, threshold_question
from harness.core.errors import NoSearchError, SpecError, choices, unknown
from harness.core.matrix import SearchKind
from harness.core.point import AxisType, Point
from harness.core.space import Space
from harness.core.spec import Effort, Limits
from harness.core.trial import CONTROLS
from harness.core.verdict import BAD_KINDS
from harness.spec.axes import parse_axis, setting
from harness.spec.fault import parse_fault
from harness.spec.matrix_axes import at
from harness.spec.yaml_file import read_file, read_yaml, validated

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from harness.core.matrix import Matrix, SearchEntry
    from harness.core.point import Value
    from harness.core.verdict import Kind
    from harness.spec.yaml_file import Lines


def load(path: Path) -> CampaignSpec:
    """The question in the file at ``path``.

    Raises:
        SpecError: the file cannot be read, is not YAML, repeats a key, has an unknown key or a value that does not
            fit; the message begins with file:line and suggests the nearest known name.
    """
    return parse(read_file(path, what="question"), name=str(path))


def parse(text: str, *, name: str) -> CampaignSpec:
    """The question in ``text``; ``name`` stands for the file in messages."""
    from harness.spec.matrix_keys import QuestionKeys

    data, lines = read_yaml(text, name=name)
    question = validated(data, QuestionKeys, lines)
    with at(lines.place("axis")):
        axis = parse_axis(question.axis)
    fixed = _fixed(question.fixed, lines)
    if axis.path in fixed:
        raise SpecError(f"{lines.place('fixed')}: {axis.path} is held fixed and is also the axis; take one of them out")
    with at(lines.place("fault")):
        fault = parse_fault(question.fault) if question.fault is not None else None
    return threshold_question(
        question=question.question,
        target=question.target,
        axis=axis,
        fixed=Point.of(fixed),
        fault=fault,
        bad=_bad(question.bad, lines),
        limits=Limits(**question.limits.model_dump()),
        effort=Effort(**question.effort.model_dump()),
        controls=_controls(question.controls, lines),
        executor=question.executor,
        seed=question.seed,
        env=tuple(sorted(question.env.items())),
    )


def _fixed(settings: Mapping[str, Value], lines: Lines) -> dict[str, Value]:
    fixed: dict[str, Value] = {}
    for name, value in settings.items():
        with at(lines.place("fixed", name)):
            where = setting(name)
            if where.path in fixed:
                raise SpecError(f"{where.path} is given twice")
            fixed[where.path] = where.checked(value)
    return fixed


def kind_of(word: str) -> Kind:
    """A kind of failure as one types it; SpecError with the nearest otherwise."""
    return kind_among(BAD_KINDS, word, what="kind of failure")


def kind_among(kinds: Iterable[Kind], word: str, *, what: str) -> Kind:
    """The one of ``kinds`` that ``word`` names; SpecError with the nearest otherwise."""
    names = {kind.value.lower(): kind for kind in kinds}
    if word.lower() not in names:
        raise unknown(what, word.lower(), names)
    return names[word.lower()]


def _bad(words: list[str], lines: Lines) -> tuple[Kind, ...]:
    kinds: list[Kind] = []
    for i, word in enumerate(words):
        with at(lines.place("bad", i)):
            kinds.append(kind_of(word))
    return tuple(kinds)


def _controls(names: list[str], lines: Lines) -> tuple[str, ...]:
    for i, name in enumerate(names):
        if name not in CONTROLS:
            with at(lines.place("controls", i)):
                raise unknown("control", name, CONTROLS)
    return tuple(names)


def search_spec(matrix: Matrix, name: str, *, file: str) -> CampaignSpec:
    """The question that the search called ``name`` asks.

    Raises:
        NoSearchError: the file has no such search; the message has the nearest name.
    """
    entries = {entry.name: entry for entry in matrix.searches}
    if name not in entries:
        others = choices(name, entries) if entries else ", nor any other"
        raise NoSearchError(f"{file} has no search {name!r}{others}")
    entry = entries[name]
    space, fixed = matrix.space, dict(entry.fixed)
    return CampaignSpec(
        question=_question(entry),
        task=Task(entry.kind.value),
        matrix=matrix if entry.axis is None else ordered(matrix, entry.axis),
        file=file,
        search=entry.name,
        good=space.cell(fixed),
        bad=space.cell({**dict(space.bad), **fixed}) if entry.kind is SearchKind.MINIMISE else None,
        axis=entry.axis,
        signature=entry.signature,
        bad_kinds=entry.bad_kinds,
        strength=entry.strength,
        causes=entry.causes,
    )


def ordered(matrix: Matrix, axis: str) -> Matrix:
    """``matrix`` for a threshold along ``axis``: words and flags are in the order in which they stand there.

    Raises:
        UnknownNameError: it has no such axis.
        SpecError: its values are numbers that do not ascend.
    """
    factor = matrix.space.factor(axis)
    along = replace(factor, axis=replace(factor.axis, type=AxisType.ORDERED))
    factors = list(matrix.space.factors)
    factors[factors.index(factor)] = along
    return replace(matrix, space=Space(factors=tuple(factors), rules=matrix.space.rules))


def _question(entry: SearchEntry) -> str:
    failure = entry.signature or "it fail"
    match entry.kind:
        case SearchKind.BISECT:
            return f"From which {entry.axis} on does {failure} {'show' if entry.signature else ''}?".replace(" ?", "?")
        case SearchKind.MINIMISE:
            return f"Which settings does {entry.signature or 'the failure'} need?"
        case SearchKind.EXPLORE:
            return f"Which combinations of {entry.strength} settings fail?"
