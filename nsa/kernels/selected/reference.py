"""Selected branch from its definition, in fp64."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from nsa.kernels.reference import attend, documents, mask
from nsa.kernels.scale import scale_of

if TYPE_CHECKING:
    from torch import Tensor


def selected(
    q_BTHD: Tensor,
    k_BSGD: Tensor,
    v_BSGE: Tensor,
    index_BTGN: Tensor,
    *,
    l_slc: int,
    scale: float | None = None,
    offset: int = 0,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Contract: ``nsa.kernels.selected.op.SelectedAttention``; results in fp64."""
    scale = scale_of(q_BTHD, scale)
    parts = []
    for tokens in documents(cu_seqlens, q_BTHD.shape[1]):
        keys = slice(0, k_BSGD.shape[1]) if cu_seqlens is None else tokens
        n_keys = keys.stop - keys.start
        lists = index_BTGN[:, tokens].tolist()
        visible = torch.stack(
            [
                torch.stack(
                    [
                        mask(
                            [
                                [s // l_slc in lists[b][t][g] and s <= offset + t for s in range(n_keys)]
                                for t in range(tokens.stop - tokens.start)
                            ],
                            n_keys,
                            q_BTHD,
                        )
                        for g in range(index_BTGN.shape[2])
                    ]
                )
                for b in range(index_BTGN.shape[0])
            ]
        )
        parts.append(attend(q_BTHD[:, tokens], k_BSGD[:, keys], v_BSGE[:, keys], visible, scale))
    return torch.cat([o for o, _ in parts], 1), torch.cat([lse for _, lse in parts], 1)
