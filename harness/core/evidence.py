"""Evidence: everything seen of one trial, each item with an id that verdicts cite."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from harness.core.devices import CollectiveState, GpuSample, MemoryMark, RasReport
from harness.core.node import Node
from harness.core.outcome import Exit

if TYPE_CHECKING:
    from collections.abc import Sequence

EvidenceId: TypeAlias = str

FIRST_MARKS, LAST_MARKS = 50, 200
"""How many marks and step times are kept of the beginning and of the end of a trial."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How quickly a trial's own marks came: ``steps`` that were finished, the longest gap in seconds, and by place.

    A gap lies between two marks of one rank; its place is the earlier mark's phase and edge. ``gaps`` are those of
    finished steps, the first one left out, so a place that is not among them is new to the trial.
    """

    steps: int = 0
    longest_s: float = 0.0
    gaps: tuple[tuple[str, str, float], ...] = ()


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


class _Remembers:
    """A record of slots with a place for what its cached properties have once worked out."""

    __slots__ = ("__dict__",)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadStack(_Remembers):
    """The stack of one thread; ``frames[0]`` is the innermost."""

    tid: int
    name: str
    frames: tuple[Frame, ...]
    active: bool | None = None
    owns_gil: bool | None = None

    @cached_property
    def python_frames(self) -> tuple[Frame, ...]:
        """Its Python frames, innermost first."""
        return tuple(frame for frame in self.frames if not frame.native)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSample:
    """One loop that a frame was in when its stack was taken, by the frame's locals and its source.

    ``depth`` counts frames from the innermost and ``outer`` from the outermost; ``line`` is where the frame was,
    ``header`` the loop's own line of source, at ``header_line``. ``counters`` are the whole numbers among the frame's
    locals, ``counter`` the one that counts the turns, and ``bound`` where it ends, as far as source and locals tell.
    ``state`` is a fingerprint of all locals of the frame, ``deciding`` one of them without those of which its loops
    only count on (empty where there are none). ``unending`` is a loop whose own source has no end and no way out,
    though what it calls may end the program; ``speaks`` one in whose source something is printed, logged or trained,
    so that its turns make marks; ``endless`` says why the loop cannot end by what its source says, or is empty;
    ``needs`` whose doing its end is, if its variables stay as they are: ``locals`` nobody's, ``python`` that of other
    threads that run Python, ``threads`` that of any other thread, ``unseen`` where not all of its variables could be
    read, and empty where it calls what may be at work, or may be begun anew by a loop around it in the same frame
    whose turns nothing tells. ``recurs`` says that what called its function may call it again and again unseen;
    ``call`` stands for this one call of it, as marked by the process itself, and is 0 where it is not.
    """

    tid: int
    depth: int
    outer: int
    function: str
    file: str
    line: int
    header_line: int
    header: str
    counters: tuple[tuple[str, int], ...] = ()
    counter: str = ""
    bound: int | None = None
    state: str = ""
    deciding: str = ""
    unending: bool = False
    speaks: bool = False
    endless: str = ""
    needs: str = ""
    recurs: bool = False
    call: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Which item of a list a function on the main thread's stack is at.

    ``name`` is the local, ``place`` its number from 0 among the ``of`` items of its type.
    ``outer`` counts frames from the outermost, as for a loop.
    """

    function: str
    file: str
    line: int
    name: str
    place: int
    of: int
    outer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameLocals:
    """The local variables of one frame, as text, where they were asked for; ``depth`` counts from the innermost."""

    tid: int
    depth: int
    locals: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSample:
    """The stacks of one process at one moment, from one source; ``loops`` are those that its frames were in.

    ``positions`` are what the process itself said of the lists that its loops go through, the innermost first.
    ``ran`` says that its main thread, asked at this moment, ran Python: whatever it waits for, it goes on in between.
    ``variables`` are those of the program's own frames, kept only where the user asked for them.
    ``stopped_s`` is how long the process was stopped for it, and for what was tried in vain before it, seconds.
    ``onlookers`` are threads that stay in a loop and, by their source, do nothing there that another may wait for,
    ``plain_onlookers`` those of them whose file uses nothing that another file of the program may define,
    ``endless_onlookers`` those in a loop that no exception ends, and ``launchers`` those in one that only the end of a
    process ends, ``supervisors`` onlookers that act once one has, or sets an event; ``actors`` are threads that may do
    such a thing. Tasks of an event loop that wakes for nothing else stand among onlookers by negative numbers.
    ``joins`` are pairs of threads of which the first waits, without a limit, for the second to end.
    ``is_written_to`` says that a package may write to a stream of the program's own, or draw by a class of it,
    ``has_callbacks`` that the program gives the result of a collective a function to call.
    """

    id: EvidenceId
    source: str
    native: bool
    t_s: float
    rank: int
    pid: int
    threads: tuple[ThreadStack, ...]
    loops: tuple[LoopSample, ...] = ()
    positions: tuple[Position, ...] = ()
    ran: bool = False
    variables: tuple[FrameLocals, ...] = ()
    stopped_s: float = 0.0
    onlookers: tuple[int, ...] = ()
    plain_onlookers: tuple[int, ...] = ()
    endless_onlookers: tuple[int, ...] = ()
    launchers: tuple[int, ...] = ()
    supervisors: tuple[int, ...] = ()
    actors: tuple[int, ...] = ()
    joins: tuple[tuple[int, int], ...] = ()
    is_written_to: bool = False
    has_callbacks: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFailure:
    """A source that could not be used, and why; what is missing is evidence too.

    ``stopped_s`` is how long a process was stopped for nothing, seconds; ``no_python`` says that it runs no Python, so
    that there are no stacks of Python's to be seen (``python_ended``: any more, as its interpreter has ended), and
    ``not_allowed`` that the kernel let nobody look.
    """

    id: EvidenceId
    source: str
    reason: str
    stopped_s: float = 0.0
    no_python: bool = False
    python_ended: bool = False
    not_allowed: bool = False

    @classmethod
    def upgraded(cls, data: dict[str, Any]) -> dict[str, Any]:
        """What earlier versions wrote, whose reason alone said that nobody was let look."""
        return {"not_allowed": str(data.get("reason", "")).startswith("ptrace refused"), **data}


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadState:
    """One thread as /proc shows it; ``cpu_s`` is its time on a CPU since it started.

    ``timed`` says whether it waits with a time limit (a sleep, a poll with a time-out), so that it will move by
    itself; None when that could not be told. ``call`` is the system call that it is blocked in and ``on`` what that
    call is about (``pipe``, ``socket 10.0.0.3:29500``, ``file lock of process 77``). ``holders`` are the processes of
    the trial that can end the wait: they hold the other end, or the lock, or are the child; ``outside`` says whether
    anybody else can, None when that could not be told. ``library`` is the file whose code made a call with a time
    limit, or one that passes data on, empty where that was not looked up; ``limit_s`` is that limit, where it is one of
    the call's arguments.
    ``has_guests`` says that it serves several connections, of which one comes from outside the trial.
    """

    tid: int
    name: str
    state: str
    wchan: str
    cpu_s: float
    voluntary_switches: int
    involuntary_switches: int
    timed: bool | None = None
    call: str = ""
    on: str = ""
    holders: tuple[int, ...] = ()
    outside: bool | None = None
    library: str = ""
    limit_s: float | None = None
    has_guests: bool = False

    @property
    def switches(self) -> int:
        """Context switches of both kinds."""
        return self.voluntary_switches + self.involuntary_switches


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessState(_Remembers):
    """One process of the trial as /proc shows it at one moment; ``rank`` is the rank that it is or works for.

    ``read_bytes`` and ``written_bytes`` went through read and write calls, caches and pipes included; ``children``
    counts the trial's other live processes that work for it. ``dead_children`` are its own that did not end well and
    that it has not waited for; it began ``age_s`` before. ``handles`` are the signals for which it has handlers, of
    those that may let it go on, and ``timer_create`` or ``RLIMIT_CPU`` where it has made such a timer, or has such a
    limit; ``own_handles`` are those, of all signals, for which code of the program's own is the handler.
    ``ended_children`` are processes that multiprocessing began for it and whose end it has seen, each with its exit
    code: those that an error ended, or a signal (a negative code) that it has not sent itself.
    ``sends_signals`` says that its program, unless it is Python, may send other processes one. At ``cpu_limit_s`` of
    CPU time the kernel ends it. ``has_a_card`` is False of one with threads of CUDA's that has no card open.
    ``undisturbed_since`` names the earlier look from which on no stack dumper ran: only such pairs say what the process
    did by itself (``harness.reading.stillness``); None for the first of a window.
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
    parent: int = 0
    command: str = ""
    handles: tuple[str, ...] = ()
    own_handles: tuple[str, ...] = ()
    sends_signals: bool = False
    dead_children: int = 0
    ended_children: tuple[tuple[int, int], ...] = ()
    age_s: float = 0.0
    cpu_limit_s: float | None = None
    has_a_card: bool = True
    undisturbed_since: EvidenceId | None = None

    @cached_property
    def thread(self) -> dict[int, ThreadState]:
        """Its threads by their kernel numbers."""
        return {thread.tid: thread for thread in self.threads}

    @property
    def cpu_s(self) -> float:
        """CPU time of all threads, seconds."""
        return sum(thread.cpu_s for thread in self.threads)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTail:
    """The end of an output stream; ``dropped_bytes`` were written beyond the bound and not kept.

    Its last ``late_bytes`` came once we had begun to end the trial.
    """

    id: EvidenceId
    stream: str
    text: str
    size_bytes: int
    dropped_bytes: int = 0
    late_bytes: int = 0

    @property
    def is_of_trial(self) -> bool:
        """Whether it lies in the folder of the trial; a job that was only watched prints into files of its own."""
        return self.stream in ("stdout", "stderr") and self.id == f"log-{self.stream}"

    @property
    def before_end(self) -> str:
        """What it held before we ended the trial."""
        data = self.text.encode()
        return data[: max(len(data) - self.late_bytes, 0)].decode(errors="replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelResolution:
    """Which kernel ran an operator, and why it was chosen."""

    op: str
    kernel: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerResult:
    """What the worker itself said last: ``finished`` or ``raised``, with the exception if there was one.

    ``begun_by_python`` says that another Python process of the program began it, or that it was dealt with before the
    end was asked for with an error status: it may have been expected. ``program`` stands for what it ran, 0 where that
    is not known. ``frames`` are those in which the exception was raised, innermost first, empty where only the text of
    its ``traceback`` is known; ``quoted`` is the traceback of a pool's worker, from which it came. ``followed`` says
    that another program came behind it, and ``asked`` how whoever began it had asked whether it fails, if it had.
    ``ended_children`` are as in :class:`ProcessState`.
    """

    id: EvidenceId
    status: str
    steps_done: int
    phase: str | None = None
    exception: str | None = None
    message: str | None = None
    traceback: str | None = None
    notes: tuple[str, ...] = ()
    begun_by_python: bool = False
    program: int = 0
    frames: tuple[Frame, ...] = ()
    quoted: str | None = None
    followed: bool = False
    asked: str = ""
    ended_children: tuple[tuple[int, int], ...] = ()

    @property
    def bare(self) -> str:
        """The exception's name without its module; empty without one."""
        return (self.exception or "").rpartition(".")[2]


