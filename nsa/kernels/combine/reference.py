"""The gated sum in fp64, head by head."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def combine(cmp_BTHE: Tensor, slc_BTHE: Tensor, win_BTHE: Tensor, gate_BTHC: Tensor) -> Tensor:
    """Contract: ``nsa.kernels.combine.op.CombineBranches``; result in fp64."""
    branches_BTHEC = torch.stack((cmp_BTHE, slc_BTHE, win_BTHE), -1).double()
    return torch.einsum("bthec,bthc->bthe", branches_BTHEC, gate_BTHC.double())
