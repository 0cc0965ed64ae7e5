"""Asks the device sources during one trial and keeps what they saw, bounded."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.core.devices import CollectiveState
from harness.observe.bounded import Bounded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.devices import GpuSample, RasReport
    from harness.core.evidence import SourceFailure
    from harness.core.ports import DeviceSample, DeviceSource, WatchedJob

FIRST_SAMPLES, LAST_SAMPLES = 16, 64


class Devices:
    """What was seen of one trial's devices. :meth:`look` beside every look at /proc, :meth:`dump` of a standstill.

    Every item is numbered when it is kept, so that verdicts can cite it.
    """

    def __init__(self, sources: Sequence[DeviceSource] = ()) -> None:
        self._sources = tuple(sources)
        self._gpus: Bounded[GpuSample] = Bounded(first=FIRST_SAMPLES, last=LAST_SAMPLES)
        self._collectives: dict[int, CollectiveState] = {}
        self._ras: RasReport | None = None
        self._dumped = 0
        self._failures: dict[tuple[str, str], SourceFailure] = {}

    def look(self, job: WatchedJob) -> None:
        """Ask the cheap sources, which disturb nothing."""
        for source in self._sources:
            if source.repeated:
                self._keep(source.see(job))

    def dump(self, job: WatchedJob) -> None:
        """Ask the others, while the trial still hangs; of several dumps the last is kept."""
        for source in self._sources:
            if not source.repeated:
                self._keep(source.see(job))

    def close(self) -> None:
        """Give back what the sources hold open; what was seen stays."""
        for source in self._sources:
            source.close()

    @property
    def gpus(self) -> tuple[GpuSample, ...]:
        """Samples of all GPUs that the trial uses or could use, in order."""
        return self._gpus.items()

    @property
    def collectives(self) -> tuple[CollectiveState, ...]:
        """What each rank's flight recorder held when it was last read."""
        return tuple(self._collectives[rank] for rank in sorted(self._collectives))

    @property
    def ras(self) -> tuple[RasReport, ...]:
        """What NCCL's RAS service said last."""
        return () if self._ras is None else (self._ras,)

    @property
    def failures(self) -> tuple[SourceFailure, ...]:
        """Each reason why a source could not be used, once."""
        return tuple(self._failures.values())

    def _keep(self, sample: DeviceSample) -> None:
        for gpu in sample.gpus:
            self._gpus.add(replace(gpu, id=f"gpu-{self._gpus.total + 1}"))
        for item in (*sample.collectives, *sample.ras):
            self._dumped += 1
            if isinstance(item, CollectiveState):
                self._collectives[item.rank] = replace(item, id=f"recorder-{self._dumped}")
            else:
                self._ras = replace(item, id=f"ras-{self._dumped}")
        for failure in sample.failures:
            numbered = replace(failure, id=f"device-failure-{len(self._failures) + 1}")
            self._failures.setdefault((failure.source, failure.reason), numbered)
