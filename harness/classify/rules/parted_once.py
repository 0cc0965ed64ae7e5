"""Flight recorders, and only one look at each rank: a recording of somebody else's, or a machine that was lost.

Nothing says what moved. What is left is who never called the operation that the others wait in, and what that rank
was doing in every stack that was taken of it; so this is never more than likely.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from harness.classify.facts import conclude, silence, silent_too_long, watched_out
from harness.classify.frames import plain, spell
from harness.classify.gpus import gpus_of
from harness.classify.ranks import cited, views_of, who
from harness.classify.signature import signature, stack_names
from harness.classify.waits import PYTHON_LOCK
from harness.core.collective import wait_of
from harness.core.collectives import Parting, diverges
from harness.core.stacks import deciding_thread, native_leaf, python_frames, telling_frame
from harness.core.verdict import Confidence, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.classify.ranks import RankView
    from harness.core.collectives import Divergence
    from harness.core.evidence import ProcessState, StackSample, ThreadStack
    from harness.core.verdict import Case, Verdict


def parted_once(case: Case) -> Verdict | None:
    """After four times the limit, and only where no rank was looked at twice: then the other rules know more."""
    if not silent_too_long(case) or not watched_out(case):
        return None
    views = views_of(case)
    if any(view.failed or view.moved is not None for view in views):
        return None
    found = diverges(case.evidence.collectives, world=len(views))
    if found is None:
        return None
    if found.parting is Parting.MISSING and len(found.odd) == 1:
        return _missing(case, found, views)
    return _together(case, found, views) if found.parting is Parting.TOGETHER else None


def _missing(case: Case, found: Divergence, views: Sequence[RankView]) -> Verdict | None:
    view = next((view for view in views if view.rank in found.odd and view.there), None)
    looks = view.case.evidence.processes if view is not None else ()
    if view is None or not looks:
        return None
    thread = _thread(view)
    cause = _cause(view, looks[-1], thread)
    if cause is None:
        return None
    kind = Kind.SLOW if cause == "straggler" else Kind.HANG
    others = [v for v in views if v is not view]
    at = f" in {spell(telling_frame(thread))}" if thread is not None else ""
    call = next(call for _, call in found.calls if call is not None)
    verdict = conclude(
        view.case,
        kind,
        rule="parted_once",
        cause=cause,
        because=f"{who(others)} called {call}, and rank {view.rank} never did: at its only look it was in state "
        f"{looks[-1].state} ({looks[-1].threads[0].wchan}){at}; {silence(view.case)}",
        cites=(*(state.id for state in case.evidence.collectives), *cited(views), looks[-1].id, "progress"),
        confidence=Confidence.MEDIUM,
        signature=signature(kind, cause, stack_names(thread) if thread is not None else ()),
        phase=_phase(thread),
    )
    return replace(verdict, rank=view.rank)


def _cause(view: RankView, look: ProcessState, thread: ThreadStack | None) -> str | None:
    main = look.threads[0]
    if look.state == "T":
        return "stopped"
    if thread is None or look.state != "S" or not _stays(view.samples):
        return None
    if any(name in frame.function for frame in native_leaf(thread) for name in PYTHON_LOCK):
        return "deadlock"
    return "straggler" if main.timed else None


def _stays(samples: Sequence[StackSample]) -> bool:
    """Whether every thread is at the same lines of Python in all samples; one tool may shorten what another spells."""
    places = {
        frozenset(
            (thread.tid, tuple((plain(f.function), PurePosixPath(f.file).name, f.line) for f in python_frames(thread)))
            for thread in sample.threads
            if python_frames(thread)
        )
        for sample in samples
    }
    return len(samples) > 1 and len(places) == 1


def _together(case: Case, found: Divergence, views: Sequence[RankView]) -> Verdict | None:
    """Every rank called it, every host waits for its GPU, and every GPU works on nothing."""
    gpus = gpus_of(case)
    waits = [wait_of(thread) if (thread := _thread(view)) is not None else None for view in views]
    if not gpus or not all(gpu.occupied_by_nothing for gpu in gpus):
        return None
    if any(wait is None or wait.kind != "gpu" for wait in waits):
        return None
    call = next(call for _, call in found.calls if call is not None)
    verdict = conclude(
        case,
        Kind.HANG,
        rule="parted_once",
        cause="collective-stuck",
        because=f"all ranks called {call} and wait for their GPUs, and {'; '.join(map(str, gpus))}: kernels are there "
        f"and work on nothing; {silence(case)}",
        cites=(
            *(state.id for state in case.evidence.collectives),
            *(id for gpu in gpus for id in gpu.ids),
            *cited(views),
            "progress",
        ),
        confidence=Confidence.MEDIUM,
        signature=signature(Kind.HANG, "collective-stuck", (call.op,)),
    )
    return replace(verdict, rank=None)


def _thread(view: RankView) -> ThreadStack | None:
    """The deciding thread, with native frames if any sample has them."""
    best = next((sample for sample in reversed(view.samples) if sample.native), None)
    sample = best or next(iter(view.samples[-1:]), None)
    return deciding_thread(sample) if sample is not None else None


def _phase(thread: ThreadStack | None) -> str | None:
    """``backward`` where the stack is inside the autograd engine; None leaves it to the marks."""
    names = [frame.function for frame in thread.frames] if thread is not None else []
    inside = any("autograd::Engine::" in name or "_engine_run_backward" in name for name in names)
    return "backward" if inside else None
