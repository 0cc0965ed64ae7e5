"""Costs: what a pass and a failure are expected to cost, and where on an axis to look next at those prices."""

from __future__ import annotations

import math
from functools import cache, lru_cache
from itertools import combinations, pairwise
from statistics import fmean, median
from typing import TYPE_CHECKING, TypeVar

from harness.core.verdict import Answer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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


FIRST_PASS_S = 1.0
"""Seconds that a pass is taken to cost before anything was seen."""
FIRST_FAIL_S = 15.0
"""Seconds that a failure is taken to cost before one was seen: a stall limit, three stack samples, the clean-up."""

MOST_POINTS = 32
"""Values that the line is drawn through, evenly taken, so that a long axis does not make every question slow."""
NOT_MEASURED = "how long it takes is known once a trial has passed"
"""What a plan says in place of seconds while it has none."""


class Costs:
    """Seconds per trial: a line over the axis for passes, a mean for failures.

    The line is Theil and Sen's (median of the slopes between median times), so that one slow start of a server does
    not bend it; it never falls along the axis.
    """

    def __init__(self) -> None:
        self._passes: dict[float, list[float]] = {}
        self._failures: list[float] = []
        self._cuts: list[float] = []
        self._slope = self._intercept = 0.0
        self.expected_s: float | None = None
        self._is_fitted = True

    @property
    def has_line(self) -> bool:
        """Whether passes at two values were seen, so that other values can be predicted."""
        return len(self._passes) > 1

    @property
    def is_measured(self) -> bool:
        """Whether it is known what a pass costs: from this run, or from earlier ones (``expected_s``)."""
        return bool(self._passes) or self.expected_s is not None

    @property
    def passes(self) -> Mapping[float, Sequence[float]]:
        """Seconds of every pass, by value."""
        return self._passes

    def learn(self, value: float, answer: Answer, seconds: float, *, soft: bool) -> None:
        """Learn from any trial; ``soft``: it was cut off by a soft limit, if it neither passed nor failed."""
        if answer is Answer.GOOD:
            self.passed(value, seconds)
        elif answer is Answer.BAD:
            self.failed(seconds)
        elif soft:
            self._cuts.append(seconds)

    def passed(self, value: float, seconds: float) -> None:
        """Learn from a pass."""
        self._passes.setdefault(value, []).append(seconds)
        self._is_fitted = False

    def _fit(self) -> None:
        """The line through what was seen, when it is next asked for: passes come in dozens, questions one by one."""
        self._is_fitted = True
        typical = sorted((v, median(times)) for v, times in self._passes.items())
        typical = evenly(typical, most=MOST_POINTS)
        slopes = [(y1 - y0) / (x1 - x0) for (x0, y0), (x1, y1) in combinations(typical, 2)]
        self._slope = max(median(slopes), 0.0) if slopes else 0.0
        self._intercept = median(y - self._slope * x for x, y in typical)

    def failed(self, seconds: float) -> None:
        """Learn from a failure."""
        self._failures.append(seconds)

    def is_past_cuts(self, seconds: float) -> bool:
        """Whether a trial of so many seconds took longer than a soft limit gave another."""
        return bool(self._cuts) and seconds >= min(self._cuts)

    def of_pass(self, value: float) -> float:
        """Expected seconds of a pass at ``value``."""
        if not self._passes:
            return max(self.expected_s or FIRST_PASS_S, 0.01)
        if not self._is_fitted:
            self._fit()
        return max(self._intercept + self._slope * value, 0.01)

    def of_failure(self) -> float:
        """Expected seconds of a failure."""
        return max(fmean(self._failures), 0.01) if self._failures else FIRST_FAIL_S

    def of_failure_on_the_way(self) -> float:
        """Expected seconds of a failure while it need not be told from a slow trial."""
        return fmean(self._cuts) if self._cuts else self.of_failure()
