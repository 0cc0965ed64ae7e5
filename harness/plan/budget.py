"""Budgets: how long a trial may be silent and run, each limit with its source in words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from harness.core.trial import Budget, Limit

if TYPE_CHECKING:
    from harness.core.spec import Limits
    from harness.core.trial import Prediction

STARTUP = Limit(seconds=120.0, source="default: not learned from passed trials")
STALL_S = 30.0
TOTAL_S = 600.0
STALL_FACTOR = 10.0
LEAST_STALL_S = 4.0
MOST_STALL_S = 300.0
TOTAL_FACTOR = 5.0
LEAST_TOTAL_S = 30.0
WATCHED_STALLS = 5.0
SOFT_FACTOR = 5.0
LEAST_SOFT_S = 10.0
"""A soft limit leaves time for a hang to be told by what is seen of it; only what nothing tells by then is cut off."""


def budget(limits: Limits, prediction: Prediction | None, *, soft: bool = False) -> Budget:
    """The limits of one trial: what the user set, else what passed trials teach, else the defaults.

    ``soft`` asks for the soft limit where it is shorter than the whole one: a few times what a pass takes here.
    """
    stall = _user_limit("stall_s", limits.stall_s) or _stall(prediction)
    total = _user_limit("total_s", limits.total_s) or _total(prediction, stall)
    cut = _soft(prediction) if soft and prediction is not None else total
    return Budget(
        startup=_user_limit("startup_s", limits.startup_s) or STARTUP,
        stall=stall,
        total=min(cut, total, key=lambda limit: limit.seconds),
        soft=cut.seconds < total.seconds,
    )


def _soft(prediction: Prediction) -> Limit:
    how = f"soft limit: {SOFT_FACTOR:g} x {prediction.total_high_s:.3g} s, {_longest('time', prediction)}"
    return _learned(SOFT_FACTOR * prediction.total_high_s, how, least=LEAST_SOFT_S)


def limits_set(budget: Budget) -> tuple[float | None, ...]:
    """The limits of a budget that the user set, in seconds, None for those that were learned or are defaults."""
    limits = (budget.startup, budget.stall, budget.total)
    return tuple(limit.seconds if limit.by_user else None for limit in limits)


def _user_limit(name: str, seconds: float | None) -> Limit | None:
    return None if seconds is None else Limit(seconds=seconds, source=f"set by the user ({name})", by_user=True)


def _default(seconds: float) -> Limit:
    return Limit(seconds=seconds, source="default: no comparable trial has passed yet")


def _stall(prediction: Prediction | None) -> Limit:
    if prediction is None:
        return _default(STALL_S)
    how = f"learned: {STALL_FACTOR:g} x {prediction.silence_high_s:.3g} s, {_longest('silence', prediction)}"
    return _learned(STALL_FACTOR * prediction.silence_high_s, how, least=LEAST_STALL_S, most=MOST_STALL_S)


def _total(prediction: Prediction | None, stall: Limit) -> Limit:
    if prediction is None:
        return _default(TOTAL_S)
    # A silence that is still being watched must not be cut off: the watch may last four times the stall limit.
    watched = WATCHED_STALLS * stall.seconds
    how = (
        f"learned: {TOTAL_FACTOR:g} x {prediction.total_high_s:.3g} s, {_longest('time', prediction)}, "
        f"and {watched:.3g} s to watch a silence"
    )
    return _learned(TOTAL_FACTOR * prediction.total_high_s + watched, how, least=LEAST_TOTAL_S)


def _longest(what: str, prediction: Prediction) -> str:
    """What an upper limit of a prediction is: more than anything that was seen."""
    return f"the longest {what} to expect after {prediction.basis}"


def _learned(seconds: float, how: str, *, least: float, most: float = math.inf) -> Limit:
    """The limit that passed trials teach, within its bounds."""
    if seconds < least:
        return Limit(seconds=least, source=f"{how}, at least {least:g} s")
    if seconds > most:
        return Limit(seconds=most, source=f"{how}, at most {most:g} s")
    return Limit(seconds=seconds, source=how)
