"""The self-test: every specimen on this machine, the verdict it must get against the verdict it gets."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING

from harness.conduct import Conducted, Parts, conduct
from harness.core.point import Axis, AxisType, Point
from harness.core.spec import Limits
from harness.core.trial import Fault, Trial
from harness.core.verdict import Answer, Case, Kind
from harness.plan.predict import budget, predict
from harness.specimens.catalog import SPECIMENS, Needs, score
from harness.store.cases import write_case

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
    from pathlib import Path

    from harness.core.command import Command
    from harness.core.point import Value
    from harness.core.ports import Executor, Handle
    from harness.core.record import TrialRecord
    from harness.core.verdict import Verdict
    from harness.specimens.catalog import Score, Specimen

HOST: dict[str, Value] = {"model.n_layers": 2, "model.dim": 64, "train.seq_len": 64, "train.steps": 4}
"""The healthy trainer that specimens are planted in: real, and small enough to finish in a fraction of a second."""

RANKS: dict[Needs, dict[str, Value]] = {
    Needs.CPU: {},
    Needs.GLOO: {"parallel.mode": "ddp"},
    Needs.GPU: {"train.device": "cuda"},
    Needs.NCCL: {"train.device": "cuda", "parallel.mode": "ddp"},
}
"""What else the trainer is told where a specimen needs more than one process or a GPU."""

HEALTHY_RUNS = 3
"""Trials without a fault that come first: limits are learned from them, as in a search."""

HEALTHY_ON_GPU = 2
"""The same where each takes ten seconds to start CUDA and NCCL; the first one also warms the driver's caches up."""

AXIS = Axis(name="n_layers", path="model.n_layers", type=AxisType.ORDERED, values=(2,))

_BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(100_000))"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedSpecimen:
    """One specimen, judged. ``to_verdict_s`` is the time from its last sign of life to the verdict, for a hang."""

    round: int
    specimen: Specimen
    verdict: Verdict
    seconds: float
    to_verdict_s: float | None
    score: Score


