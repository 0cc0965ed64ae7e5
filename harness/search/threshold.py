"""ThresholdSearch: from which value of an ordered axis on does it fail? Search on the cheap side, then certify."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.core.boundary import Boundary, PlanEstimate
from harness.core.errors import SpecError
from harness.core.point import AxisType
from harness.core.ports import Request
from harness.core.verdict import Answer
from harness.search.conclude import conclude
from harness.search.costs import FIRST_FAIL_S, FIRST_PASS_S, Costs
from harness.search.split import failures_allowed, next_probe

if TYPE_CHECKING:
    from harness.core.point import Axis, Value
    from harness.core.spec import Effort

LEAST_PASSES = 18
MOST_PASSES = 44
MOST_CONFIRMS = 18
"""Runs after the first failure for it to show again; a rate of 0.16 does within them in 95 of 100 cases."""
FAILURES_PER_CERTIFICATE = 2.0
PATIENCE = 3
"""Unresolved answers at a value that already passed before its certificate is given up."""


def certificate_passes(*, pass_s: float, fail_s: float) -> int:
    """Passes that the last good value must show: two failures' worth of time, but 18 at least and 44 at most.

    44 passes rule out failure rates of 6.6 % and more at 95 %; 18 rule out 15 % and more. The floor is what keeps a
    hang rate of 0.3 from being missed when passes are dear: a search descends about twice and errs each time with
    0.7**R. Simulated, 12 values, rate 0.3, failure 12 s, 5200 searches each (bench/search_simulation.py), wrong
    answers at a pass cost of 0.15 | 0.5 | 1 | 1.5 | 2 | 2.5 s: 0 | 0 | 0.04 | 0.31 | 0.40 | 0.50 %. With a floor of
    14 the last is 1.85 %, with 9 it is 8.1 %.
    """
    return min(max(int(FAILURES_PER_CERTIFICATE * fail_s / pass_s), LEAST_PASSES), MOST_PASSES)


@dataclass(slots=True)
class Tally:
    """What was seen at one position of the axis; ``confirms`` counts trials after its first failure."""

    good: int = 0
    bad: int = 0
    unresolved: int = 0
    confirms: int = 0
    required: int | None = None

    @property
    def certified(self) -> bool:
        """Whether every pass that the certificate asks for was seen."""
        return self.required is not None and self.good >= self.required and not self.bad


class ThresholdSearch:
    """Cost-aware search, then certify (STC, SEARCH.md 2a) on one ordered axis. Implements ``core.ports.Strategy``.

    It is not known beforehand whether any value fails. Failures are believed, passes are tentative: one pass moves
    the search up, and only the certificate (``certificate_passes`` at the last good value) makes it count. A failure
    always moves the first bad value down; one that shows up where there were passes also takes back the single passes
    below. The smallest value comes first: it is the baseline, and time limits are learned from it.
    """

    def __init__(
        self, axis: Axis, effort: Effort, *, pass_s: float = FIRST_PASS_S, fail_s: float = FIRST_FAIL_S
    ) -> None:
        if axis.type is not AxisType.ORDERED:
            raise SpecError(f"axis {axis.name!r} is {axis.type}; a threshold needs an ordered axis")
        self.axis = axis
        self.effort = effort
        self.costs = Costs(pass_s=pass_s, fail_s=fail_s)
        self.tallies = [Tally() for _ in axis.values]
        self.trials = 0
        self.seconds = 0.0
        self.non_monotone: list[str] = []
        self.slow: dict[int, float] = {}
        self.stopped = ""
        self._numbers = tuple(float(v) for v in axis.values if isinstance(v, int | float))
        self._trusted: set[int] = set()
        self._next = self._decide()

    @property
    def low(self) -> int:
        """The largest position that passed and is believed, or -1."""
        return max(self._trusted, default=-1)

    @property
    def high(self) -> int:
        """The smallest position that failed, or one past the last."""
        return next((i for i, tally in enumerate(self.tallies) if tally.bad), len(self.tallies))

    @property
    def ceiling(self) -> int:
        """The smallest position whose limit ran out while it made progress, or one past the last."""
        return min(self.slow, default=len(self.tallies))

    def open_positions(self) -> list[int]:
        """Positions between the bounds that are still worth a question."""
        inside = range(self.low + 1, min(self.high, self.ceiling))
        return [i for i in inside if not self.tallies[i].unresolved and not self._too_slow(i)]

    def ask(self) -> Request | None:
        """The next question, or None when the search is over. Asking twice asks the same."""
        return self._next

    def tell(self, *, value: Value, answer: Answer, seconds: float, slow: bool = False) -> None:
        """The answer for one trial at ``value`` and what it cost; ``slow`` when progress was cut off by a limit."""
        position = self.axis.index(value)
        tally = self.tallies[position]
        self.trials += 1
        self.seconds += seconds
        if tally.bad:
            tally.confirms += 1
        match answer:
            case Answer.GOOD:
                tally.good += 1
                self.costs.passed(self._numbers[position], seconds)
                if position < self.high:
                    self._trusted.add(position)
            case Answer.BAD:
                self._failed(position, seconds)
            case Answer.UNRESOLVED:
                tally.unresolved += 1
                if slow and not tally.good and not tally.bad:
                    self.slow.setdefault(position, seconds)
        self._next = self._decide()

    def result(self) -> Boundary:
        """What is known so far; final once ``ask`` returns None."""
        return conclude(self)

    def estimate(self) -> PlanEstimate:
        """What is left to spend if failures are deterministic: this search, played against every threshold."""
        plays = [self._play(threshold) for threshold in self._possible_thresholds()]
        trials = round(sum(play[0] for play in plays) / len(plays))
        fails = max(play[1] for play in plays)
        low, high = min(play[2] for play in plays), max(play[2] for play in plays)
        text = f"about {trials} trials, at most {fails} failures to wait for, {_span(low, high)}"
        return PlanEstimate(trials=trials, hangs=fails, seconds_low=low, seconds_high=high, text=text)

    def _failed(self, position: int, seconds: float) -> None:
        tally = self.tallies[position]
        self.costs.failed(seconds)
        broken = [i for i in range(position, len(self.tallies)) if self.tallies[i].certified]
        if broken:
            names = ", ".join(str(self.axis.values[i]) for i in broken)
            self.non_monotone.append(
                f"{self.axis.name}={self.axis.values[position]} failed although {names} had passed the certificate"
            )
        was_believed = position <= self.low
        tally.bad += 1
        self._trusted = {i for i in self._trusted if i < position}
        if was_believed:
            self._trusted = {i for i in self._trusted if self.tallies[i].certified}

    def _decide(self) -> Request | None:
        if self.trials >= self.effort.max_trials:
            self.stopped = f"the limit of {self.effort.max_trials} trials"
        elif self.effort.max_seconds is not None and self.seconds >= self.effort.max_seconds:
            self.stopped = f"the limit of {self.effort.max_seconds:g} s of trials"
        if self.stopped:
            return None
        return self._search() or self._certify() or self._confirm()

    def _search(self) -> Request | None:
        probes = self.open_positions()
        if not probes:
            return None
        if not self.trials:
            return self._request(
                0, "search", "the smallest value first: it is the baseline, and limits are learned from it"
            )
        top = min(self.high, self.ceiling)
        position = next_probe(
            probes,
            unknown_below=self.low,
            unknown_above=top,
            pass_s=[self.costs.of_pass(self._numbers[i]) for i in probes],
            fail_s=self.costs.of_failure(),
            failures=failures_allowed(len(self.tallies)) - sum(tally.bad for tally in self.tallies),
        )
        ratio = self.costs.of_failure() / self.costs.of_pass(self._numbers[position])
        return self._request(
            position,
            "search",
            f"{len(probes)} values open; a failure costs about {ratio:.2g} passes",
        )

    def _certify(self) -> Request | None:
        low = self.low
        if low < 0 or (self.high == len(self.tallies) and self.slow):
            return None
        tally = self.tallies[low]
        if tally.required is None:
            tally.required = self.effort.certify or certificate_passes(
                pass_s=self.costs.of_pass(self._numbers[low]), fail_s=self.costs.of_failure()
            )
        if tally.certified or tally.unresolved >= PATIENCE:
            return None
        return self._request(low, "certify", f"pass {tally.good + 1} of {tally.required} at the last good value")

    def _confirm(self) -> Request | None:
        high = self.high
        if high == len(self.tallies):
            return None
        tally = self.tallies[high]
        if tally.bad > 1 or tally.confirms >= MOST_CONFIRMS or tally.unresolved >= PATIENCE:
            return None
        reason = "the first failing value once more"
        if tally.confirms:
            reason += f": it passed {tally.good} of {tally.good + tally.bad} times so far"
        return self._request(high, "confirm", reason)

    def _request(self, position: int, role: str, reason: str) -> Request:
        return Request(value=self.axis.values[position], role=role, reason=reason)

    def _too_slow(self, position: int) -> bool:
        if not self.slow or not self.costs.has_line:
            return False
        return self.costs.of_pass(self._numbers[position]) > self.slow[self.ceiling]

    def _possible_thresholds(self) -> list[int]:
        every = range(self.low + 1, self.high + 1)
        step = max(1, len(every) // 12)
        return sorted({*every[::step], every[-1]})

    def _play(self, threshold: int) -> tuple[int, int, float]:
        """Trials, failures and seconds still to come if positions from ``threshold`` on always fail."""
        other = copy.deepcopy(self)
        while (request := other.ask()) is not None:
            position = self.axis.index(request.value)
            fails = position >= threshold
            seconds = self.costs.of_failure() if fails else self.costs.of_pass(self._numbers[position])
            answer = Answer.BAD if fails else Answer.GOOD
            other.tell(value=request.value, answer=answer, seconds=seconds)
        fails = sum(t.bad for t in other.tallies) - sum(t.bad for t in self.tallies)
        return other.trials - self.trials, fails, other.seconds - self.seconds


def _span(low: float, high: float) -> str:
    if high < 90:
        return f"{low:.0f} to {high:.0f} s"
    return f"{low / 60:.1f} to {high / 60:.1f} min"
