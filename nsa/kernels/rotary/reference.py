"""The rotation in fp64, as a product of complex numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def rotate(
    q_BTHD: Tensor, k_BTGD: Tensor, cos_T1D: Tensor, sin_T1D: Tensor, n_plain: int = 0, sign: int = 1
) -> tuple[Tensor, Tensor]:
    """Contract: ``nsa.kernels.rotary.op.rotate_heads``; results in fp64."""
    k_BTGD = k_BTGD.double()
    turned_BTGD = _turned(k_BTGD[:, :, n_plain:], cos_T1D, sin_T1D, sign)
    return _turned(q_BTHD, cos_T1D, sin_T1D, sign), torch.cat((k_BTGD[:, :, :n_plain], turned_BTGD), 2)


def _turned(x_BTHD: Tensor, cos_T1D: Tensor, sin_T1D: Tensor, sign: int) -> Tensor:
    half = x_BTHD.shape[-1] // 2
    factor = torch.complex(cos_T1D[..., half:].double(), sign * sin_T1D[..., half:].double())
    turned = torch.complex(*x_BTHD.double().split(half, -1)) * factor
    return torch.cat((turned.real, turned.imag), -1)
