"""Keep secrets off the disk: values of variables whose name looks like one are replaced before anything is written."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable

HIDDEN = "<hidden>"
"""What stands in the file where a secret was."""

_SECRET = ("TOKEN", "KEY", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL")
SHORTEST = 6  # a shorter value would be found inside innocent text
_SHORTEST_LINE = 12  # of a value of several lines: they may hold a bracket or a word alone

_HINTS = (
    "key", "token", "secret", "passw", "passphrase", "pwd", "credential", "_pass", "cookie", "bearer", "basic", "://",
    "hf_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_", "sk-", "akia", "xox", "eyj", "glpat", "npm_", "pypi-",
    "k_live", "aiza", "dop_v1", "sg.", "hooks.slack", "discord", "mysql", "mariadb",
    "--tok", "-p ", "-p'", '-p"', "-p,", "-p\t", "-p\n",
)  # fmt: skip
"""In lower case. Where none of these is, there is nothing to look for: nearly everywhere."""


def looks_secret(name: str) -> bool:
    """Whether a variable of this name holds something that must not be written down."""
    upper = name.upper()
    parts = upper.split("_")
    return any(word in upper for word in _SECRET) or "PASS" in parts or "PWD" in parts[1:]


def secrets(env: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """The values in ``env`` that must not be written anywhere, longest first.

    A path is none: it says where a secret lies. Nor is a plain number, which innocent text holds too.
    """
    values: set[str] = set()
    for name, value in env:
        is_innocent = value.startswith(("/", "~")) or value.isdigit() or len(value) < SHORTEST
        if looks_secret(name) and not is_innocent:
            values.add(value)
    return tuple(sorted(values, key=len, reverse=True))


def secret_settings(settings: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """The values in ``settings`` whose names would, as options, be those of secrets: a ``tokenizer`` is none."""
    values: list[str] = []
    for name, value in settings:
        option = f"--{name.replace('_', '-')}"
        if _is_secret_option(option) and len(value) >= SHORTEST:
            values.append(value)
    return tuple(values)


_secret_values: set[str] = set()


def remember(values: Iterable[str]) -> None:
    """Hide ``values`` from now on in every text of this process, whoever shows or writes it."""
    _secret_values.update(values)


def redact_text(text: str, *, values: Iterable[str] = (), word: str = HIDDEN) -> str:
    """``text`` without ``values``, what was remembered, and what looks like a secret by its name or its own form."""
    for spelling in _spellings(frozenset((*values, *_secret_values))):
        text = text.replace(spelling, word)
    lowered = text.casefold()
    if not any(hint in lowered for hint in _HINTS):
        return text
    from harness.store import secret_forms as forms

    for pattern in (forms.BEARER, forms.BLOCK):
        text = pattern.sub(lambda match: f"{match[1]}{word}", text)
    return forms.IN_URL.sub(word, forms.SHAPES.sub(word, forms.hide_values(text, word=word)))


@lru_cache(maxsize=64)
def _spellings(values: frozenset[str]) -> tuple[str, ...]:
    """Every way in which a text may spell one of ``values``, longest first."""
    spellings = {spelling for value in values for spelling in _spellings_of(value)}
    return tuple(sorted(spellings, key=len, reverse=True))


def _spellings_of(value: str) -> set[str]:
    """``value`` as it is, line by line, escaped once and twice (as in JSON within JSON), and in base64."""
    spellings = {value, *(line for line in value.splitlines() if len(line) >= _SHORTEST_LINE)}
    for _ in range(2):
        for spelling in tuple(spellings):
            spellings.update(_escaped(spelling))
    return spellings | _in_base64(value)


def _escaped(text: str) -> set[str]:
    """``text`` as Python, JSON, a URL and a shell write it."""
    if text.isascii() and text.replace("-", "").replace("_", "").isalnum():
        return set()  # all of them write it as it is
    import json
    from urllib.parse import quote, quote_plus

    raw = text.encode("utf-8", "surrogateescape")
    escaped = {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
    escaped |= {quote(raw), quote(raw, safe=""), quote_plus(raw)}
    escaped |= {text.replace("'", "'\"'\"'"), text.replace("'", r"'\''")}
    for python in (repr, ascii):
        with_quotes_escaped = python(f'"{text}')[2:-1]  # the quotation mark lets Python quote with apostrophes
        escaped |= {with_quotes_escaped, with_quotes_escaped.replace(r"\'", "'")}
    return escaped


def _in_base64(value: str) -> set[str]:
    """``value`` in base64, also with more behind it, as ``echo`` adds the end of a line."""
    from binascii import b2a_base64

    raw = value.encode("utf-8", "surrogateescape")
    whole = raw[: len(raw) // 3 * 3]
    codes = {b2a_base64(part, newline=False).decode().rstrip("=") for part in (raw, whole) if len(part) >= SHORTEST}
    return codes | {code.replace("+", "-").replace("/", "_") for code in codes}


def redact_argv(argv: Iterable[str]) -> tuple[str, ...]:
    """``argv`` without secrets: in ``NAME=value`` (also ``--env=NAME=value``), behind ``--token``, in a URL."""
    from harness.store import secret_forms as forms

    words = [redact_text(forms.ASSIGNMENT.sub(_hide_assignment, argument)) for argument in argv]
    return tuple(hidden_arguments(words))


def hidden_arguments(words: list[Any], *, word: str = HIDDEN) -> list[Any]:
    """``words`` with the value behind each ``--token`` or ``--password`` hidden."""
    shown: list[Any] = []
    for i, item in enumerate(words):
        is_value = i > 0 and type(item) is str and item[:1] != "-"
        shown.append(word if is_value and _is_before_secret(words[:i]) else item)
    return shown


def _is_before_secret(words: list[Any]) -> bool:
    return _is_secret_option(words[-1]) or (words[-1] == "-p" and words[-3:-2] in (["-u"], ["--user"], ["--username"]))


def _is_secret_option(word: Any) -> bool:
    from harness.store import secret_forms as forms

    return type(word) is str and word[:2] == "--" and forms.IS_OPTION.fullmatch(word) is not None


def redact(data: Any, *, values: tuple[str, ...] = ()) -> Any:
    """JSON-ready ``data`` without secrets.

    Hidden are the values of secret-looking names below every key ``env`` (an object, or a list of pairs) and ``locals``
    (pairs), what looks like a secret in any text, and each of ``values`` wherever it occurs in one.
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
    elif key in ("env", "locals") and isinstance(item, list | tuple):
        pairs = cast("list[Any]", item)
        item = [[pair[0], HIDDEN] if _is_secret_pair(pair) else pair for pair in pairs]
    elif key in {"argv", "command"} and isinstance(item, list | tuple):
        item = redact_argv(map(str, cast("list[Any]", item)))
    return redact(item, values=values)


def _is_secret_pair(pair: Any) -> bool:
    items = cast("list[Any]", pair) if isinstance(pair, list | tuple) else []
    return len(items) == 2 and looks_secret(str(items[0]))


def _hide_assignment(match: re.Match[str]) -> str:
    return f"{match[1]}={HIDDEN}" if looks_secret(match[1]) else match[0]
