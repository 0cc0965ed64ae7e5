"""Every rank waits for others, and they can never meet: whose call is the wrong one.

Asked when ``harness.classify.rules.stalled`` has found that no rank can go on and that none is stuck somewhere of its
own. What a rank handed to its communication library is a fact, so the flight recorders come first; then a rank that has
ended; then the calls that the stacks show; last a collective that all ranks are in, and that nothing moves.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from harness.classify.facts import conclude, ids_of, job_of_case, place, silence, silence_began_s
from harness.classify.views import (
    alike,
    cited,
    names,
    others_than,
    still_there,
    views_of,
    waiting,
    who,
    with_ranks,
)
from harness.core.verdict import Confidence, Kind
from harness.reading.desync import Parting, in_words, operation_of
from harness.reading.frames import is_own, python_frames, spell
from harness.reading.gpus import gpus_of_pids
from harness.reading.meeting import AWAITS_ID, CONNECTS, GATHERS, NEW_GROUP, ROOTED, STORE
from harness.reading.pace import is_between_steps
from harness.reading.ranks import late_ranks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.classify.views import RankView
    from harness.core.devices import Collective
    from harness.core.evidence import Frame, Heartbeat
    from harness.core.verdict import Case, Verdict
    from harness.reading.desync import Divergence
    from harness.reading.meeting import Meeting

_WITHIN_A_STEP = frozenset({"data", "forward", "backward", "reduce", "optim"})
"""Phases that a program which has begun one ends before it leaves the loop over its steps."""

_MAY_BE_ITS_LAST = frozenset({("data", "end"), ("optim", "end")})
"""Marks after which it may have left it: the loader had nothing more, or this was the last step."""


def desync(case: Case) -> Verdict | None:
    """Which rank parted from the others, as far as anything shows it."""
    job, views = job_of_case(case), views_of(case)
    there = still_there(views)
    if not there or any(view.meeting is None for view in there):
        return None
    if any(job.may_come_by_another_thread(view.facts.pid) for view in there if view.facts.pid in job.stand):
        return None
    if job.circle:
        because = f"the operations of two process groups wait for each other: {job.circle}"
        return _recorded(case, None, views, [], cause="collective-mismatch", because=because, certain=True)
    for divergence in job.divergences:
        verdict = _by_recorder(case, divergence, views)
        if verdict is not None:
            return verdict
    if job.ended_ranks:
        return _by_exit(case, there, sorted(job.ended_ranks))
    return _by_stacks(case, there)


# -- by the flight recorders


def _by_recorder(case: Case, divergence: Divergence, views: Sequence[RankView]) -> Verdict | None:
    if divergence.parting in (Parting.OPERATION, Parting.SHAPE):
        return _different(case, divergence, views)
    if divergence.parting is Parting.MISSING:
        return _missing(case, divergence, views)
    late = with_ranks(views, late_ranks(divergence))
    return _busy_device(case, divergence, views, late) if len(late) == 1 else None


def _calls(divergence: Divergence) -> dict[int, Collective]:
    """The calls of those ranks that made one."""
    return {rank: call for rank, call in divergence.calls if call is not None}


def _different(case: Case, divergence: Divergence, views: Sequence[RankView]) -> Verdict:
    odd = with_ranks(views, divergence.odd)
    calls = "; ".join(f"rank {rank} called {in_words(call)}" for rank, call in _calls(divergence).items())
    how = "which is not what followed these operations before" if divergence.by_habit else "unlike most"
    which = f"{who(odd)} did otherwise, {how}" if odd else "nothing shows whose call is the wrong one"
    what = "operation" if divergence.parting is Parting.OPERATION else "shape or type"
    because = f"as {operation_of(divergence)} the ranks made calls of different {what}: {calls}; {which}"
    return _recorded(
        case, divergence, views, odd, cause="collective-mismatch", because=because, certain=not divergence.by_habit
    )


def _missing(case: Case, divergence: Divergence, views: Sequence[RankView]) -> Verdict | None:
    odd = with_ranks(views, divergence.odd)
    if len(odd) != 1 or divergence.unheard or not odd[0].there:
        return None
    view = odd[0]
    waiters = others_than(view, with_ranks(views, dict(divergence.calls)))
    call = next(iter(_calls(divergence).values()))
    open_call = f"{who(waiters)} called {in_words(call)} as {operation_of(divergence)}, and it is not over"
    # DDP's own operations are launched by the engine: no line of the program calls them.
    unused = "" if call.where else _went_past_backward(view, waiters)
    cause = "unused-parameter" if unused else "collective-mismatch"
    it = "what completes it" if call.p2p else "it"
    which = f"rank {view.rank} never called {it} and waits for the others elsewhere, {place(view.case)}"
    if divergence.behind is not None:
        which = f"rank {view.rank} called {it} only behind {in_words(divergence.behind)}, which nothing completes"
    if divergence.mutual:
        which += ", in an operation that they never called"
        how = "did not call what followed these operations before"
        which += f"; rank {view.rank} {how}" if divergence.by_habit else "; nothing shows whose call is the wrong one"
    if unused:
        which = (
            f"rank {view.rank} ended that backward without it{unused}, which DDP does when a parameter had no gradient"
        )
    is_sure = not (divergence.mutual or divergence.behind) or bool(unused)
    blamed = () if divergence.mutual and not divergence.by_habit and not unused else odd
    verdict = _recorded(case, divergence, views, blamed, cause=cause, because=f"{open_call}; {which}", certain=is_sure)
    waits = waiters[0].facts.last if waiters else None
    if unused or waits is None:
        return verdict
    # The call that was left out belongs to where the others made it.
    return replace(verdict, phase=waits.phase, step=waits.step)


def _busy_device(case: Case, divergence: Divergence, views: Sequence[RankView], late: Sequence[RankView]) -> Verdict:
    """All handed over the same operation: the rank whose device has not even begun it is busy with something else."""
    calls = _calls(divergence)
    call = next(iter(calls.values()))
    begun = [rank for rank, call in calls.items() if call.state == "started"]
    gpus = gpus_of_pids(case.evidence, {late[0].facts.pid})
    because = (
        f"all ranks called {in_words(call)} as {operation_of(divergence)}; it began on "
        f"{names(begun)}, but not on the GPU of rank {late[0].rank}, which is still busy with what was launched before"
    )
    because = "; ".join([because, *map(str, gpus)])
    return _recorded(case, divergence, views, late, cause="gpu-spin", because=because, certain=bool(gpus))


def _went_past_backward(view: RankView, waiters: Sequence[RankView]) -> str:
    """How the missing rank's last backward ended early; empty unless the others wait for what backward launched."""
    for waiter in waiters:
        end = _end_of_same_backward(view, waiter)
        if end is not None:
            return _last_gradient(view, end.step)
    return ""


