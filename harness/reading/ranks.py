"""The job: which ranks there are, by what was seen, and how those that wait for each other depend on each other.

A rank is one that was seen: it introduced itself, a launcher started it, or its environment names it. How many there
should be is what they say themselves (WORLD_SIZE, or the group that they joined). No configuration is asked: a
stranger's program has none that we could read.

Ranks that wait for each other are related here, on top of what each process can do by itself (``standing``): a rank in
a collective waits for those that are not in it; one whose flight recorder shows an operation that another rank never
called waits for that rank; a rank that has ended will not come. A rank that waits for its GPU waits for the others only
when something says so: its recorder holds an operation that is not over, or its card is occupied and works on nothing,
which is what a wait inside NCCL looks like. Else its GPU may simply be at work.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from harness.reading.desync import Divergence, Parting, crossed, partings
from harness.reading.frames import bare, own_frame, python_frames
from harness.reading.gpus import gpus_of_pids
from harness.reading.meeting import MEETINGS, Meeting
from harness.reading.standing import Chance, Standing, alive, standings
from harness.reading.waits import Ender

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from harness.core.evidence import Evidence


SPIN_S = 2.5
"""Seconds over which a GPU must be seen to work on nothing before nothing but that is expected of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The processes of a trial and how they depend on each other in the present silence.

    ``leaders`` are the processes whose going on is the trial's: the ranks, or the one that trains. ``ranks`` are the
    PIDs of those that are there; ``gone`` have ended by themselves, ``elsewhere`` should be and were never seen.
    ``parted`` is where the flight recorders show that ranks part, group by group, the most telling first; ``circle``
    names two groups whose operations wait for each other. A rank that the last looks missed counts as elsewhere.
    """

    stand: Mapping[int, Standing]
    leaders: tuple[int, ...]
    ranks: Mapping[int, int]
    gone: frozenset[int] = field(default=frozenset())
    elsewhere: frozenset[int] = field(default=frozenset())
    parted: tuple[Divergence, ...] = ()
    circle: str = ""

    def rank_of(self, pid: int) -> int | None:
        """The rank that a process is or works for; None in a job without ranks."""
        if not self.several:
            return None
        return self.stand[pid].rank if pid in self.stand else next((r for r, p in self.ranks.items() if p == pid), None)

    @property
    def several(self) -> bool:
        """Whether more than one rank trains, here or elsewhere."""
        return len(self.ranks) + len(self.gone) + len(self.elsewhere) > 1

    @property
    def leader(self) -> Standing | None:
        """The process that trains, or the first of the ranks; None where none of them was seen."""
        return self.stand[self.leaders[0]] if self.leaders else None

    def alive(self, goes_nowhere: Callable[[Standing], bool] = lambda _: False) -> dict[int, Chance]:
        """The processes that may go on, each with its chance."""
        return alive(self.stand, goes_nowhere=goes_nowhere)


def job_of(evidence: Evidence, *, since_s: float, main: int | None, ended: Iterable[int] = ()) -> Job:
    """The job in the silence that began at ``since_s``. ``main`` is the process that trains where there are no ranks.

    ``ended`` are ranks that are known to have ended.
    """
    stand = standings(evidence, since_s=since_s)
    gone = frozenset(ended)
    ranks = {facts.rank: facts.pid for facts in evidence.ranks if facts.pid is not None and facts.rank not in gone}
    ranks = {rank: pid for rank, pid in ranks.items() if pid in stand}
    named = {facts.rank for facts in evidence.ranks}
    elsewhere = (set(range(evidence.world)) | named) - ranks.keys() - gone
    leader = main if main in stand else _root(stand)
    leaders = tuple(ranks.values()) or (() if leader is None else (leader,))
    job = Job(stand=stand, leaders=leaders, ranks=ranks, gone=gone, elsewhere=frozenset(elsewhere))
    if not job.several:
        return replace(job, stand={**stand, **{pid: _alone(stand[pid], evidence) for pid in leaders}})
    parted = partings(evidence.collectives, world=evidence.world or len(ranks))
    circle = crossed(evidence.collectives)
    related = dict(stand)
    for rank, pid in ranks.items():
        related[pid] = _related(job, rank, evidence, parted=parted, circle=circle)
    return replace(job, stand=related, parted=parted, circle=circle)


def _root(stand: Mapping[int, Standing]) -> int | None:
    """The process that no other process of the job started."""
    return next((pid for pid, one in stand.items() if one.parent not in stand), None)


def _alone(one: Standing, evidence: Evidence) -> Standing:
    """The standing of a process that trains alone, with its wait for its GPU put in place of the core that it burns."""
    if one.meeting is None or one.meeting.kind != "gpu" or not _waits_there(one, 0, evidence):
        return one
    return replace(one, chances=() if spins(one, evidence) else (_AT_WORK,))


_AT_WORK = Chance(how="it waits for its GPU, which may be at work", ender=Ender.DEVICE)


def spins(one: Standing, evidence: Evidence) -> bool:
    """Whether the GPU of a process was seen for some time to be occupied all the time by what works on nothing."""
    gpus = gpus_of_pids(evidence, {one.pid}, since_s=one.looks[0].t_s - 1.0)
    return bool(gpus) and all(gpu.occupied_by_nothing and gpu.seconds >= SPIN_S and gpu.tells_power for gpu in gpus)


def _related(job: Job, rank: int, evidence: Evidence, *, parted: tuple[Divergence, ...], circle: str) -> Standing:
    """The standing of a rank with its wait for other ranks put in place of what the kernel says of it."""
    one = job.stand[job.ranks[rank]]
    meeting = one.meeting or _handed_over(one, rank, evidence)
    one = replace(one, meeting=meeting)
    if meeting is None or not _waits_there(one, rank, evidence):
        return one
    if circle or any(d.parting in (Parting.OPERATION, Parting.SHAPE) and rank in dict(d.calls) for d in parted):
        return replace(one, chances=())
    if any(rank in late_ranks(d) for d in parted):
        return replace(one, chances=() if spins(one, evidence) else (_AT_WORK,))
    missing = {other for d in parted for other in _missing_for(d, rank)}
    if missing:
        return replace(one, chances=tuple(_until_they_come(job, sorted(missing))))
    if meeting.kind == "gpu" and not _gpu_waits_for_ranks(one, rank, evidence):
        return replace(one, chances=() if spins(one, evidence) else (_AT_WORK,))
    without_it = frozenset(other for d in parted for other in _waiting_for(d, rank)) if meeting.kind != "gpu" else ()
    return replace(one, chances=tuple(_in_meeting(job, rank, one, evidence, elsewhere=frozenset(without_it))))


def _handed_over(one: Standing, rank: int, evidence: Evidence) -> Meeting | None:
    """The operation that a rank waits for inside backward, by its recorder: without native frames no stack shows it."""
    innermost = next(iter(python_frames(one.thread)), None) if one.thread is not None else None
    if one.thread is None or innermost is None or bare(innermost) != "_engine_run_backward" or not one.stays:
        return None
    pending = [op for state in evidence.collectives if state.rank == rank for op in state.pending]
    if not pending or one.motion is None or not one.motion.polls:
        return None
    return Meeting(kind="gradients", name="the all-reduce of gradients", frame=own_frame(one.thread))


def _missing_for(parted: Divergence, rank: int) -> tuple[int, ...]:
    """The ranks that ``rank``, which has called an operation that is not over, waits for there."""
    calls = dict(parted.calls)
    if calls.get(rank) is None or rank in parted.odd:
        return ()
    if parted.parting is Parting.MISSING:
        return parted.odd
    late = late_ranks(parted)
    return () if rank in late else late


def _waiting_for(parted: Divergence, rank: int) -> tuple[int, ...]:
    """The ranks that wait in an operation which ``rank`` never called: they are not where it waits now."""
    if parted.parting is not Parting.MISSING or rank not in parted.odd:
        return ()
    return tuple(other for other, call in parted.calls if call is not None and other != rank)


def late_ranks(parted: Divergence) -> tuple[int, ...]:
    """Of an operation that all ranks handed over, those on whose device it has not begun though it has on others."""
    states = {rank: call.state for rank, call in parted.calls if call is not None}
    if parted.parting is not Parting.TOGETHER or "started" not in states.values():
        return ()
    return tuple(sorted(rank for rank, state in states.items() if state == "scheduled"))


def _waits_there(one: Standing, rank: int, evidence: Evidence) -> bool:
    """Whether a rank that is in a collective by its stack really waits there, and moves no data.

    Inside NCCL, and while it waits for its GPU, a waiting rank burns a core; gloo's merely sleeps.
    """
    if one.motion is None:
        return False
    if one.motion.polls:
        return True
    if one.meeting is not None and one.meeting.kind == "gpu":
        return True
    return one.motion.counters_still and (_occupied(one, evidence) or _nccl(rank, evidence))


def _nccl(rank: int, evidence: Evidence) -> bool:
    return any(state.rank == rank and "nccl" in state.backend.lower() for state in evidence.collectives)


def _occupied(one: Standing, evidence: Evidence) -> bool:
    gpus = gpus_of_pids(evidence, {one.pid}, since_s=one.looks[0].t_s)
    return bool(gpus) and all(gpu.occupied_by_nothing for gpu in gpus)


def _gpu_waits_for_ranks(one: Standing, rank: int, evidence: Evidence) -> bool:
    """Whether a rank that waits for its GPU waits for other ranks there: an operation of its own is not over."""
    states = [state for state in evidence.collectives if state.rank == rank]
    return bool(states[-1].pending) if states else _occupied(one, evidence)


def _until_they_come(job: Job, missing: Iterable[int]) -> Iterable[Chance]:
    for rank in missing:
        if rank in job.ranks:
            yield Chance(how=f"waits for rank {rank}", who=frozenset({job.ranks[rank]}))
        elif rank not in job.gone:
            yield Chance(how=f"waits for rank {rank}, which is not here", ender=Ender.MACHINE)


def _in_meeting(
    job: Job, rank: int, one: Standing, evidence: Evidence, *, elsewhere: frozenset[int]
) -> Iterable[Chance]:
    """Whom a rank waits for by its stack: those that are not where it is, or are ``elsewhere`` by their recorders."""
    meeting = one.meeting
    assert meeting is not None, "only ranks that wait in a meeting are asked"
    others = {r: job.stand[pid] for r, pid in job.ranks.items() if r != rank}
    apart = sorted(r for r, other in others.items() if r in elsewhere or not _together(meeting, other.meeting))
    yield from _until_they_come(job, sorted({*apart, *job.elsewhere}))
    if others and not apart and not job.elsewhere and not job.gone:
        if all(spins(other, evidence) for other in (one, *others.values())):
            return  # every card waits for the others', and nobody computes
        yield Chance(how="all ranks are there, and what connects them may be slow", ender=Ender.MACHINE)
    if meeting.name in MEETINGS and not job.gone and not others:
        yield Chance(how="ranks that are not here may still come", ender=Ender.MACHINE)


def _together(meeting: Meeting, other: Meeting | None) -> bool:
    """Whether two waits may be for each other: the same call, two that complete each other, or nobody can tell."""
    if other is None:
        return False
    if "gpu" in (meeting.kind, other.kind):
        return "pair" not in (meeting.kind, other.kind)
    if meeting.kind == other.kind == "pair":
        return _COMPLETES[meeting.name] == other.name
    # From another line it may be the same call: ``broadcast`` in the branch of rank 0, and in the others'.
    return (meeting.kind, meeting.name) == (other.kind, other.name)


_COMPLETES = {"send": "recv", "recv": "send", "batch_isend_irecv": "batch_isend_irecv"}
"""Calls for one other rank, each with the one that completes it."""
