"""The processes of one trial: which there are, for which rank each one works, what number it calls itself by.

A rank is a process of the trial and nobody else: what it writes down (its PID in its own namespace, its start time) is
held against the trial's own processes, which the supervisor lists from its own child downwards. Two containers may use
the same numbers, and a number that a rank wrote down may by now be a stranger's; what no process of the trial answers
to is not here, and is never looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.observe.job import ProcessTable, programs_among, ranks_among
from harness.observe.procfs import Files

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harness.core.ports import Clock, Handle
    from harness.observe.job import Member

FRESH_S = 0.15
"""How long a list of processes is good: several ask for it at one look."""


class Census:
    """The live processes of the trial behind ``handle``, by PID."""

    def __init__(self, *, handle: Handle, clock: Clock, read: Callable[[int], Member | None]) -> None:
        self._handle, self._clock, self._read, self._files = handle, clock, read, Files()
        self._cache: dict[tuple[int, int, str], Member] = {}
        self._now: dict[int, Member] = {}
        self._at_s: float | None = None

    def members(self) -> Mapping[int, Member]:
        """All processes of the trial now. What each is, is read once for every program that it runs.

        A shell forks before it becomes the program that it starts: seen in between, it is still the shell.
        """
        now_s = self._clock.now()
        if self._at_s is None or now_s - self._at_s > FRESH_S:
            self._at_s = now_s
            fresh: dict[int, Member] = {}
            for ref in self._handle.processes():
                image = (ref.pid, ref.started, self._files.link(f"{ref.pid}/exe"))
                member = self._cache.get(image) or self._read(ref.pid)
                if member is not None and member.started == ref.started:
                    fresh[ref.pid] = self._cache[image] = member
            self._now = fresh
        return self._now

    def outer(self, inner: int, started: int | None = None) -> int | None:
        """The PID here of the process that calls itself ``inner`` and began at ``started`` (ticks since boot).

        None when no process of the trial does, or several do and their start does not tell them apart.
        """
        members = self.members().values()
        matches = [m.pid for m in members if m.inner == inner and started in (None, m.started)]
        return matches[0] if len(matches) == 1 else None

    def ranks(self) -> dict[int, int]:
        """The ranks by what launchers told the trial's processes; empty where nobody was told one."""
        members = self.members()
        ranks = ranks_among(members.values(), ProcessTable(members))
        return {member.rank: member.pid for member in reversed(ranks) if member.rank is not None}

    def first_python(self) -> int | None:
        """The oldest Python process that is no helper: the program itself, below a shell that started it."""
        programs = programs_among(self.members().values())
        return min(programs, key=lambda m: (m.started, m.pid)).pid if programs else None

    def world(self) -> int:
        """How many ranks there are by what launchers told; 0 where nobody was told."""
        return max((member.world for member in self.members().values()), default=0)

    def owner(self, pid: int, mains: Mapping[int, int]) -> int | None:
        """The rank whose main process ``pid`` is or descends from; ``mains`` are ranks by PID. None for a launcher."""
        members, at, visited = self.members(), pid, set[int]()
        while at in members and at not in visited:
            if at in mains:
                return mains[at]
            visited.add(at)
            at = members[at].parent
        return None
