"""Compressed branch by the optional flash-attn package, through the packed-query identity."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from nsa.kernels.compressed import packed
from nsa.kernels.flash_attn import package, refusal
from nsa.kernels.sdpa import causal_with_care, same_width

if TYPE_CHECKING:
    from torch import Tensor

    from nsa.kernels.registry import Site


def refuses(site: Site) -> str | None:
    """Why flash-attn cannot serve this site, if it cannot."""
    return refusal(site)


def _attend(q_BHJD: Tensor, k_BGJD: Tensor, v_BGJE: Tensor, *, scale: float) -> tuple[Tensor, Tensor]:
    """Causal attention head first, and its lse; o is differentiable, lse is not."""
    E = v_BGJE.shape[-1]
    q, k, v = same_width(*(x.transpose(1, 2) for x in (q_BHJD, k_BGJD, v_BGJE)))
    o_BJHE, lse_BHJ, _ = package().flash_attn_func(q, k, v, softmax_scale=scale, causal=True, return_attn_probs=True)
    return o_BJHE.transpose(1, 2)[..., :E], lse_BHJ


compressed = partial(packed.compressed, attend=partial(causal_with_care, _attend))
"""Contract: ``nsa.kernels.compressed.op.CompressedAttention``."""
