"""A job that somebody else started and that is still running, when nothing shows that it can never go on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness.classify.facts import conclude
from harness.classify.frames import identical, silent_samples, spell
from harness.classify.motion import ASLEEP, motion
from harness.classify.ranks import alike, views_of, waiting, who
from harness.classify.rules.starved import IDLE_SHARE, LOADER_FILE, fetching
from harness.classify.signature import signature, stack_names
from harness.core.movement import OUTSIDE_WAITS, quiet_windows
from harness.core.outcome import Ending, StopReason
from harness.core.stacks import deciding_thread, is_stdlib, python_frames, telling_frame
from harness.core.verdict import Confidence, Kind
from harness.core.world import world_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.classify.motion import Motion
    from harness.classify.ranks import RankView
    from harness.core.evidence import ProcessState, StackSample, ThreadStack
    from harness.core.verdict import Case, Verdict

MOVING = "moving"
"""The cause that says: no hang was seen."""

ENDED = "ended-meanwhile"
"""The cause that says: nothing of it is left to be judged."""

MAY_COME = (*OUTSIDE_WAITS, "poll", "unix_", "pipe_read", "wait_for_partner")
"""Parts of kernel functions in which a loader's worker waits for something that another program may send."""

CHILD_WAITS = frozenset({"do_wait", "kernel_wait4"})
"""Kernel functions in which it waits for a process of its own. (futex_do_wait is another thing.)"""

LONG_ENOUGH_S = 3.0
"""Time of watching below which nothing is said of a loader that delivers nothing."""

QUEUES = ("/multiprocessing/queues.py", "/multiprocessing/connection.py", "/torch/utils/data/_utils/worker.py")
"""Where a loader's worker is that has nothing to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Helper:
    """A loader's worker: where it is, and how its main thread sleeps. Its other threads only listen for the rank."""

    pid: int
    thread: ThreadStack
    wchan: str
    wakes: bool
    ids: tuple[str, ...]


def running(case: Case) -> Verdict | None:
    """Certainties are for the other rules. Here: a rank that is gone, a loader that can never deliver, or no hang."""
    if case.outcome.ending is not Ending.STILL_RUNNING or case.outcome.stopped_by is StopReason.CERTAIN:
        return None
    return _ended(case) or _gone(case) or _starved(case) or _goes_on(case)


def _ended(case: Case) -> Verdict | None:
    """Nobody is there any more: what was seen before says nothing about an end that nobody saw."""
    views = views_of(case)
    if not views or any(view.there for view in views):
        return None
    several = world_of(case.trial.config) > 1
    name = who(views) if several else f"process {views[0].facts.pid}"
    seen = [view for view in views if view.samples]
    places = [f"{who([view])} in {_place(view)}" if several else _place(view) for view in seen]
    last = f"; last seen: {', '.join(places)}" if places else ""
    verdict = conclude(
        case,
        Kind.UNRESOLVED,
        rule="running",
        cause=ENDED,
        because=f"{name} ended while {'they were' if len(views) > 1 else 'it was'} watched; how, only who started "
        f"{'them' if len(views) > 1 else 'it'} knows{last}",
        cites=(*(view.facts.id for view in views), *_cited(seen), "progress"),
        confidence=Confidence.LOW,
    )
    return replace(verdict, rank=None)


def _place(view: RankView) -> str:
    thread = deciding_thread(view.samples[-1])
    return spell(telling_frame(thread) if thread is not None else None)


def _gone(case: Case) -> Verdict | None:
    views = views_of(case)
    gone = [view for view in views if not view.there]
    waiters = [view for view in views if view.there and view.wait is not None]
    if not gone or not waiters or any(view.wait is None for view in views if view.there):
        return None
    told = "; ".join(waiting(group) for group in alike(waiters))
    verdict = conclude(
        case,
        Kind.HANG,
        rule="running",
        cause="rank-gone",
        because=f"{told}; rank {gone[0].rank} has ended and will not come",
        cites=(*(view.facts.id for view in gone), *_cited(waiters), "progress"),
        confidence=Confidence.MEDIUM,
        signature=signature(Kind.HANG, "rank-gone", (view.wait.name for view in waiters[:1] if view.wait)),
    )
    return replace(verdict, rank=gone[0].rank)


def _starved(case: Case) -> Verdict | None:
    """A loader's worker sleeps for good while its rank waits for a batch; all that others may end is left out."""
    if case.evidence.silence_s < LONG_ENOUGH_S:
        return None
    for view in _singles(case):
        found = _stuck_worker(view)
        if found is None:
            continue
        thread, helper, moved = found
        called = next((f for f in python_frames(thread) if LOADER_FILE not in f.file and not is_stdlib(f)), None)
        others = [v for v in views_of(case) if v.wait is not None]
        told = "".join(f"{waiting(group)}; " for group in alike(others))
        name = f"rank {view.evidence.processes[-1].rank} is missing there: it" if others else "the main thread"
        because = (
            f"{told}{name} waits for a batch of its DataLoader in {spell(called)}; the loader's worker (PID "
            f"{helper.pid}) waits in {spell(telling_frame(helper.thread))} without a time limit (kernel: "
            f"{helper.wchan}), and nothing moved in {moved.seconds:.1f} s"
        )
        samples = silent_samples(view)
        verdict = conclude(
            view,
            Kind.HANG,
            rule="running",
            cause="data-starvation",
            because=because,
            cites=(*(s.id for s in samples), *moved.ids, *helper.ids, "progress"),
            confidence=Confidence.MEDIUM,
            signature=signature(Kind.HANG, "data-starvation", stack_names(helper.thread)),
            phase="data",
        )
        return replace(verdict, rank=view.evidence.processes[-1].rank if case.evidence.ranks else verdict.rank)
    return None


