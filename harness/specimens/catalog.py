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
        if self.expect is Kind.PASS:
            return None
        if self.expect_rank is not None or self.at_rank is not None:
            return self.at_rank if self.expect_rank is None else self.expect_rank
        return 0 if self.world == 1 else None

    @property
    def verdict_phase(self) -> str | None:
        """The phase that the verdict must name; None for a pass, and where any will do."""
        if self.expect is Kind.PASS or (self.every_step and self.expect_phase is None):
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
    },
)
