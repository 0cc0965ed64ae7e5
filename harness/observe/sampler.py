"""Looks at every process of a trial: /proc and stacks, numbered, with the windows that nothing disturbed."""

from __future__ import annotations

import math
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from harness.observe.bounded import Bounded
from harness.observe.ends import Ends
from harness.observe.handlers import began_with_an_alarm, by_python, by_the_program, ended_children, may_speak
from harness.observe.proc import listed_as
from harness.observe.stacks.faulthandler import ANSWER_S, Faulthandler
from harness.observe.stacks.pick import sample_all
from harness.observe.stacks.pyspy import changed, program, sources
from harness.reading.awaits import rests_in_a_loop, with_awaited, with_onlookers
from harness.reading.frames import deciding_thread, thread_of
from harness.reading.loops import endless_by_source, is_to_be_asked, progress, with_variables
from harness.reading.meeting import meeting_of
from harness.reading.onlookers import (
    are_written_to,
    compile_texts,
    have_callbacks,
    of_sample,
    sets_an_alarm,
    stand_between,
    words_that_hand_out,
)
from harness.reading.standing import ENDS, LOADER_WORKER
from harness.reading.stillness import background, launchers_of, may_use_a_gpu, motion, onlookers_of
from harness.reading.waits import ALARM, OF_PROGRAMS, asks_anew, waits_for_a_thread
from harness.store.layout import faulthandler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from harness.core.evidence import ProcessState, SourceFailure, StackSample
    from harness.core.ports import Clock, StackSource
    from harness.observe.census import Census
    from harness.observe.job import Member
    from harness.observe.proc import Proc

AT_ONCE = 8
"""Dumpers that run side by side; each takes 0.02 s of CPU, or 0.2 s with native frames."""

ASKED_HELPERS = 3
"""Of a rank's helpers in a loop of names and numbers, those that are asked for these: one answers after the other."""

HELPERS = 12
"""Processes beside those that train whose stacks are taken; of many workers a few will do."""

REST_S = 5.0
"""How long those that train must have rested before it is asked who prints, at first."""

IDLE_S, IDLE_SHARE = 0.05, 0.02
"""CPU time of all processes of a trial that does no more than print, and its share of a core."""

ANY_ANSWER_S = 0.5
"""How long one is waited for that most likely cannot answer, because it waits in C; no answer proves nothing."""

SIGNALLING = "faulthandler"
"""A source that sends a signal: not to a process of which nobody knows what it does with it."""


_MESSAGES = frozenset({ENDS, *map(listed_as, OF_PROGRAMS)})
"""The signals by which somebody outside tells a program something."""


class Native(Enum):
    """Whose native frames to take: nobody's, of those that stand still anyway, or of all that train besides."""

    NONE = auto()
    STILL = auto()
    ALL = auto()


def quiet(sources: Iterable[StackSource]) -> list[StackSource]:
    """Those of the sources that send no signal."""
    return [source for source in sources if source.name != SIGNALLING]


def _runs(look: ProcessState, *, but: frozenset[int]) -> set[tuple[int, int]]:
    """How often each thread has run by a look, less those that say nothing."""
    return {(thread.tid, thread.switches) for thread in look.threads if thread.tid not in but}


def _shows_a_meeting(stacks: Iterable[StackSample]) -> bool:
    """Whether one of these shows a process in a wait for its GPU or for other ranks."""
    threads = filter(None, map(deciding_thread, stacks))
    return any(meeting_of(thread) is not None for thread in threads)


class _Source(NamedTuple):
    """What was read of a program, as far as its process runs it as it stands: not what was changed since it began.

    ``all`` that was read, ``texts`` of the files on its stack, ``files`` of all its own, None where one is missing, and
    the paths that are ``unsure``.
    """

    all: Mapping[str, str]
    texts: Mapping[str, str]
    files: Mapping[str, str] | None
    unsure: frozenset[str]


def _in_its_program(sample: StackSample, source: _Source) -> StackSample:
    """The same, with what its program's files say of its threads, those of packages among them.

    Without plain onlookers where one of them stands between, or not all were read.
    """
    if sample.plain_onlookers and (source.files is None or stand_between(source.files)):
        sample = replace(sample, plain_onlookers=())
    is_written_to = source.files is None or are_written_to(source.files)
    return replace(sample, is_written_to=is_written_to, has_callbacks=have_callbacks(source.all))


