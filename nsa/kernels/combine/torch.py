"""The gated sum in plain torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def combine(cmp_BTHE: Tensor, slc_BTHE: Tensor, win_BTHE: Tensor, gate_BTHC: Tensor) -> Tensor:
    """Contract: ``nsa.kernels.combine.op.CombineBranches``."""
    g_cmp, g_slc, g_win = gate_BTHC.to(cmp_BTHE.dtype).unbind(-1)
    return cmp_BTHE * g_cmp[..., None] + slc_BTHE * g_slc[..., None] + win_BTHE * g_win[..., None]
