"""For every process of a job: whether it can go on, and on whom that depends.

One judgement for a trainer, a rank, a loader's worker, a child that somebody started, a launcher. Each process either
*moves* (it computes), or its main thread waits. Then ``harness.reading.waits`` says who can end that: a timer, a
device, another program (it can go on by itself), or other processes of the job, or other threads of its own. So the
processes of a job form a graph, and the answer is a closure over it: a process can go on if it moves, if somebody
outside can end its wait, or if a process that can end its wait can itself go on. What is left can never go on. A parent
that waits for a child inherits the child's answer, a rank in a collective that of the ranks which have not come.

Nothing here knows how long the silence is: who is in the closed part of the graph will be there tomorrow. Patience is
for what the outside may end (``harness.reading.pace``).

What does not work: asking the main process alone (a deadlocked child sleeps quietly below a parent that polls), and
taking "nothing in the whole job moves" for the question (a hang beside a process that merely sleeps was never told).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import chain, dropwhile
from typing import TYPE_CHECKING

from harness.core.node import PIDS
from harness.reading.awaits import rests_in_a_loop
from harness.reading.frames import (
    bare,
    best_sample,
    best_thread,
    is_in_no_file,
    is_own,
    is_runtime,
    is_service,
    is_stdlib,
    mentions,
    native_leaf,
    native_samples,
    own_frame,
    package,
    python_frames,
    same_stacks,
    stands_in_own_code,
)
from harness.reading.meeting import Meeting, agreed_meeting, meeting_of
from harness.reading.stillness import (
    ASLEEP,
    POLL_SHARE,
    QUIET_PACKAGES,
    REPORTS,
    RUNS_COLLECTIVES,
    SAMPLES,
    Motion,
    actors_of,
    dump_times,
    ever_woken,
    is_ticker,
    launchers_of,
    motion,
    onlookers_of,
    plain_onlookers_of,
    stopped_s,
    supervisors_of,
    unwoken,
)
from harness.reading.waits import (
    ALARM,
    CPU_LIMIT,
    ONLY_SHOW,
    OWN_CONNECTION,
    OWN_SERVICE,
    TIMER,
    Ender,
    Wait,
    asks_again,
    asks_anew,
    awaits_the_end,
    called_by_python,
    gil_holder,
    in_python_lock,
    may_call_back,
    sleeps,
    wait_of,
    waits_for_a_thread,
    with_calls,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from harness.core.evidence import Evidence, Frame, ProcessState, StackSample, ThreadStack, ThreadState

ALARMS = frozenset({"SIGALRM", "SIGVTALRM", "SIGPROF", TIMER, CPU_LIMIT, ALARM})
"""Signals that a timer of the process's own sends: a program that handles one may be woken by it from any wait, and one
that does not is ended."""

LOADER_WORKER = "pt_data_worker"
"""What the command of a DataLoader's worker begins with; torch handles SIGTERM in each, to end it."""

COUNT_CPU = frozenset({"SIGVTALRM", "SIGPROF", CPU_LIMIT})
"""Those that come after so much CPU time: never while all threads sleep."""

REAL_TIME = frozenset({"SIGRTMIN", *(f"SIGRTMIN+{number}" for number in range(1, 30)), "SIGRTMAX"})

MESSAGES = REAL_TIME | {"SIGUSR1", "SIGUSR2", "SIGHUP", "SIGIO"}
"""Signals by which programs tell each other something: a handler of one may change what a loop asks, or end a wait."""

USERS = frozenset({"SIGUSR1", "SIGUSR2"})
"""Those of them that only people and other programs send, the kernel never."""

ENDS = "SIGTERM"
"""The signal that asks a program to end: an event loop that handles it may wait for nothing else."""

SIMPLE_QUEUE = "SimpleQueue"
"""Part of the names of C functions that wait for a queue in ``queue``, into which a handler may put something."""

