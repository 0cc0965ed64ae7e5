"""Verdict: what we conclude about one trial, and what it answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from harness.core.evidence import Evidence, EvidenceId
from harness.core.outcome import Outcome
from harness.core.trial import Trial


class Kind(StrEnum):
    """The trial ended in a ..."""

    PASS = "PASS"
    HANG = "HANG"
    SLOW = "SLOW"
    CRASH = "CRASH"
    OOM = "OOM"
    NONFINITE = "NONFINITE"
    BELOW_TARGET = "BELOW_TARGET"
    INFRA = "INFRA"
    UNRESOLVED = "UNRESOLVED"


FAILURES = frozenset({Kind.HANG, Kind.CRASH, Kind.OOM, Kind.NONFINITE})
"""Kinds that are a failure of the program itself. SLOW is not one: it would have got there."""

BAD_KINDS = (Kind.HANG, Kind.CRASH, Kind.OOM, Kind.NONFINITE, Kind.SLOW, Kind.BELOW_TARGET)
"""Kinds that a search may be asked to count as failing, in the order in which they are listed."""

NEVER_ENDED_WELL = frozenset({Kind.HANG, Kind.CRASH, Kind.OOM})
"""Failures after which no program ends well: one that did, and merely missed a target, did not fail in this way."""

COMPUTES = "computes"
"""The cause of an undecided trial whose variables were seen to change from sample to sample."""

LIMIT_TOO_SHORT = "limit-too-short"
"""The cause of an undecided trial that a limit ended which a healthy one may need, too."""

TOO_EARLY = "too-early"
"""The cause of an undecided job that will be a hang if nothing moves for some seconds more."""


class Confidence(StrEnum):
    """How strongly the evidence carries the verdict: by rule, never by a made-up number.

    PROOF: a kernel fact or a protocol contradiction (an exit status, a signal).
    HIGH: at least three independent signals agree and none speaks against it. MEDIUM: two. LOW: one.
    """

    PROOF = "proof"
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Answer(StrEnum):
    """What a verdict answers to the question being asked (Zeller's PASS/FAIL/UNRESOLVED)."""

    GOOD = "good"
    BAD = "bad"
    UNRESOLVED = "unresolved"


TIME_LIMIT = "time-limit"
"""The cause of a trial that its own ``timeout`` ended."""

REFUSED = "usage-error"
"""The cause of a program that printed its usage and an error, and did nothing: its command line makes no sense."""

NEVER_STARTED = "never-started"
"""The cause of a trial whose program could not be started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Another cause that the evidence does not exclude, or the chosen one among several: what would decide.

    ``supports`` and ``against`` are sentences about what was seen; ``experiment`` is what to run, and what its result
    would mean.
    """

    cause: str
    because: str
    supports: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    experiment: str = ""
    cites: tuple[EvidenceId, ...] = ()


def signature(kind: Kind, cause: str | None, names: Iterable[str]) -> str:
    """``HANG deadlock: backward_deadlock.acquire_forever < probe.strike < ...``, innermost first.

    Of a program that ended without any function to name, its only name is the line that it said last, in quotes.
    """
    head = f"{kind} {cause}" if cause else str(kind)
    path = " < ".join(names)
    return f"{head}: {path}" if path else head


def signature_names(text: str | None) -> tuple[str, ...]:
    """The functions of such a signature, innermost first; none of a failure without one, or with a line it said."""
    _, _, path = (text or "").partition(": ")
    return tuple(path.split(" < ")) if path and not path.startswith('"') else ()


def signature_line(text: str | None) -> str:
    """The line, in quotes, by which a failure without functions is known: ``"--zero requires --shard N"``; or ""."""
    _, _, path = (text or "").partition(": ")
    return path if path.startswith('"') else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What we conclude about one trial; ``because`` is one sentence that a reader can check against ``cites``.

    ``path`` is by which of the program's own functions it came to where it failed, innermost first: what a common
    helper does for two callers is two failures. It is empty where a failure has no one place, as of a wait for a GPU.
    """

    kind: Kind
    rule: str
    because: str
    cites: tuple[EvidenceId, ...]
    confidence: Confidence
    cause: str | None = None
    phase: str | None = None
    step: int | None = None
    rank: int | None = None
    signature: str | None = None
    path: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    alternatives: tuple[Alternative, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind} ({self.cause})" if self.cause else str(self.kind)

    @property
    def gets_on(self) -> bool:
        """Whether the trial was seen to do something that changes: no silence is too long for it."""
        return self.kind is Kind.SLOW or self.cause == COMPUTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """All a rule may look at: the trial as asked, how it ended, what was seen."""

    trial: Trial
    outcome: Outcome
    evidence: Evidence
