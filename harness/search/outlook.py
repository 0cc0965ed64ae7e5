"""Outlook: what a threshold search is expected to cost, played against every threshold with the costs seen so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.boundary import PlanEstimate
from harness.core.verdict import Answer
from harness.search.costs import NOT_MEASURED, failures_expected

if TYPE_CHECKING:
    from harness.search.threshold import ThresholdSearch

MOST_PLAYS = 12


def outlook(search: ThresholdSearch) -> PlanEstimate:
    """Trials, failures and seconds still to come if failures are deterministic."""
    plays = [_play(search, threshold) for threshold in _possible_thresholds(search)]
    trials = round(sum(play[0] for play in plays) / len(plays))
    fails = max(play[1] for play in plays)
    low, high = min(play[2] for play in plays), max(play[2] for play in plays)
    is_measured = bool(search.costs.passes)
    text = f"about {trials} trials, {failures_expected(fails)}"
    text += f", {_span(low, high)}" if is_measured else f"; {NOT_MEASURED}"
    return PlanEstimate(
        trials=trials, hangs=fails, seconds_low=low, seconds_high=high, text=text, is_measured=is_measured
    )


def _possible_thresholds(search: ThresholdSearch) -> list[int]:
    every = range(search.low + 1, search.high + 1)
    step = max(1, len(every) // MOST_PLAYS)
    return sorted({*every[::step], every[-1]})


def _play(search: ThresholdSearch, threshold: int) -> tuple[int, int, float]:
    """Trials, failures and seconds still to come if positions from ``threshold`` on always fail."""
    other = search.copied()
    while (request := other.ask()) is not None:
        position = other.axis.index(request.value)
        fails = position >= threshold
        seconds = other.costs.of_failure() if fails else other.costs.of_pass(other.numbers[position])
        answer = Answer.BAD if fails else Answer.GOOD
        other.tell(value=request.value, answer=answer, seconds=seconds)
    fails = sum(t.bad for t in other.tallies) - sum(t.bad for t in search.tallies)
    return other.trials - search.trials, fails, other.seconds - search.seconds


def _span(low: float, high: float) -> str:
    if high < 90:
        return f"{low:.0f} to {high:.0f} s"
    return f"{low / 60:.1f} to {high / 60:.1f} min"
