"""Where to look next on an ordered axis when a failure costs more, or less, than a pass: exact expected cost."""

from __future__ import annotations

import math
from functools import cache, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")

MAX_PROBES = 24
"""Probes considered at once. More are thinned to this many, evenly; later questions refine the interval."""


def failures_allowed(n: int) -> int:
    """How many failures a search over ``n`` values may pay before it climbs one value at a time.

    Two for up to 15 values, so that with the confirming re-run a deterministic threshold in 1..12 costs at most
    three hangs; about half the halvings for longer axes.
    """
    return max(2, math.ceil(math.log2(n + 1) / 2))


def next_probe(
    probes: Sequence[int],
    *,
    unknown_below: int,
    unknown_above: int,
    pass_s: Sequence[float],
    fail_s: float,
    failures: int,
) -> int:
    """The element of ``probes`` to try next: least expected seconds until the threshold is bracketed.

    Every position in ``unknown_below + 1 .. unknown_above`` is equally likely to be the first failing one (the last
    one stands for "none of those that can be asked"). A probe fails when the threshold is at or below it.

    Args:
        probes: positions that may be tried, ascending, strictly between the two bounds.
        unknown_below: the largest position known to pass, or -1.
        unknown_above: the smallest position known to fail, or one past the last.
        pass_s: seconds a pass costs at each of ``probes``.
        fail_s: seconds a failure costs.
        failures: how many failures may still be paid; at 1 the search climbs one value at a time.

    V(k) = min_j [j*b + (k-j)*a + V(j) + V(k-j)], with costs and weights per position.
    """
    chosen: list[int] = []
    costs: list[float] = []
    for i in evenly(range(len(probes)), most=MAX_PROBES):
        chosen.append(probes[i])
        costs.append(_rounded(pass_s[i]))
    edges = pairwise((unknown_below, *chosen, unknown_above))
    weights = tuple(after - before for before, after in edges)
    best = _best(weights, tuple(costs), _rounded(fail_s), min(max(failures, 1), len(chosen)))
    return chosen[best]


def evenly(items: Sequence[T], *, most: int) -> Sequence[T]:
    """At most ``most`` of ``items``, the first and the last among them."""
    n = len(items)
    return items if n <= most else [items[round(i * (n - 1) / (most - 1))] for i in range(most)]


def _rounded(seconds: float) -> float:
    # Two digits decide as well as seventeen, and equal questions then share one cached answer.
    return float(f"{max(seconds, 1e-3):.2g}")


@lru_cache(maxsize=4096)
def _best(weights: tuple[float, ...], pass_s: tuple[float, ...], fail_s: float, failures: int) -> int:
    """The index of the best first probe; group ``i`` of ``weights`` lies between probe ``i - 1`` and probe ``i``."""
    before = [0.0]
    for weight in weights:
        before.append(before[-1] + weight)

    is_bounded = failures < len(pass_s)  # one failure for each probe is no bound; ten times fewer cases to solve

    @cache
    def solve(low: int, high: int, budget: int) -> tuple[float, int]:
        # Probes low..high-1 are open, so the threshold is in groups low..high.
        if low == high:
            return 0.0, low
        best = (math.inf, low)
        for probe in range(low, high if budget > 1 else low + 1):
            fails = before[probe + 1] - before[low]
            passes = before[high + 1] - before[probe + 1]
            cost = fails * fail_s + passes * pass_s[probe]
            cost += solve(low, probe, budget - is_bounded)[0] + solve(probe + 1, high, budget)[0]
            best = min(best, (cost, probe))
        return best

    return solve(0, len(pass_s), failures)[1]
