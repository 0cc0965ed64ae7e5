"""Boundary: what a search along one axis found, and how strongly it may be said."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from harness.core.fit import medians
from harness.core.point import Value

MOST = 0.5
"""Share of the scatter that a line explains where it explains most of it."""

LEAST_FOR_GROWTH = 3
"""Values that must be measured before growth is spoken of: two give a line, and no interval."""


class Claim(StrEnum):
    """The three words a report may use, and no stronger one.

    OBSERVED: seen once. REPRODUCED: k of n at both sides. ISOLATED: also, the control passes at the failing
    point and nothing else differs.
    """

    OBSERVED = "observed"
    REPRODUCED = "reproduced"
    ISOLATED = "isolated"


class Finding(StrEnum):
    """What a threshold search can find."""

    THRESHOLD = "threshold"
    NO_FAILURE = "no failing value"
    ALL_FAIL = "the smallest value already fails"
    NO_THRESHOLD_SLOW = "no threshold: the limit ran out"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """The trials at one value of the axis, by answer."""

    value: Value
    good: int = 0
    bad: int = 0
    unresolved: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RateBand:
    """The failure rates at one value that the trials do not rule out, 95 % for all values of the axis at once."""

    value: Value
    low: float
    high: float


@cache
def _shows_growth(points: tuple[tuple[float, float], ...]) -> bool:
    """Whether the law that predicts best shows growth through ``points``."""
    from harness.core.laws import growth

    grown = growth(medians(points))
    return grown is not None and grown.is_shown


SECONDS_PER_STEP, SECONDS_PER_TRIAL = "seconds per step", "seconds per trial"
"""Quantities of a fit that are times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingFit:
    """What passed trials cost against the axis: ``quantity = intercept + slope * value`` by least squares.

    ``slope_low`` and ``slope_high`` are the 95 % interval, ``exponent`` the e of the best ``quantity = c + b *
    value**e`` where it can be told (None otherwise) and ``exponent_low`` and ``exponent_high`` its 95 % interval.
    ``law`` names how it grows, chosen by what it says of the largest value when it is fitted to the others,
    ``other_laws`` what the points allow besides; these and ``exponent`` are empty where growth is not shown.
    ``predicted`` is the quantity for values that were not reached, by the law that predicts best, ``limits`` what
    it stays below there with 95 % by all of them, None where none can be named. ``note`` says what the fit cannot.
    With ``is_by_value`` each value counted once, with the median of its trials; earlier versions counted every
    trial.
    """

    quantity: str
    intercept: float
    slope: float
    slope_low: float
    slope_high: float
    r_squared: float
    points: tuple[tuple[float, float], ...]
    predicted: tuple[tuple[float, float], ...] = ()
    limits: tuple[tuple[float, float | None], ...] = ()
    law: str = ""
    other_laws: tuple[str, ...] = ()
    exponent: float | None = None
    exponent_low: float | None = None
    exponent_high: float | None = None
    note: str = ""
    is_by_value: bool = False

    @property
    def is_per_step(self) -> bool:
        """Whether it is of single training steps."""
        return self.quantity == SECONDS_PER_STEP

    @property
    def is_of_time(self) -> bool:
        """Whether it is of seconds, of steps or of whole trials."""
        return self.quantity in (SECONDS_PER_STEP, SECONDS_PER_TRIAL)

    @property
    def sizes(self) -> tuple[float, ...]:
        """The values of the axis that were measured, each once, ascending."""
        return tuple(sorted(dict(self.points)))

    @property
    def is_growth(self) -> bool:
        """Whether the points show growth: the interval of the slope, or of the law that is named, is above zero.

        That of the law is worked out from the points: earlier versions named one whether growth shows or not.
        """
        if len(self.sizes) < LEAST_FOR_GROWTH or self.slope_low > 0:
            return len(self.sizes) >= LEAST_FOR_GROWTH
        return self.law not in ("", "n") and _shows_growth(self.points)

    @property
    def may_grow(self) -> bool:
        """Whether a rising line explains most of what so few points differ in, though they do not show growth."""
        has_several = len(self.sizes) >= LEAST_FOR_GROWTH
        return has_several and not self.is_growth and self.slope > 0 and self.r_squared >= MOST

    @classmethod
    def upgraded(cls, data: dict[str, Any]) -> dict[str, Any]:
        """What earlier versions wrote, which called MiB MB."""
        return data | {"quantity": "peak memory, MiB"} if data.get("quantity") == "peak memory, MB" else data


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """The answer of a threshold search, with everything that qualifies it.

    ``excluded_rate``: any failure rate at least this large at or below ``last_good`` would have been seen with
    probability ``confidence``, if the rate does not fall along the axis and trials do not depend on each other;
    ``independence`` says what speaks for the latter. ``certificate_passes`` is how many passes the stopping rule asks
    for at ``last_good`` after it was chosen; ``certified`` says that it got them. ``curve`` has the failure rate of
    every value tried. ``posterior`` and ``chances`` are read in runs of earlier versions; nothing is said of them.
    ``fit`` is how time grows along the axis; ``fits`` has beside it how memory and the autograd graph do.
    """

    axis: str
    finding: Finding
    last_good: Value = None
    first_bad: Value = None
    counts: tuple[Count, ...] = ()
    unresolved: tuple[Value, ...] = ()
    untested: tuple[Value, ...] = ()
    certified: bool = False
    certificate_passes: int = 0
    excluded_rate: float | None = None
    confidence: float = 0.95
    posterior: float | None = None
    chances: tuple[float, ...] = ()
    curve: tuple[RateBand, ...] = ()
    independence: str = ""
    non_monotone: bool = False
    claim: Claim = Claim.OBSERVED
    because: str = ""
    notes: tuple[str, ...] = ()
    fit: ScalingFit | None = None
    fits: tuple[ScalingFit, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEstimate:
    """What a search expects to spend. Before a trial has passed nobody knows seconds: ``text`` then names none.

    ``is_measured``: the seconds come from trials that passed, and are no assumption.
    """

    trials: int
    hangs: int
    seconds_low: float
    seconds_high: float
    text: str
    is_measured: bool = True
