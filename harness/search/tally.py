"""Tally: what was seen at one value, and whether its failures are its own or false alarms."""

from __future__ import annotations

import math
from bisect import bisect
from dataclasses import dataclass
from functools import lru_cache

RAREST = 0.1
"""The smallest failure rate that the search sets out to tell from false alarms."""
MOST_FALSE = 0.02
"""The largest share of trials that may fail for no reason of their own before a search cannot tell them."""
CLEARED = 0.0
"""A value whose failures are no likelier its own than false alarms (``lean``, a logarithm) is trusted again."""
SURE = math.log(40)
"""How much likelier its own they must be before a value is called failing."""
MORE_SURE = 4.0
"""Every failure that turned out to be a false alarm asks so many times more of the next value, beside the first."""
FEW = 8
"""So many values may be tried before each further one asks for more."""
_RATES = tuple(RAREST ** (1 - i / 15) for i in range(15))


@dataclass(slots=True)
class Tally:
    """What was seen at one position of the axis.

    ``confirms`` counts trials after the first failure. ``cut`` are trials that a soft limit ended: failures, or now
    and then a straggler, which is told as a false alarm is. ``required`` passes without a failure make the
    certificate, which is the ``attempt``-th of the search.
    """

    good: int = 0
    bad: int = 0
    unresolved: int = 0
    confirms: int = 0
    cut: int = 0
    required: int | None = None
    attempt: int = 1

    @property
    def failures(self) -> int:
        """Trials that failed, and those that a soft limit cut off."""
        return self.bad + self.cut

    @property
    def lean(self) -> float:
        """The logarithm of how much likelier its failures are its own than false alarms."""
        return lean(self.good, self.failures)

    @property
    def suspect(self) -> bool:
        """Whether it is taken for a failing value, be it for now."""
        return self.failures > 0 and self.lean > CLEARED

    def is_sure(self, *, false_alarms: int, tried: int) -> bool:
        """Whether its failures are its own; a single one is never enough.

        Args:
            false_alarms: failures elsewhere that did not come again.
            tried: values that were run up to this one; every one was a chance for a false alarm.
        """
        return self.bad > 0 and is_sure(self.good, self.failures, false_alarms=false_alarms, tried=tried)

    @property
    def needed(self) -> int | None:
        """The passes that make the certificate: with failures among them more, for the same statement."""
        return None if self.required is None else passes_needed(self.required, self.failures)

    @property
    def certified(self) -> bool:
        """Whether every pass that the certificate asks for was seen."""
        return self.needed is not None and self.good >= self.needed and not self.suspect

    @property
    def worth(self) -> int:
        """The passes without a failure, in a search's first certificate, that would say what was seen here."""
        return worth(self.good, self.failures, attempt=self.attempt)


@lru_cache(maxsize=65536)
def lean(good: int, bad: int) -> float:
    """The logarithm of how much likelier it is that a value fails than that its failures are false alarms.

    "It fails": at an unknown rate from ``RAREST`` to 1, all orders of magnitude alike. "False alarms": at the rate up
    to ``MOST_FALSE`` that suits the counts best. No rate is assumed to be the same at two values, because hangs that
    come of a race are the rarer the nearer the threshold.
    """
    logs = [bad * math.log(rate) + good * math.log1p(-rate) for rate in _RATES]
    if not good:
        logs.append(0.0)
    top = max(logs)
    fails = top + math.log(math.fsum(math.exp(value - top) for value in logs) / (len(_RATES) + 1))
    if not bad:
        return fails
    rate = min(bad / (good + bad), MOST_FALSE)
    return fails - bad * math.log(rate) - good * math.log1p(-rate)


def is_sure(good: int, bad: int, *, false_alarms: int, tried: int) -> bool:
    """Whether ``bad`` failures beside ``good`` passes are sure to be no false alarms; a single one is never enough.

    Args:
        good: passes.
        bad: failures.
        false_alarms: failures elsewhere that did not come again.
        tried: values or cells that were run so far; every one was a chance for a false alarm.
    """
    enough = SURE + math.log1p(MORE_SURE * false_alarms) + math.log(max(tried / FEW, 1.0))
    return bad > 1 and lean(good, bad) >= enough


def worth(good: int, bad: int, *, attempt: int = 1) -> int:
    """The passes without a failure, in a search's first certificate, that would say what ``good`` and ``bad`` say."""
    return bisect(range(1, good + 1), good, key=lambda passes: passes_needed(passes_for(passes, attempt), bad))


def passes_for(passes: int, attempt: int, *, confidence: float = 0.95) -> int:
    """The passes that the ``attempt``-th certificate of one search needs to say what ``passes`` say of the first.

    Every certificate is a chance to be wrong. The first two count alike, since most searches need no more; then the
    k-th may be wrong with a (k-1)-th of the probability.
    """
    return math.ceil(passes * (1 - math.log(max(attempt - 1, 1)) / math.log(1 - confidence)))


@lru_cache(maxsize=4096)
def passes_needed(required: int, bad: int, *, confidence: float = 0.95) -> int:
    """The passes beside ``bad`` failures that rule out the same failure rate as ``required`` passes and none.

    Exact binomial: the upper end of the one-sided Clopper-Pearson interval is the same.
    """
    rate = 1 - (1 - confidence) ** (1 / required)
    passes = required
    while bad and _at_most(bad, runs=passes + bad, rate=rate) > 1 - confidence:
        passes += 1
    return passes


def _at_most(count: int, *, runs: int, rate: float) -> float:
    return math.fsum(math.comb(runs, k) * rate**k * (1 - rate) ** (runs - k) for k in range(count + 1))
