"""Costs: what a pass and a failure are expected to cost, learned while the search runs."""

from __future__ import annotations

from itertools import combinations
from statistics import fmean, median
from typing import TYPE_CHECKING

from harness.core.verdict import Answer
from harness.search.split import evenly

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
