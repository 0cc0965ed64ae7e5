"""SPECIMENS: programs with a known fault and a declared verdict.

A specimen is planted into a healthy trainer from outside: when the trainer announces the phase and step where the
specimen strikes, the worker calls its function, in the trainer's own process and thread. Nothing inside the model
or the trainer knows of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from harness.core.verdict import Kind
from harness.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness.core.point import Value


LATER = 3
"""A step before which three were done, so that the trainer has a pace of its own (``harness.reading.pace``)."""


NOBODYS = frozenset({Kind.PASS, Kind.INFRA})
"""Verdicts in which no rank and no phase of the program is at fault."""


class Needs(StrEnum):
    """What a specimen needs of the machine, from least to most."""

    CPU = "cpu"
    GLOO = "gloo"
    GPU = "gpu"
    NCCL = "nccl"


class Scene(Protocol):
    """What a specimen may use when it strikes."""

    @property
    def rank(self) -> int:
        """The rank that it strikes in; 0 where there is only one process."""
        ...

    @property
    def world(self) -> int:
        """How many ranks there are."""
        ...

    @property
    def device(self) -> str:
        """Where the trainer computes: ``cpu``, ``cuda:1``."""
        ...

    @property
    def step(self) -> int:
        """The step at which it strikes."""
        ...

    @property
    def trial_dir(self) -> Path:
        """The trial's folder."""
        ...

    @property
    def random(self) -> Callable[[], float]:
        """Uniform numbers in [0, 1), seeded by the trial (its seed, point and repeat)."""
        ...

    @property
    def state(self) -> object:
        """The trainer's state (``nsa.train.probe.TrainingState``)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Specimen:
    """A fault, or something that only looks like one: when it strikes, what it does, what the verdict must be.

    When: ``phase`` and ``step``, at the phase's beginning; ``inside_backward`` runs it inside the autograd engine,
    from a gradient hook; ``every_step`` repeats it from ``step`` on; ``at_rank`` names the one rank that it strikes
    in (None: all).

    Verdict: kind ``expect``, or one of ``or_else`` when ``flaky`` (it strikes only sometimes); ``cause`` where the
    kind has one; ``expect_rank`` and ``expect_phase`` where they are not those in which it strikes; ``expect_frame``,
    a function that the reason or the signature must name. A ``look_alike`` looks like a hang and is none.

    Surroundings: ``needs`` and ``world`` (ranks) are what it takes to run it; ``settings`` change the healthy trainer
    that it is planted in; ``startup_s``, ``stall_s`` and ``total_s`` are the limits it is meant to be watched with
    (None: any), ``max_address_space_bytes`` the limit it runs into, ``leaves_processes`` whether others outlive it
    unless swept.
    """

    name: str
    strike: Callable[[Scene], None]
    expect: Kind
    imitates: str
    cause: str | None = None
    phase: str = "forward"
    step: int = 1
    inside_backward: bool = False
    every_step: bool = False
    needs: Needs = Needs.CPU
    world: int = 1
    at_rank: int | None = None
    settings: tuple[tuple[str, Value], ...] = ()
    leaves_processes: bool = False
    max_address_space_bytes: int | None = None
    total_s: float | None = None
    stall_s: float | None = None
    startup_s: float | None = None
    flaky: bool = False
    look_alike: bool = False
    or_else: tuple[Kind, ...] = ()
    expect_frame: str | None = None
    expect_rank: int | None = None
    expect_phase: str | None = None

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Every kind that is a right verdict."""
        return (self.expect, *self.or_else)

    @property
    def verdict_rank(self) -> int | None:
        """The rank that the verdict must name: the one it strikes in; None where no one rank is at fault."""
        if self.expect in NOBODYS:
            return None
        if self.expect_rank is not None or self.at_rank is not None:
            return self.at_rank if self.expect_rank is None else self.expect_rank
        return 0 if self.world == 1 else None

    @property
    def verdict_phase(self) -> str | None:
        """The phase that the verdict must name; None where nothing failed but the harness, and where any will do."""
        if self.expect in NOBODYS or (self.every_step and self.expect_phase is None):
            return None
        return self.expect_phase or self.phase


