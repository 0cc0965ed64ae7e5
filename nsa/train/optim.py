"""AdamW with weight decay where it belongs, and the learning rate of every step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from nsa.train.parallel import clean_name

if TYPE_CHECKING:
    from collections.abc import Collection

    from nsa.config import TrainConfig


def decayed_names(model: torch.nn.Module) -> frozenset[str]:
    """Parameters that decay: matrices of linear layers; not norms, embeddings and position encodings.

    Ask before the model is sharded: afterwards a part of a matrix may be a vector.
    """
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, torch.nn.Embedding)}
    return frozenset(
        name
        for name, parameter in model.named_parameters()
        if parameter.ndim >= 2 and id(parameter) not in embeddings and not name.endswith(".pe")
    )


def make_optimizer(module: torch.nn.Module, config: TrainConfig, decayed: Collection[str]) -> torch.optim.AdamW:
    """AdamW over the module's parameters, wrapped or not; those named in ``decayed`` decay."""
    named = [(clean_name(name), parameter) for name, parameter in module.named_parameters()]
    groups = [
        {"params": [p for name, p in named if name in decayed], "weight_decay": config.weight_decay},
        {"params": [p for name, p in named if name not in decayed], "weight_decay": 0.0},
    ]
    # On a GPU all parameters are updated by a few kernels; one by one, launching them would take longer than the work.
    return torch.optim.AdamW(groups, lr=config.lr, betas=(0.9, 0.95), fused=config.device == "cuda")


def learning_rate(config: TrainConfig, step: int) -> float:
    """The learning rate of a step, counted from 0: a straight rise over the warm-up, then the schedule.

    The first step of a warm-up of w has lr / w, the last lr; the cosine starts there and reaches zero after the
    last step.
    """
    if step < config.warmup_steps:
        return config.lr * (step + 1) / config.warmup_steps
    if config.schedule == "constant":
        return config.lr
    progress = (step - config.warmup_steps) / max(1, config.steps - config.warmup_steps)
    return config.lr * 0.5 * (1.0 + math.cos(math.pi * progress))
