"""WallClock: the controller's only caller of time.monotonic and time.sleep."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.core.ports import Clock

LATE_S = 5.0
"""A sleep that lasts so much longer than asked for was no sleep: its process was stopped, or got no CPU."""


class WallClock:
    """Real time."""

    def now(self) -> float:
        """Seconds on the system's monotonic clock, which all processes of the machine share."""
        return time.monotonic()

    def wall(self) -> str:
        """The present UTC time, ISO 8601 to the millisecond."""
        return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def sleep(self, seconds: float) -> None:
        """Let ``seconds`` pass."""
        time.sleep(seconds)


class Attentive:
    """``clock``, and how long its user stood still meanwhile: stopped, suspended or starved, and seeing nothing."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.still_s = 0.0

    def now(self) -> float:
        """The clock's seconds; the time that was slept through counts."""
        return self._clock.now()

    def wall(self) -> str:
        """The clock's UTC time."""
        return self._clock.wall()

    def sleep(self, seconds: float) -> None:
        """Let ``seconds`` pass, and notice when it were many more."""
        until_s = self._clock.now() + seconds
        self._clock.sleep(seconds)
        late_s = self._clock.now() - until_s
        self.still_s += late_s if late_s >= LATE_S else 0.0