SPECIMENS = Registry(
    "specimen",
    {
        "clean": "harness.specimens.clean:SPECIMEN",
        "slow-step": "harness.specimens.slow_step:SPECIMEN",
        "stdout-flood": "harness.specimens.stdout_flood:SPECIMEN",
        "late-grandchild": "harness.specimens.late_grandchild:SPECIMEN",
        "lock-deadlock": "harness.specimens.lock_deadlock:SPECIMEN",
        "backward-deadlock": "harness.specimens.backward_deadlock:SPECIMEN",
        "gil-wait": "harness.specimens.gil_wait:SPECIMEN",
        "blocked-pipe": "harness.specimens.blocked_pipe:SPECIMEN",
        "stopped": "harness.specimens.stopped:SPECIMEN",
        "sigterm-immune": "harness.specimens.sigterm_immune:SPECIMEN",
        "infinite-loop": "harness.specimens.infinite_loop:SPECIMEN",
        "slow-loop": "harness.specimens.slow_loop:SPECIMEN",
        "crash": "harness.specimens.crash:SPECIMEN",
        "segfault": "harness.specimens.segfault:SPECIMEN",
        "oom": "harness.specimens.oom:SPECIMEN",
        "nan-loss": "harness.specimens.nan_loss:SPECIMEN",
        "exit-early": "harness.specimens.exit_early:SPECIMEN",
        "flaky-hang": "harness.specimens.flaky_hang:SPECIMEN",
        "native-lock": "harness.specimens.native:LOCK",
        "native-loop": "harness.specimens.native:LOOP",
        "gil-loop": "harness.specimens.native:GIL_LOOP",
        "device-wait": "harness.specimens.native:DEVICE",
        "import-deadlock": "harness.specimens.waits:IMPORT",
        "pool-deadlock": "harness.specimens.waits:POOL",
        "file-wait": "harness.specimens.waits:FILE",
        "peer-wait": "harness.specimens.waits:PEER",
        "child-wait": "harness.specimens.waits:CHILD",
        "poll-forever": "harness.specimens.waits:POLL",
        "late-exit": "harness.specimens.waits:LATE_EXIT",
        "exit-abort": "harness.specimens.exit_abort:SPECIMEN",
        "loader-dead": "harness.specimens.loaders:DEAD",
        "loader-lost": "harness.specimens.loaders:LOST",
        "loader-starved": "harness.specimens.loaders:STARVED",
        "abort": "harness.specimens.native:ABORT",
        "killed": "harness.specimens.endings:KILLED",
        "exit-status": "harness.specimens.endings:STATUS",
        "recursion": "harness.specimens.endings:RECURSION",
        "recompute-mismatch": "harness.specimens.endings:RECOMPUTATION",
        "peers-missing": "harness.specimens.endings:PEERS",
        "port-in-use": "harness.specimens.endings:PORT",
        "memory-leak": "harness.specimens.endings:LEAK",
        "infinite-loss": "harness.specimens.endings:INFINITE",
        "disk-full": "harness.specimens.endings:DISK",
        "compile-stall": "harness.specimens.look_alikes:COMPILE_STALL",
        "page-thrash": "harness.specimens.look_alikes:THRASH",
        "long-compile": "harness.specimens.look_alikes:COMPILE",
        "heavy-tail": "harness.specimens.look_alikes:HEAVY_TAIL",
        "slow-first-step": "harness.specimens.look_alikes:FIRST_STEP",
        "slow-loader": "harness.specimens.loaders:SLOW",
        "slow-save": "harness.specimens.look_alikes:SAVE",
        "slow-python": "harness.specimens.look_alikes:PYTHON_LOOP",
        "slow-product": "harness.specimens.look_alikes:PRODUCT",
        "slow-thread": "harness.specimens.look_alikes:THREAD",
        "slow-import": "harness.specimens.look_alikes:IMPORT",
        "slow-server": "harness.specimens.look_alikes:SERVER",
        "slow-upload": "harness.specimens.look_alikes:UPLOAD",
        "slow-first-eval": "harness.specimens.look_alikes:FIRST_EVAL",
        "sleepy-steps": "harness.specimens.look_alikes:SLEEPY",
        "back-off": "harness.specimens.look_alikes:BACK_OFF",
        "gc-pause": "harness.specimens.look_alikes:GARBAGE",
        "lock-given-back": "harness.specimens.look_alikes:LOCK",
        "debugged": "harness.specimens.look_alikes:DEBUGGED",
        "suspended": "harness.specimens.look_alikes:SUSPENDED",
        "supervisor-killed": "harness.specimens.instrument:SUPERVISOR_KILLED",
        "supervisor-stopped": "harness.specimens.instrument:SUPERVISOR_STOPPED",
        "guard-killed": "harness.specimens.instrument:GUARD_KILLED",
        "pipe-in-folder": "harness.specimens.instrument:PIPE",
        "endless-result": "harness.specimens.instrument:ENDLESS",
        "gloo-skip": "harness.specimens.nccl_collectives:SKIP_ON_CPU",
        "gloo-unused": "harness.specimens.nccl_collectives:UNUSED_ON_CPU",
        "gpu-spin": "harness.specimens.gpu_kernels:SPIN",
        "gpu-host-bound": "harness.specimens.gpu_kernels:HOST_BOUND",
        "gpu-compile": "harness.specimens.gpu_kernels:COMPILE",
        "gpu-oom": "harness.specimens.gpu_memory:OOM",
        "gpu-thrash": "harness.specimens.gpu_memory:THRASH",
        "nccl-skip": "harness.specimens.nccl_collectives:SKIP",
        "nccl-shape": "harness.specimens.nccl_collectives:SHAPE",
        "nccl-spin": "harness.specimens.nccl_collectives:SPIN",
        "nccl-unused": "harness.specimens.nccl_collectives:UNUSED",
        "nccl-lock": "harness.specimens.nccl_ranks:LOCK",
        "nccl-stopped": "harness.specimens.nccl_ranks:STOPPED",
        "nccl-killed": "harness.specimens.nccl_ranks:KILLED",
        "nccl-straggler": "harness.specimens.nccl_ranks:STRAGGLER",
        "nccl-slow": "harness.specimens.nccl_ranks:SLOW",
        "rank-killed": "harness.specimens.rank_killed:SPECIMEN",
        "rank-exits": "harness.specimens.rank_exits:SPECIMEN",
        "rank-stopped": "harness.specimens.rank_stopped:SPECIMEN",
        "rank-backward-lock": "harness.specimens.rank_backward_lock:SPECIMEN",
        "rank-loader-loop": "harness.specimens.rank_loader_loop:SPECIMEN",
        "rank-loader-stuck": "harness.specimens.rank_loader_stuck:SPECIMEN",
        "rank-nan": "harness.specimens.rank_nan:SPECIMEN",
        "rank-unused": "harness.specimens.rank_unused:SPECIMEN",
        "late-binding": "harness.specimens.late_binding:SPECIMEN",
        "reentrant-unused": "harness.specimens.reentrant_unused:SPECIMEN",
        "rank-never-joins": "harness.specimens.rank_never_joins:SPECIMEN",
        "rank-port-in-use": "harness.specimens.rank_port:SPECIMEN",
        "skipped-collective": "harness.specimens.skipped_collective:SPECIMEN",
        "extra-collective": "harness.specimens.extra_collective:SPECIMEN",
        "other-collective": "harness.specimens.other_collective:SPECIMEN",
        "other-shape": "harness.specimens.other_shape:SPECIMEN",
        "collective-timeout": "harness.specimens.collective_timeout:SPECIMEN",
        "straggler": "harness.specimens.straggler:SPECIMEN",
        "rank-slow-steps": "harness.specimens.rank_slow_steps:SPECIMEN",
    },
)
