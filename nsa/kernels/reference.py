"""The oracle's arithmetic: fp64, dense masks, one document at a time, nothing shared with any backend.

Slow and plain on purpose. Each operator's ``reference.py`` builds its mask from the definitions of
``nsa.blocks`` with Python loops, and calls ``attend``.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator


def attend(q_BTHD: Tensor, k_BSGD: Tensor, v_BSGE: Tensor, visible_BGTS: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Masked softmax attention in fp64, differentiable; o = 0 and lse = -inf where nothing is visible."""
    group = q_BTHD.shape[2] // k_BSGD.shape[2]
    q_BHTD = q_BTHD.double().transpose(1, 2)
    k_BHSD = k_BSGD.double().transpose(1, 2).repeat_interleave(group, dim=1)
    v_BHSE = v_BSGE.double().transpose(1, 2).repeat_interleave(group, dim=1)
    visible_BHTS = visible_BGTS.expand(q_BTHD.shape[0], k_BSGD.shape[2], -1, -1).repeat_interleave(group, dim=1)
    s_BHTS = (q_BHTD @ k_BHSD.transpose(2, 3) * scale).masked_fill(~visible_BHTS, -torch.inf)
    sees_some_BHT1 = visible_BHTS.any(-1, keepdim=True)
    # A row of -inf has no softmax: give it zeros to average, then take the average away.
    p_BHTS = torch.softmax(torch.where(sees_some_BHT1, s_BHTS, 0.0), dim=-1) * visible_BHTS
    lse_BHT = torch.where(sees_some_BHT1, s_BHTS, 0.0).logsumexp(-1)
    lse_BHT = torch.where(sees_some_BHT1[..., 0], lse_BHT, -torch.inf)
    return (p_BHTS @ v_BHSE).transpose(1, 2), lse_BHT.transpose(1, 2)


def documents(cu_seqlens: Tensor | None, n_tokens: int) -> Iterator[slice]:
    """Each document's tokens; the whole row when there are no boundaries."""
    bounds = [0, n_tokens] if cu_seqlens is None else cu_seqlens.tolist()
    for start, stop in pairwise(bounds):
        yield slice(start, stop)


def mask(rows: list[list[bool]], n_columns: int, like: Tensor) -> Tensor:
    """Rows of booleans as a tensor, also when there are none."""
    return torch.tensor(rows, dtype=torch.bool, device=like.device).reshape(len(rows), n_columns)
