"""AdamW with weight decay where it belongs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from nsa.config import TrainConfig


def make_optimizer(model: torch.nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """Decay matrices of linear layers; leave norms, embeddings and position encodings alone."""
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, torch.nn.Embedding)}
    decayed, free = [], []
    for name, parameter in model.named_parameters():
        is_matrix = parameter.ndim >= 2 and id(parameter) not in embeddings and not name.endswith(".pe")
        (decayed if is_matrix else free).append(parameter)
    groups = [
        {"params": decayed, "weight_decay": config.weight_decay},
        {"params": free, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.lr, betas=(0.9, 0.95))
