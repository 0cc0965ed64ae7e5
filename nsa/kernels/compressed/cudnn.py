"""Compressed branch by cuDNN's attention, through the packed-query identity; the fastest route on a Hopper GPU.

On narrow heads and short rows cuDNN ended the process (torch 2.11, H200). Both are refused, by name and at the
call, and ``auto`` never takes this route: the rows of a prompt may be as short as the prompt.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from nsa.errors import KernelUnavailable
from nsa.kernels.compressed import packed
from nsa.kernels.sdpa import HALF_TYPES, causal_with_care, same_width

if TYPE_CHECKING:
    from torch import Tensor

    from nsa.kernels.registry import Site

NARROWEST_HEAD, WIDEST_HEAD = 32, 128
FEWEST_BLOCKS = 32
REACH = 2**31
"""Elements of q from which cuDNN's offsets are wrong: 266,240 tokens of 64 heads of 128 gave an error of 73 %."""


def refuses(site: Site) -> str | None:
    """Why cuDNN cannot serve this site, if it cannot."""
    if site.device.type != "cuda" or not torch.backends.cudnn.is_available():
        return "cuDNN is not available here"
    if site.dtype not in HALF_TYPES:
        return f"cuDNN's attention takes fp16 or bf16, not {site.dtype}"
    if not NARROWEST_HEAD <= max(site.d_k, site.d_v) <= WIDEST_HEAD:
        return f"it is used for head widths from {NARROWEST_HEAD} to {WIDEST_HEAD}, not {max(site.d_k, site.d_v)}"
    if site.layout.n_cmp(site.seq_len) < FEWEST_BLOCKS:
        return f"{site.seq_len} tokens are fewer than {FEWEST_BLOCKS} compression blocks"
    if site.seq_len * site.n_heads * max(site.d_k, site.d_v) >= REACH:
        return f"cuDNN's offsets do not reach {site.seq_len} tokens of {site.n_heads} heads"
    if site.sdpa == "flash-only":
        return "cuDNN's attention is not torch's flash kernel, and kernels.sdpa = 'flash-only'"
    return None


def causal(q_BHJD: Tensor, k_BGJD: Tensor, v_BGJE: Tensor, *, scale: float) -> tuple[Tensor, Tensor]:
    """Causal attention head first, and its lse; keys and values are not repeated. lse is not differentiable.

    Raises:
        KernelUnavailable: fewer than 32 rows, which cuDNN does not survive, or more than its offsets reach.
    """
    n_blocks, E = v_BGJE.shape[2:]
    if n_blocks < FEWEST_BLOCKS:
        raise KernelUnavailable(
            f"kernels.compressed = 'cudnn' needs {FEWEST_BLOCKS} compression blocks in a row, got {n_blocks}; "
            "use kernels.compressed = 'packed' for short texts"
        )
    if q_BHJD.numel() >= REACH:
        raise KernelUnavailable(
            f"kernels.compressed = 'cudnn' reaches {REACH} elements of q, got {q_BHJD.numel()}; "
            "use kernels.compressed = 'packed' for long texts"
        )
    q, k, v = same_width(q_BHJD, k_BGJD, v_BGJE)
    o_BHJE, lse = torch.ops.aten._scaled_dot_product_cudnn_attention(
        q, k, v, attn_bias=None, compute_log_sumexp=True, dropout_p=0.0, is_causal=True, scale=scale
    )[:2]
    return o_BHJE[..., :E], lse.reshape(q.shape[:3])


compressed = partial(packed.compressed, attend=partial(causal_with_care, causal))
"""Contract: ``nsa.kernels.compressed.op.CompressedAttention``."""
