"""Packed documents whose boundaries the host knows: each is a row of its own, and like lengths are rows of one batch.

A kernel that takes boundaries on the device must look at every pair of tokens, or at none without a mask; a document
that is a row costs what a row costs, in every kernel. Boundaries on the device alone go to the kernels as they are.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
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
    """``attend`` to every document as a row; documents of like length are rows of one call.

    A document that is shorter than the longest of its call is followed by copies of its own last row: those come after
    all that it holds, so that no causal attention sees them, and their outputs are dropped.

    Args:
        lengths: tokens of every document; empty ones have no row.
        parts: tensors [1, ...] that hold all documents one behind the other, and how many of their rows belong to
            each document; what is left over belongs to none. Longer documents have no fewer rows.
        attend: takes the parts of N documents, [N, rows of the longest, ...] each, and gives outputs
            [N, tokens of the longest, ...].

    Returns:
        The outputs of all documents one behind the other, [1, sum of lengths, ...].
    """
    if len(set(lengths)) == 1:
        whole = [x[0, : sum(sizes)].unflatten(0, (len(sizes), sizes[0])) for x, sizes in parts]
        return {name: o_NT.flatten(0, 1)[None] for name, o_NT in attend(*whole).items()}
    outputs: dict[str, list[Tensor]] = {}
    places = [0] * len(lengths)
    n_before = 0
    for numbers in alike(lengths, more=MORE.get(parts[0][0].device.type, 1.0)):
        rows = [x[0].index_select(0, at.flatten()).unflatten(0, at.shape) for x, at in _rows_of(numbers, parts)]
        for name, o_NT in attend(*rows).items():
            outputs.setdefault(name, []).append(o_NT.flatten(0, 1))
        longest = lengths[numbers[0]]
        for row, number in enumerate(numbers):
            places[number] = n_before + row * longest
        n_before += len(numbers) * longest
    device = parts[0][0].device
    order = torch.cat([torch.arange(at, at + n) for at, n in zip(places, lengths, strict=True)])
    order = order.to(device, non_blocking=True)
    return {name: torch.cat(o).index_select(0, order)[None] for name, o in outputs.items()}


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


def _rows_of(numbers: Sequence[int], parts: Sequence[tuple[Tensor, Sequence[int]]]) -> list[tuple[Tensor, Tensor]]:
    """Every part, and where in it each row of these documents lies, [N, rows of the longest]."""
    made: dict[tuple[int, ...], Tensor] = {}
    for x, sizes in parts:
        if (key := tuple(sizes)) not in made:
            ends = list(accumulate(sizes))
            bounds = torch.tensor([(ends[i] - sizes[i], max(ends[i] - 1, 0)) for i in numbers])
            first_N1, last_N1 = bounds.to(x.device, non_blocking=True).unsqueeze(-1).unbind(1)
            step_R = torch.arange(sizes[numbers[0]], device=x.device)
            made[key] = (first_N1 + step_R).minimum(last_N1)
    return [(x, made[tuple(sizes)]) for x, sizes in parts]
