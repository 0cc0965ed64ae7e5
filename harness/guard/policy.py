"""When a guarded job is looked into, and what follows from a look: pure, no clock, no files."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

QUIET_S = 30.0
"""A job whose processes have used next to no CPU for so long is looked into."""

QUIET_SHARE = 0.02
"""CPU time per second of a process that counts as none: a launcher that polls uses less."""

CONFIRM_S = 20.0
"""Time between the look that first says HANG and the one that has to agree."""

SUSPECT_S = 600.0
"""How long a look of a guard that has died may wait for the one that agrees."""

LONGEST_S = 1800.0
"""What stays as it is is looked into at least this often."""

ROUTINE_S = 900.0
"""And a job that computes this often, unless the user says otherwise."""

AGAIN_S = 60.0
"""A look that failed is tried again after this time, then after twice as long, and so on."""

SHARE = 0.001
"""What the routine looks of all jobs together may cost, CPU seconds a second, unless the user says how often."""

ALIKE = 2
"""Looks in a row that said the same, after which another one is of use only if a thread of the job has run since."""

BLIND = 2
"""Looks in a row that saw no stack of a job after which that is told."""

ACTS = frozenset({"high", "proof"})
"""Confidences of a hang by which a job may be ended."""


class What(StrEnum):
    """What a guard has to tell."""

    HANG = "hang"
    GOES_ON = "goes-on"
    ENDED = "ended"
    BLIND = "unseen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a full look said: the verdict's kind, cause, confidence and rank, the reason, and where it is kept.

    ``blind_reason`` says why no stack could be taken, and what to install; empty where one was.
    """

    kind: str
    cause: str
    confidence: str
    because: str
    rank: int | None = None
    run: str = ""
    blind_reason: str = ""

    @property
    def hangs(self) -> bool:
        """Whether it said HANG."""
        return self.kind == "HANG"

    @property
    def at_rank(self) -> str:
        """``, rank 1``, where one is at fault."""
        return "" if self.rank is None else f", rank {self.rank}"

    @property
    def moves(self) -> bool:
        """Whether it saw the job get on, rather than too little to tell."""
        return self.kind in ("PASS", "SLOW") or self.cause == "moving"


