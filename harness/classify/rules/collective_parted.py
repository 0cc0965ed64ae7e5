"""The flight recorders of the ranks, side by side: who did not call what the others wait in, or called something else.

What a rank handed to its communication library is a fact. Who waits where (stacks) comes after it: with NCCL a rank
waits on its GPU, and its stack does not name the operation.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.classify.facts import conclude, place, silence, silent_too_long
from harness.classify.gpus import gpus_of
from harness.classify.ranks import cited, views_of, who
from harness.classify.rules.stopped import stopped
from harness.classify.signature import signature
from harness.core.collectives import Parting, diverges
from harness.core.outcome import StopReason
from harness.core.verdict import Confidence, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.classify.ranks import RankView
    from harness.core.collectives import Divergence
    from harness.core.devices import Collective
    from harness.core.verdict import Case, Verdict


def collective_parted(case: Case) -> Verdict | None:
    """A difference between the calls decides at once; a missing rank only when it waits for the others elsewhere.

    A rank that is missing because it is stopped, locked or dead is for the rules that look into it; one that still
    works may come.
    """
    if not silent_too_long(case):
        return None
    views = views_of(case)
    found = diverges(case.evidence.collectives, world=len(views))
    if found is None or any(view.failed for view in views):
        return None
    match found.parting:
        case Parting.OPERATION | Parting.SHAPE:
            return _different(case, found, views)
        case Parting.MISSING:
            return _missing(case, found, views)
        case Parting.TOGETHER:
            return _together(case, found, views)


def _different(case: Case, found: Divergence, views: Sequence[RankView]) -> Verdict:
    odd = [view for view in views if view.rank in found.odd]
    calls = "; ".join(f"rank {rank} called {_told(call)}" for rank, call in found.calls if call is not None)
    how = "which is not what followed these operations before" if found.by_habit else "unlike most"
    which = f"{who(odd)} did otherwise, {how}" if odd else "nothing shows whose call is the wrong one"
    what = "operation" if found.parting is Parting.OPERATION else "shape or type"
    because = f"as operation {found.seq} of {_group(found)} the ranks made calls of different {what}: {calls}; {which}"
    return _conclude(case, found, views, odd, cause="collective-mismatch", because=because, certain=not found.by_habit)


def _missing(case: Case, found: Divergence, views: Sequence[RankView]) -> Verdict | None:
    odd = [view for view in views if view.rank in found.odd]
    if len(odd) != 1 or found.unheard or not odd[0].there:
        return None
    view = odd[0]
    if view.wait is None or stopped(view.case) is not None:
        return None
    waiters = [v for v in views if v.rank in dict(found.calls) and v is not view]
    call = next(call for _, call in found.calls if call is not None)
    pending = next((s.pending for s in case.evidence.collectives if s.rank == view.rank), ())
    told = f"{who(waiters)} called {_told(call)} as operation {found.seq} of {_group(found)}, and it is not over"
    if view.wait.kind == "gpu" and not pending:
        if _may_compute(view):
            return None
        gpus = "".join(f"; {gpu}" for gpu in gpus_of(view.case))
        because = f"{told}; rank {view.rank} has nothing pending there and waits for its GPU, {place(view.case)}{gpus}"
        return _conclude(case, found, views, odd, cause="gpu-spin", because=because, certain=bool(gpus))
    # DDP's own operations are launched by the engine: no line of the program calls them.
    unused = "" if call.where else _went_past_backward(view, waiters)
    cause = "unused-parameter" if unused else "collective-mismatch"
    which = f"rank {view.rank} never called it and waits for the others elsewhere, {place(view.case)}"
    if unused:
        which = (
            f"rank {view.rank} ended that backward without it{unused}, which DDP does when a parameter had no gradient"
        )
    verdict = _conclude(case, found, views, odd, cause=cause, because=f"{told}; {which}", certain=True)
    waits = waiters[0].facts.last if waiters else None
    if unused or waits is None:
        return verdict
    # The call that was left out belongs to where the others made it.
    return replace(verdict, phase=waits.phase, step=waits.step)


def _together(case: Case, found: Divergence, views: Sequence[RankView]) -> Verdict | None:
    """All handed over the same operation: the rank whose GPU has not even begun it is busy with something else."""
    states = {rank: call.state for rank, call in found.calls if call is not None}
    late = [view for view in views if states.get(view.rank) == "scheduled"]
    begun = [view for view in views if states.get(view.rank) == "started"]
    if len(late) != 1 or not begun or any(view.wait is None for view in views) or _may_compute(late[0]):
        return None
    call = next(call for _, call in found.calls if call is not None)
    gpus = "".join(f"; {gpu}" for gpu in gpus_of(late[0].case))
    because = (
        f"all ranks called {_told(call)} as operation {found.seq} of {_group(found)}; it began on {who(begun)}, "
        f"but not on the GPU of rank {late[0].rank}, which is still busy with what was launched before{gpus}"
    )
    return _conclude(case, found, views, late, cause="gpu-spin", because=because, certain=bool(gpus))


def _may_compute(view: RankView) -> bool:
    """Whether the pace alone speaks, and some GPU of this rank was not seen to work on nothing."""
    seen = gpus_of(view.case)
    return view.case.outcome.stopped_by is StopReason.PACE and not (seen and all(g.occupied_by_nothing for g in seen))


def _went_past_backward(view: RankView, waiters: Sequence[RankView]) -> str:
    """How the missing rank's last backward ended early; empty unless the others wait for what backward launched."""
    marks = view.facts.heartbeats
    ended = [m for m in marks if m.phase == "backward" and m.edge == "end"]
    waiting = {(v.facts.last.phase, v.facts.last.step) for v in waiters if v.facts.last is not None}
    if not ended or not any(step == ended[-1].step and phase in ("backward", "optim") for phase, step in waiting):
        return ""
    arrivals = [m for m in marks if m.step == ended[-1].step and (m.detail or "").startswith("gradient ")]
    return f" (its last was {arrivals[-1].detail})" if arrivals else " and went on"


