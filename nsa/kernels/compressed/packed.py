"""Compressed branch as plain causal attention: d neighbouring tokens become one query with d times the heads.

Tokens l-1 + d j .. l-1 + d j + d-1 see exactly blocks 0 .. j. Packed d at a time along the head axis, query
row j sees keys 0 .. j: causal attention with as many rows as blocks, which every attention library does well.
The identity is exact, ragged tails included; the first l - 1 tokens see nothing.

Behind a cache (offset > 0) and across packed documents rows and blocks do not line up; there the same masked
products as in the ``masked`` backend run.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from nsa.kernels.compressed import masked
from nsa.kernels.masked import accumulation_dtype
from nsa.kernels.scale import scale_of
from nsa.kernels.sdpa import HALF_TYPES, causal_with_lse

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from torch import Tensor

    from nsa.blocks import BlockLayout
    from nsa.kernels.registry import Site


def refuses(site: Site) -> str | None:
    """Why torch's attention cannot serve this site, if it cannot."""
    if site.sdpa == "no-flash" and site.device.type == "cpu":
        return "torch's only CPU attention with lse is its flash kernel, and kernels.sdpa = 'no-flash'"
    if site.sdpa == "flash-only" and site.device.type == "cuda" and site.dtype not in HALF_TYPES:
        return f"torch's flash attention takes fp16 or bf16, not {site.dtype}"
    if site.device.type == "cuda" and max(site.d_k, site.d_v) > 256:
        return f"torch's flash attention takes head widths up to 256, not {max(site.d_k, site.d_v)}"
    return None


def bind(call: Callable[..., Any], site: Site) -> Callable[..., Any]:
    """Fix what ``kernels.sdpa`` says, at build time."""
    return partial(call, attend=partial(causal_with_lse, sdpa=site.sdpa))


def compressed(
    q_BTHD: Tensor,
    kc_BCGD: Tensor,
    vc_BCGE: Tensor,
    layout: BlockLayout,
    *,
    scale: float | None = None,
    offset: int = 0,
    cu_seqlens: Tensor | None = None,
    attend: Callable[..., tuple[Tensor, Tensor]] = causal_with_lse,
) -> tuple[Tensor, Tensor]:
    """Contract: ``nsa.kernels.compressed.op.CompressedAttention``; ``attend`` is the causal attention used."""
    if offset or cu_seqlens is not None:
        return masked.compressed(q_BTHD, kc_BCGD, vc_BCGE, layout, scale=scale, offset=offset, cu_seqlens=cu_seqlens)
    B, T, H, D = q_BTHD.shape
    C, G, E = vc_BCGE.shape[1:]
    blind = min(T, layout.l - 1)
    if C == 0:
        # Sums over nothing: zero, yet every input keeps its place in the graph.
        nothing = q_BTHD[:, :0].sum() + kc_BCGD.sum() + vc_BCGE.sum()
        lse_BTH = q_BTHD.new_full((B, T, H), -torch.inf, dtype=accumulation_dtype(q_BTHD.dtype))
        return q_BTHD.new_zeros(B, T, H, E) + nothing, lse_BTH
    spare = C * layout.d - (T - blind)
    q_BTHD = torch.nn.functional.pad(q_BTHD[:, blind:], (0, 0, 0, 0, 0, spare))
    q_BHJD = q_BTHD.view(B, C, layout.d, G, H // G, D).permute(0, 3, 2, 4, 1, 5).reshape(B, -1, C, D)
    scale = scale_of(q_BTHD, scale)
    o_BHJE, lse_BHJ = attend(q_BHJD, kc_BCGD.transpose(1, 2), vc_BCGE.transpose(1, 2), scale=scale)
    seen = T - blind
    o_BTHE = o_BHJE.reshape(B, G, layout.d, H // G, C, E).permute(0, 4, 2, 1, 3, 5).reshape(B, -1, H, E)
    o_BTHE = torch.nn.functional.pad(o_BTHE[:, :seen], (0, 0, 0, 0, blind, 0))
    # Padded by whole blocks, then cut: on a shift by l - 1 tokens through these axes inductor fails (torch 2.11:
    # CantSplit raised without its arguments).
    unseen = -(-blind // layout.d)
    lse_BHJ = torch.nn.functional.pad(lse_BHJ, (unseen, 0), value=-torch.inf)
    lse_BTH = lse_BHJ.reshape(B, G, layout.d, H // G, -1).permute(0, 4, 2, 1, 3).reshape(B, -1, H)
    first = unseen * layout.d - blind
    return o_BTHE, lse_BTH[:, first : first + T]
