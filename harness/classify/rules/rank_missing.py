"""One rank is stuck somewhere of its own, and the others wait for it in a collective."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.classify.facts import place, silent_too_long
from harness.classify.frames import spell
from harness.classify.ranks import alike, cited, views_of, waiting, who
from harness.classify.rules.hung_busy import hung_busy
from harness.classify.rules.hung_waiting import hung_waiting
from harness.classify.rules.starved import starved
from harness.classify.rules.stopped import stopped
from harness.core.outcome import Ending
from harness.core.stacks import deciding_thread, telling_frame

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.classify.ranks import RankView
    from harness.core.verdict import Case, Verdict

HANGS = (stopped, hung_waiting, starved, hung_busy)
"""The rules for one process that find a hang, asked about the rank that is not in the collective."""


def rank_missing(case: Case) -> Verdict | None:
    """The rank at fault is the one that is not in the collective; of several, the one that fell silent first."""
    if not silent_too_long(case):
        return None
    views = views_of(case)
    if any(view.failed for view in views):
        return None
    there = [view for view in views if view.there]
    absent = [view for view in there if view.wait is None]
    judged = [(view, verdict) for view in absent if (verdict := hang_of(view)) is not None]
    if not judged:
        return None
    view, verdict = min(judged, key=lambda pair: pair[0].marks)
    others = [other for other in there if other.wait is not None]
    all_alike = len(judged) == len(there) > 1 and len({v.cause for _, v in judged}) == 1
    rest = [other for other in there if other is not view]
    return replace(
        verdict,
        rule="rank_missing",
        because=_because(view, verdict, others=others, judged=[v for v, _ in judged], all_alike=all_alike),
        cites=tuple(dict.fromkeys((view.facts.id, *verdict.cites, *cited(rest)))),
        phase=verdict.phase or view.phase,
        rank=None if all_alike else view.rank,
    )


def hang_of(view: RankView) -> Verdict | None:
    """What the rules for one process make of this rank, if they find that it hangs."""
    return next((verdict for rule in HANGS if (verdict := rule(view.case)) is not None), None)


def _because(
    view: RankView, verdict: Verdict, *, others: Sequence[RankView], judged: Sequence[RankView], all_alike: bool
) -> str:
    if all_alike:
        return f"{who(judged)} hang alike: {verdict.because}"
    also = [other for other in judged if other is not view]
    more = f"; {who(also)} hang{'s' if len(also) == 1 else ''} as well, later" if also else ""
    if not others:
        return f"{verdict.because}{more}"
    waiters = "; ".join(waiting(group) for group in alike(others))
    details = verdict.because.removeprefix(f"rank {view.rank} ")
    return f"rank {view.rank} does not come: {_whereabouts(view, verdict)}; {waiters}; rank {view.rank} {details}{more}"


def _whereabouts(view: RankView, verdict: Verdict) -> str:
    """In few words where the missing rank is: ``it waits in log_gradient (hooks.py:9), in backward of step 1``."""
    thread = deciding_thread(view.samples[-1]) if view.samples else None
    at = f" in {spell(telling_frame(thread))}" if thread is not None else ""
    verb = {"stopped": "it is stopped", "hung_busy": "it runs without an end"}.get(verdict.rule, "it waits")
    # Of a job that somebody else started no marks are known.
    unmarked = view.facts.last is None and view.case.outcome.ending is Ending.STILL_RUNNING
    return f"{verb}{at}" if unmarked else f"{verb}{at}, {place(view.case)}"
