"""Pace: how quickly a trial's own marks come, and how long a silence must last to mean something.

A standstill that nobody can end needs no patience (``harness.reading.standing``). Patience is for what may still end:

- *Somebody outside may end the wait* (another program, another machine, a device): four times the limit. From inside, a
  file lock that comes after half a minute and one that never comes look the same to the last counter, and how quick the
  trial's own steps were says nothing about the program that holds the lock.
- *It computes*, and nothing shows that it gets on: a hundred of the longest gaps of its phase where the trial tells its
  phases and was there before, and a minute at least: a thousand quick steps say nothing of a first evaluation, a save
  or a cache that is built anew. Where a short limit says what is too long for this trial, twice that will do. Else it
  is four times the limit.

One definition for the watch, which asks it live, and for the rules, which ask it of what was recorded.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.core.evidence import Evidence, Heartbeat, Pace
    from harness.core.trial import Budget, Limit, Trial

STEPS = 3
"""Finished steps before there is a pace: the first one warms up and does not count, two more say what is usual."""

RECURS = "data"
"""The phase that counts from the first step on: what starts a loader comes again with every epoch."""

LEAST_S = 60.0
"""No busy silence shorter than this is out of proportion, however quick steps or passed trials were: what computes may
do something that it never did before."""

TWICE = 2.0
"""Nor one shorter than so many limits, where that is less: who knows the trial has said what is too long for it."""

LONGER = 3.0
"""Nor one shorter than three of the longest gaps."""

AGE_SHARE = 0.01
"""Of the time that it ran before, how much more patience a trial is due: a hundredth lost is no loss, and a day's job
meets what no gap of its first hour was like. Until it has run for a quarter of an hour this says nothing."""

HUNDREDFOLD = 100.0
"""A busy silence must last this many times the longest gap of its phase, or the silence that passed trials predict:
what computes may only be slow."""

WATCHED = 4.0
"""Times its limit that a silence is watched at most; the pace never waits longer."""

TEN_TIMES = 10.0
"""What is undecided is given so many times the limit that ended it: what is only slow goes on then, a hang does not."""

LOOKED_S = 120.0
"""Silence before a hang is told, whatever the limit is, where whoever started what is stuck looks at it again and
again, beside threads that by their source look on but whose calls may come to another file of the program, and where
somebody outside may know a service of the program's."""

ASKED_S = 15.0
"""Patience with a process that asks others again and again, or sleeps with the interpreter's lock: it may have a time
limit of its own, and end that. So long, too, is waited beside threads that plainly look on."""

UNTOLD = frozenset({"step", "output", "file"})
"""Phases of programs that do not tell their phases: evaluating, saving and whatever else is all in these."""

SUSPICIOUS_S = 3.0
"""From this silence on a trial is looked at more closely, ..."""

UNUSUAL = 1.5
"""... unless it has been silent for nearly as long before: then from one and a half times that on."""


def place(last: Heartbeat | None, *, steps_done: int) -> str:
    """Where a trial was by its last mark: ``in backward of step 1``, ``after step 2``, ``before its first mark``."""
    if last is None:
        return "before its first mark"
    if is_between_steps(last, steps_done=steps_done):
        return f"after step {steps_done - 1}"
    preposition = "after" if last.edge == "end" else "in"
    return f"{preposition} {last.phase}" if last.step is None else f"{preposition} {last.phase} of step {last.step}"


def is_between_steps(last: Heartbeat, *, steps_done: int) -> bool:
    """Whether the step of the last mark is done: of what comes next nothing has begun, and perhaps nothing comes."""
    return last.step is not None and steps_done > 0 and (last.step < steps_done or last.phase == "step")


def longest_at_s(pace: Pace, mark: Heartbeat) -> float | None:
    """The longest gap that began as ``mark`` did, seconds; None while the trial is new to it or has no pace."""
    gaps_s = (seconds for phase, edge, seconds in pace.gaps if (phase, edge) == (mark.phase, mark.edge))
    return next(gaps_s, None) if pace.steps >= STEPS else None


