"""What a caller hands in, checked once per pass, where it enters; the layers of a model are spared the second look.

Shapes, types and devices are compared on the host. Values of ``cu_seqlens`` are compared on its own device, without
waiting for it: on a CPU the error comes at once, on a GPU as a device-side assertion at the next synchronisation.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from nsa.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def lengths_between(cu_seqlens: Sequence[int], *, n_rows: int, n_tokens: int) -> tuple[int, ...]:
    """How many tokens each document has, of boundaries that the host knows.

    Args:
        cu_seqlens: N + 1 numbers, as ``check_boundaries`` wants them.
        n_rows: batch size; packed documents are one row.
        n_tokens: tokens in the row.

    Raises:
        InputError: more rows than one, or numbers that do not divide the row.
    """
    _check_one_row(n_rows)
    lengths = tuple(after - before for before, after in pairwise(cu_seqlens))
    if not lengths or cu_seqlens[0] != 0 or cu_seqlens[-1] != n_tokens or min(lengths) < 0:
        raise _no_division(cu_seqlens, n_tokens)
    return lengths


def check_boundaries(cu_seqlens: Tensor, *, n_rows: int, n_tokens: int, device: torch.device) -> None:
    """Raise InputError unless ``cu_seqlens`` divides one packed row of ``n_tokens`` into documents.

    Args:
        cu_seqlens: int32 or int64 [N + 1]: 0, the end of every document, the last of them ``n_tokens``; documents may
            be empty.
        n_rows: batch size; packed documents are one row.
        n_tokens: tokens in the row.
        device: where the row is.

    Raises:
        InputError: a shape, type or device that does not fit, or (on a CPU) boundaries that are not in order.
    """
    if cu_seqlens.ndim != 1 or len(cu_seqlens) < 2 or cu_seqlens.dtype not in (torch.int32, torch.int64):
        raise InputError(
            f"cu_seqlens is {cu_seqlens.dtype} of shape {tuple(cu_seqlens.shape)}; it holds the boundaries of N packed "
            "documents, int32 or int64 of shape [N + 1]"
        )
    _check_one_row(n_rows)
    if cu_seqlens.device != device:
        raise InputError(f"cu_seqlens is on {cu_seqlens.device} and the tokens are on {device}; move it there")
    if cu_seqlens.is_meta or torch.compiler.is_compiling():
        return
    is_division = (cu_seqlens[0] == 0) & (cu_seqlens[-1] == n_tokens) & (cu_seqlens[1:] >= cu_seqlens[:-1]).all()
    if cu_seqlens.is_cuda:
        torch.ops.aten._assert_async.msg(is_division, f"cu_seqlens must rise from 0 to {n_tokens} without a step down")
    elif not is_division:
        raise _no_division(cu_seqlens.tolist(), n_tokens)


def _check_one_row(n_rows: int) -> None:
    if n_rows != 1:
        raise InputError(f"cu_seqlens with {n_rows} rows; pack the documents into one row, batch size 1")


def _no_division(cu_seqlens: Sequence[int], n_tokens: int) -> InputError:
    shown = list(cu_seqlens) if len(cu_seqlens) <= 8 else [*cu_seqlens[:4], "...", cu_seqlens[-1]]
    return InputError(f"cu_seqlens = {shown} must rise from 0 to {n_tokens}, the row's tokens, without a step down")


def check_heads(q_BTHD: Tensor, k_BSGD: Tensor, v_BSGE: Tensor, *, name: str = "") -> None:
    """Raise InputError unless keys and values fit the queries.

    Args:
        q_BTHD: queries.
        k_BSGD: keys; H is a multiple of G.
        v_BSGE: values.
        name: what the error calls the keys and values, "" for k and v.

    Raises:
        InputError: the shapes, types or devices differ where they must agree.
    """
    k_name, v_name = f"k{name}", f"v{name}"
    for label, x in (("q", q_BTHD), (k_name, k_BSGD), (v_name, v_BSGE)):
        if x.ndim != 4:
            raise InputError(f"{label} has shape {tuple(x.shape)}; it needs [batch, tokens, heads, width]")
    if k_BSGD.shape[:3] != v_BSGE.shape[:3] or k_BSGD.shape[0] != q_BTHD.shape[0]:
        raise InputError(
            f"q {tuple(q_BTHD.shape)}, {k_name} {tuple(k_BSGD.shape)} and {v_name} {tuple(v_BSGE.shape)} do not fit: "
            "the batch is the same in all three, tokens and heads the same in keys and values"
        )
    if k_BSGD.shape[3] != q_BTHD.shape[3]:
        raise InputError(
            f"q has heads of {q_BTHD.shape[3]} and {k_name} of {k_BSGD.shape[3]}; their product needs one width"
        )
    if k_BSGD.shape[2] == 0 or q_BTHD.shape[2] % k_BSGD.shape[2]:
        raise InputError(
            f"q has {q_BTHD.shape[2]} heads and {k_name} {k_BSGD.shape[2]}; every key head serves as many query heads"
        )
    for label, x in ((k_name, k_BSGD), (v_name, v_BSGE)):
        if x.dtype != q_BTHD.dtype or x.device != q_BTHD.device:
            raise InputError(f"q is {q_BTHD.dtype} on {q_BTHD.device} and {label} is {x.dtype} on {x.device}")
