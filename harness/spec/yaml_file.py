"""YAML text -> plain data with the line of every key, and its shape as pydantic checks it; errors name file and line.

YAML 1.2: ``no`` is text, ``1e-4`` a number, keys are unique.
"""

from __future__ import annotations

import json
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import harness
from harness.core.errors import FileError, choices
from harness.core.point import LARGEST, as_typed
from harness.spec.amounts import shortened
from harness.store.files import read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pydantic import BaseModel


Key: TypeAlias = "tuple[str | int, ...]"

MOST_BYTES = 1 << 18
MOST_LEVELS = 24
MOST_PARTS = 5_000
LONGEST_NAME = 200
"""Bounds of a file: the largest of ours has 8 kB, 7 levels and 300 parts."""

_CONSTRUCTED = {
    "int": "whole number",
    "float": "number",
    "bool": "true or false",
    "timestamp": "date",
    "binary": "base64",
    "null": "null",
}
"""What a text can be made into, by the last part of its tag."""
TEXT = "tag:yaml.org,2002:str"


class Lines:
    """The line, counted from 1, of every key and list item of a file."""

    def __init__(self, name: str, node: Any, constructor: Any) -> None:
        self._name, self._constructor = name, constructor
        self._lines: dict[Key, int] = {(): 1}
        if node is not None:
            self._note(node, ())

    def place(self, *key: str | int) -> str:
        """``file:line`` of ``key``, or of the nearest thing around it that is written in the file."""
        while key not in self._lines:
            key = key[:-1]
        return f"{self._name}:{self._lines[key]}"

    def _note(self, node: Any, key: Key) -> None:
        if len(key) > MOST_LEVELS:
            raise FileError(f"{self.place(*key)}: more than {MOST_LEVELS} levels deep, or an alias within itself")
        if len(self._lines) > MOST_PARTS:
            raise FileError(f"{self.place(*key)}: more than {MOST_PARTS} keys and items, aliases written out")
        if node.id == "mapping":
            for name, value in node.value:
                self._add((*key, str(name.value)[:LONGEST_NAME]), name, value)
        elif node.id == "sequence":
            for i, item in enumerate(node.value):
                self._add((*key, i), item, item)
        else:
            _check_scalar(node, f"{self._name}:{node.start_mark.line + 1}", self._constructor)

    def _add(self, key: Key, at: Any, node: Any) -> None:
        self._lines[key] = at.start_mark.line + 1
        self._note(node, key)


def _check_scalar(node: Any, place: str, constructor: Any) -> None:
    """What a tag or its looks make of a text: a number beyond all bounds, a day that no calendar has."""
    kind = str(node.tag).rpartition(":")[2]
    try:
        value = constructor.construct_non_recursive_object(node) if kind in _CONSTRUCTED else None
    except (ValueError, KeyError, IndexError, AttributeError, TypeError, OverflowError) as error:
        raise FileError(f"{place}: {shortened(node.value)} is no {_CONSTRUCTED[kind]}") from error
    if isinstance(value, int | float) and not abs(value) <= LARGEST:
        raise FileError(f"{place}: {shortened(node.value)} is beyond {LARGEST}")


def read_file(path: Path, *, what: str) -> str:
    """The text of a file of ``what``; FileError with the reason where it cannot be read."""
    try:
        return read_text(path, most=MOST_BYTES)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise FileError(f"{path}: cannot be read as a {what} file: {reason(error)}") from error


