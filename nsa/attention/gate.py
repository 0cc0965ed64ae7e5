"""The gates of Eq. 5: how much each head listens to each branch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

BRANCHES = ("cmp", "slc", "win")
"""The paper's branch names, in the order of the last axis of every gate tensor."""


class Gate(nn.Module):
    """Independent sigmoids per head and branch, from the token's features by an MLP.

    The last layer starts at zero: every gate starts at one half, so no branch is starved and the selector,
    which learns through the compressed branch only, is trained from the first step.
    """

    def __init__(self, *, dim: int, n_heads: int, kind: str, has_grad: bool = True) -> None:
        super().__init__()
        self.n_heads, self.kind, self.has_grad = n_heads, kind, has_grad
        hidden = max(8, dim // 4)
        self.fc1 = nn.Linear(dim, hidden, bias=False)
        self.fc2 = nn.Linear(hidden, n_heads * len(BRANCHES), bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Zero what starts at zero: the last layer."""
        nn.init.zeros_(self.fc2.weight)

    def forward(self, x_BTC: Tensor) -> Tensor:
        """Gates [B, T, H, 3] in the order cmp, slc, win.

        A gate that is not ``learned`` is a constant plus zero times the learned one: the MLP still takes part
        in the graph, so that every parameter gets a gradient on every rank.
        """
        learned = torch.sigmoid(self.fc2(nn.functional.silu(self.fc1(x_BTC))))
        learned = learned.unflatten(-1, (self.n_heads, len(BRANCHES)))
        if not self.has_grad:
            # Zero times the gate, so that its parameters get a gradient (zero) on every rank.
            learned = learned.detach() + learned * 0.0
        match self.kind:
            case "learned":
                return learned
            case "uniform":
                return learned * 0.0 + 1.0 / len(BRANCHES)
            case branch:
                is_on_C = torch.arange(len(BRANCHES), device=learned.device) == BRANCHES.index(branch)
                return learned * 0.0 + is_on_C
