"""Question files of earlier versions, about one axis of our trainer; every error with file and line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.campaign import threshold_question
from harness.core.errors import SpecError, unknown
from harness.core.point import Point
from harness.core.spec import Effort, Limits
from harness.core.trial import CONTROLS
from harness.core.verdict import BAD_KINDS
from harness.spec.axes import parse_axis, setting
from harness.spec.fault import parse_fault
from harness.spec.matrix_axes import at
from harness.spec.schema import validated
from harness.spec.yaml_file import read_file, read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from harness.core.campaign import CampaignSpec
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
