"""What a search is expected to cost: played against every likely answer, with the costs seen so far."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, TypeAlias

from harness.core.boundary import PlanEstimate
from harness.core.verdict import Answer
from harness.search.constraints import members
from harness.search.costs import NOT_MEASURED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.search.constraints import Levels
    from harness.search.minimise import Minimise
    from harness.search.threshold import ThresholdSearch

Play: TypeAlias = "tuple[int, int, float]"
"""Trials, failures and seconds still to come."""
BRIEF_PASS_S = 0.1
"""A pass so short that a certificate asks for the most passes."""
MOST_THRESHOLDS = 12
MOST_CAUSES = 8
"""Single settings, and as many pairs, that are taken for the cause in turn; with more the plan takes too long."""


def outlook(search: ThresholdSearch) -> PlanEstimate:
    """What a threshold search is expected to cost if failures are deterministic, over all possible thresholds."""
    plays = _outlook(search)
    if search.costs.is_measured:
        return _estimate(plays, minutes_from_s=90.0)
    brief = search.copied()
    brief.expect_pass(BRIEF_PASS_S)
    return _unmeasured(plays, _outlook(brief))


def _outlook(search: ThresholdSearch) -> list[Play]:
    every = range(search.low + 1, search.high + 1)
    step = max(1, len(every) // MOST_THRESHOLDS)
    return [_with_threshold(search, threshold) for threshold in sorted({*every[::step], every[-1]})]


def _with_threshold(search: ThresholdSearch, threshold: int) -> Play:
    """What is still to come if positions from ``threshold`` on always fail."""
    other = search.copied()
    while (request := other.ask()) is not None:
        position = other.axis.index(request.cell.get(other.axis.name))
        fails = position >= threshold
        seconds = other.costs.of_failure() if fails else other.costs.of_pass(other.numbers[position])
        answer = Answer.BAD if fails else Answer.GOOD
        other.tell(cell=request.cell, answer=answer, seconds=seconds)
    return other.trials - search.trials, other.failures - search.failures, other.seconds - search.seconds


def forecast(search: Minimise) -> PlanEstimate:
    """What a search for a cause is expected to cost, over causes of one or two settings that the answers allow."""
    if search.ask() is None:
        return _no_plan("nothing left to run")
    causes = _causes(search)
    if not causes:
        return _no_plan("not predictable: no cause of one or two settings fits")
    plays = [_with_cause(search, cause) for cause in causes]
    estimate = _estimate(plays)
    if not search.is_measured:
        brief = search.replayed()
        brief.expect_pass(BRIEF_PASS_S)
        estimate = _unmeasured(plays, [_with_cause(brief, cause) for cause in causes])
    if search.most_causes == 1:
        return estimate
    return replace(estimate, text=f"{estimate.text} where one cause is all; further ones are not counted")


def within(estimate: PlanEstimate, *, most: int, done: int) -> PlanEstimate:
    """``estimate``, and that the limit of ``most`` trials, ``done`` of which were run, will end the run before."""
    if done + estimate.trials <= most:
        return estimate
    return replace(estimate, text=f"{estimate.text}; the limit of {most} trials (--max-trials) ends it before")


def _no_plan(text: str) -> PlanEstimate:
    return PlanEstimate(trials=0, hangs=0, seconds_low=0.0, seconds_high=0.0, text=text)


def _causes(search: Minimise) -> list[Levels]:
    """Single settings and pairs that the answers so far allow, at most MOST_CAUSES of each, spread over all of them."""
    ladder = search.ladder
    causes: list[Levels] = []
    for size in (1, 2):
        possible: list[Levels] = []
        for places in combinations(range(len(ladder.names)), size):
            cause = ladder.raised(ladder.bottom, places, top=ladder.top)
            if _is_possible(search, cause):
                possible.append(cause)
        causes += possible[:: max(1, -(-len(possible) // MOST_CAUSES))]
    return causes


def _is_possible(search: Minimise, cause: Levels) -> bool:
    settings = _settings(search, cause)
    for cell, tally in search.tallies.items():
        fails = settings <= set(cell)
        failed = search.fails(cell)
        if (failed and not fails) or (tally.good and not failed and fails):
            return False
    return True


def _settings(search: Minimise, cause: Levels) -> set[tuple[str, object]]:
    ladder = search.ladder
    return {(ladder.names[i], ladder.value(i, cause[i])) for i in members(cause)}


def _with_cause(search: Minimise, cause: Levels) -> Play:
    """What is still to come if ``cause`` fails always, and each cause that is found is then run once more."""
    other, settings = search.replayed(), _settings(search, cause)
    while (request := other.ask()) is not None:
        fails = settings <= set(request.cell)
        seconds = other.fail_s if fails else other.pass_s
        other.tell(cell=request.cell, answer=Answer.BAD if fails else Answer.GOOD, seconds=seconds)
    again = search.again * len(other.failing_sets)
    trials, failures = other.trials - search.trials + again, other.failures - search.failures + again
    return trials, failures, other.seconds - search.seconds + again * other.fail_s


def _unmeasured(plays: Sequence[Play], brief: Sequence[Play]) -> PlanEstimate:
    """The plan before a trial has passed: the shorter a pass, the more of them are asked for, as ``brief`` has."""
    estimate = _estimate(plays)
    trials = tuple(dict.fromkeys((str(estimate.trials), str(_estimate(brief).trials))))
    what = NOT_MEASURED if len(trials) == 1 else f"how many, and {NOT_MEASURED}"
    most = _at_most([*plays, *brief], typical=int(trials[-1]))
    text = f"about {' to '.join(trials)} trials{most}, {_failures_expected(estimate.hangs)}; {what}"
    return replace(estimate, text=text, is_measured=False)


def _at_most(plays: Sequence[Play], *, typical: int) -> str:
    """The most trials of these plays, in each of which what fails once fails always; empty where that is usual."""
    most = max(trials for trials, _, _ in plays)
    return f" (at most {most} if what fails does so each time, more if not)" if most > typical else ""


def _estimate(plays: Sequence[Play], *, minutes_from_s: float = math.inf) -> PlanEstimate:
    """The mean of their trials, the most failures, the shortest and the longest time."""
    each_trials, each_fails, each_s = zip(*plays, strict=True)
    trials, fails, low, high = round(sum(each_trials) / len(plays)), max(each_fails), min(each_s), max(each_s)
    span = _span(f"{low:.0f}", f"{high:.0f}", "s")
    if high >= minutes_from_s:
        span = _span(f"{low / 60:.1f}", f"{high / 60:.1f}", "min")
    most = _at_most(plays, typical=trials)
    text = f"about {trials} trial{'' if trials == 1 else 's'}{most}, {_failures_expected(fails)}, {span}"
    return PlanEstimate(trials=trials, hangs=fails, seconds_low=low, seconds_high=high, text=text)


def _span(low: str, high: str, unit: str) -> str:
    """``4 to 33 s``; ``about 5 s`` where both are the same."""
    return f"about {low} {unit}" if low == high else f"{low} to {high} {unit}"


def _failures_expected(number: int) -> str:
    """``about 3 failures to wait for``: no more than a guess, for which value or setting fails is not known yet."""
    if not number:
        return "no failure to wait for"
    return "about 1 failure to wait for" if number == 1 else f"about {number} failures to wait for"
