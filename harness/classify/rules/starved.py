"""Training waits for its DataLoader, whose workers do not move: it looks for them every few seconds, for ever."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.classify.facts import (
    beyond_pace,
    conclude,
    main_pid,
    pace_told,
    silence,
    silence_began_s,
    silent_too_long,
    watched_out,
)
from harness.classify.frames import identical, native_samples, plain, silent_samples, spell
from harness.classify.motion import ASLEEP, motion
from harness.classify.signature import signature, stack_names
from harness.classify.unusual import unusual
from harness.core.outcome import StopReason
from harness.core.stacks import deciding_thread, is_stdlib, python_frames, telling_frame
from harness.core.verdict import Confidence, Kind

if TYPE_CHECKING:
    from harness.core.evidence import Frame, StackSample, ThreadStack
    from harness.core.verdict import Case, Verdict

WORKER_FILE = "/torch/utils/data/_utils/worker.py"
"""Where a worker without work waits for some; one that reads a sample is in the dataset's own code."""
LOADER_FILE = "/torch/utils/data/dataloader.py"
FETCHING = frozenset({"_try_get_data", "_get_data"})
IDLE_SHARE = 0.01
"""CPU seconds per second that a look for the workers' answer every five seconds stays far below."""


def starved(case: Case) -> Verdict | None:
    """All threads sleep but for the loader's own poll, and no worker moves or may move but those that have no work.

    A worker that reads, computes, sleeps on a timer or waits for another machine may still deliver.
    """
    moved, samples = motion(case), silent_samples(case)
    if not silent_too_long(case) or moved is None or len(samples) < 2 or not identical(samples):
        return None
    paced = case.outcome.stopped_by is not StopReason.CERTAIN and not watched_out(case)
    if paced and not beyond_pace(case):
        return None
    thread = deciding_thread((native_samples(samples) or samples)[-1])
    if thread is None or fetching(thread) is None:
        return None
    if not moved.states <= ASLEEP or moved.cpu_share > IDLE_SHARE or moved.io_bytes:
        return None
    workers = seen_workers(case)
    idle = frozenset(worker.pid for worker in workers if worker.place is None)
    if not moved.children or not moved.others_still or moved.movers - idle or len(idle) == moved.children:
        return None
    called = next((f for f in python_frames(thread) if LOADER_FILE not in f.file and not is_stdlib(f)), None)
    stuck = [worker for worker in workers if worker.place is not None]
    if paced and (not stuck or "D" in moved.states or unusual(stuck[0].thread)):
        return None
    where = f": {'; '.join(map(str, stuck))}" if stuck else ""
    rest = f", {len(idle)} have nothing to do" if idle else ""
    because = (
        f"{silence(case)}; in {len(samples)} of {len(samples)} samples the main thread asks the DataLoader for a "
        f"batch, in {spell(called)}; its {moved.children} worker process(es){rest} used "
        f"{moved.others_cpu_s or 0.0:.2f} s CPU in {moved.seconds:.1f} s, and none that has work sleeps on a timer or "
        f"waits for another machine{where}{f'; that is {pace_told(case)}' if paced else ''}"
    )
    return conclude(
        case,
        Kind.HANG,
        rule="starved",
        cause="data-starvation",
        because=because,
        cites=(*(s.id for s in samples), *(id for w in workers for id in w.ids), *moved.ids, "progress"),
        confidence=Confidence.HIGH if stuck and not paced else Confidence.MEDIUM,
        signature=signature(Kind.HANG, "data-starvation", stack_names(stuck[0].thread if stuck else thread)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A worker process that was in one place whenever its stack was taken; ``place`` is None when it had no work."""

    pid: int
    place: Frame | None
    thread: ThreadStack
    ids: tuple[str, ...]

    def __str__(self) -> str:
        return f"PID {self.pid} is in {spell(self.place)}"


def seen_workers(case: Case) -> tuple[Worker, ...]:
    """The worker processes whose stacks were taken twice or more in the silence, and were the same."""
    pid, since_s, last = main_pid(case), silence_began_s(case), case.evidence.last
    rank = last.rank if last else next((look.rank for look in reversed(case.evidence.processes)), 0)
    by_pid: dict[int, list[StackSample]] = {}
    for sample in case.evidence.stacks:
        if sample.pid != pid and sample.rank == rank and sample.t_s > since_s:
            by_pid.setdefault(sample.pid, []).append(sample)
    return tuple(_worker(taken) for taken in by_pid.values() if len(taken) > 1 and identical(taken))


def _worker(samples: list[StackSample]) -> Worker:
    thread = deciding_thread(samples[-1])
    assert thread is not None, "identical samples have a thread that decides"
    place = telling_frame(thread)
    idle = place is not None and place.file.endswith(WORKER_FILE)
    ids = tuple(sample.id for sample in samples)
    return Worker(pid=samples[-1].pid, place=None if idle else place, thread=thread, ids=ids)


def fetching(thread: ThreadStack) -> Frame | None:
    """The frame in which ``thread`` waits for a DataLoader's workers, or None."""
    frames = python_frames(thread)
    return next((f for f in frames if LOADER_FILE in f.file and plain(f.function) in FETCHING), None)
