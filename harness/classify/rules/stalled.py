"""The trial can never go on: its processes wait for each other, for themselves, or for somebody who will not come.

The rule for every standstill, of one process, of several ranks, of a loader or a child. What may go on is for
``harness.reading.standing`` to say; here is which process holds the others up, what that is called, how sure it is, and
how long the silence must be where somebody outside could end it:

- Nobody can end it: at once, when two undisturbed windows show that nothing moves and three samples the same stacks.
  Where a process of the job sleeps until it may end it (``timeout 30 python``): after four times the limit, medium.
- One of several ranks is stopped (state T) while the others wait for it: after five seconds, high; a process beside
  those that train: after two minutes, medium. Where another
  process, or a thread of whoever waits for it, may still continue it: after four times the limit.
- Somebody outside could end it (another program, another machine, a device, whoever stopped all of it): after four
  times the limit, medium. A process that sleeps on a timer wakes by itself, and is never called a hang; but for one
  whose loop is seen, in its source, to do nothing but sleep.
- What it waits for could not be seen: never. It may be a sleep.
- A process beside those that train can never go on, and whoever may see that and end it only looks again and again: as
  long as the limit, and two minutes at least, medium.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.classify.facts import (
    PATIENCE,
    beyond_limit,
    conclude,
    ended,
    ended_in_words,
    job_of_case,
    looks_asleep,
    place,
    silence,
    silence_began_s,
    silence_limit,
    stopped_by_limit,
    watched_out,
    who_sleeps,
)
from harness.classify.rules.desync import desync
from harness.classify.signature import stack_names, stack_path
from harness.classify.views import (
    absent_and_waiting,
    alike,
    cited,
    has_failed,
    others_than,
    still_there,
    views_of,
    waiting,
    who,
)
from harness.core.node import in_words
from harness.core.outcome import Ending
from harness.core.verdict import Confidence, Kind
from harness.reading.desync import Parting
from harness.reading.fault import CAUSES, threads_at_fault
from harness.reading.frames import own_frame, python_frames, spell, telling_frame, thread_of
from harness.reading.gpus import Gpus, gpus_of_pids
from harness.reading.loops import goes_nowhere, sleeps_for_ever
from harness.reading.meeting import meeting_of
from harness.reading.pace import ASKED_S, LOOKED_S
from harness.reading.ranks import idles_for_good, late_ranks
from harness.reading.standing import ENDS, LOADER_WORKER, MESSAGES, culprit
from harness.reading.stillness import SAMPLES, STOPPED_S, may_use_a_gpu, onlookers_of, plain_onlookers_of
from harness.reading.waits import (
    FROM_OUTSIDE,
    HANDED_ON,
    SHARED_LOCK,
    UNSEEN,
    Ender,
    gil_holder,
    lock_cause,
    may_call_back,
    wait_of,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from harness.classify.views import RankView
    from harness.core.evidence import EvidenceId, LoopSample, ProcessState, StackSample, ThreadState
    from harness.core.verdict import Case, Verdict
    from harness.reading.ranks import Job
    from harness.reading.standing import Chance, Standing

LATE_EXIT = "late-exit"
"""All steps are done, but the process does not end."""

STOPPED = "stopped"
"""By a signal: where it stood then says nothing."""

FULL_PIPE = "blocked-pipe"
"""The wait of whoever writes to a pipe that nobody reads."""

LEAST_S = 2.0
"""No silence shorter than this is looked into: two undisturbed windows take longer."""

LOADER_FILE = "/torch/utils/data/dataloader.py"

WHOSE = {
    "locals": "it calls nothing that may be at work",
    "python": "it calls nothing that may be at work, and no other thread that runs Python can run",
    "threads": "it calls nothing that may be at work, and all other threads sleep",
}
"""What is known of a loop of which nothing changes, by what it needs (``LoopSample.needs``)."""

ALONE = "it calls nothing that may be at work, and there is no other thread"
"""The same of a process with one thread."""

NEVER_ENDS = frozenset({Ender.TIMER})
"""Enders whose wait is never called a hang, however long it lasts: what sleeps on a timer wakes by itself."""


def stalled(case: Case) -> Verdict | None:
    """What can never go on, or has waited for the outside beyond all patience."""
    if not stopped_by_limit(case) or case.evidence.silence_s < LEAST_S:
        return None
    if has_failed(case):
        return None
    job = job_of_case(case)
    nowhere: dict[int, LoopSample] = {}
    for pid, one in job.stand.items():
        loop = _endless(job, one)
        if loop is not None:
            nowhere[pid] = loop
    live = job.alive(lambda one: one.pid in nowhere)
    never = [pid for pid in job.leaders if pid not in live]
    verdict = _never(case, job, never, nowhere) if never else None
    if verdict is not None and job.may_be_ended(job.stand.keys() - live.keys(), live):
        verdict = replace(verdict, confidence=Confidence.MEDIUM) if watched_out(case) else None
    elif verdict is not None and (patience_s := _patience_beside(case, job, never)):
        is_long = case.evidence.silence_s >= patience_s
        verdict = replace(verdict, confidence=Confidence.MEDIUM) if is_long else None
    return verdict or _patience(case, job, live) or _part(case, job, live)


def _part(case: Case, job: Job, live: Collection[int]) -> Verdict | None:
    """A process that can never go on, where all others have done nothing for long but to look whether it has."""
    if case.evidence.silence_s < max(silence_limit(case).seconds, LOOKED_S):
        return None
    if any(job.stand[pid].may_give_up for pid in live):
        return None  # it asks until a time of its own, and then does something else
    motions = [job.stand[pid].motion for pid in live]
    others = [moved for moved in motions if moved is not None]
    parts = stuck_parts(case)
    if not parts or not all(moved.polls for moved in others) or not any(moved.switches for moved in others):
        return None
    looks = f"all others have only looked again and again for {case.evidence.silence_s:.0f} s"
    return replace(parts[0], confidence=Confidence.MEDIUM, because=f"{silence(case)}; {parts[0].because}; {looks}")


def _patience_beside(case: Case, job: Job, never: Sequence[int]) -> float:
    """How long it is waited for what hardly lets ``never`` on, seconds; 0 without any.

    Threads that by their source look on, or that a package wakes; somebody outside who may know a service of theirs.
    A package's thread that asks again and again may call what it was given once what it asks for is there, after
    however long: a file, a lock of another program's. It is waited for as anybody outside is.
    """
    if any(job.stand[pid].serves_itself for pid in job.waited_for(never)):
        return LOOKED_S
    trains: set[int] = set()
    for pid in job.leaders:
        thread = job.stand[pid].thread
        if thread is not None:
            trains.add(thread.tid)
    onlookers = plain = frozenset[int]()
    if any(one.callers - trains for one in job.stand.values()):
        return max(PATIENCE * silence_limit(case).seconds, LOOKED_S)
    for one in job.stand.values():
        looking = onlookers_of(one.samples)
        tasks = {tid for tid in looking if tid < 0}
        onlookers |= ((looking & one.wakers) | tasks) - trains
        plain |= plain_onlookers_of(one.samples)
    if not onlookers:
        return 0.0
    return ASKED_S if onlookers <= plain else LOOKED_S


def stuck_parts(case: Case) -> tuple[Verdict, ...]:
    """Processes of a job that can never go on, though the job may: whoever started them sleeps between two looks.

    What sleeps on a timer is never called a hang: it may see what has happened, and end it. That its child will not go
    on by itself is certain all the same.
    """
    job = job_of_case(case)
    parts: list[Verdict] = []
    for one in stuck(job):
        verdict = _waiting_verdict(case, one, _cause(case, job, one.pid, one), Confidence.HIGH)
        parts.append(replace(verdict, because=_standstill(case, one)))  # its silence is not the job's
    return tuple(parts)


def stuck(job: Job) -> list[Standing]:
    """The processes beside those that train which can never go on, each where a chain of waits ends."""
    live = job.alive()
    ends = {culprit(job.stand, pid).pid for pid in job.stand.keys() - live.keys() - {*job.leaders}}
    standings: list[Standing] = []
    for pid in sorted(ends - live.keys()):
        one = job.stand[pid]
        if one.samples and _stacks_agree(one, job):
            standings.append(one)
    return standings


def _endless(job: Job, one: Standing) -> LoopSample | None:
    """The loop that a process burns its CPU in, or only sleeps in, and that can never end; None where it may."""
    moved = one.motion
    if one.state is not None and one.state.timed:
        return _sleeps_for_ever(job, one, one.state.tid)
    if moved is None or moved.busiest == 0 or not moved.rests_beside(moved.busiest) or moved.still:
        return None
    if one.may_be_interrupted:
        return None
    last = one.looks[-1]
    awaited = MESSAGES if one.command.startswith(LOADER_WORKER) else MESSAGES | {ENDS}
    signals = {*last.own_handles, *awaited.intersection(last.handles)}
    live = job.alive(lambda other: other.pid == one.pid)
    awake = [thread for thread in moved.threads if thread.tid != moved.busiest and _may_wake(thread, live)]
    alone = not signals and not awake and not live
    by_python = [t for t in awake if t.tid in one.runs_python or t.state not in "SI" or may_call_back(t)]
    alone_in_python = not signals and one.background.issuperset(thread.tid for thread in by_python)
    return goes_nowhere(one.samples, tid=moved.busiest, alone=alone, alone_in_python=alone_in_python)


def _may_wake(thread: ThreadState, live: Collection[int] = ()) -> bool:
    """Whether a thread runs, or something outside the job may let it go on, or a process that itself may (``live``)."""
    wait = wait_of(thread)
    if thread.state not in "SI" or thread.timed is not False or wait is None or wait.outside:
        return True
    return not frozenset(live).isdisjoint(wait.holders)


def _sleeps_for_ever(job: Job, one: Standing, tid: int) -> LoopSample | None:
    """The loop without a way out in which a thread only sleeps; None where something else of its process may leave it.

    Of what sleeps on a timer it is the one that is known never to do anything when it wakes: a rank that keeps its
    process alive after an error, while the others wait for it.
    """
    last, live = one.looks[-1], job.alive(lambda other: other.pid == one.pid)
    if one.has_another_thread or last.children or last.handles or last.own_handles:
        return None
    for thread in last.threads:
        wait = wait_of(thread)
        if thread.tid != tid and wait is not None and live.keys() & wait.holders:
            return None
    return sleeps_for_ever(one.samples, tid=tid)


# -- who holds the others up


def _never(case: Case, job: Job, never: Sequence[int], nowhere: dict[int, LoopSample]) -> Verdict | None:
    """Of the leaders that can never go on: the process where the chain of waits ends."""
    own: dict[int, Standing] = {}
    for pid in never:
        end = _end_of_waits(job, pid, nowhere)
        if _is_own(end, job) and _works_for(end, pid, job):
            own[pid] = end
    if not own and (verdict := desync(case)):
        return verdict
    if not own:
        own = {pid: job.stand[pid] for pid in never if _is_in_a_circle(job, pid)}
    if not own:
        return None
    marks = {view.facts.pid: view.marks for view in views_of(case)}
    # Of several ranks that are each stuck somewhere of their own, the one that fell silent first.
    leader = min(own, key=lambda pid: marks.get(pid, 0))
    one = own[leader]
    cause, confidence = _cause(case, job, leader, one), Confidence.HIGH
    if any(before.asks for before in _chain(job, leader, one.pid)):
        if case.evidence.silence_s < ASKED_S and not _fetches(job.stand[leader]):
            return None
        confidence = Confidence.MEDIUM
    if one.pid in nowhere:
        verdict = replace(_loop_verdict(case, one, nowhere[one.pid]), confidence=confidence)
        return _about(case, job, leader, one, verdict, own)
    if not _stacks_agree(one, job) and not (one.pid == leader and _needs_no_stacks(case, one)):
        return None
    if one.meeting is not None and one.meeting.kind == "gpu":
        return _about(case, job, leader, one, _gpu_verdict(case, one), own)
    elsewhere = _may_be_held_elsewhere(case, one)
    verdict = _waiting_verdict(case, one, cause, Confidence.MEDIUM if elsewhere else confidence)
    verdict = replace(verdict, because=f"{verdict.because}{elsewhere}{_met_by_a_thread(one)}")
    return _about(case, job, leader, one, verdict, own)


def _may_be_held_elsewhere(case: Case, one: Standing) -> str:
    """That somebody outside may have the lock, or the pipe.

    Who lost his parent is not of the tree of a job that was attached to.
    """
    is_watched = case.outcome.ending is Ending.STILL_RUNNING
    if not is_watched or one.wait is None or not one.wait.what.startswith((SHARED_LOCK, *HANDED_ON)):
        return ""
    return "; a process that has left its tree, where nobody looked, may have it"


def _met_by_a_thread(one: Standing) -> str:
    """The collective in which another thread of a stuck rank waits, which may have the lock that the rank wants."""
    if one.meeting is not None or not one.meets_in_a_thread:
        return ""
    for thread in one.samples[-1].threads:
        meeting = meeting_of(thread)
        if meeting is not None and meeting.kind != "gpu":
            caller = meeting.frame
            called = f", called from {spell(caller)}" if caller is not None and not caller.native else ""
            return f"; its thread {thread.name or thread.tid} waits in {meeting.name}{called}"
    return ""


def _end_of_waits(job: Job, start: int, nowhere: Collection[int]) -> Standing:
    """Where the chain of waits that begins at ``start`` ends: at an endless loop rather than at who waits in turn."""
    for pid in (start, *sorted(_waited_for(job, start))):
        if pid in nowhere and _works_for(job.stand[pid], start, job):
            return job.stand[pid]
    return culprit(job.stand, start)


def _works_for(one: Standing, leader: int, job: Job) -> bool:
    """Whether the process that holds ``leader`` up is that very rank, or one that works for it.

    What started it only holds it up because it does not start another rank anew, which has ended.
    """
    if job.ended_ranks and one.pid == job.stand[leader].parent:
        return False
    return not job.several or one.rank == job.stand[leader].rank


def _is_in_a_circle(job: Job, pid: int) -> bool:
    """Whether a rank stands in a wait of its own until other ranks go on, which wait for it: a lock, a collective."""
    return _is_own(job.stand[pid], job) and pid in _waited_for(job, pid)


def _waited_for(job: Job, pid: int) -> set[int]:
    """All processes that one waits for, those behind others among them."""
    beyond, ahead = set[int](), set(job.stand[pid].depends_on)
    while ahead:
        beyond |= ahead
        following = set[int]()
        for at in ahead & job.stand.keys():
            following |= job.stand[at].depends_on
        ahead = following - beyond
    return beyond


def _is_own(one: Standing, job: Job) -> bool:
    """Whether a process is stuck somewhere of its own, rather than in a wait for other ranks."""
    if one.pid not in job.leaders or one.meeting is None or not job.several:
        return True
    return one.meeting.kind == "gpu" and not one.chances and not _waits_for_ranks(one, job)


def _waits_for_ranks(one: Standing, job: Job) -> bool:
    rank = one.rank
    for divergence in job.divergences:
        differ = divergence.parting in (Parting.OPERATION, Parting.SHAPE)
        missing = (*divergence.odd, *late_ranks(divergence))
        if dict(divergence.calls).get(rank) is not None and (differ or rank not in missing):
            return True
        if divergence.behind is not None and rank in divergence.odd:
            return True
    return bool(job.circle)


def _chain(job: Job, start: int, end: int) -> list[Standing]:
    """The processes that wait for each other from ``start`` to ``end``."""
    path, at = {start: job.stand[start]}, start
    while at != end:
        following = job.stand[at].depends_on & job.stand.keys() - path.keys()
        if not following:
            break
        at = end if end in following else min(following)
        path[at] = job.stand[at]
    return list(path.values())


def _stacks_agree(one: Standing, job: Job) -> bool:
    """Whether stacks agree with what the kernel says; of a program that is not Python there are none."""
    if len(one.samples) >= SAMPLES:
        return one.stays or (one.meeting is not None and one.meeting.kind == "gpu")
    return one.pid not in job.leaders and _is_plain(one)


def _needs_no_stacks(case: Case, one: Standing) -> bool:
    """Whether what trains is no Python: that all its threads wait for each other the kernel alone tells."""
    return any(failure.no_python for failure in case.evidence.failures) and _is_plain(one)


def _python_has_ended(case: Case, one: Standing) -> bool:
    return not one.samples and any(failure.python_ended for failure in case.evidence.failures)


def _is_plain(one: Standing) -> bool:
    """Whether of a process without stacks the kernel tells who ends its wait: one for a GPU may look like a lock."""
    return not one.samples and not may_use_a_gpu(one.looks[-1]) and one.wait is not None and bool(one.wait.enders)


def _cause(case: Case, job: Job, leader: int, one: Standing) -> str:
    """What the standstill is called; the most specific evidence first."""
    last = case.evidence.last
    at_its_end = ended(case) and last is not None and last.edge == "end"
    if one.pid == leader and (at_its_end or _python_has_ended(case, one)):
        return LATE_EXIT
    if _fetches(job.stand[leader]) and not (one.pid != leader and _waits_for_its_own(one)):
        dead = job.stand[leader].looks[-1].dead_children
        return "loader-worker-dead" if dead and one.pid == leader else "data-starvation"
    if gil_holder(one.samples) is not None:
        return "gil-held"
    wait = one.wait
    if wait is None:
        return "native-wait"
    if wait.cause == "blocked-io" and one.looks[-1].dead_children:
        return "loader-worker-dead" if last is not None and last.phase == "data" else "child-dead"
    if one.awaits_itself:
        return "deadlock"
    other = _other_of_a_circle(job, one)
    if other is not None and other.wait is not None and other.wait.cause == FULL_PIPE:
        return FULL_PIPE  # to wait for a child's end, or for another pipe of it, is wrong for that alone
    if Ender.PROCESS in wait.enders:
        return lock_cause(one.thread, native=bool(one.native))
    return wait.cause


def _fetches(one: Standing) -> bool:
    """Whether a process waits for a batch of its DataLoader."""
    return one.thread is not None and any(f.file.endswith(LOADER_FILE) for f in python_frames(one.thread))


def _waits_for_its_own(one: Standing) -> bool:
    """Whether a process waits for a lock that no other process may give back."""
    return one.wait is not None and one.wait.enders == frozenset({Ender.PROCESS})


# -- in words


def _about(case: Case, job: Job, leader: int, one: Standing, verdict: Verdict, also: Collection[int]) -> Verdict:
    """The verdict on the process that holds the others up, as one on the whole trial."""
    chain, because = _chain(job, leader, one.pid), f"{verdict.because}{_joined_by_the_main_thread(one)}"
    because += _at_fault(one) if verdict.cause in CAUSES else ""
    for before in reversed(chain[:-1]):
        because += f"; {_waits_for_the_next(before, job)}"
    circle = [before for before in chain[:-1] if before.pid in one.depends_on]
    if circle and _whom_is_known(one, job):
        because += f"; as {_name(one)} waits for {_name(circle[0])} in turn, neither comes first"
    elif circle:
        because += f"; in turn {_only(_name(circle[0]), one)} could let {_name(one)} go on, so neither comes first"
    elif len(chain) == 1 and (other := _other_of_a_circle(job, one)):
        because += f"; {_waits_in_turn(other, one)}"
        chain += [other] if _at(other) else []
    verdict = replace(verdict, because=because, cites=tuple(dict.fromkeys((*verdict.cites, *cited(chain)))))
    return _about_ranks(case, job.stand[leader].rank, one, verdict, also) if job.several else verdict


def _joined_by_the_main_thread(one: Standing) -> str:
    """That the main thread does nothing but wait for the end of the one that decides, and where."""
    for sample in reversed(one.samples):
        main = thread_of(sample, one.pid)
        if main is not None and one.decides != one.pid and one.pid in dict(sample.joins):
            return f"; the main thread waits for it to end, in {spell(telling_frame(main))}"
    return ""


def _at_fault(one: Standing) -> str:
    """The threads that could let the deciding one go on, and where they are stuck themselves."""
    stuck = threads_at_fault((one.native or one.samples)[-1], one.looks[-1]) if one.samples else ()
    if not stuck:
        return ""
    at = spell(own_frame(stuck[0]))
    if len(stuck) == 1:
        return f"; thread {stuck[0].name or stuck[0].tid}, which could let it go on, waits in {at}"
    return f"; {len(stuck)} threads that could let it go on wait in {at}"


def _waits_for_the_next(one: Standing, job: Job) -> str:
    if _whom_is_known(one, job):
        return f"{_name(one)} waits for it{_at(one)}"
    return f"{_only('it', one)} could let {_name(one)} go on, which waits{_at(one)}{_dead_of(one)}"


def _only(name: str, one: Standing) -> str:
    """Who could end the wait of ``one``: of several none can, or it would not be at a standstill."""
    return f"{name} alone" if len(one.depends_on) == 1 else f"only {name} and others that stand still"


def _whom_is_known(one: Standing, job: Job) -> bool:
    """Whether ``one`` waits for whoever alone may end its wait.

    Who has a lock is not to be seen; and what a dead process was to give, nobody does who has its pipe open.
    """
    is_lock = one.wait is not None and one.wait.what == SHARED_LOCK
    parent = job.stand.get(one.parent)
    return not is_lock and not _dead_of(one) and (parent is None or not _dead_of(parent))


def _dead_of(one: Standing) -> str:
    """That children of it did not end well: those that it has not waited for, or those of which it knows how."""
    dead = one.looks[-1].dead_children if one.looks else 0
    children = one.looks[-1].ended_children if one.looks else ()
    if children and not dead:
        when = " before it was first looked at" if children == one.looks[0].ended_children else ""
        theirs = "its" if len(children) == 1 else "theirs"
        words = ended_in_words(children, of=_name(one))
        return f"; {words}{when}, and what is waited for may have been {theirs} to give"
    if not dead:
        return ""
    of, theirs = ("a child", "its") if dead == 1 else (f"{dead} children", "theirs")
    return f"; {of} of {_name(one)} ended before, and what is waited for may have been {theirs} to give"


def _other_of_a_circle(job: Job, one: Standing) -> Standing | None:
    """The process for which ``one`` waits and which waits for it, and not for an answer alone."""
    for pid in sorted(one.depends_on & job.stand.keys()):
        other = job.stand[pid]
        if not other.asks and one.pid in other.depends_on:
            return other
    return None


def _waits_in_turn(other: Standing, one: Standing) -> str:
    how = next(chance.how for chance in other.chances if one.pid in chance.who)
    return f"{_name(other)} waits for it in turn{_at(other)} ({how}), and neither comes first"


def _about_ranks(case: Case, rank: int, one: Standing, verdict: Verdict, also: Collection[int]) -> Verdict:
    """The same of a job of several ranks: which of them, and where the others wait."""
    views = views_of(case)
    view = next(v for v in views if v.rank == rank)
    rest = others_than(view, views)
    stuck = [v for v in views if v.facts.pid in also]
    others = [v for v in absent_and_waiting(still_there(rest))[1] if v not in stuck]
    all_alike = len(stuck) == len(still_there(views)) > 1
    last = view.facts.last
    return replace(
        verdict,
        because=_of_ranks(view, one, verdict, others=others, stuck=stuck, all_alike=all_alike),
        cites=tuple(dict.fromkeys((view.facts.id, *verdict.cites, *cited(rest)))),
        phase=verdict.phase if verdict.phase == "exit" else view.phase,
        step=last.step if last is not None else None,
        rank=None if all_alike else rank,
    )


def _of_ranks(
    view: RankView,
    one: Standing,
    verdict: Verdict,
    *,
    others: Sequence[RankView],
    stuck: Sequence[RankView],
    all_alike: bool,
) -> str:
    if all_alike:
        return f"{who(stuck)} hang alike: {verdict.because}"
    also = others_than(view, stuck)
    more = f"; {who(also)} hang{'s' if len(also) == 1 else ''} as well, later" if also else ""
    if not others:
        return f"{verdict.because}{more}"
    waiters = "; ".join(map(waiting, alike(others)))
    return f"rank {view.rank} does not come: {_whereabouts(view, one, verdict)}; {waiters}; {verdict.because}{more}"


def _whereabouts(view: RankView, one: Standing, verdict: Verdict) -> str:
    """In few words where the missing rank is: ``it waits in log_gradient (hooks.py:9), in backward of step 1``."""
    at = f" in {spell(telling_frame(one.thread))}" if one.thread is not None else ""
    verb = {"stopped": "it is stopped", "infinite-loop": "it runs without an end"}.get(verdict.cause or "", "it waits")
    # Of a job that somebody else started no marks are known.
    unmarked = view.facts.last is None and view.case.outcome.ending is Ending.STILL_RUNNING
    return f"{verb}{at}" if unmarked else f"{verb}{at}, {place(view.case)}"


def _name(one: Standing) -> str:
    return f"process {in_words(one.pid)} ({one.command})" if one.command else f"process {in_words(one.pid)}"


def _at(one: Standing) -> str:
    frame = own_frame(one.thread) if one.thread is not None else None
    return f" in {spell(frame)}" if frame is not None else ""


def _case_of(case: Case, one: Standing) -> Case:
    """The trial as its rank saw it, where there are several."""
    for view in views_of(case):
        if view.rank == one.rank:
            return view.case
    return case


_BY_A_DEAD_CHILD = frozenset({"child-dead", "loader-worker-dead"})


def _waiting_verdict(case: Case, one: Standing, cause: str, confidence: Confidence) -> Verdict:
    at_exit = cause == LATE_EXIT
    because = f"{_standstill(case, one)}{_other_threads(one) if at_exit and one.samples else ''}"
    if _python_has_ended(case, one):
        because += "; its interpreter has ended: a library waits in a destructor or an exit handler"
    by_a_child = cause in _BY_A_DEAD_CHILD or (one.looks and one.looks[-1].ended_children)
    because += _dead_of(one) if by_a_child else ""
    sure = confidence if one.native or one.wait is not None else Confidence.MEDIUM
    return _hang(case, one, cause, because, confidence=sure, phase="exit" if at_exit else None)


def _hang(
    case: Case,
    one: Standing,
    cause: str,
    because: str,
    *,
    confidence: Confidence,
    cites: Sequence[EvidenceId] | None = None,
    phase: str | None = None,
) -> Verdict:
    """That ``one`` hangs, after the silence of its own rank; all that was seen of it is cited unless said otherwise."""
    own = _case_of(case, one)
    thread = one.thread if cause != STOPPED else None
    names, path = (stack_names(thread), stack_path(thread)) if thread is not None else ((), ())
    return conclude(
        own,
        Kind.HANG,
        rule="stalled",
        cause=cause,
        because=f"{silence(own)}; {because}",
        cites=(*(one.ids if cites is None else cites), "progress"),
        confidence=confidence,
        names=names,
        path=path,
        phase=phase,
    )


def _standstill(case: Case, one: Standing) -> str:
    """What shows that one process stands still: every look, every sample, its CPU time."""
    moved = one.motion
    looks = looks_asleep(one)
    several = moved is not None and len(moved.threads) > 1
    sleep = f"{who_sleeps(one)} sleep{'' if several else 's'}"
    who = "" if one.pid in job_of_case(case).leaders else f"{_name(one)}: "
    used = f"; {moved.cpu_s:.2f} s CPU in {moved.seconds:.1f} s" if moved is not None else ""
    if one.thread is None or not one.samples:
        waits = f" and the process waits for {one.wait.what}" if one.wait is not None else ""
        return f"{who}at {looks} {sleep}{waits}{_kernel_wait(one)}{used}"
    sample = (one.native or one.samples)[-1]
    is_main = one.thread.name == "MainThread" or one.thread.tid == sample.pid
    which = "the main thread" if is_main else f"thread {one.thread.name or one.thread.tid}"
    weaker = "" if one.native else f", as {sample.source} says without native frames"
    agree = len(one.samples)
    return (
        f"{who}at {looks} {sleep}, and in {agree} of {agree} samples {which} waits in "
        f"{spell(telling_frame(one.thread))}{weaker}{_kernel_wait(one)}{used}"
    )


def _kernel_wait(one: Standing) -> str:
    state = one.state
    if state is None or not (state.wchan or state.on):
        return ""
    on = "an event loop that only its own tasks and threads could wake" if one.awaits_itself else state.on
    return f" (kernel: {', '.join(filter(None, (state.wchan, on)))})"


def _other_threads(one: Standing) -> str:
    """The threads beside the main one that a process which is done still has, and where they are."""
    sample: StackSample = (one.native or one.samples)[-1]
    others: list[str] = []
    for thread in sample.threads:
        is_main = thread.tid == one.pid or thread.name == "MainThread"
        if not is_main and python_frames(thread):
            others.append(f"{thread.name} in {spell(telling_frame(thread))}")
    threads = ", ".join(others[:3])
    return f"; all steps are done, and these threads are left: {threads}" if threads else "; all steps are done"


def _loop_verdict(case: Case, one: Standing, loop: LoopSample) -> Verdict:
    moved = one.motion
    assert moved is not None, "a loop that burns CPU was seen to move"
    why = loop.endless or (WHOSE[loop.needs] if len(one.looks[-1].threads) > 1 else ALONE)
    file = loop.file.rpartition("/")[2]
    but = ", but for those that it only counts with," if loop.deciding else ""
    same = "" if loop.endless else f"its variables{but} are the same in {SAMPLES} of {SAMPLES} samples, "
    used = f"{moved.cpu_s:.1f} s CPU in {moved.seconds:.1f} s"
    rest = f"; {same}memory, page faults and I/O do not move"
    if one.state is not None and one.state.timed:
        used, rest = f"{len(one.samples)} of {len(one.samples)} samples", ""
    because = f"{used} in `{loop.header}` of {loop.function} ({file}:{loop.header_line}), which never ends: {why}{rest}"
    return _hang(case, one, "infinite-loop", because, confidence=Confidence.HIGH)


def _gpu_verdict(case: Case, one: Standing) -> Verdict:
    gpus = gpus_of_pids(case.evidence, {one.pid}, since_s=one.looks[0].t_s - 1.0)
    frame = one.meeting.frame if one.meeting is not None else None
    cause, why = "gpu-spin", "a kernel is there and works on nothing"
    if idles_for_good(one, Gpus(case.evidence.gpus)):
        seconds = min(gpu.idles.seconds for gpu in gpus)
        cause, why = "native-wait", f"no kernel was there for {seconds:.0f} s, and all other threads sleep: what is "
        why += "queued waits for an event, a flag or a callback that nobody will end"
    because = (
        f"in {len(one.samples)} of {len(one.samples)} samples the host waits for its GPU in "
        f"{spell(frame)}, and {'; '.join(map(str, gpus))}: {why}"
    )
    verdict = _hang(case, one, cause, because, confidence=Confidence.MEDIUM, cites=cited([one, *gpus]))
    return replace(verdict, path=())  # the host runs ahead of its GPU, and may come to wait for it anywhere


# -- what the outside may end


def _patience(case: Case, job: Job, live: dict[int, Chance]) -> Verdict | None:
    """A standstill that only somebody outside can end, after all the patience that is due to that."""
    if not job.leaders or not live.keys() >= {*job.leaders}:
        return None
    ends: dict[int, tuple[Standing, Chance]] = {}
    for pid in job.leaders:
        end = _outside_end(job, pid, live)
        if end is None:
            return None  # something of it moves
        ends[pid] = end
    for one, chance in ends.values():
        if chance.ender is Ender.SOMEBODY:
            alone = all(pid == end.pid for pid, (end, _) in ends.items())
            return _stopped(case, job, one, alone=alone)
    for pid, (one, chance) in ends.items():
        is_in_a_kernel = one.pid == pid and chance.ender is Ender.DEVICE
        if job.stand[pid].meeting is None or not job.several or is_in_a_kernel:
            return _outlasted(case, job, pid, one, chance)
    return _never_over(case, job) if watched_out(case) else None


def _outlasted(case: Case, job: Job, leader: int, one: Standing, chance: Chance) -> Verdict | None:
    """The process that holds ``leader`` up, which ``chance`` may let go on, once more than patience has passed."""
    if one.meeting is not None and one.meeting.kind == "gpu" and chance.ender is Ender.DEVICE:
        if not watched_out(case) or _a_gpu_works(case, job):
            return None
        return _about(case, job, leader, one, _gpu_verdict(case, one), [leader])
    if not one.stays or len(one.samples) < SAMPLES:
        return None
    if _keeps_the_lock(one) and chance.ender not in FROM_OUTSIDE and case.evidence.silence_s >= ASKED_S:
        verdict = _waiting_verdict(case, one, "gil-held", Confidence.MEDIUM)
        return _about(case, job, leader, one, verdict, [leader])
    if not watched_out(case) or not _stood_throughout(case, one) or _may_be_healthy(case, job, one, chance):
        return None
    cause, waits = _cause(case, job, leader, one), job.stand[leader].wait
    if one.pid != leader and cause == "blocked-io" and waits is not None:
        cause = waits.cause
    verdict = _waiting_verdict(case, one, cause, Confidence.MEDIUM)
    verdict = replace(verdict, because=f"{verdict.because}; only {chance.ender} could end it")
    return _about(case, job, leader, one, verdict, [leader])


def _stood_throughout(case: Case, one: Standing) -> bool:
    """Whether the thread that decides was in one and the same wait for all that patience.

    One that was let go on and waits anew gets on, though every round of looks finds it in the same place: the looks
    between which no dumper ran tell that.
    """
    began_s, tid = silence_began_s(case), one.state.tid if one.state is not None else one.pid
    by_id = {look.id: look for look in one.looks}
    let_go_s = began_s
    for look in one.looks:
        opening = by_id.get(look.undisturbed_since or "")
        if opening is not None and _switches(opening, tid) != _switches(look, tid):
            let_go_s = max(let_go_s, look.t_s)
    return case.evidence.silence_s - (let_go_s - began_s) >= PATIENCE * silence_limit(case).seconds


def _switches(look: ProcessState, tid: int) -> int:
    thread = look.thread.get(tid)
    return thread.voluntary_switches if thread is not None else 0


def _may_be_healthy(case: Case, job: Job, one: Standing, chance: Chance) -> bool:
    """Whether the wait is one that is never called a hang: on a timer, on a GPU that works, or not seen at all."""
    if chance.ender in NEVER_ENDS or (one.wait is not None and one.wait.cause == UNSEEN.cause):
        return True
    if chance.ender is Ender.DEVICE and _a_gpu_works(case, job):
        return True
    return _unseen_children(job, one)


def _never_over(case: Case, job: Job) -> Verdict | None:
    """Ranks that wait for each other beyond all patience, though what connects them could end it: never certain."""
    verdict = None if _a_gpu_works(case, job) else desync(case)
    return None if verdict is None else replace(verdict, confidence=Confidence.MEDIUM)


def _a_gpu_works(case: Case, job: Job) -> bool:
    return any(gpu.works for gpu in gpus_of_pids(case.evidence, job.leaders, since_s=silence_began_s(case)))


def _keeps_the_lock(one: Standing) -> bool:
    """Whether its deciding thread sleeps in C and keeps the interpreter's lock, which nothing healthy does for long.

    Unless a thread of an extension's own wakes by the clock: it may be at work for whoever sleeps.
    """
    if one.state is None or one.state.timed or one.motion is None or not one.motion.polls:
        return False
    for look in one.looks:
        if any(thread.timed and may_call_back(thread) for thread in look.threads):
            return False
    return gil_holder(one.samples) == one.state.tid


def _unseen_children(job: Job, one: Standing) -> bool:
    """Whether it has processes of its own that nobody looked at: recordings of older versions."""
    return one.looks[-1].children > sum(other.parent == one.pid for other in job.stand.values())


def _outside_end(job: Job, start: int, live: dict[int, Chance]) -> tuple[Standing, Chance] | None:
    """The process that somebody outside may let go on, on whom ``start`` depends; None where one of them moves.

    It may depend on several: a loader on a worker that waits for a file, and on an idle one that asks it for work.
    """
    end: tuple[Standing, Chance] | None = None
    visited, frontier = {start}, [start]
    while frontier:
        at = frontier.pop(0)
        chance = live[at]
        if chance.moves:
            return None
        if chance.ender is not None:
            end = end or (job.stand[at], chance)
        following = sorted((chance.who & live.keys()) - visited)
        visited.update(following)
        frontier += following
    return end


def _stopped(case: Case, job: Job, one: Standing, *, alone: bool) -> Verdict | None:
    """State T at every look of five seconds or more; all of a job may be stopped by who means to go on with it.

    So may a process beside those that train: two minutes are waited for whoever stopped that.
    """
    if one.looks[-1].state != "T" or one.stopped_s < STOPPED_S or (alone and not beyond_limit(case)):
        return None
    is_beside = one.pid not in job.leaders
    if is_beside and case.evidence.silence_s < LOOKED_S and not watched_out(case):
        return None
    if _may_be_continued(job, one) and not watched_out(case):
        return None
    in_state_t = [look.id for look in one.looks if look.state == "T"]
    because = (
        f"{_name(one)}: state T (stopped by a signal) at {len(in_state_t)} of {len(one.looks)} looks, "
        f"for {one.stopped_s:.1f} s"
    )
    confidence = Confidence.MEDIUM if is_beside else Confidence.HIGH
    verdict = _hang(case, one, STOPPED, because, confidence=confidence, cites=in_state_t)
    leader = _leader_of(one, job)
    return _about(case, job, leader, one, verdict, [leader])


def _leader_of(one: Standing, job: Job) -> int:
    """The rank that a process is, or works for; the process itself without one."""
    for pid in job.leaders:
        if job.stand[pid].rank == one.rank:
            return pid
    return one.pid


def _may_be_continued(job: Job, one: Standing) -> bool:
    """Whether a process of the job may continue the stopped one, or a thread of whoever waits for its end.

    A rank that waits for another in a collective started none, and would not know which to continue.
    """
    for other in job.stand.values():
        if one.pid in other.depends_on and other.meeting is None and other.may_act_by_a_thread:
            return True
    return job.may_be_ended([one.pid], job.alive(lambda other: other.pid == one.pid))
