"""What the ranks do in the tests of this folder."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch

from nsa.config import RunConfig
from nsa.train.parallel import clean_name
from nsa.train.probe import Edge, NullProbe, Phase
from nsa.train.trainer import train

SMALL = {
    "model.n_layers": 3,
    "model.dim": 32,
    "model.n_heads": 4,
    "model.n_kv_groups": 2,
    "model.d_k": 8,
    "model.d_v": 8,
    "train.seq_len": 96,
    "train.batch_size": 4,
    "train.steps": 2,
    "train.lr": 1e-4,
}
"""Small, but with more selection blocks than are selected, and a text longer than the window.

The gates start at zero and need a step before all parameters have a gradient. The steps are small because AdamW's
first is the gradient's sign: where that is rounding alone, runs part by the learning rate."""


class Gradients(NullProbe):
    """Every parameter's whole gradient, as it is when the optimizer begins."""

    def __init__(self):
        self.steps: list[dict[str, Any]] = []

    def built(self, state: Any) -> None:
        self.state = state

    def mark(self, *, phase, edge, step, detail=None):
        if (phase, edge) == (Phase.OPTIM, Edge.BEGIN):
            with whole_gradients(self.state.module):
                self.steps.append({clean_name(n): _array(p.grad) for n, p in self.state.module.named_parameters()})


def whole_gradients(module: torch.nn.Module) -> Any:
    from torch.distributed.fsdp import FullyShardedDataParallel as Fsdp1

    return Fsdp1.summon_full_params(module, with_grads=True) if isinstance(module, Fsdp1) else nullcontext()


def _array(grad: Any) -> Any:
    if grad is None:
        return None
    whole = grad.full_tensor() if hasattr(grad, "full_tensor") else grad
    return whole.detach().double().numpy().copy()


def gradients(rank: int, changes: dict[str, Any]) -> tuple[tuple[float, ...], list[dict[str, Any]]]:
    """The losses and gradients of a whole run."""
    probe = Gradients()
    result = train(RunConfig().with_values({**SMALL, **changes}), [probe])
    return result.losses, probe.steps


def message(rank: int, changes: dict[str, Any]) -> str:
    """What the run's error says."""
    try:
        train(RunConfig().with_values({**SMALL, **changes}))
    except Exception as error:  # noqa: BLE001 - what it is, is the answer
        return f"{type(error).__name__}: {error}"
    return "no error"
