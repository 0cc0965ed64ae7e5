"""Which processes the ranks of a trial are, and how those ended that did, as their launcher says: ours or torchrun."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.core.outcome import Exit
from harness.observe.heartbeat import LineReader
from harness.reading.launchers import FAILED_RANK
from harness.store import layout

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEnd:
    """How a rank's process ended, ``t_s`` seconds after the trial's start."""

    exit: Exit
    t_s: float

    @property
    def failed(self) -> bool:
        """Whether it said so itself, by a status other than 0 or a signal."""
        return self.exit.signal is not None or self.exit.code not in (0, None)

    def __str__(self) -> str:
        return f"signal {self.exit.signal}" if self.exit.code is None else f"exit code {self.exit.code}"


def torchrun_ends(text: str) -> dict[int, Exit]:
    """How ranks ended by the summary that torchrun leaves on standard error, by PID.

    Those that it ended itself with SIGTERM, because another one had failed, are left out.
    """
    codes = {int(m[3]): int(m[2]) for m in FAILED_RANK.finditer(text)}
    ends: dict[int, Exit] = {}
    for pid, code in codes.items():
        if code >= 0:
            ends[pid] = Exit(code=code)
        elif -code != signal.SIGTERM:
            ends[pid] = Exit(signal=-code)
    return ends


class Ranks:
    """What ``ranks.jsonl`` has said so far; call :meth:`read` to catch up. Empty for a trial of one process.

    ``pids`` are the PIDs that the ranks have here, without those to which no process of the trial answers; ``world`` is
    how many ranks there are by what they say, 0 where none said so; ``begun_s`` is when each began, the last time;
    ``limits_s`` are the time limits that each gave its process groups.
    ``outer`` gives the PID here of the trial's process that calls itself by another and began at a time.
    """

    def __init__(
        self, trial_dir: Path, *, started_s: float, outer: Callable[[int, int | None], int | None] = lambda pid, _: pid
    ) -> None:
        self.pids: dict[int, int] = {}
        self.world = 0
        self._claims: dict[tuple[int, int | None], int] = {}
        """The rank of each process by its last word, the latest last; by what it calls itself, and when it began."""
        self._here: dict[tuple[int, int | None], int] = {}
        self._outer = outer
        self.ended: dict[int, RankEnd] = {}
        self.begun_s: dict[int, float] = {}
        self.limits_s: dict[int, set[float]] = {}
        self.unreadable = 0
        self._reader, self._started_s = LineReader(layout.ranks(trial_dir)), started_s

    def read(self) -> None:
        """Catch up with the launcher."""
        for line in self._reader.lines():
            try:
                self._take(json.loads(line))
            except (ValueError, TypeError, KeyError):
                self.unreadable += 1
        for process, rank in self._claims.items():
            pid = self._here[process] if process in self._here else self._outer(*process)
            if pid is not None:  # a process that began a moment ago may not be in the list yet
                self.pids[rank] = self._here[process] = pid

    def close(self) -> None:
        """Give the file back."""
        self._reader.close()

    def _claim(self, rank: int, process: tuple[int, int | None]) -> None:
        """A process has one rank, the last that it says: until it joins a group it may take itself for rank 0."""
        before = self._claims.pop(process, rank)
        if before != rank and process in self._here and self.pids.get(before) == self._here[process]:
            del self.pids[before]
        self._claims[process] = rank

    def _take(self, row: dict[str, Any]) -> None:
        rank, t_s = int(row["rank"]), float(row["t"]) - self._started_s
        if row["event"] == "started":
            self.begun_s[rank] = t_s
            self.ended.pop(rank, None)  # of an attempt before, which its launcher began anew
            self.limits_s.pop(rank, None)
            started = row.get("started")
            self._claim(rank, (int(row["pid"]), None if started is None else int(started)))
            self.world = max(self.world, int(row.get("world", 0)), len({*self._claims.values(), *self.pids}))
        elif row["event"] == "world":
            self.world = max(self.world, int(row["world"]))
        elif row["event"] == "gives_up":
            self.limits_s.setdefault(rank, set()).add(float(row["seconds"]))
        elif row["event"] == "ended":
            self.ended[rank] = RankEnd(exit=Exit(code=row.get("code"), signal=row.get("signal")), t_s=t_s)
