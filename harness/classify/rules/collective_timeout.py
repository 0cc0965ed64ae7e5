"""A collective's time ran out inside the trial: the ranks that say so are those that waited, not the one at fault."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.classify.facts import conclude, place
from harness.classify.messages import accused_ranks, cause_of, first_line, spoken
from harness.classify.rules.stalled import stalled
from harness.classify.signature import raised_names
from harness.classify.views import (
    cited,
    still_there,
    views_of,
    who,
    with_ranks,
)
from harness.core.verdict import Confidence, Kind
from harness.reading.frames import deciding_thread, spell, telling_frame
from harness.reading.meeting import COLLECTIVES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.classify.views import RankView
    from harness.core.evidence import EvidenceId, StackSample, ThreadStack
    from harness.core.verdict import Case, Verdict

DIFFERENT, LOST = "collective-mismatch", "rank-lost"
_TIMED_OUT = re.compile(r"timed? ?out|failed to pass monitoredBarrier in", re.IGNORECASE)


def collective_timeout(case: Case) -> Verdict | None:
    """Every rank that failed says that it lost another. Missing is who is accused, is still there, or is behind."""
    views = views_of(case)
    followers: list[RankView] = []
    for view in views:
        if view.follows:
            followers.append(view)
        elif view.failed:
            return None
    if not followers:
        return None
    first = min(followers, key=lambda view: view.facts.ended_s or case.outcome.duration_s)
    result = first.facts.result
    assert result is not None, "a rank that follows has said so"
    missing, how = _missing(views, followers)
    calls = set(map(_call, followers)) - {""}
    in_time = not _TIMED_OUT.search(result.message or "")
    cause = cause_of(spoken(result)) or (LOST if in_time else "collective-timeout")
    if not missing and len(calls) > 1:
        cause, how = DIFFERENT, f"they waited in different collectives: {', '.join(sorted(calls))}"
    where = "; ".join(map(_where, missing))
    verb = "lost a rank" if in_time else "gave up waiting"
    gave_up = f"{who(followers)} {verb} {place(first.case)}: {first_line(result.message)}"
    rank = missing[0].rank if len(missing) == 1 else None
    verdict = conclude(
        (missing[0] if rank is not None else first).case,
        Kind.CRASH,
        cause=cause,
        because=f"{who(missing)} {'is' if len(missing) == 1 else 'are'} missing ({how}): {where}; {gave_up}"
        if missing
        else f"{gave_up}; {how}",
        cites=(*cited(followers), *cited(missing), *_shown_by(missing), "exit"),
        confidence=Confidence.HIGH if missing else Confidence.MEDIUM,
        names=raised_names(result),
    )
    return replace(verdict, rank=rank)


def _missing(views: Sequence[RankView], followers: Sequence[RankView]) -> tuple[list[RankView], str]:
    """The ranks that did not come, and how that is known."""
    accused: set[int] = set()
    for view in followers:
        accused.update(accused_ranks((view.facts.result.message if view.facts.result else None) or ""))
    silent = still_there(views)
    suspects = [view for view in with_ranks(views, accused) if not (view.follows and silent)]
    if suspects and len(suspects) < len(views):
        return suspects, "the others called the roll"
    if vanished := [view for view in views if view.vanished]:
        return vanished, f"nothing says how {'it' if len(vanished) == 1 else 'they'} ended"
    if silent:
        return silent, "it has not said anything" if len(silent) == 1 else "they have not said anything"
    least = min(view.marks for view in views)
    behind = [view for view in views if view.marks == least]
    if len(behind) < len(views):
        return behind, "it is behind the others" if len(behind) == 1 else "they are behind the others"
    return [], "nothing shows which rank is missing"


def _where(view: RankView) -> str:
    alone = replace(view.case, evidence=replace(view.case.evidence, world=1))
    hang = stalled(alone)
    if hang is not None:
        return f"{hang.cause}, {hang.because}"
    return f"its last mark is {place(view.case)}{_last_place(view)}"


def _last_place(view: RankView) -> str:
    """Where its last stack sample showed it, and how long before the end; empty without one."""
    last = _last_shown(view)
    if last is None:
        return ""
    sample, thread = last
    before_s = view.case.outcome.duration_s - sample.t_s
    return f", and it was seen last in {spell(telling_frame(thread))}, {before_s:.1f} s before the end"


def _last_shown(view: RankView) -> tuple[StackSample, ThreadStack] | None:
    """Its last stack sample that shows the thread to look at."""
    for sample in reversed(view.case.evidence.stacks):
        thread = deciding_thread(sample) if sample.pid == view.facts.pid else None
        if thread is not None:
            return sample, thread
    return None


def _shown_by(missing: Sequence[RankView]) -> list[EvidenceId]:
    """The samples that show where these ranks were when the others waited: of each the last, behind its last mark."""
    ids: list[EvidenceId] = []
    for view in missing:
        last, mark = _last_shown(view), view.facts.last
        if last is not None and (mark is None or mark.t_s < last[0].t_s):
            ids.append(last[0].id)
    return ids


def _call(view: RankView) -> str:
    """The collective that a rank waited in, by its traceback; empty without one."""
    result = view.facts.result
    names = raised_names(result)
    for name in reversed(names):
        function = name.rpartition(".")[2]
        if function in COLLECTIVES:
            return function
    return ""
