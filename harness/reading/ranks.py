"""The job: which ranks there are, by what was seen, and how those that wait for each other depend on each other.

A rank is one that was seen: it introduced itself, a launcher started it, or its environment names it. How many there
should be is what they say themselves (WORLD_SIZE, or the group that they joined). No configuration is asked: a
stranger's program has none that we could read.

Ranks that wait for each other are related here, on top of what each process can do by itself (``standing``): a rank in
a collective waits for those that are not in it; one whose flight recorder shows an operation that another rank never
called waits for that rank; a rank that has ended will not come. Where all sleep in one call on one machine, it is not
the same call, or is lost: a message takes no time there. A rank that waits for its GPU waits for the others only when
something says so: its recorder holds an operation that is not over, or its card is occupied and works on nothing,
which is what a wait inside NCCL looks like. Else its GPU may simply be at work.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING

from harness.core.node import in_words
from harness.reading.desync import Divergence, Parting, crossed, of_this_silence, partings
from harness.reading.frames import bare, is_own, is_service, own_frame, python_frames
from harness.reading.gpus import KERNEL_S, POLLS_S, SPIN_S, Gpus, GpuView
from harness.reading.loops import remainder
from harness.reading.meeting import AWAITS_ID, EARLY, MEETINGS, STORE, Meeting, are_at_the_gpu, launches_in_vain
from harness.reading.standing import Chance, Standing, alive, may_go_on, standings
from harness.reading.stillness import STORE_SERVER, may_use_a_gpu, onlookers_of
from harness.reading.waits import ONLY_SLEEPS, RESTART, SERVE_MPI, UNSEEN, Ender, sleeps, wait_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from harness.core.devices import CollectiveState
    from harness.core.evidence import Evidence, RankFacts, ThreadState


GLOO = ("gloo_", "pt_gloo")
"""How the threads are called by which gloo connects a process to other ranks."""

SOON_S = 120.0
"""A wait for a key, or in a group, that gives up within so many seconds is a question, and its end may be an answer:
torch's own time limits are five minutes and longer."""

FROM_OUTSIDE = frozenset({"output", "file"})
"""Phases of marks that were made of what a program prints or writes, by whoever watched it."""

