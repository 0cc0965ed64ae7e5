"""Laws: how a cost grows along an axis, chosen by what each law says of sizes that it was not fitted to.

Every law is ``start + scale * g(size)`` with a start-up that is never negative, fitted with errors in proportion to
the size of the cost, as times have them. A few points do not tell one law from another; so the limit of a prediction
is that of all laws that the points do not rule out, and where those are too far apart, none is named.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.core.fit import FAR_RATIO, student_t, times_beyond

LINE = "n"
BETWEEN = {0.75: "n^0.75", 1.25: "n^1.25", 1.75: "n^1.75", 2.25: "n^2.25", 2.5: "n^2.5"}
PLAIN = {0.5: "the square root of n", 1.0: LINE, 1.5: "n^1.5", 2.0: "n^2", 3.0: "n^3"}
"""Powers that are named; those between them only widen what is said."""
LOGARITHMIC = "n log n"
LEAST_POINTS = 3
LEAST_VALUES = 4
WIDEST = 3.0
"""A limit further than so many times its prediction says nothing, and is not named."""
ROUNDS = 3
LEAST_WEIGHED = 0.1
"""A cost weighs by what the law says of it, and by this part of itself where the law says nearly nothing."""
LEAST_ERROR = 1e-3
"""Relative error that is always allowed for, so that exact points do not rule out a law for its rounding."""
CHOSEN_LEVEL = 0.98
"""Level of the interval that shows growth by a law that was chosen among many: one of them fits noise well."""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """One law fitted to points; ``error`` is the sum of its squared relative errors."""

    name: str
    grows: Callable[[float], float]
    start: float
    scale: float
    error: float
    weight: float
    mean: float
    spread: float

    @property
    def is_named(self) -> bool:
        """Whether it may be named; one between two of those only widens what is said."""
        return self.name not in BETWEEN.values()

    def at(self, size: float) -> float:
        """What it says of ``size``."""
        return self.start + self.scale * self.grows(size)

    def scale_error(self, *, points: int, level: float = 0.95) -> float | None:
        """Half the width of the two-sided interval of ``scale``; None with two points, which say nothing of it."""
        if points < LEAST_POINTS:
            return None
        return student_t(level, points - 2) * math.sqrt(self.error / (points - 2) / self.spread)

    def upper(self, size: float, *, points: int) -> float:
        """The upper end of its two-sided 95 % prediction interval for one more value at ``size``."""
        expected = self.at(size)
        if expected <= 0:
            return 0.0
        off = (1 / self.weight + (self.grows(size) - self.mean) ** 2 / self.spread) / expected**2
        scatter = math.sqrt(self.error / (points - 2)) * expected
        return expected + student_t(0.95, points - 2) * scatter * math.sqrt(1 + off)


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """The ``law`` that predicts best what it was not fitted to, and all ``possible`` ones that the points allow."""

    law: Law
    possible: tuple[Law, ...]
    points: tuple[Point, ...]

    @property
    def others(self) -> tuple[str, ...]:
        """The other laws with a name that the points allow."""
        return tuple(law.name for law in self.possible if law.is_named and law.name != self.law.name)

    @property
    def is_shown(self) -> bool:
        """Whether the points rule out that the cost stays the same: every law here grows, also through noise."""
        error = self.law.scale_error(points=len(self.points), level=CHOSEN_LEVEL)
        return error is not None and self.law.scale > error

    def limit(self, size: float) -> float | None:
        """What one more value at ``size`` stays below, by every law that is possible; None where that says nothing.

        Nothing is named beyond ``FAR_RATIO`` times the largest size, nor where the laws leave ``WIDEST`` times the
        prediction. It holds if the same law goes on beyond the sizes measured.
        """
        limit = max(law.upper(size, points=len(self.points)) for law in self.possible)
        largest, _ = max(self.points)
        is_far = times_beyond(size, [largest]) > FAR_RATIO
        return None if is_far or limit > WIDEST * self.law.at(size) else limit


def growth(points: Sequence[Point]) -> Growth | None:
    """The laws of growth that ``points`` (size, cost) allow; None with fewer than four sizes or five points.

    That it does not grow at all is no law here: whether growth is shown, ``Growth.is_shown`` says.
    """
    if len(points) <= LEAST_VALUES:
        return None
    sizes, costs = zip(*points, strict=True)
    if len(set(sizes)) < LEAST_VALUES or min(sizes) < 0 or min(costs) <= 0:
        return None
    laws: list[Law] = []
    for name, grows in _family().items():
        law = fitted(points, name=name, grows=grows)
        if law is not None:
            laws.append(law)
    if not laws:
        return None
    dof = len(points) - 3
    # One law more is allowed for: with one numerator degree of freedom F is the square of t.
    bound = min(law.error for law in laws) * (1 + student_t(0.95, dof) ** 2 / dof) + len(points) * LEAST_ERROR**2
    possible = tuple(law for law in laws if law.error <= bound)
    plain = [law for law in possible if law.is_named] or possible
    best = min(plain, key=lambda law: _held_out_error(points, law))
    return Growth(law=best, possible=possible, points=tuple(points))


def straight(points: Sequence[Point]) -> Law | None:
    """The line through ``points`` with relative errors, whatever its sign; None where a cost is not above zero."""
    _, costs = zip(*points, strict=True)
    if min(costs) <= 0:
        return None
    return fitted(points, name=LINE, grows=float, start_up=False)


def _family() -> dict[str, Callable[[float], float]]:
    family = {name: power(exponent) for exponent, name in sorted({**PLAIN, **BETWEEN}.items())}
    return {**family, LOGARITHMIC: lambda x: x * math.log1p(x)}


def power(exponent: float) -> Callable[[float], float]:
    """A growth with this power of the size."""
    return lambda size: size**exponent


def _held_out_error(points: Sequence[Point], law: Law) -> float:
    """How far the law is off at the largest size when it is fitted to the others."""
    largest, _ = max(points)
    without = fitted([(x, y) for x, y in points if x < largest], name=law.name, grows=law.grows)
    if without is None:
        return math.inf
    squares: list[float] = []
    for x, y in points:
        if x == largest:
            off = math.log(max(without.at(x), 1e-9) / y)
            squares.append(off * off)
    return math.fsum(squares)


def fitted(points: Sequence[Point], *, name: str, grows: Callable[[float], float], start_up: bool = True) -> Law | None:
    """The law through ``points`` by least squares of relative errors.

    With ``start_up`` it starts at zero or above and grows; None where the cost does not.
    """
    _, costs = zip(*points, strict=True)
    law = None
    for _ in range(ROUNDS):
        law = _weighted(points, name=name, grows=grows, costs=costs, start_up=start_up)
        if law is None:
            return None
        costs = [max(law.at(x), LEAST_WEIGHED * y) for x, y in points]
    return law


def _weighted(
    points: Sequence[Point], *, name: str, grows: Callable[[float], float], costs: Sequence[float], start_up: bool
) -> Law | None:
    samples: list[tuple[float, float, float]] = []
    weights: list[float] = []
    grown: list[float] = []
    weighed: list[float] = []
    for cost, (x, y) in zip(costs, points, strict=True):
        w, z = 1 / cost**2, grows(x)
        samples.append((w, z, y))
        weights.append(w)
        grown.append(w * z)
        weighed.append(w * y)
    weight = math.fsum(weights)
    mean, mean_y = math.fsum(grown) / weight, math.fsum(weighed) / weight
    spread = math.fsum(w * (z - mean) ** 2 for w, z, _ in samples)
    if spread <= 0:
        return None
    scale = math.fsum(w * (z - mean) * (y - mean_y) for w, z, y in samples) / spread
    start = mean_y - scale * mean
    if start_up and start < 0:
        start, scale = 0.0, math.fsum(w * z * y for w, z, y in samples) / math.fsum(w * z * z for w, z, _ in samples)
    if start_up and scale <= 0:
        return None
    error = math.fsum(w * (y - start - scale * z) ** 2 for w, z, y in samples)
    return Law(name=name, grows=grows, start=start, scale=scale, error=error, weight=weight, mean=mean, spread=spread)
