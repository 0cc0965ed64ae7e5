"""Every interface that a plug-in implements, in one file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from harness.core.boundary import PlanEstimate
    from harness.core.command import Command
    from harness.core.devices import CollectiveState, GpuSample, RasReport
    from harness.core.evidence import Evidence, SourceFailure, StackSample
    from harness.core.outcome import Cleanup, Exit, Outcome
    from harness.core.point import Point, Value
    from harness.core.record import TrialRecord
    from harness.core.trial import Trial
    from harness.core.verdict import Verdict


class Named(Protocol):
    """A row of a table."""

    @property
    def name(self) -> str:
        """The name it is registered under."""
        ...


class Clock(Protocol):
    """The controller's only source of time, so that tests can own it."""

    def now(self) -> float:
        """Seconds on a clock that never goes back."""
        ...

    def wall(self) -> str:
        """The present UTC time, ISO 8601 to the millisecond."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let ``seconds`` pass."""
        ...


@dataclass(frozen=True, slots=True)
class ProcessRef:
    """A process that cannot be mistaken for a later one with the same PID: ``started`` is /proc's start time."""

    pid: int
    started: int


class Handle(Protocol):
    """A trial that was started. Its whole process tree can be listed and ended through this and nothing else."""

    @property
    def pid(self) -> int:
        """The trial's main process (the worker, not the supervisor above it)."""
        ...

    def poll(self) -> Exit | None:
        """How the main process ended, or None while it runs. Never blocks."""
        ...

    def processes(self) -> tuple[ProcessRef, ...]:
        """Every live process of the trial: descendants, detached ones, other sessions; empty when all are gone."""
        ...

    def signal(self, number: int) -> None:
        """Send one signal to the main process; nothing happens when it is gone."""
        ...

    def stop(self, *, grace_s: float, clock: Clock) -> Cleanup:
        """CONT and TERM the whole tree, KILL after ``grace_s``, in rounds until nothing is left, and say so.

        Also right after a normal exit: it then only collects what the trial left behind.
        """
        ...


class Executor(Named, Protocol):
    """Command -> running process tree. See ``harness.testing.executors.check_executor`` for the contract."""

    def prepare(self, command: Command) -> None:
        """Do now what would otherwise count as the trial's own time, such as importing torch once for all trials.

        Raises:
            LaunchError: it cannot be done; neither could ``command`` be started.
        """
        ...

    def start(self, command: Command) -> Handle:
        """Start ``command`` in its own session; LaunchError when that fails."""
        ...

    def close(self) -> None:
        """End everything this executor started, servers included."""
        ...


class Placement(Protocol):
    """Agents that an engine was asked to start, and what it says of them. See :class:`Engine`."""

    def waits_for(self) -> str:
        """What the engine says they still wait for (``job 12 is pending: Resources``); empty once it has begun them.

        Asked about once a second while agents are missing, so it answers at once.
        """
        ...

    def over(self) -> str:
        """Why no agent of it runs any more, in the engine's words; empty while one may still run or begin."""
        ...

    def stop(self) -> None:
        """Give everything back: no process of it is left on any node 30 s later. A second call does nothing."""
        ...


class Engine(Named, Protocol):
    """Something that has machines and gives them: Slurm, Ray, this machine. A row of ``harness.cluster.ENGINES``.

    All that an engine does is to start one program, the agent, once on each of so many nodes, and to end it. The agent
    (``python -m harness.cluster.agent``, torch-free) connects to the head by itself, over TCP, with what stands in
    ``env``; trials, evidence, stacks and the end of a trial's processes are between the two of them and no business of
    the engine. So an engine carries no messages, knows no trial, and learns nothing from an agent's exit status.

    Built as ``factory(where: str, resources: str)``: ``where`` is what stands behind the colon of ``--on NAME:WHERE``
    (a partition, an address; empty without), ``resources`` what each node must have in the engine's own words
    (``--gres``). It raises LaunchError, saying what to do, where the engine cannot be had on this machine.

    Held by tests/contract/test_engines.py:

    - ``place`` starts ``argv`` on ``nodes`` different nodes, one copy a node, with ``env`` added to the environment
      that the engine gives, in this process's folder; NSA_HARNESS_NODE, if the engine sets it, numbers the nodes from
      0 in the order that ranks shall have. It may return before any of them runs; waiting for their turn in
      a queue is not an error. LaunchError where the engine refuses.
    - The engine leases: a node's GPUs are those that it lets the agent see (CUDA_VISIBLE_DEVICES and the like). The
      harness neither counts nor hides any.
    - When one node goes, the agents of the others live on, and nothing is started again by itself.
    - When this process is killed, the agents end by themselves within 30 s, because they lose the head. Whatever the
      engine itself runs here (a client, a watcher) ends too; a reservation that outlives it is ended by the engine.
    """

    def place(self, argv: Sequence[str], *, env: Mapping[str, str], nodes: int) -> Placement:
        """Have ``argv`` started once on each of ``nodes`` nodes."""
        ...