def suspicious_s(pace: Pace) -> float:
    """Seconds of silence from which on a trial with this pace is looked at more closely."""
    return max(SUSPICIOUS_S, UNUSUAL * pace.longest_s)


def has_begun(evidence: Evidence) -> bool:
    """Whether the first step was reached."""
    return any(mark.step is not None for mark in evidence.heartbeats)


def has_ended(evidence: Evidence) -> bool:
    """Whether all its steps were done."""
    return 0 < evidence.steps_wanted <= evidence.steps_done


def is_training(evidence: Evidence) -> bool:
    """Whether a trial was between the first step's first mark and the end of its last step."""
    return has_begun(evidence) and not has_ended(evidence)


def silence_limit(budget: Budget, *, training: bool) -> Limit:
    """The limit that a silence is held against: starting and ending may take long and are not training."""
    return budget.stall if training else budget.startup


def longest_watch_s(budget: Budget) -> float | None:
    """Seconds after which a standstill is decided; None where a limit for silence has no end."""
    limits = (budget.startup, budget.stall)
    return None if any(limit.is_endless for limit in limits) else WATCHED * max(limit.seconds for limit in limits)


def deciding_total_s(budget: Budget, *, ran_s: float) -> float | None:
    """The total limit by which a trial that ran for ``ran_s`` is decided; None where ten times the one it had is."""
    watch_s = longest_watch_s(budget)
    if watch_s is None or ran_s + watch_s <= TEN_TIMES * budget.total.seconds:
        return None
    return math.ceil(ran_s + watch_s)


def instead_of_time(*, has_marks: bool) -> str:
    """What to do where no limit tells a hang from what only takes long; one that makes marks need name none."""
    look = "look at what it does there and how long that is meant to take"
    return (
        look if has_marks else f"{look}, or name what it prints or writes as it gets on (--progress, --progress-file)"
    )


def awaits_a_step(budget: Budget, *, begun: bool) -> bool:
    """Whether the user set a limit for stalls that does not count yet: no step was seen, from which on it does."""
    return budget.stall.by_user and not budget.startup.by_user and not begun


def busy_patience_s(pace: Pace, last: Heartbeat | None, trial: Trial, *, training: bool) -> float:
    """Seconds that a silence in which something computes must last to be out of proportion.

    A hundred times what passed trials predict, or what this phase of this trial took before; the lesser of the two, if
    both are known, and four times the limit where neither is.
    """
    patiences_s: list[float] = []
    own_s = own_busy_patience_s(pace, last, trial) if training else None
    if own_s is not None:
        patiences_s.append(own_s)
    if trial.prediction is not None:
        patiences_s.append(HUNDREDFOLD * trial.prediction.silence_s)
    limit = silence_limit(trial.budget, training=training)
    return max(_least_s(limit), min(patiences_s, default=WATCHED * limit.seconds))


def _least_s(limit: Limit) -> float:
    return min(LEAST_S, TWICE * limit.seconds)


def own_busy_patience_s(pace: Pace, last: Heartbeat | None, trial: Trial) -> float | None:
    """The same by the trial's own pace after mark ``last``; None where that says nothing.

    It says nothing where the user set the limit, before there is a pace, where the trial has not been before, and where
    the program does not tell what it is doing. A silence that passed trials predict is in proportion whatever marks
    say.
    """
    limit = trial.budget.stall
    usual_s = longest_at_s(pace, last) if last is not None else None
    if limit.by_user or last is None or usual_s is None or last.edge == "end" or last.phase in UNTOLD:
        return None
    healthy_s = trial.prediction.silence_high_s if trial.prediction is not None else 0.0
    own_s = max(_least_s(limit), LONGER * pace.longest_s, AGE_SHARE * last.t_s, HUNDREDFOLD * usual_s)
    return min(max(own_s, healthy_s), WATCHED * limit.seconds)
