"""Pace: how quickly a trial's own marks come, and how long a silence must last to be out of all proportion to it.

Nothing has to be known beforehand: the marks of the running trial alone are asked. One definition for the watch, which
asks it live, and for the rules, which ask it of what was recorded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.core.evidence import Heartbeat
    from harness.core.trial import Trial

STEPS = 3
"""Finished steps before there is a pace: the first one warms up and does not count, two more say what is usual."""

RECURS = "data"
"""The phase that counts from the first step on: what starts a loader comes again with every epoch."""

LEAST_S = 8.5
"""No silence shorter than this is out of proportion, however quick the steps were; five seconds of it are looked at."""

HEAD_START_S = 6.0
LONGER = 3.0
"""A standstill must last this long and three times the longest gap: below 10 s where steps take less than a second,
below three steps and 10 s otherwise."""

AGE_SHARE = 0.01
"""Of the time that it ran before, how much more patience a trial is due: a hundredth lost is no loss, and a day's job
meets what no gap of its first hour was like. Until it has run for a quarter of an hour this says nothing."""

HUNDREDFOLD = 100.0
"""A busy silence must last this many times the longest gap of its phase, or the silence that passed trials predict:
what computes may only be slow."""

WATCHED = 4.0
"""Times its limit that a silence is watched at most; the pace never waits longer."""

UNTOLD = frozenset({"step", "output", "file"})
"""Phases of programs that do not tell their phases: evaluating, saving and whatever else is all in these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What a trial's marks have shown: ``steps`` seen to finish, the longest gap in seconds, and by place the longest.

    A gap lies between two marks of one rank, and its place is the earlier one's phase and edge. ``gaps`` are those of
    finished steps, so that a place that is not among them is new to the trial.
    """

    steps: int = 0
    longest_s: float = 0.0
    gaps: tuple[tuple[str, str, float], ...] = ()

    def longest_at_s(self, mark: Heartbeat) -> float | None:
        """The longest gap that began as ``mark`` did, seconds; None while the trial is new to it or has no pace."""
        found = (seconds for phase, edge, seconds in self.gaps if (phase, edge) == (mark.phase, mark.edge))
        return next(found, None) if self.steps >= STEPS else None


NO_PACE = Pace()


def still_patience_s(pace: Pace, last: Heartbeat | None, trial: Trial) -> float | None:
    """Seconds of silence after which a complete standstill behind mark ``last`` is out of proportion; None: never.

    Never, where the user set the limit himself, before there is a pace, and where the trial has not been before. A
    silence that passed trials predict is in proportion whatever the marks say.
    """
    limit = trial.budget.stall
    if limit.by_user or last is None or pace.longest_at_s(last) is None:
        return None
    healthy_s = trial.prediction.silence_high_s if trial.prediction is not None else 0.0
    own_s = max(LEAST_S, HEAD_START_S + LONGER * pace.longest_s, AGE_SHARE * last.t_s)
    return min(max(own_s, healthy_s), WATCHED * limit.seconds)


def busy_patience_s(pace: Pace, last: Heartbeat | None, trial: Trial) -> float | None:
    """The same of a silence in which the CPU burns; None also where the program does not tell what it is doing."""
    still_s = still_patience_s(pace, last, trial)
    if still_s is None or last is None or last.edge == "end" or last.phase in UNTOLD:
        return None
    usual_s = pace.longest_at_s(last) or 0.0
    return min(max(still_s, HUNDREDFOLD * usual_s), WATCHED * trial.budget.stall.seconds)