class StackSource(Named, Protocol):
    """A way to see the stacks of a process. It never raises: what it cannot do is a SourceFailure with a reason."""

    def sample(
        self, *, pid: int, rank: int, t_s: float, native: bool, number: int, trial_dir: Path
    ) -> StackSample | SourceFailure:
        """The stacks of ``pid`` now, within ten seconds; ``number`` counts the samples of this trial from 1."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedJob:
    """A running trial as a device source needs to know it.

    ``ranks`` gives the PID of every rank that is there, ``pids`` are all live processes of the trial; ``world`` counts
    the ranks that there should be, ``t_s`` is seconds since its start.
    """

    ranks: Mapping[int, int]
    pids: frozenset[int]
    world: int
    trial_dir: Path
    t_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSample:
    """What one device source saw at one look, and why it could not see the rest."""

    gpus: tuple[GpuSample, ...] = ()
    collectives: tuple[CollectiveState, ...] = ()
    ras: tuple[RasReport, ...] = ()
    failures: tuple[SourceFailure, ...] = ()


class DeviceSource(Named, Protocol):
    """A way to see what a trial's devices and communicators do. It never raises, and never waits for more than 10 s."""

    @property
    def repeated(self) -> bool:
        """Whether it is asked at every look, or once before the trial is ended."""
        ...

    def see(self, job: WatchedJob) -> DeviceSample:
        """What there is to see now; a source that has nothing to do with this trial sees nothing and does not fail."""
        ...

    def close(self) -> None:
        """Give back what it holds open; nothing is asked of it afterwards."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRequest:
    """A strategy's next question: run ``cell``. ``role`` is search, certify, confirm or alternative.

    ``soft``: it may be ended as soon as it is much slower than passes are; that answers nothing yet.
    """

    cell: Point
    role: str
    reason: str
    soft: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A section of a report: a heading and Markdown."""

    title: str
    markdown: str


class Target(Protocol):
    """Trial -> Command. Pure: the same trial gives the same command."""

    def config(self, settings: Mapping[str, Value]) -> dict[str, object]:
        """The target's whole configuration with these dotted paths set; SpecError for an unknown one."""
        ...

    def command(self, trial: Trial, *, trial_dir: Path, env: Mapping[str, str]) -> Command:
        """How to start ``trial``."""
        ...


class Screen(Protocol):
    """What the session tells the person who waits. Called from one thread."""

    def __enter__(self) -> Screen: ...

    def __exit__(self, *_: object) -> None: ...

    def opened(self, *, question: str, directory: str, resumed: int) -> None:
        """The question is known and the run directory open; ``resumed`` trials are already there."""
        ...

    def noted(self, text: str) -> None:
        """Something to know before the first trial, such as what is counted of earlier runs."""
        ...

    def planned(self, estimate: PlanEstimate) -> None:
        """What is left to spend, as expected now."""
        ...

    def started(self, trial: Trial, *, number: int, reason: str) -> None:
        """A trial starts."""
        ...

    def watched(self, facts: Mapping[str, object]) -> None:
        """A look at the running trial: ``elapsed_s``, ``silence_s``, ``phase``, ``step``, ``note``."""
        ...

    def judged(self, record: TrialRecord, *, number: int) -> None:
        """A trial has its verdict."""
        ...


class Elsewhere(Protocol):
    """Runs trials on other machines; asked from several threads, and each call takes the nodes that it needs."""

    def conduct(
        self,
        trial: Trial,
        *,
        trial_dir: Path,
        env: Mapping[str, str],
        watched: Watched | None,
        interrupted: Callable[[], bool],
        examine: bool,
    ) -> tuple[Outcome, Evidence, str]:
        """How it ended, what was seen, and when it began (UTC); nothing of it is left when this returns.

        Raises:
            NodesLostError: no node is left, and none will come.
        """
        ...


Judge: TypeAlias = "Callable[[Outcome, Evidence], Verdict]"
Watched: TypeAlias = "Callable[[Mapping[str, object]], None]"
StackSources: TypeAlias = "Sequence[StackSource]"
