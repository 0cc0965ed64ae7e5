"""Tally: what was seen at one value or cell, and whether its failures are its own or false alarms.

A machine has hiccups: now and then a trial fails for no reason of its own. A search makes dozens of trials that should
pass, so it meets such a failure sooner or later, and whoever believes it names a wrong value. Whoever believes none
until it has come three times pays for two hangs too many where a failure comes every time.

So two explanations are weighed, as in Wald's sequential test: the value fails at some rate from ``RAREST`` to 1, or its
failures are false alarms at a rate up to ``MOST_FALSE``. Their likelihoods give ``lean``. A value fails for now when it
leans that way, and for good when it is ``SURE``, at least twice; each false alarm that was seen and each further value
that was tried asks for more. Rates between the two cannot be told from either, and are called in doubt.

What does not work: a fixed number of repeats, which is too many for a failure of every time and too few for one of ten;
and one rate for all values, which lets many failures at a large value accuse a small one that failed once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from harness.core.cause import CellCount
from harness.core.verdict import Answer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.core.point import Point
    from harness.search.certificate import Certificate

RAREST = 0.1
"""The smallest failure rate that the search sets out to tell from false alarms."""
MOST_FALSE = 0.02
"""The largest share of trials that may fail for no reason of their own before a search cannot tell them."""
CLEARED = 0.0
"""A value whose failures are no likelier its own than false alarms (``lean``, a logarithm) is trusted again."""
SURE = math.log(40)
"""How much likelier its own they must be before a value is called failing."""
MORE_SURE = 4.0
"""Every failure that turned out to be a false alarm asks so many times more of the next value, beside the first."""
FEW = 8
"""So many values may be tried before each further one asks for more."""
PATIENCE = 3
"""Answers that told nothing, beside half as many as told something, before a value or cell is given up."""
_RATES = tuple(RAREST ** (1 - i / 15) for i in range(15))


@dataclass(slots=True)
class Tally:
    """What was seen at one position of the axis, or of one cell.

    ``cut`` are trials that a soft limit ended: failures, or now and then a straggler, which is told as a false alarm
    is. Of a position alone: ``confirms`` counts trials after the first failure, and ``certificate`` is None until it
    was chosen for one.
    """

    good: int = 0
    bad: int = 0
    unresolved: int = 0
    confirms: int = 0
    cut: int = 0
    certificate: Certificate | None = None

    def count(self, answer: Answer, *, soft: bool, is_past_cuts: bool) -> None:
        """Take in one more trial, cut off by a ``soft`` limit if it neither passed nor failed.

        Trials that were cut off say nothing once one takes longer than they were allowed to (``is_past_cuts``): where
        that passes it is only slow, and where it tells nothing the whole limit did not tell either.
        """
        if answer is Answer.BAD:
            self.bad += 1
            return
        if answer is Answer.GOOD:
            self.good += 1
        elif soft:
            self.cut += 1
            return
        else:
            self.unresolved += 1
        if is_past_cuts:
            self.cut = 0

    @property
    def failures(self) -> int:
        """Trials that failed, and those that a soft limit cut off."""
        return self.bad + self.cut

    @property
    def lean(self) -> float:
        """The logarithm of how much likelier its failures are its own than false alarms."""
        return lean(self.good, self.failures)

    @property
    def suspect(self) -> bool:
        """Whether it is taken for a failing value, be it for now."""
        return self.failures > 0 and self.lean > CLEARED

    def is_sure(self, *, false_alarms: int, tried: int) -> bool:
        """Whether its failures are its own; a single one is never enough.

        Args:
            false_alarms: failures elsewhere that did not come again.
            tried: values or cells that were run up to this one; every one was a chance for a false alarm.
        """
        enough = SURE + math.log1p(MORE_SURE * false_alarms) + math.log(max(tried / FEW, 1.0))
        return self.bad > 0 and self.failures > 1 and self.lean >= enough

    @property
    def certified(self) -> bool:
        """Whether every pass that its certificate asks for was seen."""
        return self.certificate is not None and self.certificate.complete and not self.suspect

    @property
    def is_exhausted(self) -> bool:
        """Whether it too often gave no answer to be asked again."""
        return self.unresolved >= PATIENCE + (self.good + self.failures) // 2


def false_alarms(tallies: Iterable[Tally]) -> int:
    """The failures of those that are trusted again, because they did not come back."""
    alarms = 0
    for tally in tallies:
        if not tally.suspect:
            alarms += tally.failures
    return alarms


def counted(cell: Point, answers: Sequence[Answer]) -> CellCount:
    """How often a cell gave each answer."""
    return CellCount(
        cell=cell,
        good=answers.count(Answer.GOOD),
        bad=answers.count(Answer.BAD),
        unresolved=answers.count(Answer.UNRESOLVED),
    )


@lru_cache(maxsize=65536)
def lean(good: int, bad: int) -> float:
    """The logarithm of how much likelier it is that a value fails than that its failures are false alarms.

    It fails at an unknown rate, all orders of magnitude alike; false alarms come at the rate that suits counts best.
    """
    logs = [bad * math.log(rate) + good * math.log1p(-rate) for rate in _RATES]
    if not good:
        logs.append(0.0)
    top = max(logs)
    fails = top + math.log(math.fsum(math.exp(value - top) for value in logs) / (len(_RATES) + 1))
    if not bad:
        return fails
    rate = min(bad / (good + bad), MOST_FALSE)
    return fails - bad * math.log(rate) - good * math.log1p(-rate)
