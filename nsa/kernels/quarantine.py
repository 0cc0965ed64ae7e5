"""A key or value that is not finite spoils exactly the queries that see it, and so does a query its own row.

A spoiled query's output is NaN and its gradients are zero: a fault shows where it is, the loss that reads it is NaN,
and nobody else's numbers or gradients change.

Attention libraries multiply a hidden key's weight, zero, with its value, and zero times NaN is NaN: one bad token would
reach back to every earlier query of its tile. So bad rows become zero before such a library sees them, and queries that
really see one get NaN afterwards; nothing is hidden and nothing leaks.
Shape letters: T queries, S keys, H query heads, G key/value heads.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nsa.kernels.documents import token_documents


def quarantined(k_BSGD: Tensor, v_BSGE: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """K and v with zeros where either is not finite, and bad_BSG that says where."""
    bad_BSG = ~(_largest(k_BSGD, v_BSGE) < torch.inf)  # NaN is not less than anything
    return k_BSGD.masked_fill(bad_BSG[..., None], 0.0), v_BSGE.masked_fill(bad_BSG[..., None], 0.0), bad_BSG


def quarantined_rows(q_BTHD: Tensor) -> tuple[Tensor, Tensor]:
    """Q with zeros in the rows that are not finite, and bad_BTH that says where."""
    bad_BTH = ~(torch.linalg.vector_norm(q_BTHD.detach(), torch.inf, dim=-1) < torch.inf)
    return q_BTHD.masked_fill(bad_BTH[..., None], 0.0), bad_BTH


def tainted(k_BSGD: Tensor, v_BSGE: Tensor) -> tuple[Tensor, Tensor]:
    """K with rows of NaN where it or v is not finite, and v with zeros there: for kernels that drop hidden scores.

    Whoever sees such a key gets NaN through its score; whoever does not multiplies a finite value by zero.
    """
    taint_BSG = _largest(k_BSGD, v_BSGE) * 0.0
    return k_BSGD + taint_BSG[..., None], finite(v_BSGE)


def finite(x: Tensor) -> Tensor:
    """Zeros for every element that is not finite."""
    return torch.nan_to_num(x, nan=0.0, posinf=0.0, neginf=0.0)


def _largest(k_BSGD: Tensor, v_BSGE: Tensor) -> Tensor:
    """The largest magnitude in each row of either; NaN where there is one."""
    return torch.maximum(*(torch.linalg.vector_norm(x.detach(), torch.inf, dim=-1) for x in (k_BSGD, v_BSGE)))


def spoiled(o_BTHE: Tensor, seen_BTG: Tensor, bad_BTH: Tensor | None = None) -> Tensor:
    """NaN for every head of the groups that see something bad, and of queries that are bad themselves."""
    seen_BTH = seen_BTG.repeat_interleave(o_BTHE.shape[2] // max(1, seen_BTG.shape[2]), dim=2)
    if bad_BTH is not None:
        seen_BTH = seen_BTH | bad_BTH
    return o_BTHE.masked_fill(seen_BTH[..., None], torch.nan)


def unspoiled(do_BTHE: Tensor, dlse_BTH: Tensor, q_BTHD: Tensor, o_BTHE: Tensor) -> tuple[Tensor, ...]:
    """Zeros, in what a backward reads row by row, for the queries that are spoiled: their o has NaN."""
    is_spoiled_BTH = o_BTHE.isnan().any(-1)
    rows_BTH1 = is_spoiled_BTH[..., None]
    return (
        do_BTHE.masked_fill(rows_BTH1, 0.0),
        dlse_BTH.masked_fill(is_spoiled_BTH, 0.0),
        q_BTHD.masked_fill(rows_BTH1, 0.0),
        o_BTHE.masked_fill(rows_BTH1, 0.0),
    )


def seen_in_window(bad_BSG: Tensor, n_queries: int, w: int, shift: int, cu_seqlens: Tensor | None) -> Tensor:
    """seen_BTG: whether one of the last w keys of query t, which stands at key t + shift, is bad."""
    n_keys = bad_BSG.shape[1]
    # Counted along the innermost axis: along the middle one a GPU adds with one thread per group.
    before_BGS = torch.nn.functional.pad(bad_BSG.transpose(1, 2).contiguous().cumsum(2), (1, 0))
    own_T = torch.arange(shift, shift + n_queries, device=bad_BSG.device)
    first_T = own_T - (w - 1)
    if cu_seqlens is not None:
        first_T = first_T.maximum(own_T - token_documents(cu_seqlens, n_queries).position_S)
    last_T, first_T = (own_T + 1).clamp(0, n_keys), first_T.clamp(0, n_keys)
    return (before_BGS[..., last_T] > before_BGS[..., first_T]).transpose(1, 2)