def _last_gradient(view: RankView, step: int | None) -> str:
    for mark in reversed(view.facts.heartbeats):
        if mark.step == step and mark.detail is not None and mark.detail.startswith("gradient "):
            return f" (its last was {mark.detail})"
    return " and went on"


def _end_of_same_backward(view: RankView, waiter: RankView) -> Heartbeat | None:
    """Where ``view`` ended the backward whose gradients ``waiter`` waits for; a step may have several."""
    last = waiter.facts.last
    if last is None or last.phase not in ("backward", "optim"):
        return None
    ends = _ends_of_backward(view, last.step)
    number = len(_ends_of_backward(waiter, last.step))
    if last.phase == "backward" and last.edge != "end":
        number += 1  # the one that it is in
    return ends[number - 1] if 0 < number <= len(ends) else None


def _ends_of_backward(view: RankView, step: int | None) -> list[Heartbeat]:
    return [mark for mark in view.facts.heartbeats if (mark.phase, mark.edge, mark.step) == ("backward", "end", step)]


def _recorded(
    case: Case,
    divergence: Divergence | None,
    views: Sequence[RankView],
    odd: Sequence[RankView],
    *,
    cause: str,
    because: str,
    certain: bool,
) -> Verdict:
    # Progress stopped where the call was made that the others never come to.
    behind = min(still_there(views), key=lambda view: view.marks, default=views[0])
    first = behind if cause == "collective-mismatch" else (odd or views)[0]
    ras = tuple(report for report in case.evidence.ras if report.launched)
    for report in ras:
        counts = ", ".join(f"rank {rank} {operation}" for rank, operation in report.launched)
        because += f"; NCCL itself counts as launched: {counts}"
    calls = {} if divergence is None else _calls(divergence)
    gpus = case.evidence.gpus if cause == "gpu-spin" else ()
    verdict = conclude(
        first.case,
        Kind.HANG,
        rule="desync",
        cause=cause,
        because=f"{because}; {first.silence}",
        cites=(
            *ids_of([*case.evidence.collectives, *ras]),
            *cited([first, *others_than(first, views)]),
            *ids_of(gpus),
            "progress",
        ),
        confidence=Confidence.HIGH if certain else Confidence.MEDIUM,
        names=dict.fromkeys(call.op for call in calls.values()),
        phase="backward" if cause == "unused-parameter" else None,
    )
    rank = odd[0].rank if len(odd) == 1 else None
    if cause != "unused-parameter":
        return replace(verdict, rank=rank)
    # The rank is long past it: the fault lies in the backward that it ended too early.
    return replace(verdict, rank=rank, step=_step_of_last_backward(first))


