"""ThresholdSearch: from which value of an ordered axis does it fail? Search on the cheap side, then certify.

A hang costs its whole limit and a pass a second or two, so halving the interval is not what costs least: the next value
is the one of least expected cost, at the prices that were seen in this run (:mod:`harness.search.costs`), and most
trials are passes. It is never assumed that a failing value exists; "no failing value" is an answer like others.

What does not work, with what it cost where it was tried:

- Believing each failure. With 2 % of false alarms 66 of 100 searches over 12 values were wrong, because the many passes
  of a certificate are as many chances of one. So a failing value has to fail again (:mod:`harness.search.tally`).
- Believing each pass of a failure that comes in one of ten trials. So passes are counted, from the choice of the value
  on (:mod:`harness.search.certificate`).
- One failure rate for all failing values, as git-bayesect has it. That is cheaper where it is so, and wrong in nine of
  ten searches where hangs come of a race: those are the rarer the nearer the threshold.
- Several guesses at the bracket at once: a wrong one pays for a whole hang. Only the passes of a certificate and the
  failure that confirms are asked together.

docs/adr/0007 has the decision, bench/results/search-*.md the prices.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from harness.core.errors import SpecError
from harness.core.point import AxisType, Point, assignment, word_of
from harness.core.ports import CellRequest
from harness.core.verdict import Answer
from harness.search.certificate import Certificate
from harness.search.conclude import MANY_PASSES, conclude
from harness.search.costs import Costs, failures_allowed, next_probe
from harness.search.forecast import outlook
from harness.search.tally import RAREST, Tally, false_alarms

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.core.boundary import Boundary, PlanEstimate
    from harness.core.campaign import CampaignAnswer
    from harness.core.point import Axis
    from harness.core.spec import Effort


LEAST_PASSES = 18
MOST_PASSES = 44
MOST_CONFIRMS = 250
"""Runs after its first failure in which a value must show that it fails by itself; then it stays in doubt."""
FAILURES_PER_CERTIFICATE = 0.7
LEAST_CERTIFICATE_S = 15.0
"""So much time a certificate may always take: cheap passes are no reason to say less."""
PASSES_PER_CONFIRM = 8
"""Passes of the certificate between two runs of the first failing value, so that both see the same hours."""
SHORT_AXIS = 15
"""Up to so many values the search pays two failures at most before it climbs one value at a time."""
ALONE = Point()
"""The rest of a cell that has one axis."""


def certificate_passes(*, pass_s: float, fail_s: float) -> int:
    """Passes that the last good value must show: seven tenths of a failure's time, but 18 at least and 44 at most.

    44 passes rule out failure rates of 7.1 % and more at 95 %; 18 rule out 17 % and more. The floor is what keeps a
    hang rate of 0.3 from being missed when passes are dear: a search descends about twice and errs each time with
    0.7**R.
    """
    seconds = max(FAILURES_PER_CERTIFICATE * fail_s, LEAST_CERTIFICATE_S)
    return min(max(int(seconds / pass_s), LEAST_PASSES), MOST_PASSES)


class ThresholdSearch:
    """Cost-aware search, then certify (STC) on one ordered ``axis`` of a matrix, everything else as in ``base``.

    The smallest value comes first: it is the baseline, and time limits are learned from it. One pass moves the search
    up and one failure moves it down, both tentatively: what counts is the last good value's certificate
    (``certificate_passes``) and that the first suspect (``Tally.suspect``) is sure. Where it is a suspect no more, the
    search goes on above it. Once a value both passed and failed, a single pass below it is no longer believed: how
    often it failed says how many are worth what one was (``flaky.Doubts``).
    """

    def __init__(self, axis: Axis, effort: Effort, *, base: Point = ALONE) -> None:
        if axis.type is not AxisType.ORDERED:
            raise SpecError(f"axis {axis.name!r} is {axis.type}; a threshold needs an ordered axis")
        self.axis = axis
        self.base = base
        self.effort = effort
        self.costs = Costs()
        self.tallies = [Tally() for _ in axis.values]
        self.outcomes: list[list[bool]] = [[] for _ in axis.values]
        self.trials = 0
        self.seconds = 0.0
        self.non_monotone: list[str] = []
        self.slow: dict[int, float] = {}
        self.stopped = ""
        self.numbers = _numbers(axis)
        self._failed: set[int] = set()
        self._tested: set[int] = set()
        self._high: int | None = None
        self._low: int | None = None
        self._doubts: Doubts | None = None
        self._certificates = 0
        self._next = self._decide()

    @property
    def low(self) -> int:
        """The largest position that passed and is believed, or -1."""
        if self._low is None:
            self._low = self._believed()
        return self._low

    @property
    def high(self) -> int:
        """The smallest position that is suspected to fail, or one past the last."""
        if self._high is None:
            self._high = min(self._suspects(), default=len(self.tallies))
        return self._high

    @property
    def ceiling(self) -> int:
        """The smallest position whose limit ran out while it made progress, or one past the last."""
        return min(self.slow, default=len(self.tallies))

    @property
    def failures(self) -> int:
        """Trials that failed."""
        return sum(tally.bad for tally in self.tallies)

    def confirmed(self, position: int) -> bool:
        """Whether the failures at ``position`` are sure to be its own."""
        tried = sum(i <= position for i in self._tested)
        return self.tallies[position].is_sure(false_alarms=self.false_alarms, tried=tried)

    @property
    def false_alarms(self) -> int:
        """Failures at values that are trusted again, because they did not come back."""
        return false_alarms(self.tallies[i] for i in self._failed)

    def open_positions(self) -> list[int]:
        """Positions between the bounds that are still worth a question."""
        inside = range(self.low + 1, min(self.high, self.ceiling))
        return [i for i in inside if not self.tallies[i].unresolved and not self._too_slow(i)]

    def ask(self) -> CellRequest | None:
        """The next question, or None when the search is over. Asking twice asks the same."""
        return self._next

    def ready(self, most: int) -> tuple[CellRequest, ...]:
        """Up to ``most`` questions whose answers are all wanted, to be run at once; tell them in any order.

        The way to the bracket is one question at a time: a wrong guess there would pay for a whole failure. The
        passes of a certificate and the failure that confirms do not wait for each other.
        """
        most = min(most, self.effort.remaining_trials(self.trials))
        if self._next is None or most < 1:
            return ()
        if most == 1 or self._next.role == "search":
            return (self._next,)
        many: list[CellRequest | None] = [self._confirm()]  # the one that takes longest starts first
        certificate = self.tallies[self.low].certificate
        if self._certify() and certificate:
            many += [self._certify(ahead=passes) for passes in range(certificate.needed - certificate.good)]
        return tuple(filter(None, many))[:most]

    def tell(self, *, cell: Point, answer: Answer, seconds: float, slow: bool = False, soft: bool = False) -> None:
        """The answer for one trial of ``cell`` and what it cost; of a cell off this line it is ignored.

        Args:
            cell: where on the axis.
            answer: good, bad or unresolved.
            seconds: how long it took.
            slow: it was cut off by a limit while it made progress.
            soft: that limit was the soft one, so that it says nothing yet.
        """
        if not self.covers(cell):
            return
        position = self.axis.index(cell.get(self.axis.name))
        tally = self.tallies[position]
        self.trials += 1
        self.seconds += seconds
        self._tested.add(position)
        self._high = self._low = None
        if tally.failures:
            tally.confirms += 1
        if soft or answer is not Answer.UNRESOLVED:
            self.outcomes[position].append(answer is Answer.GOOD)
        if tally.certificate is not None and (soft or answer is not Answer.UNRESOLVED):
            tally.certificate.count(passed=answer is Answer.GOOD)
        broken = self._certified_from(position) if answer is Answer.BAD else []
        tally.count(answer, soft=soft, is_past_cuts=self.costs.is_past_cuts(seconds))
        if seconds > 0:  # what a person said of a value took no time
            self.costs.learn(self.numbers[position], answer, seconds, soft=soft)
        if broken and tally.suspect:
            name = assignment(self.axis.name, self.axis.values[position])
            self.non_monotone.append(f"{name} failed although {', '.join(broken)} had passed the certificate")
        if answer is Answer.UNRESOLVED and slow and not soft and not tally.good and not tally.bad:
            self.slow.setdefault(position, seconds)
        if tally.failures:
            self._failed.add(position)
        self._next = self._decide()

    def covers(self, cell: Point) -> bool:
        """Whether ``cell`` is on the line that is searched."""
        value = cell.get(self.axis.name)
        return value in self.axis.values and self.base.with_value(self.axis.name, value) == cell

    def result(self) -> Boundary:
        """What is known so far; final once ``ask`` returns None."""
        return conclude(self)

    def conclude(self, answer: CampaignAnswer) -> CampaignAnswer:
        """``answer`` with the boundary, and its sentence for both."""
        boundary = self.result()
        return replace(answer, boundary=boundary, because=boundary.because)

    def expect_pass(self, seconds: float) -> None:
        """Earlier runs say what a pass takes; what is seen here says it better."""
        self.costs.expected_s = seconds

    def estimate(self) -> PlanEstimate:
        """What is left to spend if failures are deterministic: this search, played against every threshold."""
        return outlook(self)

    def copied(self) -> ThresholdSearch:
        """The same search in the same state, to be played on its own."""
        other = copy.copy(self)
        other.costs = copy.deepcopy(self.costs)
        other.tallies = [replace(tally, certificate=copy.copy(tally.certificate)) for tally in self.tallies]
        other.outcomes = list(map(list, self.outcomes))
        other.slow, other.non_monotone = dict(self.slow), list(self.non_monotone)
        other._failed, other._tested = set(self._failed), set(self._tested)
        return other

    def _suspects(self) -> dict[int, Tally]:
        """The values that are taken to fail, be it for now, by position."""
        return {i: self.tallies[i] for i in self._failed if self.tallies[i].suspect}

    def _certified_from(self, position: int) -> list[str]:
        """The values from ``position`` on that are certified."""
        beyond = zip(self.axis.values[position:], self.tallies[position:], strict=True)
        return [word_of(value) for value, tally in beyond if tally.certified]

    def _believed(self) -> int:
        """A single pass is believed for now; where failing values pass too, as many as leave little doubt."""
        self._doubts = None
        passed = [i for i in self._tested if i < self.high and self.tallies[i].good]
        rate = rarest_rate(self._suspects().values())
        if rate == 1.0 or not passed or self.stopped:
            return max(passed, default=-1)
        sure = believed = -1
        for i in passed:
            if self.tallies[i].certified:
                sure = max(sure, i)
        self._doubts = Doubts.of(self.tallies[: self.high], ruled_out=sure, rate=rate)
        for i in passed:
            if self._doubts.below[i] <= DOUBT:
                believed = max(believed, i)
        return believed

    def _decide(self) -> CellRequest | None:
        self.stopped = self.stopped or self.effort.spent(trials=self.trials, seconds=self.seconds)
        if self.stopped:
            self._low = None
            return None
        return self._search() or self._settle() or self._look_above()

    def _settle(self) -> CellRequest | None:
        """The certificate below and the failure above in turns: what the machine does meanwhile, it does to both."""
        certify, confirm = self._certify(), self._confirm()
        if certify is None or confirm is None:
            return certify or confirm
        certificate = self.tallies[self.low].certificate
        due = (certificate.good if certificate else 0) // PASSES_PER_CONFIRM
        return confirm if self.tallies[self.high].confirms < due else certify

    def _search(self) -> CellRequest | None:
        probes = self.open_positions()
        if not probes:
            return None
        if not self.trials:
            return self._request(
                0, "search", "the smallest value first: it is the baseline, and limits are learned from it"
            )
        pass_s = [self.costs.of_pass(self.numbers[i]) for i in probes]
        fail_s = self.costs.of_failure_on_the_way()
        if self._doubts is not None:
            position = self._doubts.most_telling(probes, pass_s=pass_s, fail_s=fail_s)
        else:
            short = len(self.tallies) <= SHORT_AXIS
            position = next_probe(
                probes,
                unknown_below=self.low,
                unknown_above=min(self.high, self.ceiling),
                pass_s=pass_s,
                fail_s=fail_s,
                failures=failures_allowed(len(self.tallies)) - len(self._failed) if short else len(probes),
            )
        ratio = fail_s / self.costs.of_pass(self.numbers[position])
        return self._request(position, "search", f"{len(probes)} values open; a failure costs about {ratio:.2g} passes")

    def _certify(self, *, ahead: int = 0) -> CellRequest | None:
        """The next pass of the certificate, or the one that comes when ``ahead`` more have passed."""
        low = self.low
        if low < 0 or (self.high == len(self.tallies) and self.slow):
            return None
        tally = self.tallies[low]
        if tally.certificate is None:
            passes = self.effort.certify or certificate_passes(
                pass_s=self.costs.of_pass(self.numbers[low]), fail_s=self.costs.of_failure()
            )
            self._certificates += 1
            tally.certificate = Certificate(
                required=passes, attempt=self._certificates, confidence=self.effort.confidence
            )
        if tally.certified or tally.is_exhausted:
            return None
        reason = f"pass {tally.certificate.good + ahead + 1} of {tally.certificate.needed} at the last good value"
        return self._request(low, "certify", reason)

    def _confirm(self) -> CellRequest | None:
        high = self.high
        if high == len(self.tallies) or self.confirmed(high):
            return None
        tally = self.tallies[high]
        if tally.confirms >= MOST_CONFIRMS or tally.is_exhausted:
            return None
        reason = "the first failing value once more"
        if tally.cut and not tally.bad:
            reason = "the first value that was cut off, now with its whole limit"
        elif tally.good:
            reason += f": it passed {tally.good} of {tally.good + tally.bad} times so far"
        return self._request(high, "confirm", reason)

    def _look_above(self) -> CellRequest | None:
        """With ``effort.check_above``: does what lies above the first failing value fail too?"""
        above = list(range(self.high + 1, len(self.tallies)))
        if above:
            above.insert(1, above.pop())  # the largest comes second
        for position in above[: self.effort.check_above]:
            tally = self.tallies[position]
            if not tally.bad and not tally.unresolved and tally.good < MANY_PASSES:
                return self._request(position, "search", "above the first failing value: does it fail there too?")
        return None

    def _request(self, position: int, role: str, reason: str) -> CellRequest:
        decides = role == "confirm" and not self.tallies[position].bad
        soft = self.effort.soft_limit and not decides
        cell = self.base.with_value(self.axis.name, self.axis.values[position])
        return CellRequest(cell=cell, role=role, reason=reason, soft=soft)

    def _too_slow(self, position: int) -> bool:
        if not self.slow or not self.costs.has_line:
            return False
        return self.costs.of_pass(self.numbers[position]) > self.slow[self.ceiling]


def _numbers(axis: Axis) -> tuple[float, ...]:
    """The values as numbers; their places where they are dates, commits or other names."""
    if axis.is_named:
        return tuple(map(float, range(len(axis.values))))
    return tuple(axis.size(value) or 0.0 for value in axis.values)


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
