"""Looks at the processes of a trial's ranks: /proc and stacks, numbered, with the windows that nothing disturbed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from harness.core.collective import wait_of
from harness.core.movement import movement
from harness.core.stacks import asks_helpers, deciding_thread
from harness.observe.bounded import Bounded
from harness.observe.stacks.pick import sample_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from harness.core.evidence import ProcessState, SourceFailure, StackSample
    from harness.core.ports import Clock, Handle, StackSource


AT_ONCE = 8
"""Dumpers that run side by side; each takes 0.02 s of CPU, or 0.2 s with native frames."""

HELPERS = 8
"""Worker processes of a rank whose stacks are taken."""

SIGNALLING = "faulthandler"
"""A source that sends a signal: not to a process of which nobody knows what it does with it."""


class ProcessView(Protocol):
    """What the watch wants to know of a process; ``harness.observe.proc.Proc`` in earnest."""

    def look(
        self, pid: int, *, id: str, t_s: float, rank: int = 0, others: Iterable[int] = (), since: str | None = None
    ) -> ProcessState | None:
        """The process with all its threads; None when it is gone."""
        ...

    def peak_rss_bytes(self, pid: int) -> int:
        """The most memory it ever held; 0 when it is gone."""
        ...

    def parent(self, pid: int) -> int | None:
        """Its parent's PID; None when it is gone."""
        ...