def _step_of_last_backward(view: RankView) -> int | None:
    for mark in reversed(view.facts.heartbeats):
        if (mark.phase, mark.edge) == ("backward", "end"):
            return mark.step
    return None


# -- by who is there, and by stacks


def _by_exit(case: Case, there: Sequence[RankView], absent: Sequence[int]) -> Verdict:
    waits = "; ".join(map(waiting, alike(there)))
    have, it = ("has", "it") if len(absent) == 1 else ("have", "they")
    verdict = conclude(
        there[0].case,
        Kind.HANG,
        rule="desync",
        cause="rank-gone",
        because=f"{waits}; {names(absent)} {have} ended, and {it} will not come; {there[0].silence}",
        cites=(*ids_of(case.evidence.ranks), *cited(there), "progress"),
        confidence=Confidence.HIGH,
        names=[_meetings(there)[0].name],
    )
    return replace(verdict, rank=absent[0])


def _by_stacks(case: Case, there: Sequence[RankView]) -> Verdict | None:
    """Which rank is at fault: the one that is alone, or else the one that went past the call the others wait in.

    With DDP, a rank that is past the backward in which the others wait for gradients had parameters without one.
    """
    groups = alike(there)
    calls = [(meeting.kind, meeting.name) for meeting in _meetings(there)]
    is_one_call, names_of_calls = len(set(calls)) == 1, [name for _, name in calls]
    makes_several = AWAITS_ID in _stages(there) and bool({GATHERS, CONNECTS} & _stages(there))
    if is_one_call and not makes_several:
        return _together(case, there)
    if set(names_of_calls) == {STORE, "init_process_group"}:
        return None  # who joins waits for the store too: whoever makes it, or its network, may merely be slow
    on_its_way = not ROOTED.isdisjoint(names_of_calls)
    fault, how = _fault(groups)
    unused = _past_gradients(groups)
    cause = "unused-parameter" if unused else "collective-mismatch"
    fault = unused or fault
    which = f"{who(fault)} {how}" if fault else "nothing shows whose call is the wrong one"
    if unused:
        which = (
            f"{who(unused)} ended backward without waiting for all gradients, which DDP does when a parameter of "
            "that rank had none"
        )
    waits = "; ".join(map(waiting, groups))
    never = "they make communicators of different groups" if is_one_call else "these calls never meet"
    # Where the call was made that the others never come to: there progress stopped, and there the fault is.
    behind = min(there, key=lambda view: view.marks)
    verdict = conclude(
        behind.case,
        Kind.HANG,
        rule="desync",
        cause=cause,
        because=f"{waits}; {never}; {which}; {silence(case)}",
        cites=(*cited([behind, *others_than(behind, there)]), "progress"),
        confidence=Confidence.HIGH if fault and not on_its_way else Confidence.MEDIUM,
        names=names_of_calls,
    )
    return replace(verdict, rank=fault[0].rank if len(fault) == 1 else None)


def _fault(groups: Sequence[Sequence[RankView]]) -> tuple[list[RankView], str]:
    """The ranks that part from the rest, and in which way."""
    most, *others = groups
    odd = list(chain.from_iterable(others))
    if most[0].meeting is not None and most[0].meeting.kind == "pair":
        return [], ""  # each such call is for one other rank: of those no majority counts
    if any(view.meeting is not None and view.meeting.kind == "gpu" for view in (*most, *odd)):
        return [], ""  # whoever waits for its GPU has handed over what comes after, too, and seems further on
    if any(view.meeting is not None and view.meeting.name == NEW_GROUP for view in odd):
        return [], ""  # a group may be of some ranks only, and so may be what the others call
    if len(odd) < len(most):
        is_past = all(view.marks > most[0].marks for view in odd)
        how = f"went past it ({place(odd[0].case)})" if is_past else "waits in a call that the others do not make"
        return odd, how
    furthest = max(view.marks for view in (*most, *odd))
    ahead: list[RankView] = []
    behind: list[RankView] = []
    for view in (*most, *odd):
        if view.marks == furthest:
            ahead.append(view)
        else:
            behind.append(view)
    if not behind or not all(map(_within_a_step, behind)):
        return [], ""  # who stands between two steps may have left the loop that the others are still in
    wait = "waits" if len(behind) == 1 else "wait"
    return ahead, f"is further on and does not make the call that {who(behind)} {wait} in"


