"""Question files: YAML -> BisectSpec, every error with file and line."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from harness.core.errors import FileError, SpecError, unknown
from harness.core.point import Point
from harness.core.spec import BisectSpec, Effort, Limits
from harness.core.verdict import FAILURES, Kind
from harness.spec.axes import parse_axis, setting
from harness.spec.fault import parse_fault
from harness.spec.schema import validated
from harness.spec.yaml_file import read_yaml, reason
from nsa.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from harness.core.point import Value
    from harness.spec.yaml_file import Lines

CONTROLS = ("no-fault", "dense")
BAD_KINDS = FAILURES | {Kind.SLOW, Kind.BELOW_TARGET}


def load(path: Path) -> BisectSpec:
    """The question in the file at ``path``.

    Raises:
        SpecError: the file cannot be read, is not YAML, repeats a key, has an unknown key or a value that does not
            fit; the message begins with file:line and suggests the nearest known name.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path}: cannot be read as a question file: {reason(error)}") from error
    return parse(text, name=str(path))


def parse(text: str, *, name: str) -> BisectSpec:
    """The question in ``text``; ``name`` stands for the file in messages."""
    data, lines = read_yaml(text, name=name)
    question = validated(data, lines)
    with _at(lines.place("axis")):
        axis = parse_axis(question.axis)
    fixed = _fixed(question.fixed, lines)
    if axis.path in fixed:
        raise SpecError(f"{lines.place('fixed')}: {axis.path} is held fixed and is also the axis; take one of them out")
    with _at(lines.place("fault")):
        fault = parse_fault(question.fault) if question.fault is not None else None
    return BisectSpec(
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


def _fixed(given: Mapping[str, Value], lines: Lines) -> dict[str, Value]:
    fixed: dict[str, Value] = {}
    for name, value in given.items():
        with _at(lines.place("fixed", name)):
            where = setting(name)
            if where.path in fixed:
                raise SpecError(f"{where.path} is given twice")
            fixed[where.path] = where.checked(value)
    return fixed


def _bad(words: list[str], lines: Lines) -> tuple[Kind, ...]:
    names = {kind.value.lower(): kind for kind in Kind if kind in BAD_KINDS}
    for i, word in enumerate(words):
        if word.lower() not in names:
            with _at(lines.place("bad", i)):
                raise unknown("kind of failure", word.lower(), names)
    return tuple(names[word.lower()] for word in words)


def _controls(names: list[str], lines: Lines) -> tuple[str, ...]:
    for i, name in enumerate(names):
        if name not in CONTROLS:
            with _at(lines.place("controls", i)):
                raise unknown("control", name, CONTROLS)
    return tuple(names)


@contextmanager
def _at(place: str) -> Iterator[None]:
    """Errors from within begin with ``place``."""
    try:
        yield
    except (SpecError, ConfigError) as error:
        raise SpecError(f"{place}: {error}") from error
