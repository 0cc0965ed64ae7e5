"""Line: a least-squares line with honest intervals, for time limits (plan) and for scaling laws (search)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median

FAR_RATIO = 4.0
"""Times the largest size measured, beyond which a line is said to be a lower bound only: it misses faster growth.

Seen once on an H200: a line through sizes up to 1536 layers x tokens said 98 s for 24,576, which took 193 s.
"""


def times_beyond(x: float, measured: Iterable[float]) -> float:
    """How many times larger ``x`` is than the largest that was measured; 1 where it is not larger, or none was."""
    largest = max(measured, default=0.0)
    return x / largest if x > largest > 0 else 1.0


def how_far(times: float) -> str:
    """``this is 16 times beyond, where time may grow faster``; empty as near as a line may be trusted."""
    return f"this is {times:.2g} times beyond, where time may grow faster" if times > FAR_RATIO else ""


def at_least(times: float) -> str:
    """What goes before a predicted number: nothing, or that it is a lower bound."""
    return "at least about " if times > FAR_RATIO else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedLine:
    """``y = intercept + slope * x`` fitted to ``n`` points; ``scatter`` is the residual standard deviation.

    ``scatter`` is None when there are only two points: a line through two points says nothing about its own error.
    """

    intercept: float
    slope: float
    n: int
    mean_x: float
    spread_x: float
    scatter: float | None
    r_squared: float

    def at(self, x: float) -> float:
        """The fitted y at ``x``."""
        return self.intercept + self.slope * x

    def slope_error(self) -> float | None:
        """Half the width of the two-sided 95 % interval of the slope; None when it cannot be told."""
        if self.scatter is None:
            return None
        return student_t(0.95, self.n - 2) * self.scatter / math.sqrt(self.spread_x)

    def upper(self, x: float) -> float | None:
        """The upper end of the two-sided 95 % prediction interval of a new y at ``x``; None when it cannot be told."""
        if self.scatter is None:
            return None
        wide = math.sqrt(1.0 + 1.0 / self.n + (x - self.mean_x) ** 2 / self.spread_x)
        return self.at(x) + student_t(0.95, self.n - 2) * self.scatter * wide


def medians(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Each value once, with the median of what was measured there, in the order of values.

    Trials of one value follow each other and share the load of their minutes: twenty say no more of a growth than one.
    """
    at: dict[float, list[float]] = {}
    for value, measured in sorted(points):
        at.setdefault(value, []).append(measured)
    return [(value, median(several)) for value, several in at.items()]


def fit_line(points: Sequence[tuple[float, float]]) -> FittedLine | None:
    """The least-squares line through ``points`` (x, y), or None with fewer than two different x."""
    n = len(points)
    if len(dict(points)) < 2:
        return None
    xs, ys = zip(*points, strict=True)
    mean_x, mean_y = math.fsum(xs) / n, math.fsum(ys) / n
    spread_x, spread_y = _spread(xs, mean_x), _spread(ys, mean_y)
    slope = math.fsum((x - mean_x) * (y - mean_y) for x, y in points) / spread_x
    intercept = mean_y - slope * mean_x
    residual = math.fsum((y - intercept - slope * x) ** 2 for x, y in points)
    return FittedLine(
        intercept=intercept,
        slope=slope,
        n=n,
        mean_x=mean_x,
        spread_x=spread_x,
        scatter=math.sqrt(residual / (n - 2)) if n > 2 else None,
        r_squared=1.0 - residual / spread_y if spread_y > 0 else 1.0,
    )


def _spread(values: Iterable[float], mean: float) -> float:
    return math.fsum((value - mean) ** 2 for value in values)


@cache
def student_t(level: float, dof: int) -> float:
    """The t with ``P(|T| <= t) = level`` for ``dof`` degrees of freedom; t(0.95, 1) = 12.706.

    Bisection on the exact distribution function for whole degrees of freedom (Abramowitz and Stegun 26.7.3-4).
    """
    low, high = 0.0, 1.0
    while _within(high, dof) < level:
        high *= 2.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, dof) < level else (low, middle)
    return high


def _within(t: float, dof: int) -> float:
    """P(|T| <= t)."""
    theta = math.atan(t / math.sqrt(dof))
    sine, cosine = math.sin(theta), math.cos(theta)
    odd = dof % 2 == 1
    term = cosine if odd else 1.0
    total = term if dof > 1 else 0.0
    for k in range(3 if odd else 2, dof - 1, 2):
        term *= cosine * cosine * ((k - 1) / k)
        total += term
    return (theta + sine * total) * 2 / math.pi if odd else sine * total
