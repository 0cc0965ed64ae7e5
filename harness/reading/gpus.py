"""GPUs: what a process's card did during its silence. Utilisation alone is never taken for work."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.core.devices import GpuActivity, GpuProcess, GpuSample
    from harness.core.evidence import Evidence, EvidenceId

FULL = 95
"""Percent of time with some kernel resident from which a GPU counts as occupied. A wait inside NCCL reads 100."""

NO_TRAFFIC = 2
"""Percent of time with memory traffic up to which a GPU counts as working on nothing; every wait recorded reads 0."""

LOW_POWER = 0.35
"""Share of its power limit up to which a GPU counts as working on nothing: a spinning H200 draws 123 W of 700."""

SPIN_S = 2.5
"""Seconds over which a GPU must be seen to work on nothing before nothing but that is expected of it."""

SETTLED_S = 5.0
"""The same where it did something earlier in the same silence: the last kernels of a step, or what others ran."""

KERNEL_S = 40.0
"""The same of kernels of the program's own, for which no other rank has to come: one that computes in registers for
half a minute and one that never ends look the same by use, traffic and power, and the former has been met."""

POLLS_S = 12.0
"""The same where the card counts what its units do, and it is what a kernel does that polls a flag."""

POLLS_FLOATING, POLLS_MEMORY, POLLS_INTEGER = 0.02, 0.003, 10.0
"""Percent of the peak of floating-point units, memory and whole-number units up to which kernels may only poll. On an
H200: 1 to 528 programs that poll 0, 0 and 0.003 to 1.9; one program that computes 0.1 and 0; one that follows pointers
through a gigabyte 0, 0.005 and 0.006; a hash in all registers 0, 0 and 86."""

WORKS_FLOATING, WORKS_INTEGER = 2.0, 20.0
"""Percent from which a card is at work, whatever it draws."""

IDLE = 30
"""Percent of utilisation below which a GPU waits for its host; a token loop on an H200 reads 0 to 24."""

FOREIGN_SHARE = 0.02
"""Share of a card's memory from which somebody else's process counts."""

FOREIGN_SM = 5
"""Percent of its multiprocessors' time from which it counts as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuView:
    """One GPU in the looks of a silence, or of the whole trial; ``samples`` are in order.

    ``pids`` are the processes of which it is asked: what others do on it is not theirs.
    """

    index: int
    samples: tuple[GpuSample, ...]
    pids: frozenset[int] = frozenset()

    @property
    def ids(self) -> tuple[EvidenceId, ...]:
        """What to cite."""
        return tuple(sample.id for sample in self.samples)

    @property
    def utilisations(self) -> tuple[int, ...]:
        """Percent, of the samples that tell."""
        return tuple(s.utilisation for s in self.samples if s.utilisation is not None)

    @property
    def occupied_by_nothing(self) -> bool:
        """Whether a kernel of theirs was resident all the time that moved no memory and drew no power.

        Where it did something before, or others computed on it, of the time since then.
        """
        own = self.without_work_of_others
        if len(own.samples) < len(self.samples) and own.seconds < SPIN_S:
            return False
        return own._is_full_and_rests or own.at_rest.seconds >= SETTLED_S

    @property
    def at_rest(self) -> GpuView:
        """Its last samples, of which each is full and at rest."""
        begin = len(self.samples)
        while begin and replace(self, samples=self.samples[begin - 1 : begin])._is_full_and_rests:
            begin -= 1
        return replace(self, samples=self.samples[begin:])

    @property
    def polls(self) -> GpuView:
        """Its last samples, between which it did no more than ask for a flag; none where the card counts no units.

        A sample tells of the time since the one before that told.
        """
        begin = len(self.samples)
        while begin and _may_poll(self.samples[begin - 1].activity):
            begin -= 1
        if all(sample.activity is None for sample in self.samples[begin:]):
            return replace(self, samples=())
        return replace(self, samples=self.samples[max(begin - 1, 0) :])

    @property
    def idles(self) -> GpuView:
        """Its last samples that saw no kernel, and since the one before each nothing that computed or moved memory.

        None where the card counts no units: then a kernel may have come and gone between two of them.
        """
        begin = len(self.samples)
        while begin and _does_nothing(self.samples[begin - 1]):
            begin -= 1
        return replace(self, samples=self.samples[begin:])

    @property
    def rests_for_them(self) -> GpuView:
        """Its last samples that saw no kernel of theirs: it ran none at all, or only those of others."""
        begin = len(self.samples)
        while begin and self._is_without_theirs(self.samples[begin - 1]):
            begin -= 1
        return replace(self, samples=self.samples[begin:])

    def _is_without_theirs(self, sample: GpuSample) -> bool:
        return sample.utilisation == 0 or _runs_for_others(sample, self.pids)

    @property
    def _is_full_and_rests(self) -> bool:
        if not self.utilisations or not self._traffic or min(self.utilisations) < FULL or self._computes:
            return False
        return max(self._traffic) <= NO_TRAFFIC and max(self._power_shares, default=0.0) <= LOW_POWER

    @property
    def works(self) -> bool:
        """Whether something is computed: it moves memory, draws power, or is busy now and idle then."""
        partly = any(0 < percent < FULL for percent in self.utilisations)
        moves_memory = max(self._traffic, default=0) > NO_TRAFFIC
        return partly or moves_memory or self._computes or max(self._power_shares, default=0.0) > LOW_POWER

    @property
    def _computes(self) -> bool:
        return any(sample.activity is not None and _works(sample.activity) for sample in self.samples)

    @property
    def _traffic(self) -> list[int]:
        return [s.memory_utilisation for s in self.samples if s.memory_utilisation is not None]

    @property
    def _power_shares(self) -> list[float]:
        return [s.power_w / s.power_limit_w for s in self.samples if s.power_w and s.power_limit_w]

    @property
    def without_work_of_others(self) -> GpuView:
        """The card since others computed something on it, or may have; no sample where they do to the end.

        Who shares a card on which nothing at all is computed does not compute: its figures are the sum of all.
        """
        begin = len(self.samples)
        while begin and not self._others_work(self.samples[begin - 1]):
            begin -= 1
        return replace(self, samples=self.samples[begin:])

    def _others_work(self, sample: GpuSample) -> bool:
        if not any(process.pid not in self.pids and _may_compute(process, sample) for process in sample.processes):
            return False
        theirs = any(
            process.pid in self.pids and (process.sm_percent or 0) >= FOREIGN_SM for process in sample.processes
        )
        return not theirs or not replace(self, samples=(sample,))._is_full_and_rests

    @property
    def seconds(self) -> float:
        """From the first sample to the last; none without two."""
        return 0.0 if not self.samples else self.samples[-1].t_s - self.samples[0].t_s

    @property
    def tells_power(self) -> bool:
        """Whether the card tells what it draws and may draw: without that, a full card may be at work."""
        return len(self._power_shares) == len(self.samples)

    @property
    def idle(self) -> bool:
        """Whether it waited for its host most of the time."""
        return len(self.utilisations) > 1 and sum(self.utilisations) / len(self.utilisations) < IDLE

    @property
    def foreign(self) -> tuple[GpuProcess, ...]:
        """Processes of somebody else on it that hold or use enough to matter, as last seen."""
        last: dict[int, tuple[GpuSample, GpuProcess]] = {}
        for sample in self.samples:
            for process in sample.processes:
                last[process.pid] = (sample, process)
        return tuple(p for sample, p in last.values() if p.ours is False and _matters(p, sample))

    @property
    def xids(self) -> tuple[int, ...]:
        """The driver's fault numbers, each once."""
        numbers: dict[int, None] = {}
        for sample in self.samples:
            numbers.update(dict.fromkeys(sample.xids))
        return tuple(numbers)

    def __str__(self) -> str:
        last = self.samples[-1]
        parts = [f"GPU {self.index}"]
        if self.utilisations:
            parts.append(f"utilisation {_span(self.utilisations)} %")
        if last.memory_utilisation is not None:
            parts.append(f"memory traffic {_span(self._traffic)} %")
        if last.power_w is not None:
            limit = f" of {last.power_limit_w:.0f}" if last.power_limit_w else ""
            parts.append(f"{_span(s.power_w for s in self.samples)}{limit} W")
        if last.activity is not None:
            units = last.activity
            parts.append(f"floating point {units.floating:.1f} % and whole numbers {units.integer:.1f} % of the peak")
        return ", ".join(parts)