def _conclude(
    case: Case,
    found: Divergence,
    views: Sequence[RankView],
    odd: Sequence[RankView],
    *,
    cause: str,
    because: str,
    certain: bool,
) -> Verdict:
    # Progress stopped where the call was made that the others never come to.
    behind = min((view for view in views if view.there), key=lambda view: view.marks, default=views[0])
    first = behind if cause == "collective-mismatch" else (odd or views)[0]
    ras = tuple(report for report in case.evidence.ras if report.launched)
    for report in ras:
        counts = ", ".join(f"rank {rank} {operation}" for rank, operation in report.launched)
        because += f"; NCCL itself counts as launched: {counts}"
    names = [call.op for _, call in found.calls if call is not None]
    recorders = tuple(state.id for state in case.evidence.collectives)
    gpus = tuple(sample.id for sample in case.evidence.gpus)
    verdict = conclude(
        first.case,
        Kind.HANG,
        rule="collective_parted",
        cause=cause,
        because=f"{because}; {silence(first.case)}",
        cites=(
            *recorders,
            *(report.id for report in ras),
            *cited(views),
            *(gpus if cause == "gpu-spin" else ()),
            "progress",
        ),
        confidence=Confidence.HIGH if certain else Confidence.MEDIUM,
        signature=signature(Kind.HANG, cause, dict.fromkeys(names)),
        phase="backward" if cause == "unused-parameter" else None,
    )
    rank = odd[0].rank if len(odd) == 1 else None
    if cause != "unused-parameter":
        return replace(verdict, rank=rank)
    # The rank is long past it: the fault lies in the backward that it ended too early.
    step = next((m.step for m in reversed(first.facts.heartbeats) if (m.phase, m.edge) == ("backward", "end")), None)
    return replace(verdict, rank=rank, step=step)


def _told(call: Collective) -> str:
    shapes = ", ".join("x".join(str(n) for n in size) or "a scalar" for size in call.sizes)
    kinds = "/".join(dict.fromkeys(call.dtypes))
    where = f" at {call.where}" if call.where else ""
    return f"{call.op} of {shapes} {kinds}{where}"


def _group(found: Divergence) -> str:
    return f"process group {found.group}" if found.group else "the process group"
