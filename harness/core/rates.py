"""How often something fails, by a few runs: the rate with its interval, and how many passes show that it is gone."""

from __future__ import annotations

import math

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


def interval(failed: int, runs: int, *, sure: float = SURE) -> tuple[float, float]:
    """The failure rates that ``failed`` of ``runs`` do not rule out: the exact two-sided interval (Clopper-Pearson).

    Where the runs ended with the first failure it holds, too: its lower end is the same, its upper end is wider.
    """
    rest = (1 - sure) / 2
    low = rate_at(1 - rest, failed - 1, runs=runs) if failed else 0.0
    high = rate_at(rest, failed, runs=runs) if failed < runs else 1.0
    return low, high


def passes_that_show(rate: float, *, sure: float = SURE) -> int:
    """The passes in a row that a program which fails at ``rate`` makes with a probability of ``1 - sure`` at most."""
    return 1 if rate >= 1.0 else math.ceil(math.log(1 - sure) / math.log1p(-rate))


def rate_at(probability: float, count: int, *, runs: int) -> float:
    """The failure rate at which ``count`` failures or fewer in ``runs`` have this probability."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if at_most(count, runs=runs, rate=middle) > probability else (low, middle)
    return (low + high) / 2


def by_chance(bad: int, runs: int, other_bad: int, other_runs: int) -> float:
    """The probability that a side has at least so many of all failures if both fail equally often (Fisher's exact)."""
    whole, all_bad = runs + other_runs, bad + other_bad
    ways = (math.comb(runs, k) * math.comb(other_runs, all_bad - k) for k in range(bad, min(runs, all_bad) + 1))
    return sum(ways) / math.comb(whole, all_bad)
