"""WallClock: the controller's only caller of time.monotonic and time.sleep."""

from __future__ import annotations

import time
from datetime import UTC, datetime


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
