"""BisectSpec: the question, everything held fixed, and what counts as bad."""

from __future__ import annotations

from dataclasses import dataclass

from harness.core.point import Axis, Point
from harness.core.success import Success
from harness.core.trial import Fault
from harness.core.verdict import Kind

EVERYTHING_AT_ITS_DEFAULT = Point()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits that the user set, in seconds; None means: learn it from trials that pass."""

    startup_s: float | None = None
    stall_s: float | None = None
    total_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much a search may spend, and how small a failure rate it must rule out to stop.

    ``certify`` fixes the number of passes of the certificate; None means: spend about two hangs' worth of time.
    ``soft_limit`` lets the search end trials early and run only the value that decides up to its whole limit.
    ``check_above`` values above the first failing one are run too, to see whether they fail as well.
    """

    confidence: float = 0.95
    certify: int | None = None
    max_trials: int = 200
    max_seconds: float | None = None
    soft_limit: bool = False
    check_above: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectSpec:
    """From which value of ``axis`` does ``target`` fail, everything in ``fixed`` held as it is?

    ``bad`` is empty for "the first kind of failure that shows up"; otherwise the kinds that count as bad.
    ``controls`` name trials run at the failing value with one thing changed (``no-fault``, ``dense``). ``success`` is
    what a trial must show beyond its exit status to be good.
    """

    question: str
    target: str
    axis: Axis
    fixed: Point = EVERYTHING_AT_ITS_DEFAULT
    fault: Fault | None = None
    bad: tuple[Kind, ...] = ()
    limits: Limits = Limits()
    effort: Effort = Effort()
    controls: tuple[str, ...] = ()
    executor: str = "forkserver"
    seed: int = 0
    env: tuple[tuple[str, str], ...] = ()
    command: tuple[str, ...] = ()
    success: Success | None = None