def _singles(case: Case) -> list[Case]:
    """Each rank as if it were all; those that wait in a collective are left out."""
    if not case.evidence.ranks:
        return [case]
    return [view.case for view in views_of(case) if view.there and view.wait is None]


def _stuck_worker(case: Case) -> tuple[ThreadStack, Helper, Motion] | None:
    samples, moved = silent_samples(case), motion(case)
    if moved is None or len(samples) < 2 or not identical(samples):
        return None
    thread = deciding_thread(samples[-1])
    if thread is None or fetching(thread) is None:
        return None
    if not moved.states <= ASLEEP or moved.cpu_share > IDLE_SHARE or moved.io_bytes or not moved.others_still:
        return None
    helpers = _helpers(case, main=samples[-1].pid)
    at_work = [helper for helper in helpers if not _idle(helper)]
    if not at_work or any(_may_come(helper) for helper in at_work):
        return None
    return thread, at_work[0], moved


def _helpers(case: Case, *, main: int) -> list[Helper]:
    found: list[Helper] = []
    for sample in case.evidence.stacks:
        looks = [look for look in case.evidence.processes if look.pid == sample.pid]
        thread = deciding_thread(sample)
        if sample.pid == main or thread is None or not _asleep(looks):
            continue
        state = next((t for t in looks[-1].threads if t.tid == sample.pid), looks[-1].threads[0])
        ids = (sample.id, *(look.id for look in looks))
        # In disk sleep a device may answer; a limit that cannot be told may be one.
        wakes = state.state != "S" or state.timed is not False
        found.append(Helper(pid=sample.pid, thread=thread, wchan=state.wchan, wakes=wakes, ids=ids))
    return found


def _asleep(looks: Sequence[ProcessState]) -> bool:
    windows = quiet_windows(looks)
    return len(windows) > 1 and all(window.still for window in windows)


def _idle(helper: Helper) -> bool:
    own = [frame for frame in python_frames(helper.thread) if not is_stdlib(frame)]
    return not own or own[0].file.endswith(QUEUES)


def _may_come(helper: Helper) -> bool:
    return helper.wakes or helper.wchan in CHILD_WAITS or any(part in helper.wchan for part in MAY_COME)


def _goes_on(case: Case) -> Verdict:
    """UNRESOLVED, with where every rank is; MOVING when something of the job was seen to work."""
    views = views_of(case)
    if views:
        there = [view for view in views if view.there]
        told = [waiting(group) for group in alike([v for v in there if v.wait is not None])]
        absent = [view for view in there if view.wait is None]
        told += [f"rank {view.rank} {_does(view.moved, view.samples)}" for view in absent]
        works = any(_works(view.moved) for view in (absent or there))
        cites = _cited(there)
        rank = absent[0].rank if len(absent) == 1 and len(there) > 1 else None
    else:
        moved, samples = motion(case), silent_samples(case)
        told, works = [f"it {_does(moved, samples)}"], _works(moved)
        cites, rank = (*(s.id for s in samples), *(moved.ids if moved else ())), None
    end = "no hang was seen" if works else f"whether it goes on cannot be told: {case.outcome.why}"
    verdict = conclude(
        case,
        Kind.UNRESOLVED,
        rule="running",
        cause=MOVING if works else "may-go-on",
        because=f"{'; '.join(told)}; {end}",
        cites=(*cites, *(failure.id for failure in case.evidence.failures), "progress"),
        confidence=Confidence.LOW,
    )
    return replace(verdict, rank=rank)


def _works(moved: Motion | None) -> bool:
    return moved is not None and (not moved.asleep or not moved.others_still)


def _does(moved: Motion | None, samples: Sequence[StackSample]) -> str:
    thread = deciding_thread(samples[-1]) if samples else None
    where = f" in {spell(telling_frame(thread))}" if thread is not None else ""
    if moved is None:
        return f"could not be seen moving or not{where}"
    others = f", its helpers {moved.others_cpu_s:.2f} s" if moved.others_cpu_s and not moved.others_still else ""
    if _works(moved):
        return f"works{where}: {moved.cpu_s:.2f} s CPU in {moved.seconds:.1f} s{others}, {moved.switches} switches"
    kernel = f" (kernel: {moved.main_wchan})" if moved.main_wchan else ""
    return f"stands still{where}{kernel}: nothing moved in {moved.seconds:.1f} s"


def _cited(views: Sequence[RankView]) -> tuple[str, ...]:
    ids: list[str] = []
    for view in views:
        ids += [view.facts.id, *(sample.id for sample in view.samples), *(view.moved.ids if view.moved else ())]
    return tuple(ids)
