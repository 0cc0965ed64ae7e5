"""Compressed branch from its definition, in fp64."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from nsa.kernels.reference import attend, documents, mask
from nsa.kernels.scale import scale_of

if TYPE_CHECKING:
    from torch import Tensor

    from nsa.blocks import BlockLayout


def compressed(
    q_BTHD: Tensor,
    kc_BCGD: Tensor,
    vc_BCGE: Tensor,
    layout: BlockLayout,
    *,
    scale: float | None = None,
    offset: int = 0,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Contract: ``nsa.kernels.compressed.op.CompressedAttention``; results in fp64."""
    scale = scale_of(q_BTHD, scale)
    parts, first = [], 0
    for tokens in documents(cu_seqlens, q_BTHD.shape[1]):
        n_queries = tokens.stop - tokens.start
        n_blocks = layout.n_cmp(offset + n_queries)
        rows = [
            [layout.cmp_span(i).stop <= position + 1 for i in range(n_blocks)]
            for position in range(offset, offset + n_queries)
        ]
        blocks = slice(first, first + n_blocks)
        first += n_blocks
        visible = mask(rows, n_blocks, q_BTHD)[None, None]
        parts.append(attend(q_BTHD[:, tokens], kc_BCGD[:, blocks], vc_BCGE[:, blocks], visible, scale))
    return torch.cat([o for o, _ in parts], 1), torch.cat([lse for _, lse in parts], 1)
