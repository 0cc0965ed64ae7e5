"""FakeClock: time that passes only when somebody sleeps."""

from __future__ import annotations

import heapq
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class FakeClock:
    """Starts at ``now_s``. Callbacks scheduled with :meth:`at` run on the way, each at its own time."""

    def __init__(self, now_s: float = 1000.0) -> None:
        self._now_s = self.began_s = now_s
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self.sleeps = 0

    def now(self) -> float:
        """The fake time, seconds."""
        return self._now_s

    def wall(self) -> str:
        """The fake date: 2026-01-01 at the start."""
        passed = timedelta(seconds=self._now_s - self.began_s)
        return (_EPOCH + passed).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def sleep(self, seconds: float) -> None:
        """Let ``seconds`` pass at once."""
        self.sleeps += 1
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Move on by ``seconds``, running what is due on the way; a callback may advance the clock itself."""
        until = self._now_s + max(seconds, 0.0)
        while self._due and self._due[0][0] <= until:
            due_s, _, callback = heapq.heappop(self._due)
            self._now_s = max(self._now_s, due_s)
            callback()
        self._now_s = max(self._now_s, until)

    def at(self, seconds: float, callback: Callable[[], None]) -> None:
        """Run ``callback`` when ``seconds`` have passed since the clock began."""
        heapq.heappush(self._due, (self.began_s + seconds, next(self._order), callback))