LATE_S = 5.0
"""By how much an error of a time limit may be late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The processes of a trial and how they depend on each other in the present silence.

    ``leaders`` are the processes whose going on is the trial's: the ranks, or the one that trains. ``ranks`` are the
    PIDs of those that are there; ``ended_ranks`` ended by themselves, ``elsewhere`` should be and were never seen.
    ``divergences`` are where the flight recorders show that ranks part, group by group, the most telling first;
    ``circle`` names two groups whose operations wait for each other. A rank that the last looks missed counts as
    elsewhere.
    """

    stand: Mapping[int, Standing]
    leaders: tuple[int, ...]
    ranks: Mapping[int, int]
    ended_ranks: frozenset[int] = field(default=frozenset())
    elsewhere: frozenset[int] = field(default=frozenset())
    divergences: tuple[Divergence, ...] = ()
    circle: str = ""

    @property
    def several(self) -> bool:
        """Whether more than one rank trains, here or elsewhere."""
        return len(self.ranks) + len(self.ended_ranks) + len(self.elsewhere) > 1

    @property
    def leader(self) -> Standing | None:
        """The process that trains, or the first of the ranks; None where none of them was seen."""
        return self.stand[self.leaders[0]] if self.leaders else None

    def alive(self, goes_nowhere: Callable[[Standing], bool] = lambda _: False) -> dict[int, Chance]:
        """The processes that may go on, each with its chance."""
        return alive(self.stand, goes_nowhere=goes_nowhere)

    def waited_for(self, pids: Iterable[int]) -> set[int]:
        """These processes, and all that they wait for, each by way of the others."""
        reached: set[int] = set()
        waiting = [*pids]
        while waiting:
            pid = waiting.pop()
            if pid in self.stand and pid not in reached:
                reached.add(pid)
                waiting += self.stand[pid].depends_on
        return reached

    def no_limit_decides(self, *, healthy: bool) -> str:
        """Why no limit tells whether this silence is a hang, as ``it`` does something; empty where a longer one may.

        ``healthy`` says whether something tells how long what computes is silent in health.
        """
        live = self.alive()
        for pid in sorted(self.waited_for(self.leaders) & live.keys()):
            one, chance = self.stand[pid], live[pid]
            whom = "it" if pid in self.leaders and not self.several else f"process {in_words(pid)} ({one.command})"
            if chance.ender is Ender.TIMER:
                return f"a timer may wake {whom}, however long that takes"
            if one.wait is not None and one.wait.cause == UNSEEN.cause:
                return f"what {whom} waits for cannot be seen"
            if chance.moves and one.motion is not None and one.motion.busy and not healthy:
                return f"{whom} computes, and nothing tells how long that takes in health"
        return ""

    def may_be_ended(self, stuck: Iterable[int], live: Mapping[int, Chance]) -> bool:
        """Whether a process of the job may yet end those that are ``stuck``, interrupt or continue them.

        One that sleeps until then (``timeout 30 python ...``), that runs a watchdog, that waits for a child of its own
        which does (``sh -c "sleep 30; kill $PID"``), or that started them and waits for something else. One that is not
        Python, wakes, and can send signals; where it started them, only if it naps: launchers all can, and wake in a
        poll to ask. Not a rank, which would not know; nor what looks on by its source, nor ``sleep``; nor what wakes
        again and again, or only asks whether they are done, and by its source does no more than that.
        """
        stuck = frozenset(stuck)
        above = self._above(stuck)
        others = live.keys() - {*self.leaders, *stuck}
        if any(self.stand[pid].has_a_timer_thread for pid in above):
            return True  # ``Timer(30, child.kill)``
        if any(self.stand[pid].has_a_watchdog for pid in above | stuck):
            return True
        unread = self.stand.keys() - {*self.leaders, *stuck}
        if any(self.stand[pid].wakes_to_signal(naps=pid in above) for pid in unread):
            return True
        return any(_may_act(self.stand[pid], live[pid], started_them=pid in above) for pid in others)

    def may_come_by_another_thread(self, pid: int) -> bool:
        """Whether a thread of the program's own, beside the one that decides, may yet go on, and join the other ranks.

        A saver that waits for its copy, then for the others in a barrier. Not one that by its source merely looks on.
        """
        one = self.stand[pid]
        own = {stack.tid for stack in one.stacks if own_frame(stack) is not None}
        own -= {one.decides, *onlookers_of(one.samples)}
        if not own:
            return False
        live, everybody = self.alive(), frozenset(self.stand)
        for thread in one.looks[-1].threads:
            if thread.tid in own and may_go_on(thread, pid=pid, job_pids=everybody, live=live):
                return True
        return False

    def _above(self, pids: Iterable[int]) -> set[int]:
        """Who started these processes, and who started those."""
        above: set[int] = set()
        for pid in pids:
            while (parent := self.stand[pid].parent) in self.stand and parent not in above:
                above.add(parent)
                pid = parent
        return above


def job_of(
    evidence: Evidence, *, since_s: float, main: int | None, ended_ranks: Iterable[int] = (), related: bool = True
) -> Job:
    """The job in the silence that began at ``since_s``. ``main`` is the process that trains where there are no ranks.

    ``related`` False leaves out who waits for whom: of the evidence of one rank of several nobody asks that.
    """
    stand = standings(evidence, since_s=since_s)
    everybody_here = frozenset(stand)
    ended_ranks = frozenset(ended_ranks)
    numbers: set[int] = set()
    ranks: dict[int, int] = {}
    for facts in evidence.ranks:
        numbers.add(facts.rank)
        if facts.pid is not None and facts.pid in stand and facts.rank not in ended_ranks:
            ranks[facts.rank] = facts.pid
    everybody = _everybody(evidence.world)
    elsewhere = (everybody | numbers).difference(ranks, ended_ranks) if numbers or ended_ranks else everybody
    roots = (pid for pid, one in stand.items() if one.parent not in stand)
    leader = main if main in stand else next(roots, None)
    leaders = tuple(ranks.values()) or (() if leader is None else (leader,))
    for pid in everybody_here.difference(leaders):
        stand[pid] = _of_a_helper(stand[pid], everybody_here)
    job = Job(stand=stand, leaders=leaders, ranks=ranks, ended_ranks=ended_ranks, elsewhere=elsewhere)
    if not job.several:
        gpus = Gpus(evidence.gpus)
        return replace(job, stand={**stand, **{pid: _alone(pid, stand, gpus) for pid in leaders}})
    return _Relations(job, evidence).job() if related else job


