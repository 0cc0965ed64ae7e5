"""Hide: keep the names of people and hosts, what looks like a secret, and controls out of what is passed on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from harness.report.clean import clean
from harness.store.redact import hidden_arguments, redact_text

if TYPE_CHECKING:
    from collections.abc import Iterable

_HOME = re.compile(r"(?<![\w.-])(?:/[\w.-]+){0,3}/(?:home|Users)/[^/\s:'\"`<]+")
"""``/home/ada``, and where homes are mounted elsewhere: ``/mnt/home/ada``."""

_BARE = frozenset({int, float, bool, type(None)})
"""What can hold no name."""

_SHORTEST = 4  # shorter names occur inside ordinary words
HIDDEN = "(hidden)"

_SYMBOL_VERSION = r"[A-Za-z][\w-]*(?:\.so)?(?:\.\d+)+(?![\w-]|\.\w)"
"""``GLIBC_2.2.5`` or ``libcudart.so.12``, which a linker sets behind the name of a symbol: no host ends in a number."""

_AT_HOST = re.compile(
    rf"(?<![\w.+-])[A-Za-z_][\w.+-]*@(?!{_SYMBOL_VERSION})"
    r"(?:\d{1,3}(?:\.\d{1,3}){3}|[A-Za-z][\w-]*(?:\.[\w-]+)+)(?![\w-]*\()"
)
"""``user@host`` and addresses of e-mail."""

_ADDRESS = re.compile(r"(?:(?<=//)|(?<=[\[(= ]))(?!127\.|0\.0\.0\.0)\d{1,3}(?:\.\d{1,3}){3}(?=:\d)")
"""An IP address with its port; without one it could be a version."""


class Hider:
    """Replaces home directories by ``~``, and hosts, users, addresses and secrets by ``(hidden)``.

    ``names`` are hidden as whole words, ``secrets`` wherever they occur.
    """

    def __init__(self, names: Iterable[str] = (), *, secrets: Iterable[str] = ()) -> None:
        self._secrets = tuple(secrets)
        self._hidden_texts: dict[str, str] = {}  # five hundred trials say the same few things
        self._paths: list[re.Pattern[str]] = []
        self._words: list[re.Pattern[str]] = []
        for name in sorted(names, key=len, reverse=True):  # the longest first: it may hold a shorter one
            if name.startswith("/") and len(name) > 1:
                self._paths.append(re.compile(re.escape(name.rstrip("/")) + r"(?![\w.-])"))
            elif not name.startswith("/") and len(name) >= _SHORTEST:
                self._words.append(re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])"))

    def text(self, text: str) -> str:
        """``text`` without them."""
        hidden = self._hidden_texts.get(text)
        if hidden is None:
            hidden = self._hidden_texts[text] = self._hidden(text)
        return hidden

    def _hidden(self, text: str) -> str:
        text = redact_text(clean(text), values=self._secrets, word=HIDDEN)
        for pattern in (*self._paths, _HOME):
            text = pattern.sub("~", text)
        for pattern in (*self._words, _AT_HOST, _ADDRESS):
            text = pattern.sub(HIDDEN, text)
        return text

    def data(self, data: Any) -> Any:
        """JSON-ready ``data`` without them, keys left alone."""
        kind: type = data.__class__
        if kind is str:
            return self.text(data)
        if kind is dict:
            return {key: item if type(item) in _BARE else self.data(item) for key, item in data.items()}
        if kind is not list:
            return data
        return hidden_arguments([item if type(item) in _BARE else self.data(item) for item in data], word=HIDDEN)
