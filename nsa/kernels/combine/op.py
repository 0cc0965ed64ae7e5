"""The contract of the gated sum (Eq. 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class CombineBranches(Protocol):
    """Add the branches, each weighted by its gate; differentiable in all four."""

    def __call__(self, cmp_BTHE: Tensor, slc_BTHE: Tensor, win_BTHE: Tensor, gate_BTHC: Tensor) -> Tensor:
        """Return g_cmp o_cmp + g_slc o_slc + g_win o_win, per head; C = 3 in the order cmp, slc, win."""
        ...
