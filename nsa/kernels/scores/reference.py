"""Block selection from its definition: fp64 scores, Python sorting, one query at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from nsa.kernels.reference import documents
from nsa.kernels.scale import scale_of

if TYPE_CHECKING:
    from torch import Tensor

    from nsa.blocks import BlockLayout


def scores(
    q_BTHD: Tensor,
    kc_BCGD: Tensor,
    layout: BlockLayout,
    *,
    scale: float | None = None,
    offset: int = 0,
    cu_seqlens: Tensor | None = None,
) -> list[list[list[list[float]]]]:
    """Importance [b][t][g][j] of every block that a query sees (Eq. 8 to 10), as Python floats."""
    scale = scale_of(q_BTHD, scale)
    G = kc_BCGD.shape[2]
    result: list[list[list[list[float]]]] = [[] for _ in range(q_BTHD.shape[0])]
    first = 0
    for tokens in documents(cu_seqlens, q_BTHD.shape[1]):
        n_queries = tokens.stop - tokens.start
        for b in range(q_BTHD.shape[0]):
            for t in range(n_queries):
                position = offset + t
                n_cmp, n_slc = layout.n_cmp(position + 1), layout.slc_of(position) + 1
                q_GRD = q_BTHD[b, tokens.start + t].double().unflatten(0, (G, -1))
                k_GCD = kc_BCGD[b, first : first + n_cmp].double().transpose(0, 1)
                p_GC = torch.softmax(q_GRD @ k_GCD.transpose(1, 2) * scale, dim=-1).sum(1)
                overlap = [[float(layout.overlap(i, j)) for j in range(n_slc)] for i in range(n_cmp)]
                overlap_CJ = torch.tensor(overlap, dtype=torch.float64, device=p_GC.device).reshape(n_cmp, n_slc)
                result[b].append((p_GC @ overlap_CJ).tolist())
        first += layout.n_cmp(offset + n_queries)
    return result


def select(
    q_BTHD: Tensor,
    kc_BCGD: Tensor,
    lse_BTH: Tensor,
    layout: BlockLayout,
    *,
    scale: float | None = None,
    offset: int = 0,
    cu_seqlens: Tensor | None = None,
) -> Tensor:
    """Contract: ``nsa.kernels.scores.op.SelectBlocks``; lse is not used, the softmax is computed anew."""
    B, T, G = q_BTHD.shape[0], q_BTHD.shape[1], kc_BCGD.shape[2]
    positions = [offset + t for span in documents(cu_seqlens, T) for t in range(span.stop - span.start)]
    importance = scores(q_BTHD, kc_BCGD, layout, scale=scale, offset=offset, cu_seqlens=cu_seqlens)
    index_BTGN = torch.full((B, T, G, layout.n), -1, dtype=torch.int32, device=lse_BTH.device)
    for b in range(B):
        for t, position in enumerate(positions):
            for g in range(G):
                chosen = best_blocks(importance[b][t][g], position, layout)
                index_BTGN[b, t, g, : len(chosen)] = torch.tensor(chosen, dtype=torch.int32)
    return index_BTGN


def best_blocks(importance: list[float], position: int, layout: BlockLayout) -> list[int]:
    """The forced blocks and then the best others, higher score first and lower number on ties; ascending."""
    forced = layout.forced(position)
    others = [j for j in range(len(importance)) if j not in forced]
    others.sort(key=lambda j: (-importance[j], j))
    return sorted([*forced, *others[: layout.n - len(forced)]])
