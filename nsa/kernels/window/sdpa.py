"""Window branch by torch's attention over a band: chunks of queries, each beside the keys it can reach.

Work and memory grow with T w, not T squared: a chunk of c queries reads c + w - 1 keys.
Shape letters: I chunks, c queries in a chunk, K = c + w - 1 keys beside it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from nsa.kernels.documents import token_documents
from nsa.kernels.quarantine import quarantined, quarantined_rows, seen_in_window, spoiled
from nsa.kernels.scale import scale_of
from nsa.kernels.sdpa import allowed_backends, same_width

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from torch import Tensor

    from nsa.kernels.registry import Site

SMALLEST_CHUNK = 32


def refuses(site: Site) -> str | None:
    """Why torch's attention cannot serve this site, if it cannot."""
    if site.sdpa == "flash-only" and site.device.type == "cuda":
        return "torch's flash attention takes no mask on a GPU, and the band needs one"
    return None


def bind(call: Callable[..., Any], site: Site) -> Callable[..., Any]:
    """Fix what ``kernels.sdpa`` says, at build time."""
    return partial(call, sdpa=site.sdpa)


def window(
    q_BTHD: Tensor,
    k_BSGD: Tensor,
    v_BSGE: Tensor,
    *,
    w: int,
    scale: float | None = None,
    offset: int = 0,
    k_offset: int = 0,
    cu_seqlens: Tensor | None = None,
    sdpa: str = "any",
) -> Tensor:
    """Contract: ``nsa.kernels.window.op.WindowAttention``."""
    B, T, H, _ = q_BTHD.shape
    S, E = k_BSGD.shape[1], v_BSGE.shape[3]
    scale = scale_of(q_BTHD, scale)
    k_BSGD, v_BSGE, bad_BSG = quarantined(k_BSGD, v_BSGE)
    q_BTHD, bad_BTH = quarantined_rows(q_BTHD)
    q_BTHD, k_BSGD, v_BSGE = same_width(q_BTHD, k_BSGD, v_BSGE)
    chunk = min(max(w, SMALLEST_CHUNK), T)
    n_chunks = -(-T // chunk)
    first_key = offset - k_offset - (w - 1)  # the first query's oldest key, as an index into k
    n_keys = n_chunks * chunk + w - 1
    q_BIcHD = torch.nn.functional.pad(q_BTHD, (0, 0, 0, 0, 0, n_chunks * chunk - T))
    q_NHcD = q_BIcHD.unflatten(1, (n_chunks, chunk)).flatten(0, 1).transpose(1, 2)
    k_NGKD = _beside(k_BSGD, first_key, n_keys, chunk, w)
    v_NGKE = _beside(v_BSGE, first_key, n_keys, chunk, w)
    visible_IcK = _band(T, S, n_chunks, chunk, w, first_key, q_BTHD.device, cu_seqlens)
    visible_N1cK = visible_IcK.expand(B, -1, -1, -1).flatten(0, 1)[:, None]
    with allowed_backends(sdpa, q_BTHD.device):
        o_NHcE = torch.nn.functional.scaled_dot_product_attention(
            q_NHcD, k_NGKD, v_NGKE, attn_mask=visible_N1cK, scale=scale, enable_gqa=k_BSGD.shape[2] != H
        )
    o_BTHE = o_NHcE.transpose(1, 2).unflatten(0, (B, n_chunks)).flatten(1, 2)[:, :T, :, :E]
    return spoiled(o_BTHE, seen_in_window(bad_BSG, T, w, offset - k_offset, cu_seqlens), bad_BTH)


def _beside(x_BSGD: Tensor, first_key: int, n_keys: int, chunk: int, w: int) -> Tensor:
    """For each chunk the keys it can reach: [B * I, G, K, D], zeros where the sequence has none."""
    kept = x_BSGD[:, max(0, first_key) :]
    before = max(0, -first_key)
    after = max(0, n_keys - before - kept.shape[1])
    padded = torch.nn.functional.pad(kept, (0, 0, 0, 0, before, after))[:, :n_keys]
    return padded.unfold(1, chunk + w - 1, chunk).permute(0, 1, 2, 4, 3).flatten(0, 1)


def _band(
    n_queries: int,
    n_keys: int,
    n_chunks: int,
    chunk: int,
    w: int,
    first_key: int,
    device: torch.device,
    cu_seqlens: Tensor | None,
) -> Tensor:
    """[I, c, K]: exactly w keys back, inside the sequence and the document; padded queries see everything."""
    query_Ic1 = torch.arange(n_chunks * chunk, device=device).view(n_chunks, chunk, 1)
    key_I1K = (torch.arange(n_chunks, device=device) * chunk)[:, None, None] + torch.arange(
        chunk + w - 1, device=device
    )
    distance_IcK = query_Ic1 + (w - 1) - key_I1K
    source_I1K = key_I1K + first_key
    visible_IcK = (distance_IcK >= 0) & (distance_IcK < w) & (source_I1K >= 0) & (source_I1K < n_keys)
    if cu_seqlens is not None:
        document_S = token_documents(cu_seqlens, n_keys).document_S
        own_Ic1 = document_S[query_Ic1.clamp(max=n_queries - 1)]
        visible_IcK = visible_IcK & (own_Ic1 == document_S[source_I1K.clamp(0, n_keys - 1)])
    # A padded query's output is cut away; letting it see keeps its softmax, and so the gradients, finite.
    return visible_IcK | (query_Ic1 >= n_queries)
