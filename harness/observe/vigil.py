"""A vigil beside a job that somebody else started: what every rank does in a few seconds, and whether it can go on.

Looks at /proc and stacks that are taken without stopping anybody come first. A process is stopped for its native
frames, a fraction of a second, only when it stands still anyway or merely polls for another rank, and never one that is
in disk sleep, stopped or traced. Nobody is signalled, nothing is ended.
"""

from __future__ import annotations

import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.evidence import Evidence, LogTail, Measurement, RankFacts
from harness.core.outcome import Exit
from harness.core.ports import ProcessRef, WatchedJob
from harness.observe.certainty import Certainty, nobody_moves
from harness.observe.logs import TAIL_BYTES
from harness.observe.sampler import Sampler
from harness.observe.stacks.pick import sample_all

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from harness.core.evidence import ProcessState, StackSample
    from harness.core.ports import Clock, StackSource
    from harness.observe.devices.devices import Devices
    from harness.observe.job import Job, Member
    from harness.observe.sampler import ProcessView

WINDOW_S = 1.1
"""Undisturbed time between two looks."""

SETTLE_S = 0.1
"""Time after a dump before the next look."""

HELPERS = 16
"""Helpers of a rank that are looked into."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one vigil saw; ``certainty`` says whether the job can go on by itself."""

    evidence: Evidence
    certainty: Certainty
    seconds: float


class _Bystander:
    """What a sampler wants to know of a trial, of a job that is not ours."""

    def __init__(self, job: Job, *, pid: int) -> None:
        self.pid = pid
        self._members = [m for w in job.workers for m in (w.member, *(helper for helper, _ in w.helpers))]

    def processes(self) -> tuple[ProcessRef, ...]:
        """The job's processes, as they were found."""
        return tuple(ProcessRef(m.pid, m.started) for m in self._members)