HANGS_UP = "SIGHUP"
"""A message to some programs. One that is not Python and handles SIGTERM as well removes its files at both and ends, as
gzip and sort do: an end that a signal may bring about without any handler, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """Something that may let a process go on: itself (``moves``), somebody outside, or other processes (``who``).

    ``any_thread`` says that any thread of theirs may do it, and not only the one that decides whether they go on;
    ``by_a_deed`` that it takes more than to write or to end, so that none does it who merely looks on. ``for_whom`` are
    the processes whose end it waits for, where all that it may do is to let these go on.
    """

    how: str
    ender: Ender | None = None
    who: frozenset[int] = field(default=frozenset())
    any_thread: bool = False
    by_a_deed: bool = False
    for_whom: frozenset[int] = field(default=frozenset())

    @property
    def moves(self) -> bool:
        """Whether it goes on by itself at this moment."""
        return self.ender is None and not self.who


FRESH_S = 5.0
"""So long counts what a loop was asked: a dump and the look behind it take a second or two on a busy machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One process in its silence. ``thread`` is the stack of the thread that decides, ``wait`` what it waits for.

    ``chances`` are all that may let it go on; none: it never will. ``meeting`` is the collective, or the GPU, that its
    stacks agree it waits for; none where it ran Python in between, when it was asked. ``helps`` are what may let its
    other threads go on: one of them may send what another process waits for, though this one never goes on. ``asks``
    says that it merely asks others again and again whether they are done, or have work.
    """

    pid: int
    rank: int
    parent: int
    command: str
    looks: tuple[ProcessState, ...]
    samples: tuple[StackSample, ...]
    motion: Motion | None
    thread: ThreadStack | None
    state: ThreadState | None
    wait: Wait | None
    meeting: Meeting | None
    chances: tuple[Chance, ...]
    helps: tuple[Chance, ...] = ()
    asks: bool = False

    @property
    def stays(self) -> bool:
        """Whether at least two samples show its deciding thread in the same place."""
        return same_stacks(self.samples)

    @property
    def native(self) -> tuple[StackSample, ...]:
        """The samples that show native frames."""
        return native_samples(self.samples)

    @property
    def stopped_s(self) -> float:
        """How long it has been seen stopped (state T), seconds."""
        return stopped_s(self.looks)

    @property
    def depends_on(self) -> frozenset[int]:
        """The processes of which any may let it go on."""
        return frozenset[int]().union(*(chance.who for chance in self.chances))

    @property
    def decides(self) -> int:
        """The thread that decides, by its number; the main one where no stack shows it."""
        return self.thread.tid if self.thread is not None else self.pid

    @property
    def ran_at(self) -> int:
        """At how many of its looks a thread that counts ran: what came to a stop meanwhile has run before."""
        counts = {thread.tid for thread in self.motion.threads} if self.motion is not None else {self.decides}
        return sum(any(thread.state == "R" and thread.tid in counts for thread in look.threads) for look in self.looks)

    @property
    def background(self) -> frozenset[int]:
        """Its threads whose waking says nothing about the program."""
        return self.motion.background if self.motion is not None else frozenset()

    @property
    def stacks(self) -> Iterator[ThreadStack]:
        """Every stack of every thread of it, sample by sample."""
        return chain.from_iterable(sample.threads for sample in self.samples)

    @property
    def runs_python(self) -> frozenset[int]:
        """Its threads that were seen to run Python."""
        return frozenset(thread.tid for thread in self.stacks if python_frames(thread))

    @property
    def has_another_thread(self) -> bool:
        """Whether a thread beside the one that decides runs, or may be woken from outside.

        Such a thread may do anything: end the process, raise in another thread, send a signal. One of a library that
        has never run Python may get a request for a callback, as a server's does whose main thread only sleeps.
        """
        if self.motion is None:
            return False
        decides = self.state.tid if self.state is not None else self.pid
        for other in self.looks[-1].threads:
            if other.tid == decides:
                continue
            if any(may_call_back(look.thread.get(other.tid, other)) for look in self.looks):
                return True
            if other.tid in self.motion.background or is_ticker(other):
                continue
            wait = wait_of(other)
            if wait is None or wait.outside:
                return True
        return False

    @property
    def serves_itself(self) -> bool:
        """Whether a thread of it waits for connections at an address that the program may have given to others.

        Of a path that multiprocessing made up only where the program's own code waits there: it holds the address.
        """
        code = {stack.tid: own_frame(stack) for stack in self.stacks}
        for thread in self.looks[-1].threads:
            if thread.call == OWN_SERVICE or (thread.on == OWN_CONNECTION and code.get(thread.tid) is not None):
                return True
        return False

    @property
    def unwoken(self) -> frozenset[int]:
        """Its threads that sleep on a timer from which no undisturbed window saw them wake: not those that tick."""
        return unwoken(self.looks)

    @property
    def rest(self) -> ThreadState | None:
        """The thread that decides, at the last look at which it slept.

        What wakes now and then may be met awake, or for a moment in a call of which nobody can wake it, as a fork is.
        """
        if self.state is None:
            return None
        for look in reversed(self.looks):
            state = look.thread.get(self.state.tid)
            if state is not None and state.state == "S":
                return state
        return None

    @property
    def ticks(self) -> bool:
        """Whether the thread that decides sleeps on a timer from which it was seen to wake, and sleeps anew."""
        return self.rest is not None and bool(self.rest.timed) and self.rest.tid not in self.unwoken

    def wakes_to_signal(self, *, naps: bool = False) -> bool:
        """Whether a thread of it wakes by time, and its program, which nobody can read, may send others a signal.

        ``naps``: only of a thread that does nothing but sleep until then.
        """
        if not self.looks[-1].sends_signals or self.command in ONLY_SHOW:
            return False
        threads = [thread for look in self.looks for thread in look.threads]
        return any(sleeps(thread.wchan) if naps else thread.timed for thread in threads)

    @property
    def wakes_for_onlookers(self) -> bool:
        """Whether all that its event loop wakes for are tasks that merely look on, by every sample.

        Only while nothing can have changed that since: samples grow old, and what a thread or a child handed to the
        loop before it ended, no look at the loop shows.
        """
        if not self.ticks or not self.samples:
            return False
        if not all(any(tid < 0 for tid in sample.onlookers) for sample in self.samples):
            return False
        last, oldest_s = self.looks[-1], min(sample.t_s for sample in self.samples)
        if last.t_s - max(sample.t_s for sample in self.samples) > FRESH_S:
            return False
        since = [look for look in self.looks if look.t_s >= oldest_s]
        return all((look.thread.keys(), look.children) == (last.thread.keys(), last.children) for look in since)

    @property
    def awaits_itself(self) -> bool:
        """Whether it rests in an event loop that waits for nobody else: for what its own tasks would do."""
        if self.thread is None or self.wait is None or self.wait.outside or not rests_in_a_loop(self.thread):
            return False
        return self.wait.holders == (self.pid,)

    @property
    def wakers(self) -> frozenset[int]:
        """Its threads that sleep on a timer, or run."""
        return frozenset(t.tid for t in self.looks[-1].threads if t.timed is not False or t.state not in ASLEEP)

    @property
    def looks_on(self) -> bool:
        """Whether the thread that decides does nothing, by its source, that another process may wait for."""
        return self.thread is not None and self.thread.tid in onlookers_of(self.samples)

    @property
    def only_looks_on(self) -> bool:
        """Whether none of its threads does such a thing."""
        return self.looks_on and not self.helps and not actors_of(self.samples)

    @property
    def acts(self) -> bool:
        """Whether by its source it may do such a thing the next time that it wakes."""
        return self.thread is not None and self.thread.tid in actors_of(self.samples)

    @property
    def gives_up(self) -> bool:
        """Whether by its source it looks on in a loop that an exception may end: then it goes on behind that."""
        if not self.looks_on:
            return False
        endless = [sample.endless_onlookers for sample in self.samples]
        return self.decides not in {*launchers_of(self.samples), *chain.from_iterable(endless)}

    @property
    def may_give_up(self) -> bool:
        """The same of one that may do anything then, too."""
        return self.gives_up or (self.acts and self.decides not in launchers_of(self.samples))

    @property
    def has_just_moved(self) -> bool:
        """Whether the thread that decides now sleeps where no look of this silence before saw it.

        It has gone on since its stacks were taken: a wait that gave up, and the pause that comes after.
        """
        *earlier, last = [look.thread.get(self.decides) for look in self.looks]
        if last is None or last.state != "S" or not last.wchan:
            return False
        before = {state.wchan for state in earlier if state is not None}
        return bool(before) and last.wchan not in before

    @property
    def meets_in_a_thread(self) -> bool:
        """Whether a thread beside the one that decides waits for other ranks in every sample."""
        return bool(self.samples) and all(any(map(self._meets_beside, sample.threads)) for sample in self.samples)

    def _meets_beside(self, thread: ThreadStack) -> bool:
        meeting = meeting_of(thread) if thread.tid != self.decides else None
        return meeting is not None and meeting.kind != "gpu"

    @property
    def is_behind_a_gpu(self) -> bool:
        """Whether its main thread sleeps in a lock of its process, others wait for the GPU, and nothing else moves.

        Whoever waits for a GPU spins, or sleeps, as its event was made.
        """
        if self.motion is None or self.state is None or self.wait is None or self.state.timed is not False:
            return False
        native = native_samples(self.samples)
        if Ender.PROCESS not in self.wait.enders or not native or self.state.tid in ever_woken(self.looks):
            return False
        waiting = frozenset[int].intersection(*map(_at_the_gpu, native))
        busy: set[int] = set()
        for window in self.motion.windows:
            busy.update(tid for tid, seconds in window.cpu_by_thread if seconds > POLL_SHARE * window.seconds)
        return bool(waiting) and busy <= waiting

    @property
    def threads_at_the_gpu(self) -> frozenset[int]:
        """Its threads that wait for the GPU, by the last samples; to the kernel some of them wait for a lock."""
        telling = (*self.samples[-1:], *native_samples(self.samples)[-1:])
        return frozenset[int]().union(*map(_at_the_gpu, telling))

    @property
    def may_act_by_a_thread(self) -> bool:
        """Whether a thread of the program's own may yet do what others wait for: set a key, meet them in a group.

        One asleep for all of the silence, or one that wakes again and again and by its source does more than look on.
        """
        may = self.unwoken | (self.wakers & (actors_of(self.samples) | onlookers_of(self.samples)))
        may -= self.bystanders | {self.decides}
        return any(thread.tid in may and any(map(is_own, python_frames(thread))) for thread in self.stacks)

    @property
    def bystanders(self) -> frozenset[int]:
        """Its threads that plainly look on, and were seen to wake since: what they do next they have done before."""
        return plain_onlookers_of(self.samples) - self.unwoken

    @property
    def has_a_timer_thread(self) -> bool:
        """Whether a thread beside the one that decides sleeps on a timer once, and then does something in Python.

        Not one of a package whose threads call nothing of the program's: ``torchrun`` tells every five seconds that it
        lives.
        """
        quiet = {self.decides, *self.background, *self._of_quiet_packages}
        return bool((self.unwoken & self.runs_python) - quiet)

    @property
    def _of_quiet_packages(self) -> frozenset[int]:
        """Its threads that run such a package's own code, and none of the program's."""
        quiet: set[int] = set()
        others: set[int] = set()
        for thread in self.stacks:
            packages = set(map(package, python_frames(thread))) - {""}
            is_quiet = bool(packages) and packages <= QUIET_PACKAGES and own_frame(thread) is None
            (quiet if is_quiet else others).add(thread.tid)
        return frozenset(quiet - others)

    @property
    def may_be_interrupted(self) -> bool:
        """Whether a handler or a thread of its own may raise in what it computes, or change what a loop asks.

        ``Timer(30, interrupt_main)``; or a thread has just done so, and is gone.
        """
        if ALARMS.intersection(self.looks[-1].handles) or self.has_a_timer_thread:
            return True
        return self.motion is not None and (self.motion.has_changed or self.motion.lost_a_thread)

    @property
    def is_in_a_package(self) -> bool:
        """Whether the thread that decides waits in code of a package, so that nothing tells what it does next."""
        frames = python_frames(self.thread) if self.thread is not None else ()
        innermost = next((frame for frame in frames if not is_stdlib(frame)), None)
        return innermost is not None and not is_own(innermost)

    @property
    def callers(self) -> frozenset[int]:
        """Its threads of a package that wake and may call what they were given: ``watchdog`` asks for a file.

        So does a progress bar's monitor where it may write to a stream of the program's own.
        """
        calling: set[int] = set()
        quiet = frozenset[str]() if any(sample.is_written_to for sample in self.samples) else QUIET_PACKAGES
        for thread in self.stacks:
            packages = set(map(package, python_frames(thread))) - {""}
            if packages - quiet and not any(map(is_own, python_frames(thread))):
                calling.add(thread.tid)
        return self.wakers & self.background & calling

    @property
    def has_a_watchdog(self) -> bool:
        """Whether a thread of it runs a function that by its name is a watchdog, a package's, say."""
        for thread in self.stacks:
            for frame in python_frames(thread):
                if "watchdog" in bare(frame):
                    return True
        return False

    @property
    def ids(self) -> tuple[str, ...]:
        """What to cite of it."""
        return tuple(item.id for item in (*self.samples, *self.looks))


