"""What accelerators and the libraries that connect them say: GPU samples, collectives, the state of communicators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.core.evidence import EvidenceId


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process that holds memory on a GPU.

    ``ours`` says whether it belongs to the trial; None when the driver names a PID that is not visible here, as it
    does inside a container with PIDs of its own. Numbers are None where the driver does not tell them.
    """

    pid: int
    ours: bool | None
    memory_bytes: int | None = None
    sm_percent: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuActivity:
    """How busy the units of a GPU were since the look before, each in percent of its peak, whoever used them.

    ``floating`` is the busiest of its floating-point units, tensor cores included; ``memory`` is the traffic of its
    memory. A kernel that polls a flag computes with whole numbers alone, and few of them.
    """

    floating: float
    integer: float
    memory: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """One GPU at one moment, by NVML. A number that the driver does not tell is None.

    ``utilisation`` is the percentage of time in which some kernel was resident: a rank that waits inside NCCL reads
    100, so it says nothing about progress. ``memory_utilisation`` and ``power_w`` tell work from waiting, and better,
    where the card counts it, ``activity``. ``xids`` are the driver's fault numbers since the trial began.
    """

    id: EvidenceId
    t_s: float
    index: int
    name: str
    utilisation: int | None = None
    memory_utilisation: int | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    sm_clock_mhz: int | None = None
    activity: GpuActivity | None = None
    processes: tuple[GpuProcess, ...] = ()
    xids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryMark:
    """What a rank's memory was like at the end of a step; the GPU's numbers are those of torch's allocator.

    ``gpu_alloc_retries`` counts how often the allocator had to give back all that it kept and ask again.
    """

    step: int
    t_s: float
    rank: int
    rss_bytes: float
    gpu_allocated_bytes: float = 0.0
    gpu_reserved_bytes: float = 0.0
    gpu_alloc_retries: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One operation that a rank handed to its communication library, as the flight recorder kept it.

    ``seq`` counts the operations of ``group`` from 1; ``op`` is the bare name (``all_reduce``), ``where`` the
    program's own line that called it, empty when not recorded. ``done`` is the recorder's word that it is over; gloo's
    says so also of one that timed out.
    """

    group: str
    seq: int
    op: str
    sizes: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[str, ...] = ()
    state: str = ""
    done: bool = False
    p2p: bool = False
    where: str = ""

    def __str__(self) -> str:
        shapes = ", ".join("x".join(map(str, size)) or "scalar" for size in self.sizes)
        kinds = "/".join(dict.fromkeys(self.dtypes))
        return f"{self.op} [{shapes}] {kinds}".rstrip() + f" (number {self.seq})"


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveState:
    """The flight recorder of one rank at one moment: the last operations that it kept, in order.

    ``groups`` names the ranks of each process group where the recorder knows them.
    """

    id: EvidenceId
    t_s: float
    rank: int
    source: str
    backend: str
    collectives: tuple[Collective, ...]
    groups: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @property
    def pending(self) -> tuple[Collective, ...]:
        """Operations that were handed over and are not done."""
        return tuple(op for op in self.collectives if not op.done)


@dataclass(frozen=True, slots=True, kw_only=True)
class RasReport:
    """What NCCL's own RAS service said: ``missing`` ranks, and its lines that speak of a mismatch or an error.

    ``launched`` gives the operations that each rank has launched where they differ; addresses are hidden.
    """

    id: EvidenceId
    t_s: float
    text: str
    missing: tuple[int, ...] = ()
    complaints: tuple[str, ...] = ()
    launched: tuple[tuple[int, int], ...] = ()