GRAPH_NODES = "forward_nodes"
"""The fact of a trial that counts the autograd nodes which its last forward pass has built."""


def latest_rate_s(steps_s: Sequence[float]) -> float:
    """Seconds a step as they went at last: the mean of the later half of ``steps_s``, of three at least."""
    latest = steps_s[-max(3, len(steps_s) // 2) :]
    return sum(latest) / len(latest)


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
    for a rank that was still there when the watch ended. ``limits_s`` are the time limits that it gave its process
    groups: a wait in one of them ends with an error.
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
    limits_s: tuple[float, ...] = ()

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
    marks, also those that were not kept. ``world`` is how many ranks there are by what they say themselves, 0 where
    none said so. ``main`` is the PID of the process that trains, or of the program itself; 0 where it is not known.
    ``nodes`` are those whose agents saw it, empty for a trial that this machine watched itself. ``dealt_with`` tells of
    a program that failed as whoever began it had asked whether it would.
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
    pace: Pace = Pace()
    world: int = 0
    main: int = 0
    nodes: tuple[Node, ...] = ()
    dealt_with: str = ""

    @property
    def last(self) -> Heartbeat | None:
        """The last heartbeat, if there was one."""
        return self.heartbeats[-1] if self.heartbeats else None

    @property
    def output(self) -> str:
        """The last lines of everything that it printed."""
        return "\n".join(log.text for log in self.logs)

    @property
    def results(self) -> tuple[WorkerResult, ...]:
        """What the trial and each of its ranks said last, of those that said something."""
        return tuple(facts.result for facts in (self, *self.ranks) if facts.result is not None)

    @property
    def whole_steps_s(self) -> tuple[float, ...]:
        """Seconds of each step that was seen from its beginning.

        An unmodified program is first seen in a backward pass: of its first step data and forward are missing.
        """
        steps_s = self.measurement.step_s
        for mark in self.heartbeats:
            if mark.step is not None:
                return steps_s[1:] if mark.phase == "backward" else steps_s
        return steps_s

    def needed_s(self, *, elapsed_s: float) -> float | None:
        """Seconds to its end as its latest steps went; None where their time, or how many there are, is not known."""
        whole, remaining = self.whole_steps_s, self.steps_wanted - self.steps_done
        if not whole or remaining <= 0:
            return None
        so_far_s = (self.measurement.startup_s or 0.0) + sum(self.measurement.step_s)
        return max(so_far_s + remaining * latest_rate_s(whole), elapsed_s)

    def result_of(self, rank: int | None) -> WorkerResult | None:
        """What a rank said last, None where it said nothing; the trial's own ``result`` for None, and for one process.

        Of several that raised, the first may only say that it lost the one at fault.
        """
        for facts in self.ranks:
            if facts.rank == rank:
                return facts.result
        return self.result
