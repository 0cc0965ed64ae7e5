"""Selected branch by torch's CPU attention under a mask: the fastest route while sequences are short.

The mask has one fp32 entry per query, key and group, so memory grows with T S.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from nsa.kernels.quarantine import quarantined, quarantined_rows, spoiled
from nsa.kernels.scale import scale_of
from nsa.kernels.sdpa import same_width
from nsa.kernels.selected import gather
from nsa.kernels.visibility import slc_visible

if TYPE_CHECKING:
    from torch import Tensor

    from nsa.kernels.registry import Site

LONGEST = 4096
"""Tokens up to which one fp32 entry per pair is worth having: 64 MiB per group."""


def refuses(site: Site) -> str | None:
    """Why torch's CPU attention cannot serve this site, if it cannot."""
    if site.device.type != "cpu":
        return "this route calls torch's CPU kernel; on a GPU use triton or gather"
    if site.seq_len > LONGEST:
        return f"its mask grows with the square of the length: {site.seq_len} tokens are more than {LONGEST}"
    if site.sdpa == "no-flash":
        return "torch's only CPU attention with lse is its flash kernel, and kernels.sdpa = 'no-flash'"
    return None


def selected(
    q_BTHD: Tensor,
    k_BSGD: Tensor,
    v_BSGE: Tensor,
    index_BTGN: Tensor,
    *,
    l_slc: int,
    scale: float | None = None,
    offset: int = 0,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Contract: ``nsa.kernels.selected.op.SelectedAttention``; lse is not differentiable here."""
    B, _, H, _ = q_BTHD.shape
    G, E = v_BSGE.shape[2:]
    scale = scale_of(q_BTHD, scale)
    if q_BTHD.numel() == 0:  # torch's kernel divides by the number of rows, which ends the process
        return gather.selected(
            q_BTHD, k_BSGD, v_BSGE, index_BTGN, l_slc=l_slc, scale=scale, offset=offset, cu_seqlens=cu_seqlens
        )
    visible_BGTS = slc_visible(index_BTGN, k_BSGD.shape[1], l_slc=l_slc, offset=offset, cu_seqlens=cu_seqlens)
    k_BSGD, v_BSGE, bad_BSG = quarantined(k_BSGD, v_BSGE)
    q_BTHD, bad_BTH = quarantined_rows(q_BTHD)
    q, k, v = same_width(q_BTHD, k_BSGD, v_BSGE)
    q_NRTD = q.unflatten(2, (G, H // G)).permute(0, 2, 3, 1, 4).flatten(0, 1)
    k_NRSD, v_NRSD = (x.transpose(1, 2).flatten(0, 1)[:, None].expand(-1, H // G, -1, -1) for x in (k, v))
    mask_N1TS = torch.zeros((), dtype=q.dtype).where(visible_BGTS.flatten(0, 1)[:, None], -torch.inf)
    o_NRTD, lse_NRT = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q_NRTD, k_NRSD, v_NRSD, attn_mask=mask_N1TS, scale=scale
    )
    o_BTHE = o_NRTD.unflatten(0, (B, G)).permute(0, 3, 1, 2, 4).flatten(2, 3)[..., :E]
    lse_BTH = lse_NRT.unflatten(0, (B, G)).permute(0, 3, 1, 2).flatten(2, 3)
    # The kernel gives a row that sees nothing an output and gradients of zero, but no lse.
    sees_none_BTH = (~visible_BGTS.any(-1)).transpose(1, 2).repeat_interleave(H // G, dim=2)
    seen_BTG = (visible_BGTS & bad_BSG.transpose(1, 2)[:, :, None]).any(-1).transpose(1, 2)
    return spoiled(o_BTHE, seen_BTG, bad_BTH & ~sees_none_BTH), lse_BTH.masked_fill(sees_none_BTH, -torch.inf)
