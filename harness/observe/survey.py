"""Looks at every rank of a running job without harming it.

Order and limits: /proc first; py-spy without stopping the process; native frames only when they are asked for, last,
once, and never of a process that is in disk sleep, stopped or traced. Nobody is signalled; only a process that a killed
dumper left stopped is continued. Looks are taken between the stack samples, so that what moved moved by itself.
"""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from harness.observe.stacks.pick import sample_all
from harness.reading.places import RankSeen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.core.evidence import ProcessState, SourceFailure, StackSample
    from harness.core.ports import Clock, StackSource
    from harness.observe.job import JobTree, Member, Worker
    from harness.observe.proc import Proc

WINDOW_S = 1.0
"""Time between two looks: a hundred ticks of the kernel's CPU accounting."""

_AT_ONCE = 4
"""Dumpers that run side by side; each takes 0.02 s of CPU, or 1 s with native frames."""


class Survey:
    """Looks at the workers of ``job``; ``is_same`` tells whether a PID still belongs to that very process.

    ``neutral`` sources are asked without native frames; ``native`` ones, if any, once at the end.
    """

    def __init__(
        self,
        *,
        job: JobTree,
        clock: Clock,
        view: Proc,
        is_same: Callable[[Member], bool],
        neutral: Sequence[StackSource],
        native: Sequence[StackSource] = (),
        note: Callable[[str], None],
    ) -> None:
        self._job, self._clock, self._view, self._is_same = job, clock, view, is_same
        self._neutral, self._native, self._note = neutral, native, note
        self._started_s = clock.now()
        self._looks: dict[int, list[ProcessState]] = defaultdict(list)
        self._stacks: dict[int, list[StackSample]] = defaultdict(list)
        self._refused: dict[int, SourceFailure] = {}

    def take(self, *, samples: int) -> tuple[RankSeen, ...]:
        """Every rank, those that are absent included, after ``samples`` stack samples with a window between each two.

        A single sample comes after one window. Takes about ``samples`` seconds; a dumper that gets no answer adds ten.
        """
        for number in range(1, samples + 1):
            if number > 1 or samples == 1:
                self._window(number)
            self._note(f"stacks of {len(self._job.workers)} processes, sample {number} of {samples}")
            self._dump(number, native=False)
        if self._native:
            self._note("native frames, which stops each process for up to 3 s")
            self._dump(samples + 1, native=True)
        return (*map(self._row, self._job.workers), *self._absent())

    def _window(self, number: int) -> None:
        for which in ("a", "b"):
            if which == "b":
                self._clock.sleep(WINDOW_S)
            for worker in self._job.workers:
                opening = self._looks[worker.member.pid][-1:] if which == "b" else []
                state = self._look(worker, id=f"proc-{number}{which}", since=opening[0].id if opening else None)
                if state is not None:
                    self._looks[worker.member.pid].append(state)

    def _look(self, worker: Worker, *, id: str, since: str | None) -> ProcessState | None:
        if not self._is_same(worker.member):
            return None
        return self._view.look(
            worker.member.pid,
            id=id,
            t_s=self._now(),
            rank=worker.member.rank or 0,
            children=len(worker.helpers),
            since=since,
        )

    def _dump(self, number: int, *, native: bool) -> None:
        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            answers = pool.map(partial(self._stack, number=number, native=native), self._job.workers)
            for worker, (sample, failure) in zip(self._job.workers, answers, strict=True):
                if sample is not None:
                    self._stacks[worker.member.pid].append(sample)
                elif failure is not None and not native:
                    self._refused[worker.member.pid] = failure

    def _stack(self, worker: Worker, *, number: int, native: bool) -> tuple[StackSample | None, SourceFailure | None]:
        member = worker.member
        if not self._is_same(member):
            return None, None
        sample, failures = sample_all(
            self._native if native else self._neutral,
            pid=member.pid,
            rank=member.rank or 0,
            t_s=self._now(),
            native=native,
            number=number,
            trial_dir=Path(),
        )
        if sample is None or not self._is_same(member):
            return None, next(iter(failures), None)
        return (None if native and not sample.native else sample), None

    def _row(self, worker: Worker) -> RankSeen:
        member = worker.member
        stacks = tuple(self._stacks[member.pid])
        missing, is_there = "", self._is_same(member)
        failure = self._refused.get(member.pid)
        if not is_there:
            missing = "ended while it was looked at"
        elif not stacks:
            missing = f"could not be seen: {failure.reason if failure else 'no answer'}"
        return RankSeen(
            rank=member.rank,
            pid=member.pid,
            stacks=stacks,
            looks=tuple(self._looks[member.pid]),
            missing=missing,
            refused=is_there and not stacks,
            not_allowed=is_there and not stacks and failure is not None and failure.not_allowed,
        )

    def _absent(self) -> tuple[RankSeen, ...]:
        required = [row for row in self._job.absent if row[2]]
        # Which of several dead children had which rank is not to be known: their environment died with them.
        pid = self._job.ended[0].pid if len(self._job.ended) == len(required) == 1 else None
        rows: list[RankSeen] = []
        for rank, why, must in self._job.absent:
            dead = pid if must else None
            missing = "has ended; its launcher has not collected it" if dead else why
            rows.append(RankSeen(rank=rank, pid=dead, missing=missing, required=must))
        return tuple(rows)

    def _now(self) -> float:
        return self._clock.now() - self._started_s
