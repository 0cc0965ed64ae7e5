"""Hide: keep the names of people and hosts, and what looks like a secret, out of what is passed on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

_HOME = re.compile(r"(?<![\w.])/(?:home|Users)/[^/\s:'\"`<]+")
_SHORTEST = 4  # shorter names occur inside ordinary words
HIDDEN = "(hidden)"

_ASSIGNED = re.compile(
    r"\b([A-Z][A-Z0-9_]*(?:TOKEN|KEY|SECRET|PASSWORD|PASSWD|CREDENTIALS?)[A-Z0-9_]*)(\s*[=:]\s*['\"]?)([^\s'\"`,;]{6,})"
)
"""``HF_TOKEN=...`` in a log, a command or a message."""

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
    """Replaces home directories by ``~``, and hosts, users, addresses and secrets by ``(hidden)``."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        every = tuple(names)
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
        for pattern in (*self._paths, _HOME):
            text = pattern.sub("~", text)
        for pattern in (*self._words, _SHAPES, _IN_URL, _AT_HOST, _ADDRESS):
            text = pattern.sub(HIDDEN, text)
        return _ASSIGNED.sub(lambda match: f"{match[1]}{match[2]}{HIDDEN}", text)

    def data(self, data: Any) -> Any:
        """JSON-ready ``data`` without them, keys left alone."""
        if isinstance(data, dict):
            return {key: self.data(item) for key, item in data.items()}
        if isinstance(data, list):
            return [self.data(item) for item in data]
        return self.text(data) if isinstance(data, str) else data
