"""Selected branch by one call of torch's attention: every query becomes a batch row with its own list of keys.

The route of the origin's ``NSA_USE_SEL_PACK``. All gathered keys exist at once: B T G N l_slc rows, in fp32 while
they are gathered.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from nsa.kernels.masked import accumulation_dtype
from nsa.kernels.quarantine import quarantined, quarantined_rows, spoiled
from nsa.kernels.scale import scale_of
from nsa.kernels.sdpa import allowed_backends, same_width
from nsa.kernels.selected.blocks import gathered, listed_keys

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from torch import Tensor

    from nsa.kernels.registry import Site


def refuses(site: Site) -> str | None:
    """Why torch's attention cannot serve this site, if it cannot."""
    if site.sdpa == "flash-only" and site.device.type == "cuda":
        return "torch's flash attention takes no mask on a GPU, and the last block needs one"
    return None


def bind(call: Callable[..., Any], site: Site) -> Callable[..., Any]:
    """Fix what ``kernels.sdpa`` says, at build time."""
    return partial(call, sdpa=site.sdpa)


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
    sdpa: str = "any",
) -> tuple[Tensor, Tensor]:
    """Contract: ``nsa.kernels.selected.op.SelectedAttention``; lse is not differentiable here."""
    B, T, H, _ = q_BTHD.shape
    G, E = v_BSGE.shape[2:]
    scale = scale_of(q_BTHD, scale)
    k_BSGD, v_BSGE, bad_BSG = quarantined(k_BSGD, v_BSGE)
    q_BTHD, bad_BTH = quarantined_rows(q_BTHD)
    q_BTHD, k_BSGD, v_BSGE = same_width(q_BTHD, k_BSGD, v_BSGE)
    key_BTGK, visible_BTGK = listed_keys(index_BTGN, k_BSGD.shape[1], l_slc=l_slc, offset=offset, cu_seqlens=cu_seqlens)
    sees_none_BTG1 = ~visible_BTGK.any(-1, keepdim=True)
    q_N1RD = q_BTHD.reshape(B * T * G, 1, H // G, -1)
    acc = accumulation_dtype(q_BTHD.dtype)
    # Gathered in fp32, for the gradients: a key listed by many queries adds up as many terms.
    k_N1KD = gathered(k_BSGD.to(acc), key_BTGK).flatten(0, 2)[:, None].to(k_BSGD.dtype)
    v_N1KE = gathered(v_BSGE.to(acc), key_BTGK).flatten(0, 2)[:, None].to(v_BSGE.dtype)
    # A row that sees nothing is let see everything, so that its softmax exists, and then set to zero.
    visible_N11K = (visible_BTGK | sees_none_BTG1).flatten(0, 2)[:, None, None]
    with allowed_backends(sdpa, q_BTHD.device):
        o_N1RE = torch.nn.functional.scaled_dot_product_attention(
            q_N1RD, k_N1KD, v_N1KE, attn_mask=visible_N11K, scale=scale
        )
    sees_none_BTH = sees_none_BTG1.expand(B, T, G, H // G).reshape(B, T, H)
    o_BTHE = o_N1RE.reshape(B, T, H, -1)[..., :E].masked_fill(sees_none_BTH[..., None], 0.0)
    with torch.no_grad():
        s_N1RK = (q_N1RD @ k_N1KD.transpose(2, 3)).to(accumulation_dtype(q_BTHD.dtype)) * scale
        lse_BTH = s_N1RK.masked_fill(~visible_N11K, -torch.inf).logsumexp(-1).reshape(B, T, H)
    seen_BTG = (gathered(bad_BSG[..., None], key_BTGK)[..., 0] & visible_BTGK).any(-1)
    return spoiled(o_BTHE, seen_BTG, bad_BTH & ~sees_none_BTH), lse_BTH.masked_fill(sees_none_BTH, -torch.inf)
