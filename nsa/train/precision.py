"""The arithmetic of a run: fp32, bf16 or fp16, by autocast or throughout; the loss is always fp32."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch

from nsa.train.documents import Packed

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from torch import Tensor, nn

    from nsa.config import TrainConfig

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def cast(model: nn.Module, config: TrainConfig) -> None:
    """Turn the weights into ``train.precision`` where it is pure."""
    if config.precision_mode == "pure":
        model.to(DTYPES[config.precision])


def arithmetic(config: TrainConfig, *, keeps_casts: bool = True) -> AbstractContextManager[object]:
    """Around a forward: autocast to ``train.precision`` where that is asked for.

    ``keeps_casts`` is whether a weight that is used twice is cast once.
    """
    if config.precision == "fp32" or config.precision_mode == "pure":
        return nullcontext()
    return torch.autocast(config.device, dtype=DTYPES[config.precision], cache_enabled=keeps_casts)


def next_token_loss(module: nn.Module, config: TrainConfig, ids: Tensor | Packed) -> Tensor:
    """Mean next-token cross entropy in nats, fp32; of ids [B, T + 1], or of packed documents within each."""
    with arithmetic(config):
        if isinstance(ids, Packed):
            logits_BTV, targets_S = module(ids.ids_1S, cu_seqlens=ids.cu_seqlens), ids.targets_S
        else:
            logits_BTV, targets_S = module(ids[:, :-1]), ids[:, 1:].flatten()
    return torch.nn.functional.cross_entropy(logits_BTV.float().flatten(0, 1), targets_S)


def make_scaler(config: TrainConfig) -> torch.amp.GradScaler | None:
    """The loss scale that keeps small fp16 gradients alive; None where the type has fp32's range."""
    return torch.amp.GradScaler(config.device) if config.precision == "fp16" else None