@dataclass(slots=True, kw_only=True)
class Vigil:
    """One job as it is guarded.

    ``quiet_since_s`` is since when it has not computed (None: it computes), ``looked_s`` when it was last looked into,
    ``patience_s`` how long until it is again. ``suspect`` is a look that said HANG and waits for the one that agrees;
    ``hang`` the number of the incident that is told, 0 while there is none; ``hangs`` how many there were.
    ``doubted`` says that the last look at a hang that is told did not call it one, though it saw nothing move either.
    ``blind`` are the looks in a row that saw no stack of it; ``is_blind_reported``: that was told, once for all.
    ``last_finding`` is what the last look said, ``alike`` how many in a row did, ``turns`` how often its threads had
    run then. ``rests_s`` is how long after its beginning a look of an earlier guard is not to be repeated yet.
    """

    routine_s: float = ROUTINE_S
    began_s: float
    rests_s: float = 0.0
    quiet_since_s: float | None = None
    looked_s: float | None = None
    patience_s: float = 0.0
    suspect: Look | None = None
    hang: int = 0
    hangs: int = 0
    doubted: bool = False
    blind: int = 0
    is_blind_reported: bool = False
    last_finding: tuple[str, str] = ("", "")
    alike: int = 0
    turns: int | None = None
    cpu_s: dict[int, tuple[float, float]] = field(default_factory=dict[int, tuple[float, float]])

    def pulse(self, now_s: float, cpu_s: dict[int, float]) -> None:
        """Take note of the CPU time of every process of the job, by PID."""
        moved = self._has_moved(now_s, cpu_s)
        self.cpu_s = {pid: (now_s, used) for pid, used in cpu_s.items()}
        if moved:
            was_quiet, self.quiet_since_s = self.quiet_since_s is not None, None
            if was_quiet and self.hang:
                self.patience_s = 0.0  # what hung computes: look at once
        elif self.quiet_since_s is None:
            self.quiet_since_s = now_s

    def _has_moved(self, now_s: float, cpu_s: dict[int, float]) -> bool:
        """Whether a process is new, or has computed since the last pulse."""
        for pid, used in cpu_s.items():
            if pid not in self.cpu_s:
                return True
            then_s, before = self.cpu_s[pid]
            if used - before > QUIET_SHARE * max(now_s - then_s, 0.1):
                return True
        return False

    def is_due(self, now_s: float) -> bool:
        """Whether the job is to be looked into now."""
        if self.looked_s is None:  # of a hang that an earlier guard told nobody knows whether it is over meanwhile
            age_s = now_s - self.began_s
            return (bool(self.hang or self.suspect) and age_s >= self.rests_s) or age_s >= QUIET_S
        if self.quiet_since_s is not None and self.looked_s < self.quiet_since_s <= now_s - QUIET_S:
            return True  # it has come to rest since the last look
        return now_s - self.looked_s >= self.patience_s

    def stands(self, now_s: float, turns: int | None) -> bool:
        """Whether a look that is due would only say the same again: not one thread has run since looks that agreed."""
        if self.looked_s is None or self.alike < ALIKE or turns is None or turns != self.turns:
            return False
        if now_s - self.looked_s >= max(LONGEST_S, self.routine_s):
            return False
        self.patience_s = self._longer()
        return True

    def looked(self, now_s: float, look: Look) -> What | None:
        """Take note of what a look said; what is to be told of it."""
        self.looked_s = now_s
        self.alike = self.alike + 1 if (look.kind, look.cause) == self.last_finding else 1
        self.last_finding = (look.kind, look.cause)
        self.blind = self.blind + 1 if look.blind_reason and not look.moves else 0
        if self.blind and not look.hangs:  # what it did cannot be told, so nothing is taken back either
            self.patience_s = self._longer()
            is_news = self.blind >= BLIND and not self.is_blind_reported
            self.is_blind_reported |= is_news
            return What.BLIND if is_news else None
        if self.hang and not look.hangs and not look.moves and not self.doubted:
            self.doubted, self.patience_s = True, CONFIRM_S  # on a busy machine a look may see too little
            return None
        self.doubted = False
        if not look.hangs:
            incident, self.suspect, self.hang = self.hang, None, 0
            longer = self._longer(4.0 if look.moves else 2.0)
            self.patience_s = longer if self.quiet_since_s is not None else self.routine_s
            return What.GOES_ON if incident else None
        if self.hang:
            self.patience_s = self._longer()
            return None
        if self.suspect is None or self.suspect.cause != look.cause:
            self.suspect, self.patience_s = look, CONFIRM_S
            return None
        self.hangs += 1
        self.hang, self.suspect, self.patience_s = self.hangs, None, CONFIRM_S
        return What.HANG

    def suspect_again(self, cause: str, *, age_s: float) -> None:
        """Take up what an earlier guard's last look said, ``age_s`` ago: another one that agrees is then the second."""
        is_one = bool(cause) and 0.0 <= age_s <= SUSPECT_S
        self.suspect = Look(kind="HANG", cause=cause, confidence="", because="") if is_one else None
        self.rests_s = max(CONFIRM_S - age_s, 0.0) if is_one else 0.0

    def failed(self, now_s: float) -> None:
        """Take note of a look that could not be taken: again soon, since what it would have said is not known."""
        self.looked_s, self.patience_s = now_s, min(max(2.0 * self.patience_s, AGAIN_S), self.routine_s)

    def _longer(self, times: float = 2.0) -> float:
        return min(max(times * self.patience_s, QUIET_S), max(LONGEST_S, self.routine_s))


def routine(*, cost_s: float, jobs: int) -> float:
    """How often each of ``jobs`` is looked into while it computes, if one look costs ``cost_s`` of a CPU, seconds."""
    return max(ROUTINE_S, cost_s * jobs / SHARE)


def may_end(look: Look) -> bool:
    """Whether a hang that was told twice alike is certain enough to end the job for it."""
    return look.hangs and look.confidence in ACTS