def job_in_silence(evidence: Evidence, *, related: bool = True) -> Job:
    """The job in the silence since the last mark, or since the start where there was none; see :func:`job_of`."""
    since_s = evidence.last.t_s if evidence.last else 0.0
    ended_ranks = [facts.rank for facts in evidence.ranks if facts.exit is not None]
    return job_of(evidence, since_s=since_s, main=main_of(evidence), ended_ranks=ended_ranks, related=related)


def no_limit_decides(evidence: Evidence, *, predicted: bool) -> str:
    """As :meth:`Job.no_limit_decides`; of what can have no stacks, as no patience calls that a hang, too.

    What computes in health is told by a prediction (``predicted``), or by the steps before this silence.
    """
    step = evidence.last.step if evidence.last else None
    has_steps = any(mark.step is not None and step is not None and mark.step < step for mark in evidence.heartbeats)
    why = job_in_silence(evidence).no_limit_decides(healthy=predicted or has_steps)
    if not why and not evidence.stacks and any(failure.no_python for failure in evidence.failures):
        return "no stack of it can be read, as no Python runs in it"
    return why


def remaining_s(evidence: Evidence) -> float:
    """How long the loops that the job was in last need to come to their end; 0 where they do not tell."""
    job = job_in_silence(evidence)
    rest = remainder(job.stand[job.leaders[0]].samples) if job.leaders else None
    return max(rest.remaining_s, 0.0) if rest else 0.0


def main_of(evidence: Evidence) -> int | None:
    """The PID of the process that trains; of older recordings, as its own marks say, or else the one looked at last."""
    if evidence.main:
        return evidence.main
    for mark in evidence.heartbeats:
        if mark.phase not in FROM_OUTSIDE:
            return mark.pid
    looks = (*reversed(evidence.processes), *evidence.stacks)
    return looks[0].pid if looks else None


def _may_act(one: Standing, chance: Chance, *, started_them: bool) -> bool:
    """Whether a process may do something about others once it goes on, by its ``chance`` to do so."""
    lets_be = one.command in ONLY_SLEEPS or (one.command in SERVE_MPI and not started_them)
    merely_asks = one.asks or (one.ticks and not one.is_in_a_package)
    if one.looks_on or lets_be or (merely_asks and not one.acts):
        return False
    if chance.ender is not None:
        hides_a_limit = one.rest is not None and one.rest.call == RESTART
        return chance.ender is Ender.TIMER or hides_a_limit
    wait = None if one.rest is None else wait_of(one.rest)
    return started_them or (wait is not None and wait.cause == "waiting-for-child")


@cache
def _everybody(world: int) -> frozenset[int]:
    """All ranks of so many: one set for all ranks that ask."""
    return frozenset(range(world))


def _alone(pid: int, stand: Mapping[int, Standing], gpus: Gpus) -> Standing:
    """The standing of a process that trains alone, with its wait for its GPU put in place of the core that it burns."""
    one = stand[pid]
    at_the_gpu = one.meeting is not None and one.meeting.kind == "gpu"
    if one.motion is None or not (at_the_gpu or (one.is_behind_a_gpu and not one.may_act_by_a_thread)):
        return one
    if at_the_gpu and _with_those_above(pid, stand).issuperset(stand) and idles_for_good(one, gpus):
        return replace(one, chances=())
    return replace(one, chances=_in_its_own_kernels(one, gpus))


