"""How often something fails, by a few runs: the rate with its interval, and how many passes show that it is gone.

And whether two sides fail at different rates, or may do so by chance.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.core.cause import CellCount

SURE = 0.95


def at_most(count: int, *, runs: int, rate: float) -> float:
    """The probability of ``count`` failures or fewer in ``runs`` runs that fail with probability ``rate`` each."""
    if count >= runs or rate <= 0.0:
        return 1.0
    if rate >= 1.0:
        return 0.0
    fails, passes = math.log(rate), math.log1p(-rate)
    ways = [math.lgamma(runs + 1) - math.lgamma(k + 1) - math.lgamma(runs - k + 1) for k in range(count + 1)]
    return min(math.fsum(math.exp(way + k * fails + (runs - k) * passes) for k, way in enumerate(ways)), 1.0)


def interval(failed: int, runs: int) -> tuple[float, float]:
    """The failure rates that ``failed`` of ``runs`` do not rule out: the exact two-sided interval (Clopper-Pearson).

    Where the runs ended with the first failure it holds, too: its lower end is the same, its upper end is wider.
    """
    rest = (1 - SURE) / 2
    low = rate_at(1 - rest, failed - 1, runs=runs) if failed else 0.0
    high = rate_at(rest, failed, runs=runs) if failed < runs else 1.0
    return low, high


def passes_that_show(rate: float) -> int:
    """The passes in a row that a program which fails at ``rate`` makes with a probability of ``1 - SURE`` at most."""
    return 1 if rate >= 1.0 else math.ceil(math.log(1 - SURE) / math.log1p(-rate))


def rate_at(probability: float, count: int, *, runs: int) -> float:
    """The failure rate at which ``count`` failures or fewer in ``runs`` have this probability."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if at_most(count, runs=runs, rate=middle) > probability else (low, middle)
    return (low + high) / 2


def p_value(pairs: Sequence[tuple[CellCount, CellCount]]) -> float:
    """Exact and one-sided, by pairs (Fisher for one, Mantel and Haenszel's sum for several)."""
    failures = sum(one.bad for one, _ in pairs)
    return min(math.fsum(chance for k, chance in failures_by_chance(pairs).items() if k >= failures), 1.0)


def failures_by_chance(pairs: Sequence[tuple[CellCount, CellCount]]) -> dict[int, float]:
    """The probability of each number of failures on the first side if both sides of each pair fail equally often."""
    sums = {0: 1.0}
    for one, other in pairs:
        bad, runs, whole = one.bad + other.bad, one.good + one.bad, one.good + one.bad + other.good + other.bad
        chances: dict[int, float] = {}
        for k in range(max(0, bad - (whole - runs)), min(runs, bad) + 1):
            ways = math.comb(runs, k) * math.comb(whole - runs, bad - k)
            chances[k] = ways / math.comb(whole, bad)
        sums = _added(sums, chances)
    return sums


def _added(one: Mapping[int, float], other: Mapping[int, float]) -> dict[int, float]:
    sums: dict[int, float] = {}
    for i, a in one.items():
        for k, b in other.items():
            sums[i + k] = sums.get(i + k, 0.0) + a * b
    return sums
