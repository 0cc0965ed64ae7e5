"""YAML text -> plain data, with the line of every key. YAML 1.2: ``no`` is text, ``1e-4`` a number, keys are unique."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, cast

from harness.core.errors import FileError

if TYPE_CHECKING:
    from collections.abc import Mapping

Key: TypeAlias = "tuple[str | int, ...]"


class Lines:
    """The line, counted from 1, of every key and list item of a file."""

    def __init__(self, name: str, node: Any) -> None:
        self._name = name
        self._lines: dict[Key, int] = {(): 1}
        self._note(node, ())

    def place(self, *key: str | int) -> str:
        """``file:line`` of ``key``, or of the nearest thing around it that is written in the file."""
        while key not in self._lines:
            key = key[:-1]
        return f"{self._name}:{self._lines[key]}"

    def _note(self, node: Any, key: Key) -> None:
        if node.id == "mapping":
            for name, value in node.value:
                inner = (*key, str(name.value))
                self._lines[inner] = name.start_mark.line + 1
                self._note(value, inner)
        elif node.id == "sequence":
            for i, item in enumerate(node.value):
                self._lines[*key, i] = item.start_mark.line + 1
                self._note(item, (*key, i))


def read_yaml(text: str, *, name: str) -> tuple[Mapping[str, Any], Lines]:
    """The mapping that ``text`` holds, and where its keys are.

    Raises:
        FileError: not YAML, a key given twice, a tag that makes objects, more than one document, or no mapping.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        data = YAML(typ="safe", pure=True).load(text)
        node = YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = str(error.problem or error.context).partition("\n")[0]
        raise FileError(f"{name}:{mark.line + 1 if mark else 1}: {problem}") from error
    except YAMLError as error:
        raise FileError(f"{name}:1: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(data, dict):
        raise FileError(f"{name}:1: a question or a matrix is a mapping, with 'axis:' or 'axes:', got {data!r}")
    return cast("Mapping[str, Any]", data), Lines(name, node)


def reason(error: OSError | UnicodeDecodeError) -> str:
    """Why a file could not be read, in words."""
    return error.strerror or str(error) if isinstance(error, OSError) else "it is not text (UTF-8)"
