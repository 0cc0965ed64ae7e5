"""A job that somebody else started, watched by the same runner as a trial of ours, and left as it is.

Nobody is signalled and nothing is ended. A process is stopped only for its native frames, where it sleeps at every
look: three times in each round but twice in the first, each for as long as its dumper computes, which is measured and
said. Only the tree that the user named is looked at.
"""

from __future__ import annotations

import stat
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.evidence import LogTail
from harness.core.outcome import Cleanup, Ending, Exit, Outcome, StopReason
from harness.core.ports import ProcessRef
from harness.core.verdict import TOO_EARLY
from harness.observe.devices.table import load_devices
from harness.observe.job import ProcTree
from harness.observe.logs import TAIL_BYTES, without_colours
from harness.observe.proc import Proc
from harness.observe.ranks import RankEnd
from harness.observe.runner import Eyes, Runner
from harness.observe.sampler import quiet
from harness.observe.stacks.table import load_sources
from harness.observe.watch import next_look
from harness.reading.pace import ASKED_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.core.evidence import Evidence
    from harness.core.ports import Clock, Judge
    from harness.core.trial import Trial
    from harness.observe.job import JobTree, Member, Tree
    from harness.observe.watch import State, Step

SOURCES = ("py-spy", "pystack")
"""What shows the stacks of a job that is not ours."""

ROUNDS = 2
"""Rounds after which a job that stands still, and that may go on, is left alone."""


def eyes(*, keeps_locals: bool) -> Eyes:
    """What looks at a job that somebody else started."""
    return Eyes(sources=load_sources(SOURCES, keeps_locals=keeps_locals), devices=load_devices(), view=Proc())


class Attached:
    """The processes of ``job`` as a handle that can be asked, and that neither signals nor ends anybody.

    ``over`` says that what is watched has ended though its processes go on: one test of a session.
    """

    def __init__(
        self, job: JobTree, *, tree: Tree, is_same: Callable[[Member], bool], over: Callable[[], bool]
    ) -> None:
        self._job, self._tree, self._is_same, self._over = job, tree, is_same, over
        self.pid = job.workers[0].member.pid

    def poll(self) -> Exit | None:
        """How it ended is for whoever started it to know: an Exit without code once nobody is left."""
        if self._over():
            return Exit()
        return None if any(map(self._is_same, self._job.members)) else Exit()

    def processes(self) -> tuple[ProcessRef, ...]:
        """Every process of the job now: what lies below its launcher, and the launcher unless it is a shell."""
        refs: dict[int, ProcessRef] = {}
        frontier = [member.pid for member in self._job.members if self._is_same(member)]
        while frontier:
            children: list[int] = []
            for pid in frontier:
                member = None if pid in refs else self._tree.get(pid)
                if member is None:
                    continue
                if not member.ended:
                    refs[member.pid] = ProcessRef(member.pid, member.started)
                children += self._tree.children(member.pid)
            frontier = children
        return tuple(refs.values())

    def signal(self, number: int) -> None:
        """Nobody is signalled."""

    def stop(self, *, grace_s: float, clock: Clock) -> Cleanup:
        """Nothing is ended."""
        return Cleanup()


class Looker(Runner):
    """Watches ``job`` for a few seconds; what follows from that is for the rules to say."""

    ending = Ending.STILL_RUNNING
    quiet = "watched"
    """It makes no marks for us, whatever it prints or writes."""

    def __init__(
        self,
        *,
        job: JobTree,
        trial: Trial,
        folder: Path,
        clock: Clock,
        eyes: Eyes,
        is_same: Callable[[Member], bool],
        judge: Judge,
        note: Callable[[str], None] = lambda _: None,
        tree: Tree | None = None,
        over: Callable[[], bool] = lambda: False,
        began_s: float | None = None,
    ) -> None:
        super().__init__(
            handle=Attached(job, tree=tree or ProcTree(), is_same=is_same, over=over),
            trial=trial,
            trial_dir=folder,
            clock=clock,
            # The first look must come after the beginning: what came before a silence does not count in it.
            started_s=(clock.now() if began_s is None else began_s) - 0.001,
            eyes=replace(eyes, sources=quiet(eyes.sources)),
            progress=lambda facts: note(str(facts["note"])) if facts.get("note") else None,
            interrupted=lambda: False,
            judge=judge,
        )
        self._is_same, self._rounds = is_same, 0
        self._members: dict[int, Member] = {}
        for member in job.members:
            self._members.setdefault(member.pid, member)
            if member.rank is not None:
                self.ranks.pids[member.rank] = member.pid
        self.ranks.world = len(self.ranks.pids)
        for rank, _, _ in job.absent:
            if rank not in job.gone:
                self.ranks.world += 1
            elif self.ranks.pids:
                self.ranks.ended[rank] = RankEnd(exit=Exit(), t_s=0.0)

    def next(self, state: State) -> Step:
        """What to do next about a job that is not ours to end."""
        if self.verdict is not None and state.round_is_over:
            self._rounds += 1
        for rank, pid in self.ranks.pids.items():
            member = self._members.get(pid)
            if member is not None and rank not in self.ranks.ended and not self._is_same(member):
                self.ranks.ended[rank] = RankEnd(exit=Exit(), t_s=self.age_s())
        falls_due = self.verdict is not None and self.verdict.cause == TOO_EARLY and self.silence_s() < ASKED_S
        return next_look(state, rounds_left=max(ROUNDS - self._rounds, int(falls_due)))

    def look_failed(self, error: Exception) -> None:
        """The job goes on whatever happens here, so the command may fail."""
        raise error

    def last_note(self, stop: Step) -> str:
        """The answer follows at once."""
        return ""

    def outcome(self, stop: Step | None, *, cleanup: Cleanup, duration_s: float) -> Outcome:
        """It runs on, or it has ended and nobody here knows how."""
        why = "" if stop is None else stop.why
        return Outcome(
            ending=self.ending,
            exit=self.handle.poll(),
            stopped_by=StopReason.CERTAIN,
            duration_s=duration_s,
            why=why,
        )

    def evidence(self, **facts: Any) -> Evidence:
        """What was seen, with the ends of the files that the job prints into."""
        evidence = super().evidence(**facts)
        return replace(evidence, logs=job_logs(tuple(self._members)))


def job_logs(pids: Sequence[int], *, root: Path = Path("/proc")) -> tuple[LogTail, ...]:
    """The ends of the files that these processes print into; a terminal or a pipe cannot be read by a bystander."""
    tails: dict[Path, LogTail] = {}
    for pid in pids:
        for stream, number in (("stdout", 1), ("stderr", 2)):
            link = root / str(pid) / "fd" / str(number)
            with suppress(OSError):  # it ended, or belongs to somebody else
                path, status = link.readlink(), link.stat()
                if path not in tails and stat.S_ISREG(status.st_mode):
                    tails[path] = _tail(link, size=status.st_size, id=f"log-{pid}-{stream}", stream=stream)
    return tuple(tails.values())


def _tail(path: Path, *, size: int, id: str, stream: str) -> LogTail:
    with path.open("rb") as file:
        file.seek(max(size - TAIL_BYTES, 0))
        text = without_colours(file.read(TAIL_BYTES)).decode(errors="replace")
    return LogTail(id=id, stream=stream, text=text, size_bytes=size)