class Gpus:
    """The samples of all GPUs, by the processes that were on each."""

    def __init__(self, samples: Iterable[GpuSample]) -> None:
        self._samples: dict[int, list[GpuSample]] = {}
        self._of_pid: dict[int, set[int]] = {}
        for sample in samples:
            self._samples.setdefault(sample.index, []).append(sample)
            for process in sample.processes:
                self._of_pid.setdefault(process.pid, set()).add(sample.index)

    def of(self, pids: Iterable[int | None], *, since_s: float = 0.0) -> tuple[GpuView, ...]:
        """The GPUs of these processes since ``since_s``; where the driver names no processes, all that were seen."""
        processes = frozenset(filter(None, pids))
        own: set[int] = set()
        for pid in processes:
            own |= self._of_pid.get(pid, set())
        views: list[GpuView] = []
        for index in sorted(own if self._of_pid else self._samples):
            samples = [sample for sample in self._samples[index] if sample.t_s > since_s]
            if samples:
                samples[0] = replace(samples[0], activity=None)  # of the time before
                views.append(GpuView(index=index, samples=tuple(samples), pids=processes))
        return tuple(views)


def gpus_of_pids(evidence: Evidence, pids: Iterable[int | None], *, since_s: float = 0.0) -> tuple[GpuView, ...]:
    """The GPUs of these processes, as :meth:`Gpus.of` has them."""
    return Gpus(evidence.gpus).of(pids, since_s=since_s)


