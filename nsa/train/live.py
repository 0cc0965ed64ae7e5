"""The running training as probes see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor, nn

    from nsa.attention.stats import AttentionWatch
    from nsa.model.transformer import Decoder
    from nsa.train.progress import BlockProgress


class LiveState:
    """The running training as probes see it (``nsa.train.probe.TrainingState``); ``module`` is the wrapped model."""

    def __init__(
        self,
        model: Decoder,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        progress: BlockProgress,
        *,
        watch: AttentionWatch | None = None,
    ) -> None:
        self.model = model
        self.watch = watch
        self.module = module
        self.optimizer = optimizer
        self._progress = progress
        self._loss_changes: list[Callable[[object], object]] = []

    @property
    def blocks(self) -> Sequence[nn.Module]:
        """The decoder blocks in order."""
        return tuple(self.model.blocks)

    def in_backward(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` once inside the autograd engine, when the last block's backward is done."""
        self._progress.pending.append(callback)

    def set_loss(self, change: Callable[[object], object]) -> None:
        """Pass the next step's loss through ``change`` before backward, once."""
        self._loss_changes.append(change)

    def changed(self, loss: Tensor) -> Tensor:
        """The loss after every pending change."""
        while self._loss_changes:
            new = self._loss_changes.pop(0)(loss)
            if not isinstance(new, torch.Tensor):
                raise TypeError(f"a change of the loss must return a tensor, got {type(new).__name__}")
            loss = new
        return loss
