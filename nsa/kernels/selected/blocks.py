"""Which keys a query's selected blocks hold, row by row: shared by the gather and packed backends.

Shape letters: N selected slots, K = N l_slc keys in a row's list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from nsa.kernels.documents import token_documents

if TYPE_CHECKING:
    from torch import Tensor


def listed_keys(
    index_BTGN: Tensor, n_keys: int, *, l_slc: int, offset: int, cu_seqlens: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Key numbers key_BTGK (int64, safe to index with) and visible_BTGK, for every query and group."""
    T, device = index_BTGN.shape[1], index_BTGN.device
    if cu_seqlens is None:
        position_T, start_T = (
            torch.arange(offset, offset + T, device=device),
            torch.zeros(T, device=device, dtype=torch.int64),
        )
    else:
        position_T = token_documents(cu_seqlens, T).position_S
        start_T = torch.arange(T, device=device) - position_T
    within_L = torch.arange(l_slc, device=device)
    relative_BTGK = (index_BTGN.to(torch.int64)[..., None] * l_slc + within_L).flatten(3)
    is_past_BTGK = relative_BTGK <= position_T[:, None, None]
    visible_BTGK = (relative_BTGK >= 0) & is_past_BTGK
    key_BTGK = (relative_BTGK + start_T[:, None, None]).clamp(0, max(n_keys - 1, 0))
    return key_BTGK, visible_BTGK


def gathered(x_BSGD: Tensor, key_BTGK: Tensor) -> Tensor:
    """[B, T, G, K, D]: the listed rows of ``x``."""
    b = torch.arange(x_BSGD.shape[0], device=x_BSGD.device)[:, None, None, None]
    g = torch.arange(x_BSGD.shape[2], device=x_BSGD.device)[:, None]
    return x_BSGD[b, key_BTGK, g]
