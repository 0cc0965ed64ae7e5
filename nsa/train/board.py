"""TensorBoard's curves under ``tb/``, where tensorboard is installed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from nsa.train.probe import NullProbe

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CURVES = ("loss", "val_loss", "lr", "grad_norm", "tokens_per_s")
"""Facts of a step that are drawn."""


def is_installed() -> bool:
    """Whether there is anything to write for."""
    return find_spec("tensorboard") is not None


class Board(NullProbe):
    """The logged steps' facts, and every held-out loss; steps counted from 1."""

    def __init__(self, folder: Path, *, every: int) -> None:
        from torch.utils.tensorboard.writer import SummaryWriter

        self._writer, self._every = SummaryWriter(str(folder / "tb")), every

    def step_done(self, *, step: int, facts: Mapping[str, float]) -> None:
        """One point per curve."""
        if step % self._every and "val_loss" not in facts:
            return
        for name in CURVES:
            if name in facts:
                self._writer.add_scalar(name, facts[name], step + 1)

    def close(self) -> None:
        """Write what is not yet written."""
        self._writer.close()