@dataclass(eq=False, slots=True, kw_only=True)
class SelfTest:
    """Runs specimens under the same launch, watch and rules as a search.

    ``parts`` are those for each need. What was seen of a trial is kept as ``case.json`` in its folder, to be judged
    again without running anything. ``note`` is what happens before the first specimen. ``blind`` judges every trial
    by the default limits, with nothing learned beforehand and none that its specimen declares.
    """

    directory: Path
    parts: Mapping[Needs, Parts]
    code: str
    machine: str
    seed: int
    interrupted: Callable[[], bool]
    note: Callable[[str], None]
    blind: bool
    healthy: dict[str, list[TrialRecord]] = field(default_factory=dict[str, "list[TrialRecord]"])

    def __post_init__(self) -> None:
        self.parts = {need: replace(row, executor=_OneAtATime(row.executor)) for need, row in self.parts.items()}

    def rows(self, names: Sequence[str], *, rounds: int, jobs: int = 1) -> Iterator[JudgedSpecimen]:
        """Judge each specimen once a round, ``jobs`` at a time, as they finish; ends early when interrupted."""
        todo = [(SPECIMENS.load(name), number) for number in range(rounds) for name in names]
        hosts = {} if self.blind else {_key(SPECIMENS.load(name)): SPECIMENS.load(name) for name in names}
        for number, specimen in enumerate(hosts.values(), start=1):
            runs = _healthy_runs(specimen)
            self.note(f"limits are learned from {runs} healthy runs: trainer {number} of {len(hosts)}")
            self._learn(specimen)
        todo.reverse()
        running: set[Future[JudgedSpecimen]] = set()
        with ThreadPoolExecutor(max_workers=jobs) as pool:
            while (todo and not self.interrupted()) or running:
                while todo and len(running) < jobs and not self.interrupted():
                    specimen, number = todo.pop()
                    running.add(pool.submit(self._row, specimen, number=number))
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    row = future.result()
                    if not self.interrupted():
                        yield row

    def _learn(self, specimen: Specimen) -> None:
        """Run the trainer that ``specimen`` is planted in, without it."""
        clean = replace(SPECIMENS.load("clean"), needs=specimen.needs, world=specimen.world, settings=specimen.settings)
        records = self.healthy.setdefault(_key(specimen), [])
        while len(records) < _healthy_runs(specimen) and not self.interrupted():
            done = self._run(clean, repeat=len(records), role="healthy", folder=f"healthy-{len(self.healthy)}")
            records.append(done[1])
            if done[1].verdict.kind is not Kind.PASS:
                return  # the rows will say so: nothing can be learned from a machine where the healthy run fails

    def _row(self, specimen: Specimen, *, number: int) -> JudgedSpecimen:
        done, record = self._run(specimen, repeat=number, role="selftest", folder=specimen.name)
        return JudgedSpecimen(
            round=number + 1,
            specimen=specimen,
            verdict=record.verdict,
            seconds=record.outcome.duration_s,
            to_verdict_s=done.evidence.silence_s if record.verdict.kind is Kind.HANG else None,
            score=score(specimen, done.verdict, done.outcome),
        )

    def _run(self, specimen: Specimen, *, repeat: int, role: str, folder: str) -> tuple[Conducted, TrialRecord]:
        trial = self._trial(specimen, repeat=repeat, role=role)
        trial_dir = self.directory / f"{folder}-{repeat + 1}"
        done = conduct(trial, trial_dir=trial_dir, parts=self.parts[specimen.needs], interrupted=self.interrupted)
        case = Case(trial=trial, outcome=done.outcome, evidence=done.evidence)
        write_case(trial_dir, case, done.verdict)
        answer = Answer.GOOD if done.verdict.kind is Kind.PASS else Answer.UNRESOLVED
        return done, done.record(trial, answer=answer)

    def _trial(self, specimen: Specimen, *, repeat: int, role: str) -> Trial:
        records, limits = self.healthy.get(_key(specimen), ()), Limits()
        prediction = predict(records, axis=AXIS, value=2) if records else None
        if not self.blind:
            limits = Limits(startup_s=specimen.startup_s, stall_s=specimen.stall_s, total_s=specimen.total_s)
        trial = Trial(
            target="nsa",
            point=Point.of({"n_layers": 2, "specimen": specimen.name}),
            repeat=repeat,
            role=role,
            config=self.parts[specimen.needs].target.config(host(specimen)),
            seed=self.seed + repeat,
            code=self.code,
            machine=self.machine,
            fault=None if specimen.name == "clean" else Fault(specimen=specimen.name),
            budget=budget(limits, prediction),
        )
        return replace(trial, prediction=prediction)


def _healthy_runs(specimen: Specimen) -> int:
    return HEALTHY_ON_GPU if specimen.needs in (Needs.GPU, Needs.NCCL) else HEALTHY_RUNS


def host(specimen: Specimen) -> dict[str, Value]:
    """The settings of the healthy trainer that ``specimen`` is planted in."""
    world = specimen.world
    ranks: dict[str, Value] = {"parallel.world": world, "train.batch_size": world} if world > 1 else {}
    return {**HOST, **RANKS[specimen.needs], **ranks, **dict(specimen.settings)}


@contextmanager
def busy_cores(count: int) -> Generator[None]:
    """Keep ``count`` cores busy meanwhile, with processes that end when this one does."""
    hogs = [subprocess.Popen([sys.executable, "-S", "-c", _BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


class _OneAtATime:
    """An executor for several threads: it starts one trial after the other; what it started is each asker's own."""

    def __init__(self, executor: Executor) -> None:
        self.name = executor.name
        self._executor = executor
        self._lock = Lock()

    def prepare(self, command: Command) -> None:
        with self._lock:
            self._executor.prepare(command)

    def start(self, command: Command) -> Handle:
        with self._lock:
            return self._executor.start(command)

    def close(self) -> None:
        with self._lock:
            self._executor.close()


def _key(specimen: Specimen) -> str:
    return json.dumps(host(specimen), sort_keys=True)
