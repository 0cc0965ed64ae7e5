"""What a search for a cause is expected to cost: played against every likely cause, with the costs seen so far."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from harness.core.boundary import PlanEstimate
from harness.core.verdict import Answer
from harness.search.costs import NOT_MEASURED, failures_expected

if TYPE_CHECKING:
    from harness.search.ladder import Levels
    from harness.search.minimise import Minimise

MOST_PLAYS = 8
"""Single settings, and as many pairs, that are taken for the cause in turn; with more the plan takes too long."""


def forecast(search: Minimise) -> PlanEstimate:
    """Trials, failures and seconds still to come, over causes of one or two settings that the answers allow."""
    if search.ask() is None:
        return _no_plan("nothing left to run")
    plays = [_play(search, cause) for cause in _causes(search)]
    if not plays:
        return _no_plan("not predictable: no cause of one or two settings fits")
    each_trials, each_fails, each_s = zip(*plays, strict=True)
    trials, fails = round(sum(each_trials) / len(plays)), max(each_fails)
    low, high = min(each_s), max(each_s)
    text = f"about {trials} trials, {failures_expected(fails)}"
    text += f", {low:.0f} to {high:.0f} s" if search.is_measured else f"; {NOT_MEASURED}"
    return PlanEstimate(
        trials=trials, hangs=fails, seconds_low=low, seconds_high=high, text=text, is_measured=search.is_measured
    )


def _no_plan(text: str) -> PlanEstimate:
    return PlanEstimate(trials=0, hangs=0, seconds_low=0.0, seconds_high=0.0, text=text)


def _causes(search: Minimise) -> list[Levels]:
    """Single settings and pairs that the answers so far allow, at most MOST_PLAYS of each, spread over all of them."""
    ladder = search.ladder
    causes: list[Levels] = []
    for size in (1, 2):
        some = combinations(range(len(ladder.names)), size)
        every = (ladder.raised(ladder.bottom, places, top=ladder.top) for places in some)
        possible = [cause for cause in every if _is_possible(search, cause)]
        causes += possible[:: max(1, -(-len(possible) // MOST_PLAYS))]
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
    return {(ladder.names[i], ladder.value(i, level)) for i, level in enumerate(cause) if level}


def _play(search: Minimise, cause: Levels) -> tuple[int, int, float]:
    """Trials, failures and seconds if ``cause`` fails always, and each cause that is found is then run once more."""
    other, settings = search.replayed(), _settings(search, cause)
    while (request := other.ask()) is not None:
        fails = settings <= set(request.cell)
        seconds = other.fail_s if fails else other.pass_s
        other.tell(cell=request.cell, answer=Answer.BAD if fails else Answer.GOOD, seconds=seconds)
    again = search.again * len(other.failing_sets)
    trials, failures = other.trials - search.trials + again, other.failures - search.failures + again
    return trials, failures, other.seconds - search.seconds + again * other.fail_s