def _at_the_gpu(sample: StackSample) -> frozenset[int]:
    """The threads that wait for the GPU."""
    waiting: set[int] = set()
    for thread in sample.threads:
        meeting = meeting_of(thread)
        if meeting is not None and meeting.kind == "gpu":
            waiting.add(thread.tid)
    return frozenset(waiting)


def standings(evidence: Evidence, *, since_s: float) -> dict[int, Standing]:
    """Every process of the job that was looked at since ``since_s``, by PID; ranks are not related yet."""
    looks: dict[int, list[ProcessState]] = {}
    earlier: dict[int, list[ProcessState]] = {}
    for look in evidence.processes:
        (looks if look.t_s > since_s else earlier).setdefault(look.pid, []).append(look)
    samples: dict[int, list[StackSample]] = {}
    for sample in evidence.stacks:
        if sample.t_s > since_s and sample.threads:
            samples.setdefault(sample.pid, []).append(sample)
    round_before_s: dict[int, float] = {}  # of each node: every one is looked at in rounds of its own
    for pid, own in looks.items():
        if len(own) > 1:
            round_before_s[pid // PIDS] = max(round_before_s.get(pid // PIDS, 0.0), own[-2].t_s)
    still_there: set[int] = set()
    begun_s: list[float] = []
    below: dict[int, set[int]] = {}
    for pid, own in looks.items():
        is_of_the_last_round = len(own) == 1 or own[-1].t_s > round_before_s.get(pid // PIDS, 0.0)
        if own[-1].state not in "ZX" and is_of_the_last_round:
            still_there.add(pid)
            begun_s.append((earlier.get(pid) or own)[0].t_s)
            below.setdefault(own[-1].parent, set()).add(pid)
    job_pids = frozenset(still_there)
    # Who could end a call was asked of those that were there: a process that came later may have inherited a pipe.
    newest_s = max(begun_s, default=0.0)
    stand: dict[int, Standing] = {}
    for pid in sorted(job_pids):
        own = with_calls(looks[pid], earlier=[look for look in earlier.get(pid, ()) if look.t_s >= newest_s])
        children = frozenset(below.get(pid, ()))
        stand[pid] = standing(own, samples.get(pid, []), job_pids=job_pids, children=children)
    stand = {pid: _without_idle_handlers(one, stand) for pid, one in stand.items()}
    onlookers = frozenset(pid for pid, one in stand.items() if one.only_looks_on)
    return {pid: _without(onlookers, one) for pid, one in stand.items()} if onlookers else stand


def _without_idle_handlers(one: Standing, stand: Mapping[int, Standing]) -> Standing:
    """A process that waits for others to end, less what its handlers would do for them where they wait for no such."""
    chances = tuple(chance for chance in one.chances if not chance.for_whom or _lets_on(one.pid, chance, stand))
    return one if len(chances) == len(one.chances) else replace(one, chances=chances)


def _lets_on(pid: int, chance: Chance, stand: Mapping[int, Standing]) -> bool:
    """Whether one of those whose end is waited for waits for something that ``pid`` may give, and none is stuck.

    A handler that ends them, as a launcher's does, lets none go on that is stuck at a lock.
    """
    awaited = [stand[child] for child in chance.for_whom if child in stand and not _serves(stand[child])]
    if any(not child.chances or _takes_a_shared_lock(child) for child in awaited):
        return False
    return any(pid in child.depends_on for child in awaited)


def _serves(one: Standing) -> bool:
    """Whether it is one of multiprocessing's own services, which wait for their parent all along."""
    return one.thread is not None and is_service(one.thread)


def _takes_a_shared_lock(one: Standing) -> bool:
    """Whether its own code takes a lock that other processes share, and waits in no event or queue made of one."""
    if one.thread is None or one.wait is None or one.wait.cause != "deadlock":
        return False
    inner, *_ = (*dropwhile(_enters, python_frames(one.thread)), None)
    return inner is not None and is_own(inner)


def _enters(frame: Frame) -> bool:
    """Whether it is how ``with`` takes a lock of multiprocessing."""
    return bare(frame) == "__enter__" and frame.file.endswith("/multiprocessing/synchronize.py")


def _without(onlookers: frozenset[int], one: Standing) -> Standing:
    """A process that hopes for no deed of those that merely look on."""

    def less(chances: tuple[Chance, ...]) -> tuple[Chance, ...]:
        rest: list[Chance] = []
        for chance in chances:
            acting = replace(chance, who=chance.who - onlookers) if chance.by_a_deed else chance
            if acting.who or not chance.by_a_deed:
                rest.append(acting)
        return tuple(rest)

    return replace(one, chances=less(one.chances), helps=less(one.helps))


def _without_reports(looks: Sequence[ProcessState], samples: Sequence[StackSample]) -> tuple[StackSample, ...]:
    """The samples less the threads that write what we asked for: they run Python, import packages, act on nothing."""
    reports: set[int] = set()
    for look in looks:
        reports.update(thread.tid for thread in look.threads if thread.name == REPORTS)
    if not reports:
        return tuple(samples)
    return tuple(
        replace(sample, threads=tuple(thread for thread in sample.threads if thread.tid not in reports))
        for sample in samples
    )


def standing(
    looks: Sequence[ProcessState],
    samples: Sequence[StackSample],
    *,
    job_pids: frozenset[int] = frozenset(),
    children: frozenset[int] = frozenset(),
) -> Standing:
    """One process by its own looks and samples; ``job_pids`` are the PIDs of the job, ``children`` its own children."""
    last = looks[-1]
    samples = _without_reports(looks, samples)
    dumps_s = dump_times(samples)
    latest = tuple(samples)
    if len(dumps_s) >= SAMPLES:
        latest = tuple(sample for sample in samples if sample.t_s >= dumps_s[-SAMPLES])
    thread = best_thread(latest)
    states = last.thread
    main = states.get(last.pid) or next(iter(last.threads), None)
    state = main if thread is None else states.get(thread.tid, main)
    one = Standing(
        pid=last.pid,
        rank=last.rank,
        parent=last.parent,
        command=last.command,
        looks=tuple(looks),
        samples=latest,
        motion=motion(looks, samples),
        thread=thread,
        state=state,
        wait=wait_of(state) if state is not None else None,
        meeting=None if any(sample.ran for sample in latest) else agreed_meeting(samples),
        chances=(),
    )
    peers = frozenset[int]()
    if _asks(one):
        # Whoever has started nobody asks the process that started it: a loader's worker without work.
        peers = children or frozenset({last.parent}) & job_pids
    elif _awaits_processes(one):
        peers = children
    elif one.wakes_for_onlookers and state is not None:
        # What the loop sleeps for is theirs; the rest of it waits for ever.
        state = replace(state, timed=False)
        one = replace(one, state=state, wait=wait_of(state))
    by_signal: Iterable[Chance] = ()
    if last.state != "T" and (not peers or (last.own_handles and awaits_the_end(one.thread))):
        by_signal = _by_signals(one, children)
    return replace(
        one,
        asks=bool(peers),
        chances=(*_chances(one, job_pids=job_pids, peers=peers, children=children), *by_signal),
        helps=tuple(_helps(one, job_pids=job_pids, children=children)),
    )


def _asks(one: Standing) -> bool:
    """Whether it merely asks others again and again whether they are done, or have work."""
    if one.motion is None or not one.motion.polls or one.rest is None or not one.rest.timed:
        return False
    if one.thread is None or one.acts or one.gives_up:
        return False
    tid = one.thread.tid
    loops = [loop for sample in one.samples for loop in sample.loops if loop.tid == tid]
    return asks_again(one.thread, woke=tid not in one.unwoken or any(map(asks_anew, loops)))


def _awaits_processes(one: Standing) -> bool:
    """Whether by its source it does nothing until a process ends, and no other thread of it may run."""
    if one.motion is None or not one.motion.polls or one.rest is None or not one.rest.timed:
        return False
    if one.has_another_thread or one.looks[-1].own_handles or MESSAGES.intersection(one.looks[-1].handles):
        return False
    return one.decides in launchers_of(one.samples)


def _chances(
    one: Standing, *, job_pids: frozenset[int], peers: frozenset[int], children: frozenset[int]
) -> Iterable[Chance]:
    last, moved, state = one.looks[-1], one.motion, one.state
    if last.threads and all(t.state in "Tt" for t in last.threads):
        yield Chance(how=f"it is stopped (state {last.state}), and somebody may continue it", ender=Ender.SOMEBODY)
        return
    if moved is None:
        yield Chance(how="there were no two undisturbed looks at it", ender=Ender.UNKNOWN)
        return
    if peers:
        yield Chance(how="it asks other processes again and again", who=peers)
        yield from _by_alarms(last)
        return
    keeper = gil_holder(one.samples)
    if moved.has_changed:
        yield Chance(how="it has begun another wait since it was looked at for a while")
        return
    others_move = _only_gil_waiters(one, moved, keeper) or _only_others_wake(moved, state) or _ticks_for_nobody(one)
    if not moved.still and not others_move:
        yield from _moves(moved, one.rest)
        return
    yield from _by_alarms(last)
    if keeper is not None and keeper != (state.tid if state is not None else 0):
        # Whoever waits for the interpreter's lock waits for the thread that keeps it.
        for holder in moved.threads:
            if holder.tid == keeper:
                wait = wait_of(holder)
                if wait is not None and Ender.PROCESS in wait.enders:
                    yield from _of_threads(one, moved, holder, job_pids=job_pids)
                yield from _chances_of(holder, pid=one.pid, job_pids=job_pids)
                return
    if state is None:
        yield Chance(how="its main thread was not seen", ender=Ender.UNKNOWN)
        return
    wait = one.wait
    if wait is not None and (Ender.PROCESS in wait.enders or one.pid in wait.holders):
        yield from _of_threads(one, moved, state, job_pids=job_pids)
        yield from _by_supervisors(one, children | ({one.parent} & job_pids))
        yield from _by_callbacks(one)
    if wait is None or wait.outside or Ender.PROCESS not in wait.enders:
        yield from _chances_of(state, pid=one.pid, job_pids=job_pids)
    is_sent_something = wait is not None and wait.cause == "blocked-io" and frozenset(wait.holders) - {one.pid}
    if is_sent_something and state.tid in ever_woken(one.looks):
        # A parent that counts the lines which a bystander of its child prints may do something at the twelfth.
        yield Chance(how="what it waits for comes now and then")


def _by_alarms(last: ProcessState) -> Iterable[Chance]:
    names = sorted((ALARMS - COUNT_CPU).intersection(last.handles))
    if names:
        yield Chance(how=f"a timer of its own may send it a signal ({', '.join(names)})", ender=Ender.TIMER)


def _moves(moved: Motion, rest: ThreadState | None) -> Iterable[Chance]:
    """Of a process in which something moves: it computes, or a thread of it wakes now and then."""
    if moved.cpu_share <= POLL_SHARE and rest is not None and rest.timed:
        yield Chance(how=f"it wakes by itself now and then ({rest.wchan or 'a time limit'})", ender=Ender.TIMER)
    else:
        yield Chance(how=f"it moved {moved.windows[-1]}")


def _of_threads(one: Standing, moved: Motion, state: ThreadState, *, job_pids: frozenset[int]) -> Iterable[Chance]:
    """Who may wake a thread that waits for a lock of its own process: any other thread of it that may itself go on."""
    samples = one.samples
    stack = one.thread if one.thread is not None and one.thread.tid == state.tid else None
    only_python = stack is not None and (in_python_lock(stack) or called_by_python(stack, state))
    asleep, runs_python = unwoken(moved.looks), one.runs_python
    at_the_gpu = one.threads_at_the_gpu
    for other in moved.looks[-1].threads:
        if other.tid == state.tid or is_ticker(other):
            continue
        if other.tid in at_the_gpu:
            yield Chance(how=f"thread {other.tid} waits for the GPU", ender=Ender.DEVICE)
            continue
        counts = other.tid not in moved.background
        wait = wait_of(other)
        waits_inside = wait is not None and not wait.outside and not set(wait.holders) - {one.pid}
        if only_python and len(samples) >= SAMPLES and other.tid not in runs_python:
            # A thread of a library that has never run Python gives back no lock of Python's, and writes to no pipe that
            # Python reads, unless something comes to it from outside that it hands on to a callback.
            library = _calls_back(moved.looks, other.tid)
            if library:
                how = f"thread {other.tid} wakes in {library}, which may call Python"
                yield Chance(how=how, ender=Ender.PROGRAM)
            if not counts or waits_inside or other.timed:
                continue
        elif not counts and other.tid in runs_python:
            continue  # it looks after a package that has nothing to do with the lock
        for chance in _chances_of(other, pid=moved.pid, job_pids=job_pids):
            name = f" {other.name}" if other.name else ""
            ticks = chance.ender is Ender.TIMER and other.tid not in asleep
            yield replace(
                chance, how=f"thread{name} ({other.tid}) {chance.how}", ender=Ender.TICKING if ticks else chance.ender
            )


def _by_supervisors(one: Standing, family: frozenset[int]) -> Iterable[Chance]:
    """Threads, and tasks of an event loop, that look on until a process ends or sets an event, and then act."""
    supervisors = supervisors_of(one.samples)
    waiting = [tid for tid in supervisors if tid < 0 or (tid in one.background and tid != one.decides)]
    if waiting and family:
        yield Chance(how="asks processes of its own again and again", who=family)


def _by_callbacks(one: Standing) -> Iterable[Chance]:
    """Threads of gloo in a collective, with its time limit, whose result the program has given a function to call."""
    if any(sample.has_callbacks for sample in one.samples):
        for other in one.looks[-1].threads:
            if other.name.startswith(RUNS_COLLECTIVES) and other.timed:
                yield Chance(how=f"thread {other.name} ({other.tid}) waits for other ranks", ender=Ender.MACHINE)


def _calls_back(looks: Sequence[ProcessState], tid: int) -> str:
    """The library in which a thread was seen to sleep on a timer, and which may call Python; empty without one.

    By any look: at one of them a thread that wakes often is met awake, where nothing tells whose code it runs.
    """
    for look in reversed(looks):
        state = look.thread.get(tid)
        if state is not None and state.timed and may_call_back(state):
            return state.library
    return ""


def _by_signals(one: Standing, children: frozenset[int]) -> Iterable[Chance]:
    """By whose signal a process may go on: its handler may set what the main thread waits for."""
    last = one.looks[-1]
    innermost = next(iter(python_frames(one.thread)), None) if one.thread is not None else None
    awaited = MESSAGES
    in_a_loop = innermost is not None and innermost.file.endswith("/selectors.py")
    if in_a_loop and not one.command.startswith(LOADER_WORKER):
        awaited = MESSAGES | {ENDS}
    if not one.samples and ENDS in last.handles:
        awaited -= {HANGS_UP}
    if not one.samples and one.wait is not None and one.wait.cause == "waiting-for-child":
        awaited = frozenset[str]()  # a launcher: what it is told does not let its child go on
    names = awaited.intersection(last.handles)
    own = frozenset(last.own_handles if _may_be_awaited(one) else ())
    if not own and _may_be_at_a_lock(one):
        names -= USERS  # faulthandler's, or a scheduler's, for which the program saves and ends
    names |= own - ALARMS - {"SIGCHLD"}
    awaited_pids = frozenset[int]()
    if one.wait is not None and one.wait.cause == "waiting-for-child":
        awaited_pids = children.intersection(one.wait.holders) or children
    elif awaits_the_end(one.thread):
        awaited_pids = children
    for name in sorted(names):
        how = f"it handles {name}, which another program may send"
        yield Chance(how=how, ender=Ender.PROGRAM, for_whom=awaited_pids)
    if "SIGCHLD" in last.handles and children:
        yield Chance(how="it handles SIGCHLD, which the end of a child sends", who=children)


def _may_be_awaited(one: Standing) -> bool:
    """Whether a handler of the program's own may end this wait: of an event, say.

    Not one for other ranks, for a lock that its own code takes (a handler that saves and ends the program before its
    time is up gives none back), or for the end of threads of which one waits for such.
    """
    if one.thread is None or one.meeting is not None:
        return one.meeting is None
    if not waits_for_a_thread(one.thread):
        return not _takes_a_lock(one.thread, one.wait)
    sample, states = best_sample(one.samples), one.looks[-1].thread
    threads = sample.threads if sample is not None else ()
    others = [thread for thread in threads if thread.tid != one.decides and python_frames(thread)]
    for other in others:
        wait = wait_of(states[other.tid]) if other.tid in states else None
        if waits_for_a_thread(other) or _takes_a_lock(other, wait):
            return False
    return bool(others)


def _may_be_at_a_lock(one: Standing) -> bool:
    """Whether it waits in its own line for a thread of its process, or where no handler ends the wait."""
    in_its_own_line = one.thread is not None and _waits_in_its_own_line(one.thread, one.wait)
    return in_its_own_line or not _may_be_awaited(one)


def _waits_in_its_own_line(thread: ThreadStack, wait: Wait | None) -> bool:
    return wait is not None and wait.enders == frozenset({Ender.PROCESS}) and stands_in_own_code(thread)


def _takes_a_lock(thread: ThreadStack, wait: Wait | None) -> bool:
    """Whether a thread's own code takes a lock of Python's, and waits in no queue made of one, nor in a library's C."""
    leaf = native_leaf(thread)
    in_a_lock = all(map(is_runtime, leaf)) and not mentions(leaf, SIMPLE_QUEUE)
    return in_a_lock and _waits_in_its_own_line(thread, wait)


def _helps(one: Standing, *, job_pids: frozenset[int], children: frozenset[int]) -> Iterable[Chance]:
    """What may let the threads go on beside the one that decides, less those that mean nothing to the program."""
    if one.motion is None or one.state is None:
        return
    yield from _by_supervisors(one, children | ({one.parent} & job_pids))
    nobody = {one.state.tid, *one.background}
    asking = _threads_that_ask(one) if children else frozenset[int]()
    at_the_gpu = one.threads_at_the_gpu
    for other in one.motion.looks[-1].threads:
        if other.tid in nobody or is_ticker(other) or other.state in "Tt":
            continue
        if other.tid in asking:
            yield Chance(how="asks processes of its own again and again", who=children, any_thread=True)
        elif other.tid in at_the_gpu:
            yield Chance(how=f"thread {other.tid} waits for the GPU", ender=Ender.DEVICE)
        else:
            yield from _chances_of(other, pid=one.pid, job_pids=job_pids)


def _threads_that_ask(one: Standing) -> frozenset[int]:
    """The threads that only ask processes of their own again and again, as a loader's asks its workers for batches.

    Not one that by its own source does more at each turn: it may write off by a clock what a child never gave back.
    """
    asking: set[int] = set()
    others: set[int] = set()
    unwoken = one.unwoken
    for stack in one.stacks:
        if python_frames(stack):
            (asking if asks_again(stack, woke=stack.tid not in unwoken) else others).add(stack.tid)
    return frozenset(asking - others) - actors_of(one.samples)


def _chances_of(state: ThreadState, *, pid: int, job_pids: frozenset[int]) -> Iterable[Chance]:
    """Who may wake one thread of process ``pid`` that is blocked, the process itself left out."""
    wait = wait_of(state)
    if wait is None:
        yield Chance(how="runs")
        return
    for ender in sorted(wait.outside):
        kernel = f" ({state.wchan})" if state.wchan else ""
        yield Chance(how=f"waits for {wait.what}{kernel}, which {ender} may end", ender=ender)
    if Ender.JOB not in wait.enders:
        return
    holders = frozenset(wait.holders) - {pid}
    if holders & job_pids:
        any_thread = wait.cause != "waiting-for-child"
        how = f"waits for {wait.what}"
        yield Chance(how=how, who=holders & job_pids, any_thread=any_thread, by_a_deed=wait.cause == "deadlock")
    if holders - job_pids:
        yield Chance(how=f"waits for {wait.what}, which a process that was not looked at may end", ender=Ender.JOB)


def may_go_on(thread: ThreadState, *, pid: int, job_pids: frozenset[int], live: Mapping[int, Chance]) -> bool:
    """Whether one thread of process ``pid`` runs, or waits for somebody who may go on: ``live`` are such processes."""
    chances = _chances_of(thread, pid=pid, job_pids=job_pids)
    return any(not chance.who or chance.who & live.keys() for chance in chances)


def _only_gil_waiters(one: Standing, moved: Motion, keeper: int | None) -> bool:
    """Whether all that moves are threads that ask every 5 ms for the interpreter's lock, which one keeps asleep."""
    if keeper is None or moved.io_bytes or not moved.polls:
        return False
    waiters = one.runs_python - {keeper}
    for window in moved.windows:
        for tid, seconds in window.cpu_by_thread:
            if seconds > 0.0 and tid not in waiters:
                return False
    return True


def _only_others_wake(moved: Motion, state: ThreadState | None) -> bool:
    """Whether the thread that decides slept through it all, in a wait without a limit, while others woke now and then.

    Then it is asked who can end that wait, which those threads may be: CUDA's and NCCL's own poll their connections.
    """
    if state is None or state.timed is not False or not moved.polls or not moved.switches:
        return False
    return len({thread.switches for thread in moved.history(state.tid)}) == 1


def _ticks_for_nobody(one: Standing) -> bool:
    """Whether nothing moves but an event loop that wakes for tasks which merely look on."""
    return one.wakes_for_onlookers and one.motion is not None and one.motion.polls


# -- the closure


def alive(
    stand: Mapping[int, Standing], *, goes_nowhere: Callable[[Standing], bool] = lambda _: False
) -> dict[int, Chance]:
    """The processes that may go on, each with the chance by which; all others never will.

    A process that computes and goes nowhere (``goes_nowhere``) does not go on; another thread of it may still help.
    """
    live: dict[int, Chance] = {}
    helpful: set[int] = set()
    for pid, one in stand.items():
        if any(map(_needs_no_process, one.helps)):
            helpful.add(pid)
        own = next(filter(_needs_no_process, one.chances), None)
        if own is not None and not goes_nowhere(one):
            live[pid] = own
    grown = True
    while grown:
        grown = False
        for pid, one in stand.items():
            if pid not in helpful and _first_come(one.helps, live, helpful) is not None:
                helpful.add(pid)
                grown = True
            if pid in live or goes_nowhere(one):
                continue
            chance = _first_come(one.chances, live, helpful)
            if chance is not None:
                live[pid] = chance
                grown = True
    return live


def _needs_no_process(chance: Chance) -> bool:
    """Whether it depends on no other process of the job."""
    return chance.moves or chance.ender is not None


def _first_come(chances: Iterable[Chance], live: Mapping[int, Chance], helpful: set[int]) -> Chance | None:
    """The first chance of which a process that it depends on may do what it depends on; None without one."""
    for chance in chances:
        if not chance.who.isdisjoint(live) or (chance.any_thread and not chance.who.isdisjoint(helpful)):
            return chance
    return None


def culprit(stand: Mapping[int, Standing], start: int) -> Standing:
    """Where the chain of waits that begins at ``start`` ends: whoever waits for no process, or closes a circle.

    Not an idle worker that closes it by asking for work: then it is the last that waits for more than an answer, and in
    code of the program's own that a reader can open, where one of them does.
    """
    path = [stand[start]]
    passed = {path[0].pid}
    while others := path[-1].depends_on & stand.keys() - passed:
        # Of several the one that waits for nobody, or is stuck at a lock of its own: idle workers wait for the rank in
        # their turn, a loader's in a queue, and those of a pool that are sent their work by the thread that reads it.
        path.append(
            min((stand[pid] for pid in others), key=lambda one: (bool(one.chances), not _is_at_a_lock(one), one.pid))
        )
        passed.add(path[-1].pid)
    waits = [one for one in reversed(path) if not one.asks] or path[-1:]
    closes_a_circle = bool(path[-1].depends_on & passed)
    return min(waits, key=_how_far_from_a_line) if closes_a_circle else waits[0]


def _is_at_a_lock(one: Standing) -> bool:
    """Whether it waits in a line of the program's own, and for a thread of its process: at a lock, in no queue."""
    if one.thread is None or one.wait is None or Ender.PROCESS not in one.wait.enders:
        return False
    return stands_in_own_code(one.thread)


def _how_far_from_a_line(one: Standing) -> int:
    """0 where it waits in code of the program's own that a reader can open, 1 in such of no file, 2 in a library's."""
    frame = own_frame(one.thread) if one.thread is not None else None
    return 2 if frame is None else int(is_in_no_file(frame))
