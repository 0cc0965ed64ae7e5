"""The self-test: every specimen on this machine, the verdict it must get against the verdict it gets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness.conduct import Parts, conduct
from harness.core.point import Axis, AxisType, Point
from harness.core.record import TrialRecord
from harness.core.spec import Limits
from harness.core.trial import Fault, Trial
from harness.core.verdict import Answer, Kind
from harness.plan.budget import budget
from harness.plan.predict import predict
from harness.specimens.catalog import SPECIMENS, Needs
from harness.specimens.expect import judge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from harness.core.point import Value
    from harness.core.verdict import Verdict
    from harness.specimens.catalog import Specimen

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

AXIS = Axis(name="n_layers", path="model.n_layers", type=AxisType.ORDERED, values=(2,))


def host(specimen: Specimen) -> dict[str, Value]:
    """The settings of the healthy trainer that ``specimen`` is planted in."""
    ranks: dict[str, Value] = {"parallel.world": specimen.world} if specimen.world > 1 else {}
    return {**HOST, **RANKS[specimen.needs], **ranks, **dict(specimen.settings)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One specimen, judged: ``wrong`` lists every difference from what it declares."""

    round: int
    specimen: Specimen
    verdict: Verdict
    seconds: float
    wrong: tuple[str, ...]


class SelfTest:
    """Runs specimens under the same launch, watch and rules as a search."""

    def __init__(
        self, *, directory: Path, parts: Parts, code: str, machine: str, seed: int, interrupted: Callable[[], bool]
    ) -> None:
        self.directory = directory
        self.parts = parts
        self.code = code
        self.machine = machine
        self.seed = seed
        self.interrupted = interrupted
        self.healthy: list[TrialRecord] = []

    def rows(self, names: tuple[str, ...], *, rounds: int) -> Iterator[Row]:
        """Judge each specimen once a round, as they finish; ends early when interrupted."""
        self._learn()
        for number in range(rounds):
            for name in names:
                if self.interrupted():
                    return
                yield self._row(SPECIMENS.load(name), number=number)

    def _learn(self) -> None:
        clean = SPECIMENS.load("clean")
        while len(self.healthy) < HEALTHY_RUNS and not self.interrupted():
            repeat = len(self.healthy)
            record, _ = self._run(clean, repeat=repeat, role="healthy")
            self.healthy.append(record)
            if record.verdict.kind is not Kind.PASS:
                return  # the rows will say so: nothing can be learned from a machine where the healthy run fails

    def _row(self, specimen: Specimen, *, number: int) -> Row:
        record, wrong = self._run(specimen, repeat=number, role="selftest")
        return Row(
            round=number + 1,
            specimen=specimen,
            verdict=record.verdict,
            seconds=record.outcome.duration_s,
            wrong=tuple(wrong),
        )

    def _run(self, specimen: Specimen, *, repeat: int, role: str) -> tuple[TrialRecord, list[str]]:
        trial = self._trial(specimen, repeat=repeat, role=role)
        done = conduct(
            trial,
            trial_dir=self.directory / f"{role}-{specimen.name}-{repeat}",
            parts=self.parts,
            interrupted=self.interrupted,
        )
        record = TrialRecord(
            trial=trial,
            outcome=done.outcome,
            verdict=done.verdict,
            answer=Answer.GOOD if done.verdict.kind is Kind.PASS else Answer.UNRESOLVED,
            measurement=done.evidence.measurement,
            started_at=done.started_at,
        )
        return record, judge(specimen, done.verdict, done.outcome)

    def _trial(self, specimen: Specimen, *, repeat: int, role: str) -> Trial:
        prediction = predict(self.healthy, axis=AXIS, value=2)
        limits = Limits(startup_s=specimen.startup_s, stall_s=specimen.stall_s, total_s=specimen.total_s)
        trial = Trial(
            target="nsa",
            point=Point.of({"n_layers": 2, "specimen": specimen.name}),
            repeat=repeat,
            role=role,
            config=self.parts.target.config(host(specimen)),
            seed=self.seed + repeat,
            code=self.code,
            machine=self.machine,
            fault=None if specimen.name == "clean" else Fault(specimen=specimen.name),
            budget=budget(limits, prediction),
        )
        return replace(trial, prediction=prediction)
