"""Packed documents whose boundaries the host knows: each is a row of its own, and equal lengths are rows of one batch.

A kernel that takes boundaries on the device must look at every pair of tokens, or at none without a mask; a document
that is a row costs what a row costs, in every kernel. Boundaries on the device alone go to the kernels as they are.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nsa.attention.checks import check_boundaries

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def boundaries(
    cu_seqlens: Tensor | Sequence[int], *, n_rows: int, n_tokens: int, device: torch.device
) -> tuple[Tensor, tuple[int, ...] | None]:
    """The boundaries on the rows' device, and the documents' lengths where the host was told.

    Args:
        cu_seqlens: 0, the end of every document, the last of them ``n_tokens``: a tensor on ``device``, or numbers.
        n_rows: batch size, which must be 1.
        n_tokens: tokens in the row.
        device: where the row is.

    Raises:
        InputError: as ``nsa.attention.checks.check_boundaries`` says.
    """
    if isinstance(cu_seqlens, Tensor):
        check_boundaries(cu_seqlens, n_rows=n_rows, n_tokens=n_tokens, device=device)
        return cu_seqlens, None
    on_host = torch.tensor(cu_seqlens)
    check_boundaries(on_host, n_rows=n_rows, n_tokens=n_tokens, device=on_host.device)
    return on_host.to(device, non_blocking=True), tuple(b - a for a, b in pairwise(cu_seqlens))


def by_length(
    lengths: Sequence[int], parts: Sequence[tuple[Tensor, Sequence[int]]], attend: Callable[..., dict[str, Tensor]]
) -> dict[str, Tensor]:
    """``attend`` to every document as a row; documents of one length are rows of one call.

    Args:
        lengths: tokens of every document; empty ones have no row.
        parts: tensors [1, ...] that hold all documents one behind the other, and how many of their rows belong to
            each document; what is left over belongs to none.
        attend: takes the parts of N documents of one length, [N, ...] each, and gives outputs [N, length, ...].

    Returns:
        The outputs of all documents one behind the other, [1, sum of lengths, ...].
    """
    cut = [x[0, : sum(sizes)].split(list(sizes)) for x, sizes in parts]
    found: dict[str, list[Tensor | None]] = {}
    for length in dict.fromkeys(n for n in lengths if n):
        numbers = [i for i, n in enumerate(lengths) if n == length]
        for name, o_NT in attend(*(torch.stack([rows[i] for i in numbers]) for rows in cut)).items():
            rows = found.setdefault(name, [None] * len(lengths))
            for i, o_T in zip(numbers, o_NT.unbind(0), strict=True):
                rows[i] = o_T
    return {name: torch.cat([o_T for o_T in rows if o_T is not None])[None] for name, rows in found.items()}