def _with_those_above(pid: int, stand: Mapping[int, Standing]) -> set[int]:
    """A process and whatever started it: the launchers of a program that has no other process."""
    above: set[int] = set()
    while pid in stand and pid not in above:
        above.add(pid)
        pid = stand[pid].parent
    return above


def _of_a_helper(one: Standing, everybody: frozenset[int]) -> Standing:
    """A process that is no rank, and waits in a collective: of which others, nobody knows."""
    if one.meeting is None or one.meeting.kind == "gpu" or one.motion is None or not one.motion.polls:
        return one
    meet = Chance(how=f"waits for another process in {one.meeting.name}", who=everybody - {one.pid}, any_thread=True)
    return replace(one, chances=(*one.chances, meet))


_AT_WORK = Chance(how="it waits for its GPU, which may be at work", ender=Ender.DEVICE)


def spins(one: Standing, gpus: Gpus) -> bool:
    """Whether the GPU of a process was seen for some time to be occupied all the time by what works on nothing."""
    views = gpus.of({one.pid}, since_s=one.looks[0].t_s - 1.0)
    return bool(views) and all(gpu.occupied_by_nothing and gpu.seconds >= SPIN_S and gpu.tells_power for gpu in views)


def _in_its_own_kernels(one: Standing, gpus: Gpus) -> tuple[Chance, ...]:
    """Whether what a process launched may yet end by itself: none where it has worked on nothing for very long."""
    views = gpus.of({one.pid}, since_s=one.looks[0].t_s - 1.0)
    is_endless = spins(one, gpus) and all(_rests_for_good(gpu, one) for gpu in views)
    return () if is_endless else (_AT_WORK,)


def idles_for_good(one: Standing, gpus: Gpus) -> bool:
    """Whether a process waits for a GPU that has nothing to do, and no thread of it will give it anything.

    What was queued there waits for an event, a flag or a function of the host's that never comes. A callback runs in
    a thread of the driver's: that must sleep, too, and not on a timer.
    """
    views = gpus.of({one.pid}, since_s=one.looks[0].t_s - 1.0)
    if not views or one.has_another_thread or one.unwoken - one.background or one.may_act_by_a_thread:
        return False
    return all(gpu.seconds >= POLLS_S and not gpu.foreign for gpu in (view.idles for view in views))


def _rests_for_good(gpu: GpuView, one: Standing) -> bool:
    rest = gpu.at_rest
    polls_alone = rest.polls.seconds >= POLLS_S and not one.may_act_by_a_thread
    return polls_alone or rest.seconds >= KERNEL_S


def late_ranks(divergence: Divergence) -> tuple[int, ...]:
    """Of an operation that all ranks handed over, those on whose device it has not begun though it has on others."""
    states = {rank: call.state for rank, call in divergence.calls if call is not None}
    if divergence.parting is not Parting.TOGETHER or "started" not in states.values():
        return ()
    return tuple(sorted(rank for rank, state in states.items() if state == "scheduled"))


def _gives_up_soon(thread: ThreadState, *, seconds: float) -> tuple[Chance, ...]:
    """That a wait ends by its own limit, if that is short: seen, or hidden since before the first look at the wait.

    Whoever is stopped as it begins to wait goes on with a call of which some kernels tell nothing. ``seconds`` are how
    long it was looked at.
    """
    if thread.call == RESTART:
        unknown = Chance(how="its wait may have a short time limit, which no look saw", ender=Ender.TIMER)
        return (unknown,) if seconds < SOON_S else ()
    if thread.limit_s is None or thread.limit_s >= SOON_S:
        return ()
    return (Chance(how=f"it gives up after {thread.limit_s:.0f} s", ender=Ender.TIMER),)


def _waits_for_a_key_in_a_file(one: Standing) -> bool:
    """Whether the program itself asks for a key of a ``FileStore``, which sleeps and looks again.

    Keys by which torch makes its groups are the ranks' own, wherever they stand.
    """
    innermost = next(iter(python_frames(one.thread)), None) if one.thread is not None else None
    asks_itself = innermost is not None and is_own(innermost)
    return asks_itself and one.state is not None and sleeps(one.state.wchan)


