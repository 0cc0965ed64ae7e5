"""What passes are worth along an axis once a value both passed and failed: one says little of a rare failure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from harness.search.tally import RAREST

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.search.tally import Tally

DOUBT = 0.1
"""A value is taken to pass, for now, when the chance that it fails is at most this; its certificate decides."""


def rarest_rate(suspects: Iterable[Tally]) -> float:
    """The smallest failure rate that a failing value showed; 1 while none of them ever passed.

    With one failure added, so that few trials do not make a failure look rarer than it is; never below ``RAREST``.
    """
    rarest = 1.0
    for tally in suspects:
        if tally.good:
            rarest = min(rarest, (tally.failures + 1) / (tally.good + tally.failures + 1))
    return max(rarest, RAREST)


@dataclass(frozen=True, slots=True)
class Doubts:
    """For the values below the first suspect: how likely each is to fail already, at ``rate``.

    ``below[i]`` is the chance that value ``i`` fails. All values that are not ruled out are equally likely to be the
    first failing one beforehand. A pass at a value speaks for that value and for all smaller ones, because a failure
    does not become rarer along the axis. Failures that were cleared (``tally.CLEARED``) speak neither way.
    """

    rate: float
    below: tuple[float, ...]

    @staticmethod
    def of(tallies: Sequence[Tally], *, ruled_out: int, rate: float) -> Doubts:
        """From what was seen of the values below the first suspect; those up to ``ruled_out`` pass for certain."""
        for_a_pass = math.log1p(-rate)
        logs = [0.0]
        for tally in reversed(tallies):
            logs.append(logs[-1] + tally.good * for_a_pass)
        possible = logs[::-1][ruled_out + 1 :]
        peak = max(possible)
        weights = [0.0] * (ruled_out + 1) + [math.exp(log - peak) for log in possible]
        total = math.fsum(weights)
        return Doubts(rate, tuple(weight / total for weight in accumulate(weights[:-1])))

    def most_telling(self, probes: Sequence[int], *, pass_s: Sequence[float], fail_s: float) -> int:
        """The element of ``probes`` of which one trial tells most about the threshold for its expected seconds."""
        return max(zip(probes, pass_s, strict=True), key=lambda probe: self._worth(probe[0], probe[1], fail_s))[0]

    def _worth(self, position: int, pass_s: float, fail_s: float) -> float:
        chance = self.below[position]
        fails = chance * self.rate
        bits = _entropy(fails) - chance * _entropy(self.rate)
        return bits / (fails * fail_s + (1 - fails) * pass_s)


def _entropy(chance: float) -> float:
    return -sum(p * math.log(p) for p in (chance, 1 - chance) if p > 0)