def _does_nothing(sample: GpuSample) -> bool:
    return sample.activity is not None and _may_poll(sample.activity) and sample.utilisation == 0


def _may_poll(activity: GpuActivity | None) -> bool:
    if activity is None:
        return True
    is_still = activity.floating <= POLLS_FLOATING and activity.memory <= POLLS_MEMORY
    return is_still and activity.integer <= POLLS_INTEGER


def _works(activity: GpuActivity) -> bool:
    return activity.floating >= WORKS_FLOATING or activity.integer >= WORKS_INTEGER


def _runs_for_others(sample: GpuSample, pids: frozenset[int]) -> bool:
    """Whether the driver tells who uses a card's multiprocessors, and these processes are not among them.

    What it tells is a mean over some time: a few percent of one that ran its last kernel seconds ago.
    """
    users = {process.pid for process in sample.processes if (process.sm_percent or 0) >= FOREIGN_SM}
    return bool(users) and users.isdisjoint(pids)


def _may_compute(process: GpuProcess, sample: GpuSample) -> bool:
    """Whether a process uses a GPU's multiprocessors, or holds memory where the driver tells of nobody what it uses."""
    if process.sm_percent is None and all(other.sm_percent is None for other in sample.processes):
        return _matters(process, sample)
    return (process.sm_percent or 0) >= FOREIGN_SM


def _matters(process: GpuProcess, sample: GpuSample) -> bool:
    if process.sm_percent is not None and process.sm_percent >= FOREIGN_SM:
        return True
    total = sample.memory_total_bytes
    return bool(total and process.memory_bytes and process.memory_bytes >= FOREIGN_SHARE * total)


def _span(values: Iterable[float | None]) -> str:
    numbers = sorted({round(value) for value in values if value is not None})
    return f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