def read_yaml(
    text: str, *, name: str, as_written: Callable[[Key, Collection[str]], bool] = lambda _key, _names: False
) -> tuple[Mapping[str, Any], Lines]:
    """The mapping that ``text`` holds, and where its keys are.

    ``as_written`` says, of a key and of all the names at the top, whether a number that is spelled there in a way of
    its own (``12.0``) is to stay the text that it is.

    Raises:
        FileError: not YAML, a key given twice, a tag that makes objects, more than one document, or no mapping; too
            deep, too large, or a value out of bounds.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        reader: Any = YAML(typ="safe", pure=True)  # its methods have no types
        node = reader.compose(text)
        # Before anything is made of it: bounds are checked on what is written.
        lines = Lines(name, node, reader.constructor)
        if node is not None:
            names = frozenset(str(key.value) for key, _ in node.value) if node.id == "mapping" else frozenset[str]()
            _keep_spelling(node, (), as_written=lambda key: as_written(key, names))
        data = None if node is None else reader.constructor.construct_document(node)
    except MarkedYAMLError as error:
        marked: Any = error
        mark = marked.problem_mark or marked.context_mark
        problem = str(marked.problem or marked.context).partition("\n")[0]
        raise FileError(f"{name}:{mark.line + 1 if mark else 1}: {problem}") from error
    except RecursionError as error:
        raise FileError(f"{name}:1: more than {MOST_LEVELS} levels deep") from error
    except (YAMLError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileError(f"{name}:1: not YAML: {shortened(' '.join(str(error).split()), most=200)}") from error
    if not isinstance(data, dict):
        raise FileError(
            f"{name}:1: a question or a matrix is a mapping, with 'axis:' or 'axes:', got {shortened(data)}"
        )
    return cast("Mapping[str, Any]", data), lines


def _keep_spelling(node: Any, key: Key, *, as_written: Callable[[Key], bool]) -> None:
    """Make texts of the numbers below ``node`` that are spelled in a way of their own where ``as_written`` holds."""
    if node.id == "scalar":
        is_number = str(node.tag).rpartition(":")[2] in ("int", "float")
        if is_number and as_typed(node.value) == node.value and as_written(key):
            node.tag = TEXT
        return
    for i, item in enumerate(node.value):
        name, part = (i, item) if node.id == "sequence" else (str(item[0].value), item[1])
        _keep_spelling(part, (*key, name), as_written=as_written)


def reason(error: OSError | ValueError) -> str:
    """Why a file could not be read, in words."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not text (UTF-8)"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def validated(data: Mapping[str, Any], model: type[BaseModel], lines: Lines) -> Any:
    """``data`` as ``model``: every key known, every value of its type, defaults filled in.

    Raises:
        SpecError: one line for each thing that is wrong.
    """
    from pydantic import ValidationError

    try:
        return model.model_validate(data)
    except ValidationError as error:
        problems = dict.fromkeys(_explain(e, model, lines) for e in error.errors())
        raise FileError("\n".join(problems)) from error


def matrix_schema() -> str:
    """The JSON Schema of matrix files as it is shipped, ``matrices/matrix.schema.json``: what an editor completes."""
    from harness.spec.matrix_keys import MatrixKeys

    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "urn:nsa-harness:matrix:1"}
    return json.dumps(head | MatrixKeys.model_json_schema(), indent=1) + "\n"


def shipped(pattern: str) -> list[Path]:
    """The files of the folder ``matrices`` that fit ``pattern``, by name: in the installed package, or the checkout."""
    package = Path(harness.__file__).parent
    folder = next(place for place in (package / "matrices", package.parent / "matrices") if place.is_dir())
    return sorted(folder.glob(pattern))


def _explain(error: Any, model: type[BaseModel], lines: Lines) -> str:
    key = tuple(part for part in error["loc"] if not _is_union_arm(part))
    where, place = ".".join(map(str, key)), lines.place(*key)
    if error["type"] == "extra_forbidden":
        keys = _keys(model, key[:-1])
        return f"{place}: unknown key {where!r}{choices(str(key[-1]), keys)}"
    if error["type"] == "missing":
        return f"{place}: {where!r} is missing"
    if any(map(_is_union_arm, error["loc"])):
        return f"{place}: {where} = {error['input']!r}: it should be seconds, or a duration such as 90s, 1.5m or 2h"
    message = error["msg"].partition(" or instance of ")[0].replace("dictionary", "mapping")
    return f"{place}: {where} = {error['input']!r}: {message[0].lower()}{message[1:]}"


def _is_union_arm(part: object) -> bool:
    """Whether pydantic put this into the place of an error to say which type of a duration it tried."""
    return isinstance(part, str) and part in ("float", "str")


def _keys(model: Any, key: tuple[Any, ...]) -> tuple[str, ...]:
    """The keys that are known at ``key``."""
    at = model
    for part in key:
        if hasattr(at, "model_fields"):
            at = _inner(at.model_fields[str(part)].annotation)
        else:
            at = _inner(typing.get_args(at)[-1])
    return tuple(at.model_fields)


def _inner(annotation: Any) -> Any:
    """``X`` for ``X | None``."""
    args = [arg for arg in typing.get_args(annotation) if arg is not type(None)]
    return args[0] if len(args) == 1 and type(None) in typing.get_args(annotation) else annotation
