"""What a threshold search may say: the finding, how strongly, and the sentences that carry it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from harness.core.boundary import SECONDS_PER_TRIAL, Boundary, Claim, Count, Finding, RateBand
from harness.core.point import assignment, word_of
from harness.search.certificate import failure_curve, stated
from harness.search.scaling import fit_scaling
from harness.search.tally import RAREST

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.core.boundary import ScalingFit
    from harness.core.point import Value
    from harness.search.threshold import ThresholdSearch


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


MANY_PASSES = 9
"""Passes without a failure above a failing value from which on the axis is called non-monotone."""


def conclude(search: ThresholdSearch) -> Boundary:
    """The boundary as the trials so far show it."""
    values, tallies = search.axis.values, search.tallies
    low, high, end = search.low, failing_from(search), len(search.tallies)
    finding = _finding(search)
    counts: list[Count] = []
    untested: list[Value] = []
    unresolved: list[Value] = []
    for value, t in zip(values, tallies, strict=True):
        if not t.good + t.failures + t.unresolved:
            untested.append(value)
            continue
        counts.append(Count(value=value, good=t.good, bad=t.bad, unresolved=t.unresolved + t.cut))
        if not t.good + t.bad:
            unresolved.append(value)
    certificate = tallies[low].certificate if low >= 0 else None
    dependent = _dependent(search)
    contrary = _contrary(search)
    return Boundary(
        axis=search.axis.name,
        finding=finding,
        last_good=values[low] if low >= 0 else None,
        first_bad=values[high] if high < end else None,
        counts=tuple(counts),
        unresolved=tuple(unresolved),
        untested=tuple(untested),
        certified=_certified(search, finding),
        certificate_passes=certificate.needed if certificate else 0,
        excluded_rate=certificate.excluded_rate if certificate and not dependent else None,
        confidence=search.effort.confidence,
        curve=_curve(search),
        independence=_independence(search),
        non_monotone=bool(contrary),
        claim=_claim(search, finding),
        because=_because(search, finding),
        notes=(*contrary, *_notes(search, finding, unresolved)),
        fit=_fit(search),
    )


def _fit(search: ThresholdSearch) -> ScalingFit | None:
    """How long passes took along an axis of numbers, and what the values that neither passed nor failed would take."""
    if search.axis.is_named:
        return None
    open_numbers: list[float] = []
    for number, tally in zip(search.numbers, search.tallies, strict=True):
        if not tally.good + tally.bad:
            open_numbers.append(number)
    points: list[tuple[float, float]] = []
    for number, times in search.costs.passes.items():
        points += [(number, seconds) for seconds in times]
    return fit_scaling(SECONDS_PER_TRIAL, points, open_numbers)


def failing_from(search: ThresholdSearch) -> int:
    """The first value that is said to fail; one past the last where a soft limit alone speaks against one."""
    return search.high if search.high < len(search.tallies) and search.tallies[search.high].bad else len(search.tallies)


def _finding(search: ThresholdSearch) -> Finding:
    low, high, end = search.low, failing_from(search), len(search.tallies)
    if search.open_positions():
        return Finding.INCONCLUSIVE
    if high == 0:
        return Finding.ALL_FAIL
    if high < end:
        return Finding.THRESHOLD if low >= 0 else Finding.INCONCLUSIVE
    if search.slow:
        return Finding.NO_THRESHOLD_SLOW
    return Finding.NO_FAILURE if low == end - 1 else Finding.INCONCLUSIVE


def _certified(search: ThresholdSearch, finding: Finding) -> bool:
    match finding:
        case Finding.THRESHOLD | Finding.NO_FAILURE:
            is_low_sure = search.tallies[search.low].certified and not _dependent(search)
            return is_low_sure and (finding is Finding.NO_FAILURE or search.confirmed(failing_from(search)))
        case Finding.ALL_FAIL:
            return search.confirmed(0)
        case _:
            return False


def _claim(search: ThresholdSearch, finding: Finding) -> Claim:
    high = failing_from(search)
    bad_twice = high < len(search.tallies) and search.tallies[high].bad > 1 and search.confirmed(high)
    good_twice = search.low >= 0 and search.tallies[search.low].good > 1
    reproduced = {
        Finding.THRESHOLD: bad_twice and good_twice,
        Finding.ALL_FAIL: bad_twice,
        Finding.NO_FAILURE: good_twice,
    }
    return Claim.REPRODUCED if reproduced.get(finding, False) else Claim.OBSERVED


def _because(search: ThresholdSearch, finding: Finding) -> str:
    values, low, high = search.axis.values, search.low, failing_from(search)
    good = _passed(search, low) if low >= 0 else ""
    bad = _failed(search, high) if high < len(values) else ""
    match finding:
        case Finding.THRESHOLD:
            return f"{bad}, {good}.{_excluded(search)}"
        case Finding.ALL_FAIL:
            return f"{bad}; it is the smallest value asked for, so where the failures begin is not known."
        case Finding.NO_FAILURE:
            return f"{good}, the largest value asked for.{_excluded(search)}"
        case Finding.NO_THRESHOLD_SLOW:
            slow = f"{_name(search, search.ceiling)} still made progress when its limit ran out"
            return f"{slow}; {good or 'nothing smaller passed'}, and nothing smaller failed."
        case Finding.INCONCLUSIVE:
            parts = list(filter(None, (good, bad))) or ["no trial passed or failed"]
            return f"{', '.join(parts)}; the values between could not all be told."


def _notes(search: ThresholdSearch, finding: Finding, unresolved: Sequence[Value]) -> list[str]:
    values, tallies, low = search.axis.values, search.tallies, search.low
    notes: list[str] = []
    if search.stopped:
        notes.append(f"The search was ended early by {search.stopped}.")
    if unresolved:
        notes.append(f"Neither passed nor failed in the way sought: {search.axis.name} {_list(unresolved)}.")
    if finding is Finding.NO_THRESHOLD_SLOW:
        notes.append("Larger values take longer still and were not tried; nothing is claimed about them.")
        if low >= 0:
            notes.append(f"{_passed(search, low)}, without a certificate: a rare failure could have been missed.")
    cut = [value for value, tally in zip(values, tallies, strict=True) if tally.cut]
    if cut:
        where = f"{search.axis.name} {_list(cut)}"
        notes.append(f"Cut off by the soft limit, which says nothing by itself: {where}.")
    certifiable = finding in (Finding.THRESHOLD, Finding.NO_FAILURE)
    if certifiable and not tallies[low].certified:
        certificate = tallies[low].certificate
        progress = f"{certificate.good} of {certificate.needed} passes" if certificate else "not begun"
        notes.append(f"The certificate at {_name(search, low)} is incomplete: {progress}.")
    if certifiable and _dependent(search):
        notes.append(f"No certificate: {_independence(search)}.")
    high = failing_from(search)
    notes += _isolated(search)
    if high < len(tallies) and not search.confirmed(high) and not search.stopped and search.ask() is None:
        notes.append(f"{_failed(search, high)}: too few to tell a rare failure from false alarms.")
    if high < len(tallies) and tallies[high].good:
        notes.append(f"{_name(search, high)} also passed {tallies[high].good} times: the failure is not deterministic.")
        notes.append(_rates(search))
    return notes


def _isolated(search: ThresholdSearch) -> Iterator[str]:
    for position in range(failing_from(search)):
        if search.tallies[position].bad:
            yield (
                f"{_failed(search, position)}, and not as often as a failing value would: not counted. "
                f"It was a false alarm, or a failure in fewer than {RAREST * 100:g} % of the trials."
            )


def _contrary(search: ThresholdSearch) -> tuple[str, ...]:
    texts = list(search.non_monotone)
    for i in range(failing_from(search) + 1, len(search.tallies)):
        tally = search.tallies[i]
        if tally.good >= MANY_PASSES and not tally.bad:
            texts.append(f"{_passed(search, i)}, above the first failing value")
    return tuple(f"Not monotone: {text}." for text in texts)


def _excluded(search: ThresholdSearch) -> str:
    certificate, low = search.tallies[search.low].certificate, search.low
    if certificate is None or certificate.excluded_rate is None or _dependent(search):
        return ""
    tried = len(search.outcomes) - search.outcomes.count([])
    often = "more often " if search.tallies[low].bad else ""
    return (
        f" A failure rate of {stated(certificate.excluded_rate):g} or more at "
        f"{search.axis.up_to(search.axis.values[low])} would have been seen {often}with probability "
        f"{certificate.confidence * 100:g} %, if the rate does not fall along the axis, of which {tried} of "
        f"{len(search.tallies)} values were tried, and if trials do not depend on each other ({_independence(search)})."
    )


def _runs_test(search: ThresholdSearch) -> RunsTest | None:
    """The trials of the failing value in their order; None where no value failed."""
    high = failing_from(search)
    return runs_test(search.outcomes[high]) if high < len(search.tallies) else None


def _dependent(search: ThresholdSearch) -> bool:
    test = _runs_test(search)
    return test is not None and test.dependent


def _independence(search: ThresholdSearch) -> str:
    test = _runs_test(search)
    if test is None:
        return "not tested: no value failed"
    where = _name(search, failing_from(search))
    if not test.can_tell:
        return f"not tested: too few passes and failures at {where}"
    runs = f"{test.good} passes and {test.bad} failures at {where} came in {test.runs} runs, p = {test.p:.2g}"
    if test.p > LEVEL:
        return runs
    return f"{runs}, as few as come by chance in {100 * test.p:.2g} % of such series: they may depend on each other"


def _curve(search: ThresholdSearch) -> tuple[RateBand, ...]:
    counts = [(t.good, t.bad, t.cut) for t in search.tallies]
    return failure_curve(search.axis.values, counts, confidence=search.effort.confidence)


def _rates(search: ThresholdSearch) -> str:
    """Where the rate may grow along the axis there is no first failing value to name, only how often each fails."""
    each = "; ".join(f"{band.value}: {band.low:.2f} to {band.high:.2f}" for band in _curve(search))
    return (
        f"Failure rate at {search.axis.name} ({search.effort.confidence * 100:g} % for all at once, if it does not "
        f"fall along the axis): {each}."
    )


def _passed(search: ThresholdSearch, position: int) -> str:
    tally = search.tallies[position]
    return f"{_name(search, position)} passed {tally.good} of {tally.good + tally.bad + tally.unresolved}"


def _failed(search: ThresholdSearch, position: int) -> str:
    tally = search.tallies[position]
    whole = f"{_name(search, position)} failed {tally.bad} of {tally.good + tally.bad + tally.unresolved}"
    return f"{whole} and was cut off {tally.cut} times" if tally.cut else whole


def _name(search: ThresholdSearch, position: int) -> str:
    return assignment(search.axis.name, search.axis.values[position])


def _list(values: Sequence[Value]) -> str:
    return ", ".join(map(word_of, values))
