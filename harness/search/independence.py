"""Independence: do the trials of one value come in runs, as where a machine's state outlasts a trial?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

LEVEL = 0.05
"""A test that would find fewer runs by chance in at most this share says that the trials depend on each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsTest:
    """Wald and Wolfowitz's test of one sequence: so few ``runs`` of equal answers would come by chance with ``p``.

    ``least_p`` is the smallest p that so many passes and failures can give at all.
    """

    good: int
    bad: int
    runs: int
    p: float
    least_p: float

    @property
    def can_tell(self) -> bool:
        """Whether the answers are enough for any order of them to speak against independence."""
        return self.least_p <= LEVEL

    @property
    def dependent(self) -> bool:
        """Whether the trials depend on each other."""
        return self.p <= LEVEL


def runs_test(passed: Sequence[bool]) -> RunsTest:
    """The exact test of answers in the order in which they came, given how many passed.

    The last answer is left out: it is the one after which nobody asked again, and so not in a random place.
    """
    answers = passed[:-1]
    good = sum(answers)
    bad = len(answers) - good
    runs = len(list(groupby(answers)))
    p = math.fsum(_chance(number, good, bad) for number in range(1, runs + 1)) if good and bad else 1.0
    return RunsTest(
        good=good, bad=bad, runs=runs, p=min(p, 1.0), least_p=_chance(2, good, bad) if good and bad else 1.0
    )


def _chance(runs: int, good: int, bad: int) -> float:
    """The probability of exactly so many runs where every order of the answers is as likely."""
    half, odd = divmod(runs, 2)
    if not odd:
        ways = 2 * math.comb(good - 1, half - 1) * math.comb(bad - 1, half - 1) if half else 0
    else:
        ways = math.comb(good - 1, half) * math.comb(bad - 1, half - 1) if half else 0
        ways += math.comb(good - 1, half - 1) * math.comb(bad - 1, half) if half else 0
    return ways / math.comb(good + bad, good)
