"""The shape of a file, checked by pydantic; its errors become file:line and the nearest known key."""

from __future__ import annotations

import json
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import harness
from harness.core.errors import FileError, choices

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

    from harness.spec.yaml_file import Lines


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
