"""SPECIMENS: programs with a known fault and a declared verdict.

A specimen is planted into a healthy trainer from outside: when the trainer announces the phase and step where the
specimen strikes, the worker calls its function, in the trainer's own process and thread. Nothing inside the model
or the trainer knows of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from harness.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness.core.verdict import Kind


class Scene(Protocol):
    """What a specimen may use when it strikes."""

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
    """A fault: when it strikes, what it does, and what the verdict must be.

    When: ``phase`` and ``step``, at the phase's beginning; ``inside_backward`` runs it inside the autograd engine,
    from a gradient hook; ``every_step`` repeats it from ``step`` on.

    Verdict: kind ``expect``, or one of ``or_else`` when ``flaky`` (it strikes only sometimes); ``cause`` where the
    kind has one; ``expect_frame``, a function that the reason or the signature must name.

    Surroundings: ``stall_s`` and ``total_s`` are the limits it is meant to be watched with (None: any),
    ``max_address_space_bytes`` the limit it runs into, ``leaves_processes`` whether others outlive it unless swept.
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
    leaves_processes: bool = False
    max_address_space_bytes: int | None = None
    total_s: float | None = None
    stall_s: float | None = None
    flaky: bool = False
    or_else: tuple[Kind, ...] = ()
    expect_frame: str | None = None

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Every kind that is a right verdict."""
        return (self.expect, *self.or_else)


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
