"""Hide: keep the names of people and hosts, and what looks like a secret, out of what is passed on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

_HOME = re.compile(r"(?<![\w.-])(?:/[\w.-]+){0,3}/(?:home|Users)/[^/\s:'\"`<]+")
"""``/home/ada``, and where homes are mounted elsewhere: ``/mnt/home/ada``."""

_BARE = frozenset({int, float, bool, type(None)})
"""What can hold no name."""

_SHORTEST = 4  # shorter names occur inside ordinary words
HIDDEN = "(hidden)"

_ASSIGNED = re.compile(
    r"\b([A-Z][A-Z0-9_]*(?:TOKEN|KEY|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|_PASS(?![A-Z]))[A-Z0-9_]*)(\s*[=:]\s*['\"]?)([^\s'\"`,;]{6,})"
)
"""``HF_TOKEN=...`` in a log, a command or a message."""

_WORD = (
    r"(?:api[_-]?key|access[_-]?key|private[_-]?key|secret(?:[_-]?key)?|passw(?:or)?d|passphrase|(?:[a-z]+[_-])?token)"
)
_SAID = re.compile(rf"""(?i)(?<![\w])({_WORD}["']?\s*[=:]\s*["']?)(?!\d+(?:\.\d+)?\b)([^\s'"`,;&]{{6,}})""")
"""``api_key=...``, ``"password": "..."``; a bare number behind such a word is a count."""

_OPTION = re.compile(rf"""(?i)(--(?:[a-z]+-)*{_WORD}(?:=|\s+)["']?)(?!-)(?!\d+(?:\.\d+)?\b)([^\s'"`]{{6,}})""")
"""``--token ...`` in a command line."""

_IS_OPTION = re.compile(rf"(?i)--(?:[a-z]+-)*{_WORD}")
_BEARER = re.compile(r"(?i)(\bbearer\s+|\bauthorization:\s*basic\s+)[\w.~+/=-]{12,}")
_BLOCK = re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)

_SHAPES = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|sk-[A-Za-z0-9_-]{16,}|AKIA[0-9A-Z]{16}"
    r"|xox[abps]-[A-Za-z0-9-]{10,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{5,}|glpat-[\w-]{16,})"
)
"""Tokens that are known by their beginning."""

_IN_URL = re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)")
_AT_HOST = re.compile(
    r"(?<![\w.+-])[A-Za-z_][\w.+-]*@(?:\d{1,3}(?:\.\d{1,3}){3}|[A-Za-z][\w-]*(?:\.[\w-]+)+)(?![\w-]*\()"
)
"""``user@host`` and addresses of e-mail."""

_ADDRESS = re.compile(r"(?:(?<=//)|(?<=[\[(= ]))(?!127\.|0\.0\.0\.0)\d{1,3}(?:\.\d{1,3}){3}(?=:\d)")
"""An IP address with its port; without one it could be a version."""


class Hider:
    """Replaces home directories by ``~``, and hosts, users, addresses and secrets by ``(hidden)``.

    ``names`` are hidden as whole words, ``secrets`` wherever they occur.
    """

    def __init__(self, names: Iterable[str] = (), *, secrets: Iterable[str] = ()) -> None:
        every = tuple(names)
        self._secrets = tuple(secrets)
        paths = sorted((n for n in every if n.startswith("/") and len(n) > 1), key=len, reverse=True)
        words = sorted((n for n in every if not n.startswith("/") and len(n) >= _SHORTEST), key=len, reverse=True)
        self._paths = [re.compile(re.escape(path.rstrip("/")) + r"(?![\w.-])") for path in paths]
        self._known: dict[str, str] = {}  # five hundred trials say the same few things
        self._words = [re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])") for word in words]

    def text(self, text: str) -> str:
        """``text`` without them."""
        found = self._known.get(text)
        if found is None:
            found = self._known[text] = self._hidden(text)
        return found

    def _hidden(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        for pattern in (*self._paths, _HOME):
            text = pattern.sub("~", text)
        for pattern in (*self._words, _SHAPES, _IN_URL, _AT_HOST, _ADDRESS):
            text = pattern.sub(HIDDEN, text)
        text = _ASSIGNED.sub(lambda match: f"{match[1]}{match[2]}{HIDDEN}", text)
        for pattern in (_SAID, _OPTION, _BEARER):
            text = pattern.sub(lambda match: f"{match[1]}{HIDDEN}", text)
        return _BLOCK.sub(lambda match: f"{match[1]} {HIDDEN} {match[2]}", text)

    def data(self, data: Any) -> Any:
        """JSON-ready ``data`` without them, keys left alone."""
        kind = type(data)
        if kind is str:
            return self.text(data)
        if kind is dict:
            return {key: item if type(item) in _BARE else self.data(item) for key, item in data.items()}
        if kind is not list:
            return data
        found = [item if type(item) in _BARE else self.data(item) for item in data]
        for number, word in enumerate(data[:-1]):
            if type(word) is type(data[number + 1]) is str and word[:2] == "--" and _IS_OPTION.fullmatch(word):
                found[number + 1] = HIDDEN
        return found