class Sampler:
    """Takes and keeps samples. Those of the present silence are in :attr:`looks` and :attr:`stacks`.

    ``ranks`` gives the PID of every rank that is there, one for a trial of a single process. A silence in which no
    stacks were taken is forgotten when it ends: a healthy trial leaves none.
    """

    def __init__(
        self,
        *,
        census: Census,
        trial_dir: Path,
        clock: Clock,
        started_s: float,
        sources: Sequence[StackSource],
        view: Proc,
        ranks: Callable[[], Mapping[int, int]],
    ) -> None:
        self._census, self._trial_dir, self._clock, self._started_s = census, trial_dir, clock, started_s
        self._view, self._ranks = view, ranks
        self._quiet = quiet(sources)
        self._sources = sources
        self.looks: list[ProcessState] = []
        self.stacks: list[StackSample] = []
        self._rounds: Bounded[tuple[list[ProcessState], list[StackSample]]] = Bounded(first=2, last=3)
        self._failures: dict[tuple[str, str], SourceFailure] = {}
        self._numbers = {"look": 0, "stack": 0}
        self._openings: dict[int, str] = {}
        self._before: dict[int, ProcessState] = {}
        self._with_alarm: set[int] = set()
        self._hands_out: set[str] = set()
        self._programs: dict[tuple[int, frozenset[str]], Mapping[str, str] | None] = {}
        self._speaks_of_alarms: dict[int, bool] = {}
        self._moved_before = False
        self._ran: dict[int, str] = {}
        self._slept_since_s = self._idle_since_s = started_s
        self._idle_at_cpu_s = math.inf
        self._patience_s, self._is_tentative = REST_S, False

    def look(self) -> None:
        """Look at every process of the trial in /proc, which does not disturb them."""
        members = self._census.members()
        mains = self._mains()
        owners = {pid: self._census.owner(pid, mains) for pid in {*members, *mains}}
        crews = Counter(owners.values())
        nobodys = 0 if set(mains.values()) == {0} else -1  # what started the ranks is none of them
        ends = Ends({pid: member.parent for pid, member in members.items()}, hands_out=self._hands_out)
        for pid in sorted(owners, key=lambda pid: (pid not in mains, pid)):
            rank = owners[pid]
            number = self._numbers["look"] + 1
            state = self._view.look(
                pid,
                id=f"proc-{number}",
                t_s=self._now(),
                rank=nobodys if rank is None else rank,
                children=crews[rank] - 1 if pid in mains else 0,
                since=self._openings.get(pid),
                ends=ends,
            )
            if state is None:
                continue
            state = self._by_its_handlers(state, is_python=pid in members and members[pid].python)
            if ended := ended_children(pid, self._trial_dir):
                state = replace(state, ended_children=ended)
            if pid in self._with_alarm or self._began_armed(pid, members):
                state = replace(state, handles=(*state.handles, ALARM))
            self._numbers["look"] = number
            self._openings.setdefault(pid, state.id)
            self.looks.append(state)
            self._before[pid] = state

    def _by_its_handlers(self, state: ProcessState, *, is_python: bool) -> ProcessState:
        """The look with the signals for which the program itself has handlers, whichever they are.

        Without those messages from other programs that come to no handler in Python, and without SIGTERM where a
        library alone handles it: it is told that the program is to end. Of a Python program that cannot speak, all
        that the kernel shows may be its own.
        """
        own = tuple(map(listed_as, sorted(by_the_program(state.pid, self._trial_dir))))
        handled = by_python(state.pid, self._trial_dir)
        if handled is None:
            own = own or (self._handled_in_silence(state) if is_python else ())
            return replace(state, own_handles=own) if own else state
        dropped = {*map(listed_as, OF_PROGRAMS - handled), ENDS}.difference(own)
        return replace(state, handles=tuple(name for name in state.handles if name not in dropped), own_handles=own)

    def _handled_in_silence(self, state: ProcessState) -> tuple[str, ...]:
        """The messages that a Python program handles which carries nothing of ours; none where it does."""
        handled = tuple(name for name in state.handles if name in _MESSAGES)
        if not handled or state.command.startswith(LOADER_WORKER) or may_speak(state.pid):
            return ()
        return () if self._view.has_open(state.pid, faulthandler(self._trial_dir, state.rank).name) else handled

    def _began_armed(self, pid: int, members: Mapping[int, Member]) -> bool:
        """Whether an alarm may have been set before its program began: one that is set outlives an ``exec``.

        A Python program says so itself; of others the script of the shell that started it may speak of one.
        """
        if began_with_an_alarm(pid, self._trial_dir):
            return True
        parent = members[pid].parent if pid in members else 0
        if parent not in members:
            return False
        if parent not in self._speaks_of_alarms:
            self._speaks_of_alarms[parent] = self._view.speaks_of_alarms(parent)
        return self._speaks_of_alarms[parent]

    def _mains(self) -> dict[int, int]:
        """The rank of each process that trains."""
        return {pid: rank for rank, pid in self._ranks().items()}

    def only_onlookers_ran(self) -> bool:
        """Whether since the last look no thread of the trial ran but those that, by their source, merely look on.

        Then what was printed meanwhile is theirs, and says nothing of those that are silent. To be stopped for a dump
        is not to run, though the kernel counts it as such. Where no stacks were taken yet, those that train must have
        rested for a while: then it is looked who prints.
        """
        if not self.stacks:
            return self._rests_for_long()
        if self._moved_before or self._before.keys() != self._census.members().keys():
            return False
        return all(map(self._only_onlookers_ran, self._before.values()))

    def _rests_for_long(self) -> bool:
        """Whether for some seconds those that train have not run, or all of the trial did hardly more than print.

        Somebody may be at work all the same: each time that this was so, twice as long is waited.
        """
        now_s = self._clock.now()
        ran = {pid: self._view.main_thread(pid) for pid in self._ranks().values()}
        if not ran or not all(ran.values()):
            return False
        if ran != self._ran:
            self._ran, self._slept_since_s = ran, now_s
        cpu_s = sum(self._view.all_cpu_s(pid) or 0.0 for pid in self._census.members())
        if not 0.0 <= cpu_s - self._idle_at_cpu_s <= IDLE_S + IDLE_SHARE * (now_s - self._idle_since_s):
            self._idle_at_cpu_s, self._idle_since_s = cpu_s, now_s
        rests = now_s - min(self._slept_since_s, self._idle_since_s) >= self._patience_s
        self._is_tentative = self._is_tentative or rests
        return rests

    def _only_onlookers_ran(self, before: ProcessState) -> bool:
        now = self._look_again(before)
        stacks = self._stacks_of(before.pid)
        behind = background(self._looks_of(before.pid), stacks) | onlookers_of(stacks)
        if before.pid in self._ranks().values():
            behind -= {before.pid}  # a helper may look on as a whole; whoever trains may not
        if self._trains_nothing(before.pid):
            behind |= {before.pid}
        return now is not None and _runs(now, but=behind) == _runs(before, but=behind)

    def _trains_nothing(self, pid: int) -> bool:
        """Whether the main thread of one that may train awaits processes, or wakes for tasks that merely look on."""
        stacks = self._stacks_of(pid)
        if pid in launchers_of(stacks):
            return True
        main = thread_of(stacks[-1], pid) if stacks else None
        return main is not None and rests_in_a_loop(main) and any(tid < 0 for tid in onlookers_of(stacks))

    def _look_again(self, before: ProcessState) -> ProcessState | None:
        return self._view.look(before.pid, id="", t_s=self._now(), rank=before.rank, children=before.children)

    def dump(self, native: Native) -> None:
        """Take stacks: of those that train, and of Python processes that work for them.

        What computes is asked for its Python frames and locals also where native frames are wanted of it: the former
        tell the loop that it is in, the latter that it waits for a GPU.
        """
        self._moved_before = bool(self.stacks) and not self.only_onlookers_ran()
        self.disturbed()
        mains = self._mains()
        helpers = [m.pid for m in self._census.members().values() if m.python and m.pid not in mains]
        helpers.sort(key=lambda pid: (self._stands_still(pid) is not True, pid))
        requests: list[tuple[int, int, bool]] = []
        for pid in (*mains, *helpers[:HELPERS]):
            rank = mains.get(pid, self._census.owner(pid, mains) or 0)
            still = self._stands_still(pid) is True
            wants = (native is Native.ALL and pid in mains) or (native is not Native.NONE and still)
            wants = wants and not self._waits_by_python(pid)
            requests += [(pid, rank, False)] if not (wants and still) else []
            requests += [(pid, rank, True)] if wants else []
        first = self._numbers["stack"] + 1
        self._numbers["stack"] += len(requests)

        def take(numbered: tuple[int, tuple[int, int, bool]]) -> tuple[StackSample | None, tuple[SourceFailure, ...]]:
            number, (pid, rank, with_native) = numbered
            return sample_all(
                self._sources if pid in mains else self._quiet,
                pid=pid,
                rank=rank,
                t_s=self._now(),
                native=with_native,
                number=number,
                trial_dir=self._trial_dir,
            )

        # Side by side: a dumper waits for its process longer than it computes, and ranks are compared with each other.
        with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
            answers = list(pool.map(take, enumerate(requests, first)))
        taken = len(self.stacks)
        for sample, failures in answers:
            for failure in failures:
                self._note_failure(failure)
            if sample is not None:
                self.stacks.append(self._with_what_locals_tell(self._with_its_source(sample)))
        with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
            list(pool.map(self._ask_inside, self._ranks().values(), self._ranks().keys()))
            list(pool.map(partial(self._ask_helpers, taken), self._ranks().keys()))
            list(pool.map(partial(self._ask_what_they_await, taken), {sample.rank for sample in self.stacks[taken:]}))
        if not self.stacks:
            self._patience_s = math.inf  # nobody can be asked who prints
        before, self._before = self._before, {}
        for pid, look in before.items():
            if (again := self._look_again(look)) is not None:
                self._before[pid] = again

    def _ask_inside(self, pid: int, rank: int) -> None:
        """Ask a process in a loop that gets on where the loops around it are, and for what nobody else can see.

        One that burns a core in a wait, for its GPU or for other ranks, is asked whether it goes on in between: many
        short waits look like one without an end.
        """
        asker, plain = self._asker(), self._plain_stacks_of(pid)
        if asker is None or not plain:
            return
        place, sample = list(plain.items())[-1]
        computes = is_to_be_asked(sample)
        telling = computes or bool(progress(list(plain.values())))
        # The last dump may be two samples: with native frames, and without.
        if not telling and not _shows_a_meeting(self._stacks_of(pid)[-2:]):
            return
        limit_s = ANSWER_S if telling else ANY_ANSWER_S
        answer = asker.inside(pid=pid, rank=rank, trial_dir=self._trial_dir, limit_s=limit_s)
        if computes:
            sample = with_variables(sample, answer.variables, self._source(sample).texts)
        self.stacks[place] = replace(sample, positions=answer.positions, ran=answer.ran)

    def _ask_helpers(self, taken: int, rank: int) -> None:
        """Ask a rank's helpers that compute for what nobody else can see, as they stand in the samples since ``taken``.

        One after the other, as they answer in one file.
        """
        mains, asked = self._mains(), 0
        for sample in self.stacks[taken:]:
            if sample.rank == rank and sample.pid not in mains and is_to_be_asked(sample) and asked < ASKED_HELPERS:
                asked += 1
                self._ask_inside(sample.pid, rank)

    def _ask_what_they_await(self, taken: int, rank: int) -> None:
        """Ask each process of a rank whose event loop has nothing to do where its coroutines wait.

        Stacks do not show them. Of this dump, before which ``taken`` samples were taken; one after the other, as they
        answer in one file.
        """
        places: dict[int, list[int]] = {}
        for at in range(taken, len(self.stacks)):
            if self.stacks[at].rank == rank:
                places.setdefault(self.stacks[at].pid, []).append(at)
        for pid, those in places.items():
            self._ask_what_it_awaits(pid, rank, those)

    def _ask_what_it_awaits(self, pid: int, rank: int, places: Sequence[int]) -> None:
        asker, main = self._asker(), thread_of(self.stacks[places[-1]], pid)
        if asker is None or main is None or not rests_in_a_loop(main):
            return
        loop = asker.inside(pid=pid, rank=rank, trial_dir=self._trial_dir, limit_s=ANSWER_S, asleep=True).loop
        for at in places:
            sample = with_awaited(self.stacks[at], loop.awaited)
            source = self._source(replace(sample, threads=(*sample.threads, *loop.tasks)))
            self.stacks[at] = _in_its_program(with_onlookers(sample, loop, source.texts), source)

    def _with_its_source(self, sample: StackSample) -> StackSample:
        """The sample with what the source of its process says of its threads and loops."""
        source = self._source(sample)
        self._hands_out |= words_that_hand_out(source.all)
        if sets_an_alarm(source.all):
            self._with_alarm.add(sample.pid)
        sample = _in_its_program(of_sample(sample, source.texts), source)
        if sample.native:
            return replace(sample, loops=endless_by_source(sample, source.texts, also=asks_anew))
        return replace(sample, loops=tuple(loop for loop in sample.loops if loop.file not in source.unsure))

    def _source(self, sample: StackSample) -> _Source:
        texts = sources(sample)
        files = self._program(sample, texts)
        read = {**texts, **(files or {})}
        unsure = frozenset(read) if compile_texts(read) else changed(sample.pid, read)
        sure = {path: text for path, text in texts.items() if path not in unsure}
        return _Source(texts if files is None else files, sure, None if unsure else files, unsure)

    def _program(self, sample: StackSample, texts: Mapping[str, str]) -> Mapping[str, str] | None:
        """The program's own files, read once for all samples of a process that are in the same ones."""
        key = sample.pid, frozenset(texts)
        if key not in self._programs:
            self._programs[key] = program(sample, texts)
        return self._programs[key]

    def _asker(self) -> Faulthandler | None:
        """The source that can ask a process about itself, if it is among those of the trial."""
        for source in self._sources:
            if isinstance(source, Faulthandler):
                return source
        return None

    def disturbed(self) -> None:
        """Something else asked the processes for an answer: no window reaches across it."""
        self._openings.clear()

    def progress(self) -> None:
        """The silence is over: keep what was taken during it if it was examined, and begin anew."""
        if self.stacks:
            self._rounds.add((self.looks, self.stacks))
        self.looks, self.stacks = [], []
        self._before, self._moved_before = {}, False
        self._patience_s *= 2.0 if self._is_tentative else 1.0
        self._is_tentative = False
        self._openings.clear()

    def discard(self, failure: SourceFailure) -> bool:
        """Forget what was seen of this silence, of which ``failure`` may have hidden a part; True when that is new."""
        many = len(self._failures)
        self._note_failure(failure)
        self.looks, self.stacks, self._before = [], [], {}
        self.disturbed()
        return len(self._failures) > many

    def _note_failure(self, failure: SourceFailure) -> None:
        numbered = replace(failure, id=f"failure-{len(self._failures) + 1}")
        self._failures.setdefault((failure.source, failure.reason), numbered)

    def all_looks(self) -> tuple[ProcessState, ...]:
        """Every look that was kept, in order."""
        looks: list[ProcessState] = []
        for taken in self._rounds.items():
            looks += taken[0]
        return (*looks, *self.looks)

    def all_stacks(self) -> tuple[StackSample, ...]:
        """Every stack sample that was kept, in order."""
        stacks: list[StackSample] = []
        for taken in self._rounds.items():
            stacks += taken[1]
        return (*stacks, *self.stacks)

    def failures(self) -> tuple[SourceFailure, ...]:
        """Each reason why a source could not be used, once."""
        return tuple(self._failures.values())

    def _stands_still(self, pid: int) -> bool | None:
        """Whether a process was seen to rest, or merely to poll; None while there was no undisturbed window."""
        moved = motion(self._looks_of(pid), self._stacks_of(pid))
        return None if moved is None else moved.windows[-1].rests

    def _waits_by_python(self, pid: int) -> bool:
        """Whether Python frames tell that it waits in a collective, and native ones would not tell more.

        Over a GPU a rank that is still in the call makes its communicator, and how far that is no Python frame tells.
        """
        if any(map(may_use_a_gpu, self._looks_of(pid))):
            return False
        return _shows_a_meeting(self._plain_stacks_of(pid).values())

    def _looks_of(self, pid: int) -> list[ProcessState]:
        return [look for look in self.looks if look.pid == pid]

    def _stacks_of(self, pid: int) -> list[StackSample]:
        return [stack for stack in self.stacks if stack.pid == pid]

    def _plain_stacks_of(self, pid: int) -> dict[int, StackSample]:
        """Those without native frames, by their place in :attr:`stacks`."""
        stacks = enumerate(self.stacks)
        return {place: stack for place, stack in stacks if stack.pid == pid and not stack.native}

    def _with_what_locals_tell(self, sample: StackSample) -> StackSample:
        """A sample with native frames, with what only one without them tells: the names of threads, and who joins whom.

        The names are Python's own, not the kernel's. Whom a thread joined before it still joins while it stands there.
        """
        if not sample.native:
            return sample
        names: dict[int, str] = {}
        joins: dict[int, int] = {}
        for stack in self._plain_stacks_of(sample.pid).values():
            for thread in stack.threads:
                names[thread.tid] = thread.name
            joins = dict(stack.joins)
        threads = tuple(replace(thread, name=names.get(thread.tid, thread.name)) for thread in sample.threads)
        there = {thread.tid for thread in threads}
        waiting = {thread.tid for thread in threads if waits_for_a_thread(thread)}
        still = tuple((tid, whom) for tid, whom in joins.items() if tid in waiting and whom in there)
        return replace(sample, threads=threads, joins=still)

    def _now(self) -> float:
        return self._clock.now() - self._started_s
