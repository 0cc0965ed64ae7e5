"""SPECIMENS: programs with a known fault and a declared verdict.

A specimen is planted into a healthy trainer from outside: when the trainer announces the phase and step where the
specimen strikes, the worker calls its function, in the trainer's own process and thread. Nothing inside the model
or the trainer knows of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from harness.core.verdict import Kind
from harness.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


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

    ``phase`` and ``step`` say when; ``inside_backward`` runs it inside the autograd engine, from a gradient hook;
    ``every_step`` repeats it from ``step`` on.
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


SPECIMENS = Registry("specimen", {"clean": "harness.specimens.clean:SPECIMEN"})
