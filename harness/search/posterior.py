"""What the trials say about the threshold when the failure rate is unknown."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

DETERMINISTIC = 0.5
"""Prior probability that a failing value fails every time; otherwise its rate is uniform on 0..1."""
FALSE_ALARMS = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05)
"""Rates of false alarms, all alike beforehand, once failures were seen that did not come back."""


def threshold_posterior(
    counts: Sequence[tuple[int, int]], *, deterministic: float = DETERMINISTIC, false_alarms: Sequence[float] = ()
) -> tuple[float, ...]:
    """P(first failing position = t) for t = 0..n, where n stands for "none fails".

    Model: below the threshold nothing ever fails; from it on every trial fails with one unknown rate. All t are
    equally likely beforehand. Counts that the model calls impossible (a failure that nothing explains) cannot
    occur: a failure at position i only rules out thresholds above i.

    Args:
        counts: (passes, failures) at each position, ascending along the axis.
        deterministic: prior weight of rate 1.
        false_alarms: rates at which a trial may fail below the threshold, all alike; none means that it cannot.
    """
    passes = fails = 0
    good_below, bad_below = sum(good for good, _ in counts), sum(bad for _, bad in counts)
    logs = [_log_noise(good_below, bad_below, false_alarms)]
    for good, bad in reversed(counts):
        passes += good
        fails += bad
        good_below -= good
        bad_below -= bad
        noise = _log_noise(good_below, bad_below, false_alarms)
        logs.append(noise + _log_likelihood(passes, fails, deterministic) if noise > -math.inf else noise)
    logs.reverse()
    peak = max(logs)
    weights = [math.exp(value - peak) for value in logs]
    total = math.fsum(weights)
    return tuple(weight / total for weight in weights)


def _log_noise(passes: int, fails: int, rates: Sequence[float]) -> float:
    if not rates:
        return -math.inf if fails else 0.0
    logs = [fails * math.log(rate) + passes * math.log1p(-rate) for rate in rates]
    peak = max(logs)
    return peak + math.log(math.fsum(math.exp(value - peak) for value in logs) / len(rates))


def _log_likelihood(passes: int, fails: int, deterministic: float) -> float:
    # Uniform rate: the integral of p^fails (1-p)^passes is B(fails + 1, passes + 1).
    flat = math.lgamma(fails + 1) + math.lgamma(passes + 1) - math.lgamma(fails + passes + 2)
    if passes:
        return math.log1p(-deterministic) + flat
    return math.log(deterministic + (1 - deterministic) * math.exp(flat))


def excluded_rate(passes: int, *, confidence: float) -> float | None:
    """The smallest failure rate that ``passes`` passes in a row rule out at ``confidence``; None without a pass."""
    if passes < 1:
        return None
    return 1.0 - (1.0 - confidence) ** (1.0 / passes)
