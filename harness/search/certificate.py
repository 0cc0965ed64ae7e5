"""Certificate: passes in a row, counted from the choice of a value, and the failure rate that they rule out.

A value that is certified was chosen because it passed, and passes are added where one failed. Both are looks at the
data, and each look is a chance to be wrong. So the passes that led to the choice do not count, and the 5 % are shared
out beforehand over all looks that a search could ever take: over its certificates by their number, and within each
over the failures among its passes. Whatever the search does, the shares add up to 5 %. docs/adr/0020 has the reason.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from harness.core.boundary import RateBand
from harness.core.rates import at_most, rate_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.point import Value

FIRST_SHARE = 0.9
"""The part of the error probability for the first certificate, and in each of them for passes without a failure."""


def share(number: int) -> float:
    """The part for the ``number``-th look, from 0 on; over all looks they add up to 1: 0.9, 0.05, 0.017, 0.008, ..."""
    return FIRST_SHARE if number == 0 else (1 - FIRST_SHARE) / (number * (number + 1))


def error(*, attempt: int, bad: int, confidence: float) -> float:
    """How likely the ``attempt``-th certificate of a search may be given wrongly with ``bad`` failures among it."""
    return (1 - confidence) * share(attempt - 1) * share(bad)


@dataclass(slots=True)
class Certificate:
    """What one value showed since it was chosen to be certified.

    ``required`` passes without a failure make the first certificate of a search; the ``attempt``-th asks for more,
    and so does every failure, so that each states the same rate. Right for trials that do not depend on each other.
    """

    required: int
    attempt: int = 1
    confidence: float = 0.95
    good: int = 0
    bad: int = 0

    def count(self, *, passed: bool) -> None:
        """Take in one more trial of the value."""
        if passed:
            self.good += 1
        else:
            self.bad += 1

    @property
    def needed(self) -> int:
        """The passes that complete it, if no more trials fail."""
        return passes_needed(self.required, self.bad, attempt=self.attempt, confidence=self.confidence)

    @property
    def complete(self) -> bool:
        """Whether every pass that it asks for was seen."""
        return self.good >= self.needed

    @property
    def excluded_rate(self) -> float | None:
        """The smallest failure rate that its trials rule out; None while they rule out none."""
        if not self.good:
            return None
        level = error(attempt=self.attempt, bad=self.bad, confidence=self.confidence)
        return rate_at(level, self.bad, runs=self.good + self.bad)


def excluded_rate(passes: int, *, confidence: float = 0.95) -> float | None:
    """The smallest failure rate that so many passes rule out in the first certificate; None without a pass."""
    return Certificate(required=max(passes, 1), confidence=confidence, good=passes).excluded_rate


@lru_cache(maxsize=65536)
def passes_needed(required: int, bad: int, *, attempt: int = 1, confidence: float = 0.95) -> int:
    """The passes beside ``bad`` failures in the ``attempt``-th certificate that rule out what ``required`` do alone.

    Exact binomial: the probability of so few failures at that rate is at most the share of this look.
    """
    if not bad and attempt == 1:
        return required
    rate = excluded_rate(required, confidence=confidence) or 1.0
    level = error(attempt=attempt, bad=bad, confidence=confidence)
    most = 2 * required
    while at_most(bad, runs=most + bad, rate=rate) > level:
        most *= 2
    return bisect_left(range(most), -level, key=lambda passes: -at_most(bad, runs=passes + bad, rate=rate))


def stated(rate: float) -> float:
    """``rate`` in whole hundredths, rounded up: a report never names a smaller rate than was ruled out."""
    return math.ceil(rate * 100 - 1e-9) / 100


def failure_curve(
    values: Sequence[Value], counts: Sequence[tuple[int, int, int]], *, confidence: float
) -> tuple[RateBand, ...]:
    """The band of failure rates of each value that was tried, in the order of the axis.

    A band holds for one value whenever the search stops: the error is shared out over the numbers of failures for its
    upper end and over the numbers of passes for its lower end, and equally over all values of the axis. A rate that
    does not fall along the axis lets every lower end hold for the values above it, every upper end for those below.

    Args:
        values: the axis.
        counts: (passes, failures, trials that were cut off) of each value; what was cut off may be either.
        confidence: of the whole band.
    """
    level = (1 - confidence) / (2 * len(values))
    low, high = 0.0, 1.0
    highs: list[float] = []
    for good, bad, cut in reversed(counts):
        high = min(high, _high(good, bad + cut, level=level))
        highs.append(high)
    bands: list[RateBand] = []
    for value, (good, bad, cut), highest in zip(values, counts, reversed(highs), strict=True):
        low = max(low, _low(good, bad, level=level))
        if good or bad or cut:
            bands.append(RateBand(value=value, low=low, high=highest))
    return tuple(bands)


def _high(good: int, bad: int, *, level: float) -> float:
    """The largest rate that is not ruled out, however often it was asked again."""
    return rate_at(level * share(bad), bad, runs=good + bad) if good else 1.0


def _low(good: int, bad: int, *, level: float) -> float:
    """The smallest; passes and failures change places."""
    return 1 - _high(bad, good, level=level)
