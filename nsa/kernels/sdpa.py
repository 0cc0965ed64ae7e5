"""torch's own attention kernels, where the layer needs more than ``scaled_dot_product_attention`` returns.

Shape letters: H query heads, G key/value heads, J queries, C keys; head first, as torch wants it.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from nsa.kernels.flash import flash_attention
from nsa.kernels.quarantine import quarantined, quarantined_rows, spoiled

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

HALF_TYPES = (torch.float16, torch.bfloat16)


def allowed_backends(sdpa: str, device: torch.device) -> AbstractContextManager[object]:
    """Restrict torch's choice as ``kernels.sdpa`` says: any, no-flash or flash-only."""
    if sdpa == "any":
        return nullcontext()
    if sdpa == "flash-only":
        return sdpa_kernel([SDPBackend.FLASH_ATTENTION])
    others = [SDPBackend.MATH]
    if device.type == "cuda":
        others = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH]
    return sdpa_kernel(others)


def causal_with_lse(
    q_BHJD: Tensor, k_BGJD: Tensor, v_BGJE: Tensor, *, scale: float, sdpa: str = "any"
) -> tuple[Tensor, Tensor]:
    """Causal attention with as many keys as queries, and its lse; o is differentiable, lse is not.

    Head widths may differ: the narrower side is padded with zeros, which changes nothing.

    Returns:
        o_BHJE and lse_BHJ (natural log; fp32, or fp64 for fp64 on a CPU).
    """
    if q_BHJD.is_cuda and q_BHJD.dtype in HALF_TYPES and sdpa != "no-flash":
        rows_first = same_width(*(x.transpose(1, 2) for x in (q_BHJD, k_BGJD, v_BGJE)))
        o_BJHE, lse_BHJ = flash_attention(*rows_first, None, scale, 0)[:2]
        return o_BJHE.transpose(1, 2)[..., : v_BGJE.shape[-1]], lse_BHJ
    return causal_with_care(_causal_with_lse, q_BHJD, k_BGJD, v_BGJE, scale=scale)


def causal_with_care(
    attend: Callable[..., tuple[Tensor, Tensor]], q_BHJD: Tensor, k_BGJD: Tensor, v_BGJE: Tensor, *, scale: float
) -> tuple[Tensor, Tensor]:
    """A library's causal attention, in which what is not finite spoils only who sees it."""
    k, v, bad_BGJ = quarantined(k_BGJD, v_BGJE)
    q, bad_BHJ = quarantined_rows(q_BHJD)
    o_BHJE, lse_BHJ = attend(q, k, v, scale=scale)
    seen_BJG = (bad_BGJ.cumsum(2) > 0).transpose(1, 2)
    return spoiled(o_BHJE.transpose(1, 2), seen_BJG, bad_BHJ.transpose(1, 2)).transpose(1, 2), lse_BHJ


def _causal_with_lse(q_BHJD: Tensor, k_BGJD: Tensor, v_BGJE: Tensor, *, scale: float) -> tuple[Tensor, Tensor]:
    n_v = v_BGJE.shape[-1]
    q_BHJD, k_BGJD, v_BGJE = same_width(q_BHJD, k_BGJD, v_BGJE)
    if q_BHJD.is_cuda:
        k_BHJD, v_BHJE = (_expanded(x, q_BHJD.shape[1]) for x in (k_BGJD, v_BGJE))
        o_BHJE, lse_BHJ = torch.ops.aten._scaled_dot_product_efficient_attention(
            q_BHJD, k_BHJD, v_BHJE, None, compute_log_sumexp=True, is_causal=True, scale=scale
        )[:2]
    else:
        k_BHJD, v_BHJE = (_expanded(x, q_BHJD.shape[1]) for x in (k_BGJD, v_BGJE))
        o_BHJE, lse_BHJ = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            q_BHJD, k_BHJD, v_BHJE, is_causal=True, scale=scale
        )
    return o_BHJE[..., :n_v], lse_BHJ[..., : q_BHJD.shape[2]]


def same_width(*tensors: Tensor) -> list[Tensor]:
    """Pad head widths with zeros to one multiple of 8, which changes no result, and let rows lie in one piece.

    Flash kernels want both: torch leaves them for its slowest path where widths differ, and those called
    directly read a row's elements side by side whatever its stride says.
    """
    width = -(-max(x.shape[-1] for x in tensors) // 8) * 8
    padded = [torch.nn.functional.pad(x, (0, width - x.shape[-1])) if x.shape[-1] != width else x for x in tensors]
    return [x if x.stride(-1) == 1 else x.contiguous() for x in padded]


def _expanded(x_BGJD: Tensor, n_heads: int) -> Tensor:
    """[B, G, J, D] as [B, H, J, D]: each key/value head beside all its query heads, without a copy for G = 1."""
    B, G, J, D = x_BGJD.shape
    return x_BGJD[:, :, None].expand(B, G, n_heads // G, J, D).flatten(1, 2)