class Sampler:
    """Takes and keeps samples. Those of the present silence are in :attr:`looks` and :attr:`stacks`.

    ``ranks`` gives the PID of every rank that is there, one for a trial of a single process.
    A look that no stack dump followed is forgotten when the silence ends: a healthy trial leaves none.
    """

    def __init__(
        self,
        *,
        handle: Handle,
        trial_dir: Path,
        clock: Clock,
        started_s: float,
        sources: Sequence[StackSource],
        view: ProcessView,
        ranks: Callable[[], Mapping[int, int]] | None = None,
    ) -> None:
        self._handle, self._trial_dir, self._clock, self._started_s = handle, trial_dir, clock, started_s
        self._sources, self._view = sources, view
        self._ranks = ranks or (lambda: {0: handle.pid})
        self.looks: list[ProcessState] = []
        self.stacks: list[StackSample] = []
        self._kept_looks: Bounded[ProcessState] = Bounded(first=12, last=24)
        self._kept_stacks: Bounded[StackSample] = Bounded(first=6, last=12)
        self._failures: dict[tuple[str, str], SourceFailure] = {}
        self._numbers = {"look": 0, "stack": 0}
        self._openings: dict[int, str] = {}
        self._disturbed = False

    def look(self) -> None:
        """Look at /proc, which does not disturb the processes."""
        ranks = self._ranks()
        live = [ref.pid for ref in self._handle.processes()]
        for rank, pid in ranks.items():
            number = self._numbers["look"] + 1
            state = self._view.look(
                pid,
                id=f"proc-{number}",
                t_s=self._now(),
                rank=rank,
                others=self._others(pid, live=live, ranks=ranks),
                since=self._openings.get(pid),
            )
            if state is None:
                continue
            self._numbers["look"] = number
            self._openings.setdefault(pid, state.id)
            self.looks.append(state)

    def dump(self, *, native: bool, gently: bool = False) -> None:
        """Take every rank's stacks from the first source that can; what could not is kept with its reason.

        A rank whose Python frames tell already that it waits in a collective is not stopped for native ones. Threads
        keep the names that a sample without native frames has told: Python's own, where others know the kernel's.
        ``gently`` leaves out the source that sends a signal.
        """
        told = (
            {sample.pid for sample in self.stacks if not sample.native and _tells_wait(sample)}
            if native
            else set[int]()
        )
        sources = self._quiet() if gently else self._sources
        self._disturbed = True
        self._openings.clear()
        ranks = self._ranks()
        first = self._numbers["stack"] + 1
        self._numbers["stack"] += len(ranks)

        def take(numbered: tuple[int, tuple[int, int]]) -> tuple[StackSample | None, tuple[SourceFailure, ...]]:
            number, (rank, pid) = numbered
            return sample_all(
                sources,
                pid=pid,
                rank=rank,
                t_s=self._now(),
                native=native and pid not in told,
                number=number,
                trial_dir=self._trial_dir,
            )

        # Side by side: a dumper waits for its process longer than it computes, and ranks are compared with each other.
        with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
            taken = list(pool.map(take, enumerate(ranks.items(), first)))
        for sample, failures in taken:
            for failure in failures:
                numbered = replace(failure, id=f"failure-{len(self._failures) + 1}")
                self._failures.setdefault((failure.source, failure.reason), numbered)
            if sample is not None:
                self.stacks.append(self._named(sample))
                if asks_helpers(sample):
                    self._dump_helpers(sample, ranks=ranks)

    def disturbed(self) -> None:
        """Something else asked the processes for an answer: no window reaches across it."""
        self._openings.clear()

    def stands_still(self) -> bool:
        """Whether nothing at all moved between the last two looks at any rank; one of several may poll for another."""
        last_two = [[look for look in self.looks if look.pid == pid][-2:] for pid in self._ranks().values()]
        if not last_two or any(len(pair) < 2 for pair in last_two):
            return False
        moved = [movement(*pair) for pair in last_two]
        return all(one.still or (len(moved) > 1 and one.polls) for one in moved)

    def progress(self) -> None:
        """The silence is over: keep what was taken during it if it was examined, and begin anew."""
        if self._disturbed:
            for look in self.looks:
                self._kept_looks.add(look)
            for stack in self.stacks:
                self._kept_stacks.add(stack)
        self.looks, self.stacks, self._disturbed = [], [], False
        self._openings.clear()

    def all_looks(self) -> tuple[ProcessState, ...]:
        """Every look that was kept, in order."""
        return (*self._kept_looks.items(), *self.looks)

    def all_stacks(self) -> tuple[StackSample, ...]:
        """Every stack sample that was kept, in order."""
        return (*self._kept_stacks.items(), *self.stacks)

    def failures(self) -> tuple[SourceFailure, ...]:
        """Each reason why a source could not be used, once."""
        return tuple(self._failures.values())

    def _quiet(self) -> list[StackSource]:
        return [source for source in self._sources if source.name != SIGNALLING]

    def _named(self, sample: StackSample) -> StackSample:
        if not sample.native:
            return sample
        names = {t.tid: t.name for s in self.stacks if s.pid == sample.pid and not s.native for t in s.threads}
        threads = tuple(replace(thread, name=names.get(thread.tid, thread.name)) for thread in sample.threads)
        return replace(sample, threads=threads)

    def _dump_helpers(self, asking: StackSample, *, ranks: Mapping[int, int]) -> None:
        """The stacks of the worker processes that a rank waits for, without disturbing them; a few of many will do."""
        live = [ref.pid for ref in self._handle.processes()]
        for pid in self._others(asking.pid, live=live, ranks=ranks)[:HELPERS]:
            self._numbers["stack"] += 1
            sample, _ = sample_all(
                self._quiet(),
                pid=pid,
                rank=asking.rank,
                t_s=self._now(),
                native=False,
                number=self._numbers["stack"],
                trial_dir=self._trial_dir,
            )
            if sample is not None:
                self.stacks.append(sample)

    def _others(self, pid: int, *, live: Sequence[int], ranks: Mapping[int, int]) -> list[int]:
        """The processes that work for this one: all others of a single process, below a supervisor; a rank's own."""
        if len(ranks) == 1 and pid == self._handle.pid:
            supervisor = self._view.parent(pid)
            return [other for other in live if other not in (pid, supervisor)]
        parents = {other: self._view.parent(other) for other in live}
        return [other for other in live if other not in ranks.values() and _descends(other, pid, parents)]

    def _now(self) -> float:
        return self._clock.now() - self._started_s


def _tells_wait(sample: StackSample) -> bool:
    thread = deciding_thread(sample)
    return thread is not None and wait_of(thread) is not None


def _descends(pid: int, ancestor: int, parents: Mapping[int, int | None]) -> bool:
    above = parents.get(pid)
    while above is not None and above != ancestor:
        above = parents.get(above)
    return above == ancestor
