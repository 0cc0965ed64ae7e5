"""Where tokens and compression blocks sit when several documents are packed into one row.

``cu_seqlens`` holds document boundaries as in flash-attn: document ``i`` is ``cu[i] .. cu[i+1] - 1``. Nothing
here reads a value back to the host: shapes depend on the packed length alone.
Shape letters: S tokens, C compression-block slots, N documents.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from nsa.blocks import BlockLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """For each packed token: its document and its position within it (both int64 [S])."""

    document_S: Tensor
    position_S: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """For each compression-block slot: its document (-1: slot unused), its number there, its first packed token.

    ``first_N`` is each document's first slot. There are always S // d slots, enough for any division of S
    tokens into documents, so that no shape depends on the boundaries.
    """

    document_C: Tensor
    number_C: Tensor
    start_C: Tensor
    first_N: Tensor


def token_documents(cu_seqlens: Tensor, n_tokens: int) -> Tokens:
    """Say which document each of ``n_tokens`` packed tokens belongs to; empty documents are skipped."""
    token_S = torch.arange(n_tokens, device=cu_seqlens.device)
    boundaries = cu_seqlens.to(torch.int64)
    document_S = torch.searchsorted(boundaries, token_S, right=True) - 1
    return Tokens(document_S=document_S, position_S=token_S - boundaries[document_S])


def block_documents(cu_seqlens: Tensor, n_tokens: int, layout: BlockLayout) -> Blocks:
    """Say which document, number and first token each compression-block slot has."""
    boundaries = cu_seqlens.to(torch.int64)
    lengths_N = boundaries[1:] - boundaries[:-1]
    counts_N = torch.where(lengths_N >= layout.l, (lengths_N - layout.l) // layout.d + 1, 0)
    ends_N = counts_N.cumsum(0)
    slot_C = torch.arange(n_tokens // layout.d, device=cu_seqlens.device)
    owner_C = torch.searchsorted(ends_N, slot_C, right=True)
    is_used_C = owner_C < len(lengths_N)
    owner_C = owner_C.clamp(max=max(len(lengths_N) - 1, 0))
    first_N = ends_N - counts_N
    number_C = torch.where(is_used_C, slot_C - first_N[owner_C], 0)
    start_C = torch.where(is_used_C, boundaries[owner_C] + number_C * layout.d, 0)
    return Blocks(document_C=torch.where(is_used_C, owner_C, -1), number_C=number_C, start_C=start_C, first_N=first_N)
