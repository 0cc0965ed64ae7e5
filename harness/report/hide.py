"""Hide: keep the names of people and hosts out of what is passed on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

_HOME = re.compile(r"(?<![\w.])/(?:home|Users)/[^/\s:'\"`]+")
_SHORTEST = 4  # shorter names occur inside ordinary words


class Hider:
    """Replaces home directories by ``~`` and the given names (hosts, users) by ``(hidden)``."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        paths = sorted((n for n in names if n.startswith("/") and len(n) > 1), key=len, reverse=True)
        words = sorted((n for n in names if not n.startswith("/") and len(n) >= _SHORTEST), key=len, reverse=True)
        self._paths = [re.compile(re.escape(path.rstrip("/")) + r"(?![\w.-])") for path in paths]
        self._words = [re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])") for word in words]

    def text(self, text: str) -> str:
        """``text`` without them."""
        for pattern in (*self._paths, _HOME):
            text = pattern.sub("~", text)
        for pattern in self._words:
            text = pattern.sub("(hidden)", text)
        return text

    def data(self, data: Any) -> Any:
        """JSON-ready ``data`` without them, keys left alone."""
        if isinstance(data, dict):
            return {key: self.data(item) for key, item in data.items()}
        if isinstance(data, list):
            return [self.data(item) for item in data]
        return self.text(data) if isinstance(data, str) else data