class _Split:
    """A divergence as a rank asks of it: ``called`` are the ranks that made the call, ``members`` all that count."""

    def __init__(self, divergence: Divergence) -> None:
        self.parting, self.odd = divergence.parting, divergence.odd
        self.differs = divergence.parting in (Parting.OPERATION, Parting.SHAPE)
        self.late = late_ranks(divergence)
        self.members = frozenset(dict(divergence.calls))
        self.called = divergence.called

    def missing_for(self, rank: int) -> tuple[int, ...]:
        """The ranks that ``rank``, which has called an operation that is not over, waits for there."""
        if rank not in self.called or rank in self.odd:
            return ()
        if self.parting is Parting.MISSING:
            return self.odd
        return () if rank in self.late else self.late

    def waiting_for(self, rank: int) -> frozenset[int]:
        """The ranks that wait in an operation which ``rank`` never called: they are not where it waits now."""
        return self.called if self.parting is Parting.MISSING and rank in self.odd else frozenset()


class _Relations:
    """Who waits for whom: what is the same for many ranks is worked out once, or a job of thousands is never judged."""

    def __init__(self, job: Job, evidence: Evidence) -> None:
        states = of_this_silence(evidence)
        divergences = partings(states, world=evidence.world or len(job.ranks))
        self._job = replace(job, divergences=divergences, circle=crossed(states))
        self._splits = list(map(_Split, divergences))
        self._gpus = Gpus(evidence.gpus)
        self._world, self._nodes = evidence.world, evidence.nodes
        self._gives_up = {facts.rank: _gives_up(facts) for facts in evidence.ranks}
        self._states: dict[int, list[CollectiveState]] = {}
        for state in states:
            self._states.setdefault(state.rank, []).append(state)
        self._at: dict[Meeting | None, list[int]] = {}
        for rank, pid in job.ranks.items():
            self._at.setdefault(_place(job.stand[pid].meeting), []).append(rank)
        self._waits: dict[object, tuple[Chance, ...]] = {}
        own = frozenset(job.ranks.values())
        self._launchers = frozenset(job.stand[pid].parent for pid in own).intersection(job.stand) - own

    def job(self) -> Job:
        """The job with its ranks related."""
        related = {pid: self._related(rank, self._job.stand[pid]) for rank, pid in self._job.ranks.items()}
        return replace(self._job, stand={**self._job.stand, **related})

    def _related(self, rank: int, one: Standing) -> Standing:
        """The standing of a rank with its wait for other ranks put in place of what the kernel says of it."""
        meeting = one.meeting or self._handed_over(one, rank)
        one = replace(one, meeting=meeting)
        if one.meets_in_a_thread:
            one = self._with_its_threads(one)
        if meeting is None and one.is_behind_a_gpu and self._gpu_waits_for_ranks(one, rank):
            come = self._come("its thread at the GPU waits for other ranks", one)
            return replace(one, chances=(come,), helps=tuple(help for help in one.helps if not help.moves))
        if meeting is None and one.is_behind_a_gpu and not one.may_act_by_a_thread:
            return replace(one, chances=_in_its_own_kernels(one, self._gpus))
        if meeting is None or not self._waits_there(one, rank):
            return one
        if self._job.circle or any(split.differs and rank in split.members for split in self._splits):
            return replace(one, chances=())
        if any(rank in split.late for split in self._splits) and not self._has_begun(rank):
            return replace(one, chances=_in_its_own_kernels(one, self._gpus))
        missing = frozenset[int]().union(*(split.missing_for(rank) for split in self._splits))
        if missing:
            return replace(one, chances=self._until_they_come(missing))
        if meeting.kind == "gpu" and not self._gpu_waits_for_ranks(one, rank):
            return replace(one, chances=_in_its_own_kernels(one, self._gpus))
        without_it = [split.waiting_for(rank) for split in self._splits if meeting.kind != "gpu"]
        elsewhere = self._in_kernels_of_their_own.union(*without_it)
        return replace(one, chances=self._in_meeting(rank, meeting, elsewhere))

    def _with_its_threads(self, one: Standing) -> Standing:
        """The standing of a rank of which another thread waits for other ranks, too."""
        come = (self._come("another thread of it waits for other ranks", one),)
        return replace(one, helps=one.helps + come, chances=one.chances if one.meeting else one.chances + come)

    def _come(self, how: str, one: Standing) -> Chance:
        others = frozenset(self._job.ranks.values()) - {one.pid}
        return Chance(how=how, who=others, any_thread=True)

    def _handed_over(self, one: Standing, rank: int) -> Meeting | None:
        """What a rank waits for that has handed over an operation which is not over, where no stack shows such a wait.

        The all-reduce inside backward, without native frames: its recorder has it; or it sleeps there, has threads of
        gloo, and could not be asked. Or its GPU, which takes no more kernels.
        """
        innermost = next(iter(python_frames(one.thread)), None) if one.thread is not None else None
        if one.thread is None or innermost is None or one.motion is None:
            return None
        is_pending = any(state.pending for state in self._states.get(rank, ()))
        if is_pending and launches_in_vain(one.samples):
            return Meeting(kind="gpu", name="its GPU", frame=own_frame(one.thread))
        if bare(innermost) != "_engine_run_backward" or not one.stays:
            return None
        handed_over = one.motion.polls and is_pending
        by_gloo = any(thread.name.startswith(GLOO) for thread in one.looks[-1].threads)
        if not handed_over and not (by_gloo and one.motion.still and not one.native):
            return None
        return Meeting(kind="gradients", name="the all-reduce of gradients", frame=own_frame(one.thread))

    def _waits_there(self, one: Standing, rank: int) -> bool:
        """Whether a rank that is in a collective by its stack really waits there, and moves no data.

        Inside NCCL, and while it waits for its GPU, a waiting rank burns a core; gloo's merely sleeps.
        """
        if one.motion is None or one.has_just_moved:
            return False
        at_the_gpu = are_at_the_gpu(one.samples) or (one.meeting is not None and one.meeting.kind == "gpu")
        if one.motion.polls or at_the_gpu:
            return True
        nccl = any("nccl" in state.backend.lower() for state in self._states.get(rank, ()))
        return one.motion.data_still and (nccl or self._occupied(one))

    def _occupied(self, one: Standing) -> bool:
        gpus = self._gpus.of({one.pid}, since_s=one.looks[0].t_s)
        return bool(gpus) and all(gpu.occupied_by_nothing for gpu in gpus)

    def _gpu_waits_for_ranks(self, one: Standing, rank: int) -> bool:
        """Whether a rank that waits for its GPU waits for other ranks there: an operation of its own is not over."""
        states = self._states.get(rank)
        return bool(states[-1].pending) if states else self._occupied(one)

    def _has_begun(self, rank: int) -> bool:
        """Whether its GPU is in an operation with other ranks, by its recorder, and so in no kernel of its own."""
        states = self._states.get(rank)
        return bool(states) and any(op.state == "started" for op in states[-1].pending)

    def _until_they_come(self, missing: frozenset[int]) -> tuple[Chance, ...]:
        if missing not in self._waits:
            chances = list(map(self._until, sorted(missing - self._job.ended_ranks)))
            if missing & self._job.ended_ranks and self._launchers:
                chances.append(Chance(how="what started a rank that has ended may start it anew", who=self._launchers))
            self._waits[missing] = tuple(chances)
        return self._waits[missing]

    def _until(self, rank: int) -> Chance:
        if rank in self._job.ranks:
            pid = self._job.ranks[rank]
            by_thread = self._job.stand[pid].may_act_by_a_thread
            return Chance(how=f"waits for rank {rank}", who=frozenset({pid}), any_thread=by_thread)
        return Chance(how=f"waits for rank {rank}, which is not here", ender=Ender.MACHINE)

    def _in_meeting(self, rank: int, meeting: Meeting, elsewhere: frozenset[int]) -> tuple[Chance, ...]:
        """Whom a rank waits for by its stack: those that are not where it is, or are ``elsewhere`` by their recorders.

        The same for all ranks that wait in the same call, but for themselves.
        """
        job = self._job
        others = len(job.ranks) > 1
        missing = self._apart(rank, meeting, elsewhere) | job.elsewhere | job.ended_ranks
        chances = self._until_they_come(missing)
        if meeting.kind == "pair" and len(missing) > 1:
            chances = tuple(map(_of_one_other, chances))
        if meeting.name == STORE:
            chances += self._by_the_store(self._job.stand[self._job.ranks[rank]])
        if meeting.kind != "gpu":
            chances += self._gives_up.get(rank, ())
        if others and not missing and not self._is_for_ever(meeting):
            chances += (Chance(how="all ranks are there, and what connects them may be slow", ender=Ender.MACHINE),)
        if meeting.name in MEETINGS and not job.ended_ranks and not others:
            chances += (Chance(how="ranks that are not here may still come", ender=Ender.MACHINE),)
        return chances

    def _by_the_store(self, one: Standing) -> tuple[Chance, ...]:
        """Who may set a key that ``one`` waits for beside the ranks, and whether it gives up soon."""
        no_rank = frozenset(self._job.stand) - self._launchers - frozenset(self._job.ranks.values())
        for pid in no_rank:
            thread = self._job.stand[pid].thread
            if thread is not None and is_service(thread):
                no_rank -= {pid}
        chances: tuple[Chance, ...] = ()
        if no_rank:
            chances += (Chance(how="a process that is no rank may set the key", who=no_rank, any_thread=True),)
        if self._store_has_guests:
            how = "a program that is not of the job is connected to its store, and may set the key"
            chances += (Chance(how=how, ender=Ender.PROGRAM),)
        if _waits_for_a_key_in_a_file(one):
            chances += (Chance(how="the key stands in a file, and any program may write it", ender=Ender.PROGRAM),)
        if one.state is not None and (one.acts or not one.ticks):
            chances += _gives_up_soon(one.state, seconds=one.looks[-1].t_s - one.looks[0].t_s)
        return chances

    @cached_property
    def _store_has_guests(self) -> bool:
        """Whether somebody from outside is connected to a store that a process of the job serves."""
        for one in self._job.stand.values():
            for thread in one.looks[-1].threads:
                if thread.has_guests and thread.name.startswith(STORE_SERVER):
                    return True
        return False

    def _apart(self, rank: int, meeting: Meeting, elsewhere: frozenset[int]) -> frozenset[int]:
        """The other ranks that are here and not where ``rank`` is."""
        place = _place(meeting)
        apart = elsewhere.intersection(self._job.ranks)
        for at, ranks in self._at.items():
            if not _together(place, at) or _is_before(place, at):
                apart |= frozenset(ranks)
            elif _is_before(at, place):
                apart |= frozenset(filter(self._card_rests, ranks))
        return apart - {rank}

    def _card_rests(self, rank: int) -> bool:
        """Whether the GPU of a rank does nothing for it: no kernel of its may carry what others want."""
        pid = self._job.ranks[rank]
        views = self._gpus.of({pid}, since_s=self._job.stand[pid].looks[0].t_s)
        return bool(views) and all(gpu.rests_for_them.seconds >= SPIN_S for gpu in views)

    def _is_for_ever(self, meeting: Meeting) -> bool:
        """Whether a call that all ranks are in never ends: every card waits for the others', or all of them sleep."""
        return self._all_spin or (self._sleep_on_one_machine and meeting.name not in (*MEETINGS, STORE))

    @cached_property
    def _in_kernels_of_their_own(self) -> frozenset[int]:
        """The ranks that wait for their GPU while every operation that they handed over is done."""
        own: set[int] = set()
        for rank, pid in self._job.ranks.items():
            meeting, states = self._job.stand[pid].meeting, self._states.get(rank)
            if meeting is not None and meeting.kind == "gpu" and states and not states[-1].pending:
                own.add(rank)
        return frozenset(own)

    @cached_property
    def _all_spin(self) -> bool:
        return all(self._spins_there(self._job.stand[pid]) for pid in self._job.ranks.values())

    def _spins_there(self, one: Standing) -> bool:
        """Whether the GPU of a rank is in a call with others that works on nothing.

        Before its communicator is made it can be in none of that call: a kernel of its own may be what runs.
        """
        is_early = one.meeting is not None and one.meeting.stage in EARLY
        return spins(one, self._gpus) and not (is_early and _in_its_own_kernels(one, self._gpus))

    @cached_property
    def _sleep_on_one_machine(self) -> bool:
        """Whether all ranks sleep here, without a thread that may yet make a call, or a GPU that may carry one.

        Then nothing is on its way between them: the kernel hands over at once what a process sends to another one.
        """
        here = [self._job.stand[pid] for pid in self._job.ranks.values()]
        return len(here) == self._world and len(self._nodes) < 2 and all(map(_sleeps_alone, here))