def _within_a_step(view: RankView) -> bool:
    last = view.facts.last
    if last is None or last.phase not in _WITHIN_A_STEP:
        return False
    if is_between_steps(last, steps_done=view.facts.steps_done):
        return False
    return (last.phase, last.edge) not in _MAY_BE_ITS_LAST


def _past_gradients(groups: Sequence[Sequence[RankView]]) -> list[RankView]:
    """Ranks that are past the backward in which others wait for DDP's gradients."""
    waiters: list[RankView] = []
    others: list[RankView] = []
    for view in chain.from_iterable(groups):
        if view.meeting is not None and view.meeting.kind == "gradients":
            waiters.append(view)
        else:
            others.append(view)
    if not waiters:
        return []
    return [view for view in others if _end_of_same_backward(view, waiters[0]) is not None]


_NOBODY = {
    "send": "all send, and none receives",
    "isend": "all send, and none receives",
    "recv": "all receive, and none sends",
    "irecv": "all receive, and none sends",
}


def _together(case: Case, there: Sequence[RankView]) -> Verdict:
    """Every rank is in the same call, and it does not end: what is left is what connects them, or what it asks."""
    gpus = gpus_of_pids(case.evidence, {view.facts.pid for view in there}, since_s=silence_began_s(case))
    spin = bool(gpus) and all(gpu.occupied_by_nothing for gpu in gpus)
    devices = f"; {'; '.join(map(str, gpus))}: every card works on nothing" if spin else ""
    complaints = list(chain.from_iterable(report.complaints for report in case.evidence.ras))
    complaint = f"; NCCL itself says: {complaints[0]}" if complaints else ""
    standstill = f"{waiting(there)}: all ranks are there, none moves, and it does not end"
    cause = "collective-stuck"
    others = _ways(there)
    if not others and _stages(there) == {AWAITS_ID}:
        others = "each waits for another group's, and none makes one"
    if not others and (meeting := _meetings(there)[0]).name in _NOBODY:
        others = _NOBODY[meeting.name]
    if others:
        standstill += f"; {others}"
        cause = "collective-mismatch"
    verdict = conclude(
        case,
        Kind.HANG,
        rule="desync",
        cause=cause,
        because=f"{standstill}{devices}{complaint}; {silence(case)}",
        cites=(*cited(there), *cited(gpus), *ids_of([*case.evidence.ras, *case.evidence.collectives]), "progress"),
        confidence=Confidence.MEDIUM,
        names=[_meetings(there)[0].name],
    )
    return replace(verdict, rank=None)


def _meetings(there: Sequence[RankView]) -> list[Meeting]:
    """What each of these ranks waits for."""
    return [view.meeting for view in there if view.meeting is not None]


def _stages(there: Sequence[RankView]) -> set[str]:
    """How far the ranks are with the communicators that their calls make; "" of one of which that is not known."""
    return {meeting.stage for meeting in _meetings(there)}


def _ways(there: Sequence[RankView]) -> str:
    """``rank 0 came to it from train (train.py:20), rank 1 came to it from save (train.py:31)``; empty if all alike."""
    ways = _by_way(there)
    sentences: list[str] = []
    for way, views in ways.items():
        common = set(way).intersection(*ways)
        only_here = [frame for frame in way if frame not in common]
        if not only_here:
            return ""
        sentences.append(f"{who(views)} came to it from {spell(only_here[0])}")
    return ", ".join(sentences)


def _by_way(there: Sequence[RankView]) -> dict[tuple[Frame, ...], list[RankView]]:
    """Ranks by the program's own frames, innermost first, through which they came to where they wait."""
    ways: dict[tuple[Frame, ...], list[RankView]] = {}
    for view in there:
        thread = view.standing.thread if view.standing is not None else None
        frames = python_frames(thread) if thread is not None else ()
        ways.setdefault(tuple(filter(is_own, frames)), []).append(view)
    return ways
