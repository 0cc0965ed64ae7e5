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

_VALUE = r"""[^\s'"`,;&\\]{6,}"""
"""Ends where a quotation or an escape does, so that JSON stays JSON."""

_QUOTE = r"""\\?["']?"""
"""Also one that is escaped, as in JSON within JSON."""

_ASSIGNED = re.compile(
    r"\b([A-Z][A-Z0-9_]*(?:TOKEN|KEY|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|_PASS(?![A-Z]))[A-Z0-9_]*)"
    rf"""(\s*[=:]\s*['"]?){_VALUE}"""
)
"""``HF_TOKEN=...`` in a log, a command or a message."""

_WORD = (
    r"(?:api[_-]?key|access[_-]?key|account[_-]?key|private[_-]?key|secret(?:[_-]?key)?|passw(?:or)?d|passphrase"
    r"|(?:[a-z]+[_-])?token)"
)
_SAID = re.compile(rf"""(?i)(?<![\w])({_WORD}{_QUOTE}\s*[=:]\s*{_QUOTE})(?!\d+(?:\.\d+)?\b){_VALUE}""")
"""``api_key=...``, ``"password": "..."``; a bare number behind such a word is a count."""

_OPTION = re.compile(rf"""(?i)(--(?:[a-z]+-)*(?:{_WORD}|tok)["']?(?:=|,?\s+)["']?)(?!-)(?!\d+(?:\.\d+)?\b){_VALUE}""")
"""``--token ...`` in a command line, also as Python shows a list of arguments."""

_IS_OPTION = re.compile(rf"(?i)--(?:[a-z]+-)*(?:{_WORD}|tok)")
_LOGIN = re.compile(
    rf"""((?:(?<!\w)-u|--user(?:name)?)["']?(?:=|,?\s+)["']?[^\s'",]+["']?,?\s+["']?-p["']?,?\s+["']?){_VALUE}"""
)
"""``-u NAME -p VALUE``; without a name before it ``-p`` is as often a port or a path."""

_BEARER = re.compile(r"(?i)(\bbearer\s+|\bauthorization:\s*basic\s+)[\w.~+/=-]{12,}")
_BLOCK = re.compile(
    r"(-----BEGIN [A-Z ]*PRIVATE KEY-----)(?:.*?(?=-----END [A-Z ]*PRIVATE KEY-----)|[\w+/=\s\\]*)", re.DOTALL
)
_SHAPES = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|sk-[A-Za-z0-9_-]{16,}|AKIA[0-9A-Z]{16}"
    r"|xox[abps]-[A-Za-z0-9-]{10,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{5,}|glpat-[\w-]{16,}|npm_[A-Za-z0-9]{20,}"
    r"|pypi-[\w-]{16,}|[sr]k_live_[A-Za-z0-9]{16,}|AIza[\w-]{30,}|dop_v1_[a-f0-9]{32,}|SG\.[\w-]{16,}\.[\w-]{16,})"
    r"|(?<=hooks\.slack\.com/services/)[\w/-]{16,}|(?<=discord\.com/api/webhooks/)[\w/-]{16,}"
)
"""Tokens that are known by their beginning, and addresses that are one."""

_IN_URL = re.compile(r"(?<=://)[^/\s:@]*:[^/\s@]+(?=@)")
_HINT = re.compile(
    r"(?i)key|token|secret|passw|passphrase|credential|_pass|bearer|basic|://|hf_|gh._|github_|sk-|akia|xox|eyj|glpat"
    r"|npm_|pypi-|k_live|aiza|dop_v1|sg\.|hooks\.slack|discord|--tok|\s['\"]?-p\b"
)
"""Where none of these is, there is nothing to look for: nearly everywhere."""


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


def secret_settings(settings: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """The values in ``settings`` whose names would, as options, be those of secrets: a ``tokenizer`` is none."""
    given = ((f"--{name.replace('_', '-')}", value) for name, value in settings)
    return tuple(value for name, value in given if _is_secret_option(name) and len(value) >= _SHORTEST)


_known: set[str] = set()


def remember(values: Iterable[str]) -> None:
    """Hide ``values`` from now on in every text of this process, whoever shows or writes it."""
    _known.update(values)


def redact_text(text: str, *, values: Iterable[str] = (), word: str = HIDDEN) -> str:
    """``text`` without ``values``, what was remembered, and what looks like a secret by its name or its own form."""
    for value in sorted({*values, *_known}, key=len, reverse=True):
        text = text.replace(value, word)
    if _HINT.search(text) is None:
        return text
    text = _IN_URL.sub(word, _SHAPES.sub(word, text))
    text = _ASSIGNED.sub(lambda match: f"{match[1]}{match[2]}{word}", text)
    for pattern in (_SAID, _OPTION, _LOGIN, _BEARER, _BLOCK):
        text = pattern.sub(lambda match: f"{match[1]}{word}", text)
    return text


def redact_argv(argv: Iterable[str]) -> tuple[str, ...]:
    """``argv`` without secrets: in ``NAME=value`` (also ``--env=NAME=value``), behind ``--token``, in a URL."""
    words = [redact_text(_ASSIGNMENT.sub(_hide_assignment, argument)) for argument in argv]
    return tuple(hidden_arguments(words))


def hidden_arguments(words: list[Any], *, word: str = HIDDEN) -> list[Any]:
    """``words`` with the value behind each ``--token`` or ``--password`` hidden."""
    return [
        word if i and type(item) is str and item[:1] != "-" and _is_before_secret(words[:i]) else item
        for i, item in enumerate(words)
    ]


def _is_before_secret(words: list[Any]) -> bool:
    return _is_secret_option(words[-1]) or (words[-1] == "-p" and words[-3:-2] in (["-u"], ["--user"], ["--username"]))


def _is_secret_option(word: Any) -> bool:
    return type(word) is str and word[:2] == "--" and _IS_OPTION.fullmatch(word) is not None


def redact(data: Any, *, values: tuple[str, ...] = ()) -> Any:
    """JSON-ready ``data`` without secrets.

    Hidden are the values of secret-looking names below every key ``env`` (an object, or a list of pairs), what looks
    like a secret in any text, and each of ``values`` wherever it occurs in one.
    """
    if isinstance(data, dict):
        return {key: _redact_member(key, item, values) for key, item in cast("dict[str, Any]", data).items()}
    if isinstance(data, list | tuple):
        return hidden_arguments([redact(item, values=values) for item in cast("list[Any]", data)])
    return redact_text(data, values=values) if isinstance(data, str) else data


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
