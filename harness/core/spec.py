"""Limits of a trial and effort of a search, as the user set them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits that the user set, in seconds; None means: learn it from trials that pass."""

    startup_s: float | None = None
    stall_s: float | None = None
    total_s: float | None = None

    def over(self, others: Limits) -> Limits:
        """These limits, and those of ``others`` where one is not set here."""
        return Limits(
            startup_s=others.startup_s if self.startup_s is None else self.startup_s,
            stall_s=others.stall_s if self.stall_s is None else self.stall_s,
            total_s=others.total_s if self.total_s is None else self.total_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much a search may spend, and how small a failure rate it must rule out to stop.

    ``certify`` fixes the number of passes of the certificate; None means: spend about seven tenths of a hang's time.
    ``soft_limit`` lets the search end trials early and run only the value that decides up to its whole limit.
    ``check_above`` values above the first failing one are run too, to see whether they fail as well.
    """

    confidence: float = 0.95
    certify: int | None = None
    max_trials: int = 200
    max_seconds: float | None = None
    soft_limit: bool = True
    check_above: int = 0

    def remaining_trials(self, trials: int) -> int:
        """How many more may be run after so many."""
        return self.max_trials - trials

    def spent(self, *, trials: int, seconds: float) -> str:
        """Which limit a search of so many ``trials`` and ``seconds`` has reached, in words; empty while none is."""
        if self.remaining_trials(trials) <= 0:
            return f"the limit of {self.max_trials} trials"
        if self.max_seconds is not None and seconds >= self.max_seconds:
            return f"the limit of {self.max_seconds:g} s of trials"
        return ""

    def beyond(self, paid: Iterable[float]) -> Effort:
        """The same limits for what comes on top of trials that earlier runs have ``paid`` so many seconds each for."""
        seconds = tuple(paid)
        limits = {field.name: getattr(self, field.name) for field in fields(Effort)}
        return EffortBeyond(**limits, paid_trials=len(seconds), paid_seconds=sum(seconds)) if seconds else self


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What a run that is taken up again may spend in all, where that is not what it was begun with.

    ``options`` are the same as the words to type.
    """

    max_trials: int | None = None
    max_seconds: float | None = None
    options: tuple[tuple[str, str], ...] = ()

    def of(self, effort: Effort) -> Effort:
        """``effort`` with these limits in place of its own."""
        trials = effort.max_trials if self.max_trials is None else self.max_trials
        seconds = effort.max_seconds if self.max_seconds is None else self.max_seconds
        return replace(effort, max_trials=trials, max_seconds=seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class EffortBeyond(Effort):
    """An effort of a search that also hears of trials which earlier runs have paid for; no question carries one."""

    paid_trials: int
    paid_seconds: float

    def remaining_trials(self, trials: int) -> int:
        """How many more may be run, those that were paid before not counted."""
        return self.max_trials - (trials - self.paid_trials)

    def spent(self, *, trials: int, seconds: float) -> str:
        """As :meth:`Effort.spent`, less what was paid before."""
        return Effort.spent(self, trials=trials, seconds=seconds - self.paid_seconds)
