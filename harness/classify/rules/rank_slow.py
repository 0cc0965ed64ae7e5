"""Some rank still made progress when a limit ended the trial; the one that the others wait for is named."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.classify.facts import conclude, silent_too_long, stopped_by_limit
from harness.classify.frames import spell
from harness.classify.ranks import alike, cited, views_of, waiting
from harness.classify.rules.rank_missing import hang_of
from harness.classify.rules.slow import progressed, slow
from harness.core.stacks import deciding_thread, telling_frame
from harness.core.verdict import Confidence, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.classify.ranks import RankView
    from harness.core.verdict import Case, Verdict

WAITS = "reduce"
"""The phase in which our trainer waits for the other ranks."""

HARDLY, MOSTLY = 0.3, 0.6
"""Share of its time that a straggler waits for the others at most, and the others for it at least."""


def rank_slow(case: Case) -> Verdict | None:
    """Progress of any rank excludes a hang of the job. A rank that sleeps on a timer will come by itself."""
    if not stopped_by_limit(case):
        return None
    views = views_of(case)
    if any(view.failed for view in views):
        return None
    moving = [view for view in views if view.there and progressed(view.case)]
    if moving:
        return _progressing(views, moving)
    return _sleeper(views) if silent_too_long(case) else None


def _progressing(views: Sequence[RankView], moving: Sequence[RankView]) -> Verdict | None:
    late = straggler(views)
    view = late or moving[0]
    verdict = slow(view.case) or slow(moving[0].case)
    if verdict is None:
        return None
    cites = tuple(dict.fromkeys((view.facts.id, *verdict.cites)))
    if late is None:
        return replace(verdict, rule="rank_slow", rank=None, cites=cites)
    others = ", ".join(f"rank {v.rank} {100 * waited(v):.0f} %" for v in views if v is not late)
    return replace(
        verdict,
        rule="rank_slow",
        cause="straggler",
        because=f"rank {late.rank} is late in every step and waits {100 * waited(late):.0f} % of its time for the "
        f"others, who wait for it ({others}); {verdict.because}",
        rank=late.rank,
        cites=cites,
    )


def _sleeper(views: Sequence[RankView]) -> Verdict | None:
    absent = [view for view in views if view.there and view.wait is None]
    others = [view for view in views if view.there and view.wait is not None]
    if len(absent) != 1 or not others:
        return None
    view = absent[0]
    if view.moved is None or not view.moved.asleep or not view.moved.main_timed or not view.samples:
        return None
    if hang_of(view) is not None:
        return None  # it wakes now and then only to see that nothing has come
    thread = deciding_thread(view.samples[-1])
    where = spell(telling_frame(thread)) if thread else "a timer"
    return conclude(
        view.case,
        Kind.SLOW,
        rule="rank_slow",
        cause="straggler",
        because=f"{'; '.join(waiting(group) for group in alike(others))}; rank {view.rank} sleeps on a timer in "
        f"{where} since {view.facts.silence_s:.1f} s and will go on when it wakes; the others wait for it",
        cites=(*cited(views), "progress"),
        confidence=Confidence.MEDIUM,
    )


def straggler(views: Sequence[RankView]) -> RankView | None:
    """The one rank that hardly waits while all others mostly do; None when there is no such rank."""
    if len(views) < 2:
        return None
    first, *others = sorted(views, key=waited)
    return first if waited(first) <= HARDLY and all(waited(view) >= MOSTLY for view in others) else None


def waited(view: RankView) -> float:
    """The share of a rank's time in steps that it spent waiting for the others, by its own marks."""
    marks = [mark for mark in view.facts.heartbeats if mark.step is not None]
    pairs = [(a, b) for a, b in itertools.pairwise(marks) if b.seq == a.seq + 1]
    all_s = sum(b.t_s - a.t_s for a, b in pairs)
    in_wait_s = sum(b.t_s - a.t_s for a, b in pairs if a.phase == WAITS and a.edge == "begin")
    return in_wait_s / all_s if all_s > 0 else 0.0
