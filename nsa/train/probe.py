"""What the trainer tells whoever watches it, phase by phase.

The trainer calls its probes at every phase boundary, and at each block within forward and backward. It never
waits for them, and it knows nothing about files, processes or diagnosis: those live with the probe.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class Phase(StrEnum):
    """Where a training process is. The order is the order of a run."""

    BUILD = "build"
    DATA = "data"
    FORWARD = "forward"
    BACKWARD = "backward"
    REDUCE = "reduce"
    OPTIM = "optim"
    EVAL = "eval"
    SAVE = "save"


class Edge(StrEnum):
    """Which side of a phase a mark stands for; PROGRESS is a mark inside it (a block done, a shard read)."""

    BEGIN = "begin"
    END = "end"
    PROGRESS = "progress"


class TrainingState(Protocol):
    """What a probe may look at once the trainer has built everything; attributes only, no calls that sync."""

    @property
    def model(self) -> object:
        """The module being trained (a torch.nn.Module)."""
        ...

    @property
    def blocks(self) -> Sequence[object]:
        """The decoder blocks in order (torch.nn.Module each)."""
        ...

    @property
    def optimizer(self) -> object:
        """The torch.optim.Optimizer."""
        ...

    @property
    def watch(self) -> object:
        """What replayed blocks have written of gates and selections (an AttentionWatch); None where hooks see them."""
        ...

    def in_backward(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` once, inside the autograd engine, in the next backward pass."""
        ...

    def set_loss(self, change: Callable[[object], object]) -> None:
        """Pass the next step's loss tensor through ``change`` before backward, once."""
        ...


class Probe(Protocol):
    """An observer that the trainer calls; subclass :class:`NullProbe` to override only what you need."""

    def built(self, state: TrainingState) -> None:
        """The model, optimizer and data exist; called once, at the end of ``build``."""
        ...

    def mark(self, *, phase: Phase, edge: Edge, step: int | None, detail: str | None = None) -> None:
        """A phase began, ended, or moved on; ``step`` counts from 0 and is None during build."""
        ...

    def step_done(self, *, step: int, facts: Mapping[str, float]) -> None:
        """A step is complete; ``facts`` holds plain floats such as ``loss`` and ``tokens``."""
        ...

    def resolved(self, table: Sequence[Mapping[str, str]]) -> None:
        """Which kernel runs each operator, and why: one row ``{op, kernel, reason}`` per operator."""
        ...


class NullProbe:
    """A probe that sees everything and does nothing."""

    def built(self, state: TrainingState) -> None:
        """Ignore."""

    def mark(self, *, phase: Phase, edge: Edge, step: int | None, detail: str | None = None) -> None:
        """Ignore."""

    def step_done(self, *, step: int, facts: Mapping[str, float]) -> None:
        """Ignore."""

    def resolved(self, table: Sequence[Mapping[str, str]]) -> None:
        """Ignore."""
