"""Window branch from its definition, in fp64."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from nsa.kernels.reference import attend, documents, mask
from nsa.kernels.scale import scale_of

if TYPE_CHECKING:
    from torch import Tensor


def window(
    q_BTHD: Tensor,
    k_BSGD: Tensor,
    v_BSGE: Tensor,
    *,
    w: int,
    scale: float | None = None,
    offset: int = 0,
    k_offset: int = 0,
    cu_seqlens: Tensor | None = None,
) -> Tensor:
    """Contract: ``nsa.kernels.window.op.WindowAttention``; result in fp64."""
    scale = scale_of(q_BTHD, scale)
    parts = []
    for tokens in documents(cu_seqlens, q_BTHD.shape[1]):
        keys = slice(0, k_BSGD.shape[1]) if cu_seqlens is None else tokens
        n_keys = keys.stop - keys.start
        rows = [
            [position - w < k_offset + s <= position for s in range(n_keys)]
            for position in range(offset, offset + tokens.stop - tokens.start)
        ]
        visible = mask(rows, n_keys, q_BTHD)[None, None]
        parts.append(attend(q_BTHD[:, tokens], k_BSGD[:, keys], v_BSGE[:, keys], visible, scale)[0])
    return torch.cat(parts, 1)
