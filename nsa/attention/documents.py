"""Packed documents whose boundaries the host knows: each is a row of its own, and like lengths are rows of one batch.

A kernel that takes boundaries on the device must look at every pair of tokens, or at none without a mask; a document
that is a row costs what a row costs, in every kernel. Boundaries on the device alone go to the kernels as they are.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nsa.attention.checks import check_boundaries, lengths_between

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


def boundaries(
    cu_seqlens: Tensor | Sequence[int], *, n_rows: int, n_tokens: int, device: torch.device
) -> tuple[Tensor | None, tuple[int, ...] | None]:
    """The boundaries where only the rows' device knows them, or the documents' lengths where the host was told.

    Args:
        cu_seqlens: 0, the end of every document, the last of them ``n_tokens``: a tensor on ``device``, or numbers.
        n_rows: batch size, which must be 1.
        n_tokens: tokens in the row.
        device: where the row is.

    Raises:
        InputError: as ``nsa.attention.checks`` says.
    """
    if not isinstance(cu_seqlens, Tensor):
        return None, lengths_between(cu_seqlens, n_rows=n_rows, n_tokens=n_tokens)
    check_boundaries(cu_seqlens, n_rows=n_rows, n_tokens=n_tokens, device=device)
    return cu_seqlens, None


def by_length(
    lengths: Sequence[int], parts: Mapping[str, tuple[Tensor, Sequence[int]]], attend: Callable[..., Tensor]
) -> Tensor:
    """``attend`` to every document as a row; documents of like length are rows of one call.

    A document that is shorter than the longest of its call is followed by copies of its own last row: those come after
    all that it holds, so that no causal attention sees them, and their outputs are dropped.

    Args:
        lengths: tokens of every document; empty ones have no row.
        parts: by name, tensors [1, ...] that hold all documents one behind the other, and how many of their rows
            belong to each document; what is left over belongs to none. Longer documents have no fewer rows.
        attend: takes the parts of N documents by name, [N, rows of the longest, ...] each, and gives
            [N, tokens of the longest, ...].

    Returns:
        What it gave for all documents, one behind the other, [1, sum of lengths, ...].
    """
    if len(set(lengths)) == 1:
        return attend(**{name: _divided(x[0], sizes) for name, (x, sizes) in parts.items()}).flatten(0, 1)[None]
    first = next(iter(parts.values()))[0]
    outputs: list[Tensor] = []
    places = [0] * len(lengths)
    n_before = 0
    for numbers in alike(lengths, more=MORE.get(first.device.type, 1.0)):
        at = _rows_of(numbers, {tuple(sizes) for _, sizes in parts.values()}, first.device)
        rows = {name: x[0][at[tuple(sizes)]] for name, (x, sizes) in parts.items()}
        outputs.append(attend(**rows).flatten(0, 1))
        longest = lengths[numbers[0]]
        for row, number in enumerate(numbers):
            places[number] = n_before + row * longest
        n_before += len(numbers) * longest
    order = torch.cat([torch.arange(at, at + n) for at, n in zip(places, lengths, strict=True)])
    return torch.cat(outputs).index_select(0, order.to(first.device, non_blocking=True))[None]


def _divided(x: Tensor, sizes: Sequence[int]) -> Tensor:
    """The rows of documents of one length, [N, rows of each, ...]; a view."""
    n_rows = sum(sizes)
    return (x if len(x) == n_rows else x[:n_rows]).unflatten(0, (len(sizes), sizes[0]))


MORE = {"cuda": 1.25}
"""How many tokens rows of one call may have for one of the documents in them: what is more is copies. A GPU waits for
calls and has room for copies: 16 documents of 16 lengths cost 6 to 10 times what rows cost with a call each. On a CPU
copies cost more than calls: 1.5 to 1.7 times instead of 1.2 to 1.3."""


def alike(lengths: Sequence[int], *, more: float) -> list[list[int]]:
    """The numbers of the documents that hold anything, in groups of like length, the longest first in each."""
    groups: list[list[int]] = []
    n_held = 0
    for number in sorted((i for i, n in enumerate(lengths) if n), key=lambda i: -lengths[i]):
        n_held += lengths[number]
        if groups and (len(groups[-1]) + 1) * lengths[groups[-1][0]] <= more * n_held:
            groups[-1].append(number)
        else:
            groups.append([number])
            n_held = lengths[number]
    return groups


def _rows_of(
    numbers: Sequence[int], sizes: Iterable[tuple[int, ...]], device: torch.device
) -> dict[tuple[int, ...], Tensor]:
    """For tensors with so many rows a document: where each row of these documents lies, [N, rows of the longest]."""
    found: dict[tuple[int, ...], Tensor] = {}
    for of_each in sizes:
        ends = list(accumulate(of_each))
        bounds = torch.tensor([(ends[i] - of_each[i], max(ends[i] - 1, 0)) for i in numbers])
        first_N1, last_N1 = bounds.to(device, non_blocking=True).unsqueeze(-1).unbind(1)
        found[of_each] = (first_N1 + torch.arange(of_each[numbers[0]], device=device)).minimum(last_N1)
    return found
