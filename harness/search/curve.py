"""Curve: how often each value fails, with a band that holds for all values and at every moment of a search at once."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from harness.core.boundary import RateBand
from harness.core.rates import rate_at
from harness.search.certificate import share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.point import Value


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
    lows = accumulate((_low(good, bad, level=level) for good, bad, _ in counts), max)
    highs = accumulate((_high(good, bad + cut, level=level) for good, bad, cut in reversed(counts)), min)
    bands = zip(values, counts, lows, reversed([*highs]), strict=True)
    return tuple(RateBand(value=value, low=low, high=high) for value, numbers, low, high in bands if any(numbers))


def _high(good: int, bad: int, *, level: float) -> float:
    """The largest rate that is not ruled out, however often it was asked again."""
    return rate_at(level * share(bad), bad, runs=good + bad) if good else 1.0


def _low(good: int, bad: int, *, level: float) -> float:
    """The smallest; passes and failures change places."""
    return 1 - _high(bad, good, level=level)
