"""RMSNorm, alone and of a sum: torch's on a CPU, one kernel forward and one backward on a GPU.

torch takes three times as long backward, most of it for the gradient of the weight, and the sum before a norm and the
gradient that arrives beside it are passes of their own. Where a compiler is at work it gets torch's operators, which it
puts together by itself.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch

from nsa.kernels.norm import torch as plain

if TYPE_CHECKING:
    from torch import Tensor

WIDEST = 8192
"""Numbers of a row that fit the registers of a program."""
_HAS_TRITON = find_spec("triton") is not None


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Rows of x, each over the root of its mean square, times the weight; differentiable.

    Args:
        x: rows of any number of axes before the last.
        weight: as wide as a row.
        eps: added to the mean square.

    Returns:
        In x's type, computed in fp32 or wider and rounded once.
    """
    if _is_fused(x, weight):
        return importlib.import_module("nsa.kernels.norm.triton").norm(x, weight, eps)
    return plain.norm(x, weight, eps)


def add_norm(x: Tensor, y: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The sum of x and y, rounded to their type, and its ``norm``; differentiable in all three."""
    if _is_fused(x, weight) and y.dtype == x.dtype:
        return importlib.import_module("nsa.kernels.norm.triton").add_norm(x, y, weight, eps)
    return plain.add_norm(x, y, weight, eps)


def _is_fused(x: Tensor, weight: Tensor) -> bool:
    """Whether the kernels take them: on a GPU, of one type that they know, not too wide, and no compiler around."""
    if not _HAS_TRITON or not x.is_cuda or torch.compiler.is_compiling():
        return False
    known = x.dtype in (torch.bfloat16, torch.float16, torch.float32)
    return known and weight.dtype == x.dtype and 0 < weight.numel() <= WIDEST and x.numel() > 0