class Vigil:
    """Watches ``job``; ``is_same`` tells whether a PID still belongs to that very process.

    A job without ranks is judged by its oldest Python process; all others count as its helpers.
    """

    def __init__(
        self,
        *,
        job: Job,
        folder: Path,
        clock: Clock,
        view: ProcessView,
        is_same: Callable[[Member], bool],
        sources: Sequence[StackSource],
        devices: Devices,
        note: Callable[[str], None],
    ) -> None:
        self._job, self._clock, self._view, self._is_same = job, clock, view, is_same
        self._sources, self._devices, self._folder, self._note = sources, devices, folder, note
        ranked = {w.member.rank: w for w in job.workers if w.member.rank is not None}
        self._workers = ranked or {0: min(job.workers, key=lambda w: (w.member.started, w.member.pid))}
        self._several = len(ranked) > 1 or bool(ranked and any(required for _, _, required in job.absent))
        # The first look must come after the beginning: what came before a silence does not count in it.
        self._started_s = clock.now() - 0.001
        self._helper_looks: list[ProcessState] = []
        self._helper_stacks: list[StackSample] = []
        first = next(iter(self._workers.values())).member.pid
        self._sampler = Sampler(
            handle=_Bystander(job, pid=first),  # pyright: ignore[reportArgumentType] - it starts and ends nothing
            trial_dir=folder,
            clock=clock,
            started_s=self._started_s,
            sources=[source for source in sources if source.name != "faulthandler"],
            view=view,
            ranks=self.living,
        )

    def living(self) -> Mapping[int, int]:
        """The PID of every rank that is there."""
        return {rank: w.member.pid for rank, w in sorted(self._workers.items()) if self._is_same(w.member)}

    def take(self) -> Seen:
        """Watch for about seven seconds; four when it moves."""
        self._note(f"watching {len(self._workers)} process{'es' if len(self._workers) > 1 else ''}")
        self._window("a")
        self._note("stacks, without stopping anybody")
        self._dump(native=False)
        self._window("b")
        native = self._may_be_stopped()
        for number in (1, 2):
            self._note(f"stacks again, {number} of 2" + (", with native frames of what stands still" if native else ""))
            self._dump(native=native)
            self._window(f"c{number}")
        looks, stacks = self._sampler.looks, self._sampler.stacks
        ranks = self.living()
        if ranks:
            certainty = nobody_moves(ranks=ranks, looks=looks, stacks=stacks, alone=True)
        else:
            certainty = Certainty(certain=False, because="every rank has ended")
        return Seen(evidence=self._evidence(ended=not ranks), certainty=certainty, seconds=self._now())

    def _window(self, name: str) -> None:
        """Two looks with nothing between them."""
        if name != "a":
            self._clock.sleep(SETTLE_S)
        self._look(f"{name}1")
        self._devices.look(self._watched())
        self._clock.sleep(WINDOW_S)
        self._look(f"{name}2")

    def _look(self, name: str) -> None:
        self._sampler.look()
        opening = f"{name[:-1]}1"
        for rank, helper in self._helpers():
            since = f"proc-{opening}-{helper.pid}" if name != opening else None
            look = self._view.look(
                helper.pid, id=f"proc-{name}-{helper.pid}", t_s=self._now(), rank=rank, others=(), since=since
            )
            if look is not None:
                self._helper_looks.append(look)

    def _dump(self, *, native: bool) -> None:
        self._sampler.dump(native=native)
        if self._helper_stacks or native:
            return
        for rank, helper in self._helpers():
            sample, _ = sample_all(
                self._sources[:1],
                pid=helper.pid,
                rank=rank,
                t_s=self._now(),
                native=False,
                number=1000 + len(self._helper_stacks),
                trial_dir=self._folder,
            )
            if sample is not None:
                self._helper_stacks.append(sample)

    def _may_be_stopped(self) -> bool:
        """Whether nothing of the job moved: a process that stands still loses nothing by being stopped for a moment."""
        return self._sampler.stands_still()

    def _helpers(self) -> list[tuple[int, Member]]:
        """The Python helpers of every rank, such as the workers of its DataLoader."""
        found = [
            (rank, helper)
            for rank, worker in sorted(self._workers.items())
            for helper, kind in worker.helpers[:HELPERS]
            if helper.python and kind == "DataLoader worker"
        ]
        return [(rank, helper) for rank, helper in found if self._is_same(helper)]

    def _evidence(self, *, ended: bool) -> Evidence:
        """What was seen; ``ended`` says that nobody was left when it was judged."""
        watched_s = self._now()
        facts = [
            RankFacts(
                id=f"rank-{rank}",
                rank=rank,
                pid=worker.member.pid,
                silence_s=watched_s,
                exit=None if self._is_same(worker.member) else Exit(),
                ended_s=None if self._is_same(worker.member) else watched_s,
            )
            for rank, worker in sorted(self._workers.items())
        ]
        facts += [
            RankFacts(id=f"rank-{rank}", rank=rank, pid=None, exit=Exit(), ended_s=0.0)
            for rank, _, required in self._job.absent
            if required
        ]
        return Evidence(
            steps_wanted=0,
            silence_s=watched_s,
            stacks=(*self._sampler.all_stacks(), *self._helper_stacks),
            processes=(*self._helper_looks, *self._sampler.all_looks()),
            failures=(*self._sampler.failures(), *self._devices.failures),
            logs=job_logs([worker.member.pid for worker in self._workers.values()]),
            gpus=self._devices.gpus,
            collectives=self._devices.collectives,
            ras=self._devices.ras,
            measurement=Measurement(
                peak_rss_bytes=max((self._view.peak_rss_bytes(pid) for pid in self.living().values()), default=0)
            ),
            ranks=tuple(sorted(facts, key=lambda fact: fact.rank)) if self._several or ended else (),
        )

    def _watched(self) -> WatchedJob:
        ranks = dict(self.living())
        pids = frozenset(m.pid for w in self._job.workers for m in (w.member, *(h for h, _ in w.helpers)))
        world = len(self._workers) + sum(1 for _ in self._job.absent)
        return WatchedJob(ranks=ranks, pids=pids, world=world, trial_dir=self._folder, t_s=self._now())

    def _now(self) -> float:
        return self._clock.now() - self._started_s


def job_logs(pids: Sequence[int], *, root: Path = Path("/proc")) -> tuple[LogTail, ...]:
    """The ends of the files that these processes print into; a terminal or a pipe cannot be read by a bystander."""
    found: dict[Path, LogTail] = {}
    for pid in pids:
        for stream, number in (("stdout", 1), ("stderr", 2)):
            link = root / str(pid) / "fd" / str(number)
            with suppress(OSError):  # it ended, or belongs to somebody else
                path, status = link.readlink(), link.stat()
                if path not in found and stat.S_ISREG(status.st_mode):
                    found[path] = _tail(link, size=status.st_size, id=f"log-{pid}-{stream}", stream=stream)
    return tuple(found.values())


def _tail(path: Path, *, size: int, id: str, stream: str) -> LogTail:
    with path.open("rb") as file:
        file.seek(max(size - TAIL_BYTES, 0))
        return LogTail(id=id, stream=stream, text=file.read(TAIL_BYTES).decode(errors="replace"), size_bytes=size)
