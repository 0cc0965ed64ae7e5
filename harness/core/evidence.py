"""Evidence: everything seen of one trial, each item with an id that verdicts cite."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from harness.core.devices import CollectiveState, GpuSample, MemoryMark, RasReport
from harness.core.outcome import Exit
from harness.core.pace import NO_PACE, Pace

EvidenceId: TypeAlias = str


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A progress mark. ``t_s`` counts from the trial's start; phase and edge are the trainer's own words."""

    seq: int
    t_s: float
    rank: int
    pid: int
    phase: str
    edge: str
    step: int | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One stack frame, innermost first in its thread. ``native`` frames come from C or C++."""

    function: str
    file: str
    line: int
    native: bool = False

    def __str__(self) -> str:
        return f"{self.function} ({self.file}:{self.line})" if self.line else f"{self.function} ({self.file})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadStack:
    """The stack of one thread; ``frames[0]`` is the innermost."""

    tid: int
    name: str
    frames: tuple[Frame, ...]
    active: bool | None = None
    owns_gil: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSample:
    """The stacks of one process at one moment, from one source."""

    id: EvidenceId
    source: str
    native: bool
    t_s: float
    rank: int
    pid: int
    threads: tuple[ThreadStack, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFailure:
    """A source that could not be used, and why; what is missing is evidence too."""

    id: EvidenceId
    source: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadState:
    """One thread as /proc shows it; ``cpu_s`` is its time on a CPU since it started.

    ``timed`` says whether it waits with a time limit (a sleep, a poll with a time-out), so that it will move by
    itself; None when that could not be told.
    """

    tid: int
    name: str
    state: str
    wchan: str
    cpu_s: float
    voluntary_switches: int
    involuntary_switches: int
    timed: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessState:
    """One process as /proc shows it at one moment.

    ``read_bytes`` and ``written_bytes`` went through read and write calls, caches and pipes included; ``children``
    counts the trial's other live processes and ``others_cpu_s`` is their CPU time (a compiler that it waits for),
    None when nobody looked; ``others_may_move`` says which of their threads may move by itself and how, empty when
    none may, and ``movers`` are the PIDs of all that may; ``others_waits`` are the kernel functions, by PID, in which
    the main threads of those sleep that cannot wake by themselves. ``dead_children`` are its own that have ended and
    that it has not waited for. ``undisturbed_since`` names the earlier look from which on no stack dumper ran: only
    such pairs say what the process did by itself (``harness.core.movement``); None for the first of a window.
    """

    id: EvidenceId
    t_s: float
    rank: int
    pid: int
    state: str
    threads: tuple[ThreadState, ...]
    rss_bytes: int
    minor_faults: int
    read_bytes: int
    written_bytes: int
    children: int
    others_cpu_s: float | None = None
    others_may_move: str | None = None
    movers: tuple[int, ...] = ()
    others_waits: tuple[tuple[int, str], ...] = ()
    dead_children: int = 0
    undisturbed_since: EvidenceId | None = None

    @property
    def cpu_s(self) -> float:
        """CPU time of all threads, seconds."""
        return sum(thread.cpu_s for thread in self.threads)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTail:
    """The end of an output stream; ``dropped_bytes`` were written beyond the bound and not kept."""

    id: EvidenceId
    stream: str
    text: str
    size_bytes: int
    dropped_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelResolution:
    """Which kernel ran an operator, and why it was chosen."""

    op: str
    kernel: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerResult:
    """What the worker itself said last: ``finished`` or ``raised``, with the exception if there was one."""

    id: EvidenceId
    status: str
    steps_done: int
    phase: str | None = None
    exception: str | None = None
    message: str | None = None
    traceback: str | None = None
    notes: tuple[str, ...] = ()


GRAPH_NODES = "forward_nodes"
"""The fact of a trial that counts the autograd nodes which its last forward pass has built."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What a trial cost: seconds from start to the first step, per step, the longest silence, peak memory.

    ``memory`` is what ranks said of theirs at the end of steps, the first ones and the last.
    """

    startup_s: float | None = None
    step_s: tuple[float, ...] = ()
    longest_silence_s: float = 0.0
    peak_rss_bytes: int = 0
    facts: tuple[tuple[str, float], ...] = ()
    memory: tuple[MemoryMark, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientTruth:
    """The gradients of one step against those of a plain pass over the same batch.

    ``worst`` is the largest relative error (by norm) and ``parameter`` where; ``wrong`` names every parameter whose
    gradient is, ``missing`` those that have none and should. ``why_not`` says why nothing was compared.
    """

    id: EvidenceId
    compared: int
    step: int = 0
    worst: float = 0.0
    parameter: str = ""
    wrong: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    why_not: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFacts:
    """What was seen of one rank of a trial with several; its stacks and looks are those that carry its number.

    ``pid`` is None when no process of this rank was ever seen. ``silence_s`` runs from its own last mark to the end
    of the watch, or to its own end. ``exit`` says how its process ended by itself and ``ended_s`` when; both are None
    for a rank that was still there when the watch ended.
    """

    id: EvidenceId
    rank: int
    pid: int | None = None
    steps_done: int = 0
    heartbeats: tuple[Heartbeat, ...] = ()
    heartbeats_total: int = 0
    silence_s: float = 0.0
    result: WorkerResult | None = None
    exit: Exit | None = None
    ended_s: float | None = None

    @property
    def last(self) -> Heartbeat | None:
        """Its last heartbeat, if there was one."""
        return self.heartbeats[-1] if self.heartbeats else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that was seen of one trial.

    Ids: ``progress exit cleanup prediction result config gradients log-* stack-* proc-* gpu-* recorder-* ras-*``, and
    of each rank of several ``rank-* result-*``. ``ranks`` is empty for a trial of one process. With several,
    ``heartbeats`` are all ranks' in the order they came, ``steps_done`` counts the steps that every rank has finished,
    and ``result`` is the first rank's that raised, or rank 0's when none did. ``heartbeats`` keeps the first and the
    last ones (``heartbeats_total`` counts all); ``silence_s`` is the time without a heartbeat when the watch ended;
    ``config_differences`` lists requested settings that the worker's own echo contradicts. ``pace`` is taken from all
    marks, also those that were not kept.
    """

    steps_wanted: int
    steps_done: int = 0
    heartbeats: tuple[Heartbeat, ...] = ()
    heartbeats_total: int = 0
    silence_s: float = 0.0
    stacks: tuple[StackSample, ...] = ()
    processes: tuple[ProcessState, ...] = ()
    failures: tuple[SourceFailure, ...] = ()
    logs: tuple[LogTail, ...] = ()
    kernels: tuple[KernelResolution, ...] = ()
    config_seen: bool = False
    config_differences: tuple[str, ...] = ()
    result: WorkerResult | None = None
    memory_limit_hits: int = 0
    measurement: Measurement = Measurement()
    gpus: tuple[GpuSample, ...] = ()
    collectives: tuple[CollectiveState, ...] = ()
    ras: tuple[RasReport, ...] = ()
    ranks: tuple[RankFacts, ...] = ()
    gradients: GradientTruth | None = None
    pace: Pace = NO_PACE

    @property
    def last(self) -> Heartbeat | None:
        """The last heartbeat, if there was one."""
        return self.heartbeats[-1] if self.heartbeats else None
