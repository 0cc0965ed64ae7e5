"""The rotation in plain torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def rotate(
    q_BTHD: Tensor, k_BTGD: Tensor, cos_T1D: Tensor, sin_T1D: Tensor, n_plain: int, sign: int
) -> tuple[Tensor, Tensor]:
    """Contract: ``nsa.kernels.rotary.op.rotate_heads``."""
    return _turned(q_BTHD, cos_T1D, sin_T1D, 0, sign), _turned(k_BTGD, cos_T1D, sin_T1D, n_plain, sign)


def _turned(x_BTHD: Tensor, cos_T1D: Tensor, sin_T1D: Tensor, n_plain: int, sign: int) -> Tensor:
    half = x_BTHD.shape[-1] // 2
    turned = x_BTHD.new_empty(x_BTHD.shape, dtype=cos_T1D.dtype)
    torch.mul(x_BTHD, cos_T1D, out=turned)
    turned[..., :half].addcmul_(x_BTHD[..., half:], sin_T1D[..., :half], value=sign)
    turned[..., half:].addcmul_(x_BTHD[..., :half], sin_T1D[..., half:], value=sign)
    if n_plain:
        turned[:, :, :n_plain] = x_BTHD[:, :, :n_plain]
    return turned.to(x_BTHD.dtype)