def _of_one_other(chance: Chance) -> Chance:
    """The same of a call for one other rank, of which nobody knows the number."""
    if chance.ender is not Ender.MACHINE:
        return chance
    return replace(chance, how="waits for one other rank, and not all are here")


def _gives_up(facts: RankFacts) -> tuple[Chance, ...]:
    """That a rank's wait in a group to which it gave a short time limit ends with an error, which it may deal with.

    Which of its groups it waits in is not known: the longest of the short limits counts. Not over NCCL, whose
    watchdog ends the process.
    """
    soon = max((limit_s for limit_s in facts.limits_s if limit_s < SOON_S), default=0.0)
    if facts.silence_s >= soon + LATE_S:
        return ()
    return (Chance(how=f"a group of it gives up after {soon:.0f} s", ender=Ender.TIMER),) if soon else ()


def _sleeps_alone(one: Standing) -> bool:
    """Whether nothing moved in a process but what carries its messages, which had its turns and brought none.

    Not so where another thread of it runs Python that something else than the process itself may let go on, or one
    knows a GPU.
    """
    if one.motion is None or not one.motion.still or not one.motion.background_woke:
        return False
    if may_use_a_gpu(one.looks[-1]):
        return False
    beside = one.runs_python - {one.decides, *one.background}
    locked = {thread.tid for thread in one.looks[-1].threads if _waits_for_its_process(thread)}
    return beside <= locked


