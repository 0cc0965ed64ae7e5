"""Keep secrets off the disk: values of variables whose name looks like one are replaced before anything is written."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterable

HIDDEN = "<hidden>"
"""What stands in the file where a secret was."""

_SECRET = re.compile(r"TOKEN|KEY|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|(?:^|_)PASS(?:$|_)", re.IGNORECASE)
_ASSIGNMENT = re.compile(r"(?:^|(?<==))([A-Z][A-Z0-9_]*)=(.+)", re.DOTALL)
_SHORTEST = 6  # a shorter value would be found inside innocent text


def looks_secret(name: str) -> bool:
    """Whether a variable of this name holds something that must not be written down."""
    return _SECRET.search(name) is not None


def secrets(env: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """The values in ``env`` that must not be written anywhere, longest first.

    A path is none: it says where a secret lies. Nor is a plain number, which innocent text holds too.
    """
    looks = {value for name, value in env if looks_secret(name) and len(value) >= _SHORTEST}
    values = {value for value in looks if not value.startswith(("/", "~")) and not value.isdigit()}
    return tuple(sorted(values, key=len, reverse=True))


def redact_argv(argv: Iterable[str]) -> tuple[str, ...]:
    """``argv`` with the value hidden in every ``NAME=value`` (also ``--env=NAME=value``) that looks secret."""
    return tuple(_ASSIGNMENT.sub(_hide_assignment, argument) for argument in argv)


def redact(data: Any, *, values: tuple[str, ...] = ()) -> Any:
    """JSON-ready ``data`` without secrets.

    Hidden are the values of secret-looking names below every key ``env`` (an object, or a list of pairs), in every
    ``argv`` or ``command`` list, and each of ``values`` wherever it occurs in a text.
    """
    if isinstance(data, dict):
        return {key: _redact_member(key, item, values) for key, item in cast("dict[str, Any]", data).items()}
    if isinstance(data, list | tuple):
        return [redact(item, values=values) for item in cast("list[Any]", data)]
    if isinstance(data, str):
        for value in values:
            data = data.replace(value, HIDDEN)
    return data


def _redact_member(key: str, item: Any, values: tuple[str, ...]) -> Any:
    if key == "env" and isinstance(item, dict):
        env = cast("dict[str, Any]", item)
        item = {name: HIDDEN if looks_secret(name) else value for name, value in env.items()}
    elif key == "env" and isinstance(item, list | tuple):
        pairs = cast("list[Any]", item)
        item = [[pair[0], HIDDEN] if _is_secret_pair(pair) else pair for pair in pairs]
    elif key in {"argv", "command"} and isinstance(item, list | tuple):
        item = redact_argv(str(argument) for argument in cast("list[Any]", item))
    return redact(item, values=values)


def _is_secret_pair(pair: Any) -> bool:
    items = cast("list[Any]", pair) if isinstance(pair, list | tuple) else []
    return len(items) == 2 and looks_secret(str(items[0]))


def _hide_assignment(match: re.Match[str]) -> str:
    return f"{match[1]}={HIDDEN}" if looks_secret(match[1]) else match[0]