def _waits_for_its_process(thread: ThreadState) -> bool:
    wait = wait_of(thread)
    return thread.state == "S" and thread.timed is False and wait is not None and wait.enders <= {Ender.PROCESS}


def _place(meeting: Meeting | None) -> Meeting | None:
    """Where ranks wait together. From another line it may be the same call: ``broadcast`` in the branch of rank 0."""
    return None if meeting is None else replace(meeting, frame=None)


def _is_before(one: Meeting | None, other: Meeting | None) -> bool:
    """Whether one still waits for ranks of a communicator, which whoever waits in an operation on its GPU has made."""
    return one is not None and other is not None and one.stage in EARLY and other.kind == "gpu"


def _together(one: Meeting | None, other: Meeting | None) -> bool:
    """Whether two waits may be for each other: the same call, two that complete each other, or nobody can tell.

    Who waits for the id of a communicator waits for a rank that has not come to make that one.
    """
    if one is None or other is None:
        return False
    if one.stage and other.stage and AWAITS_ID in (one.stage, other.stage):
        return False
    kinds = {one.kind, other.kind}
    if "gpu" in kinds:
        return "pair" not in kinds
    return _SIDES[one.name] + _SIDES[other.name] == 0 if kinds == {"pair"} else one.name == other.name


_SIDES = {"send": 1, "isend": 1, "recv": -1, "irecv": -1, "batch_isend_irecv": 0}
"""Calls for one other rank: one that gives is completed by one that takes, and what does both by its like."""
