"""torch's flash kernel (fp16 and bf16 on a GPU) with a backward whose sums are in a fixed order.

torch's own autograd adds the pieces of dq in whatever order they come, so two runs differ in their last bits. The
same kernel has a fixed order too, but only torch's global switch asks for it; here the switch is on for exactly the
backward of this operator. What that costs is in ``bench/results``.
Shape letters: T queries, S keys, H query heads, G key/value heads; both head widths are D.

Without help the fixed order keeps a copy of dq for every group of processors that works on one head, and adds them:
with a window and 16 heads that is nine copies. So a windowed backward is cut into pieces along the sequence first,
each beside the keys that it can reach: pieces times heads fill the GPU without copies.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nsa.kernels.operators import operator
from nsa.kernels.quarantine import finite, tainted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.autograd.function import FunctionCtx

TILE = 128
"""Pieces are multiples of the kernel's largest tile."""
WORK = 8
"""Pieces times heads for each processor: so many that the last ones to finish leave few processors idle."""


@operator("nsa::flash_attention")
def flash_attention(
    q_BTHD: Tensor, k_BSGD: Tensor, v_BSGD: Tensor, cu_seqlens: Tensor | None, scale: float, w: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Causal attention over the last ``w`` keys (all of them if 0); the last query stands at the last key.

    Args:
        q_BTHD: queries; the three share their head width, a multiple of 8 up to 256.
        k_BSGD: keys.
        v_BSGD: values.
        cu_seqlens: int32 document boundaries of a packed row, with B = 1; None for whole rows.
        scale: factor on the scores.
        w: keys that a query sees, its own included; 0 for all.

    Returns:
        o_BTHD, lse_BHT (fp32, natural log; not differentiable) and the kernel's unused random state.
    """
    q, k, v = _rows(cu_seqlens, q_BTHD, *tainted(k_BSGD, v_BSGD))
    o, lse, random_state, *_ = torch.ops.aten._flash_attention_forward(
        *(q, k, v, cu_seqlens, cu_seqlens, q_BTHD.shape[1], k_BSGD.shape[1]),
        dropout_p=0.0,
        is_causal=True,
        return_debug_mask=False,
        scale=scale,
        **_reach(w),
    )
    if cu_seqlens is not None:
        o, lse = o[None], lse[None]
    return o, lse, random_state


@operator("nsa::flash_attention_backward")
def flash_attention_backward(
    do_BTHD: Tensor,
    q_BTHD: Tensor,
    k_BSGD: Tensor,
    v_BSGD: Tensor,
    o_BTHD: Tensor,
    lse_BHT: Tensor,
    random_state: Tensor,
    cu_seqlens: Tensor | None,
    scale: float,
    w: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v; bitwise the same in every run."""
    k_BSGD, v_BSGD = finite(k_BSGD), finite(v_BSGD)  # who saw what was not has NaN in lse_BHT
    B, T, H, _ = q_BTHD.shape
    size = _piece_size(T, B * H, w, q_BTHD.device) if cu_seqlens is None and k_BSGD.shape[1] == T else T
    if size < T:
        return _backward_in_pieces(do_BTHD, q_BTHD, k_BSGD, v_BSGD, o_BTHD, lse_BHT, random_state, scale, w, size)
    do, q, k, v, o = _rows(cu_seqlens, do_BTHD.contiguous(), q_BTHD, k_BSGD, v_BSGD, o_BTHD)
    lse, cu = lse_BHT if cu_seqlens is None else lse_BHT[0], cu_seqlens
    dq, dk, dv = _backward(do, q, k, v, o, lse, random_state, cu, cu, (T, k_BSGD.shape[1]), scale, w)
    return (dq, dk, dv) if cu is None else (dq[None], dk[None], dv[None])


def _piece_size(n_tokens: int, n_heads: int, w: int, device: torch.device) -> int:
    """Tokens of a piece of the backward pass, so that pieces times heads fill the GPU; all of them if that is one."""
    n_pieces = -(-WORK * torch.cuda.get_device_properties(device).multi_processor_count // n_heads) if w else 1
    size = max(-(-n_tokens // n_pieces), w)
    return min(-(-size // TILE) * TILE, n_tokens)


def _backward_in_pieces(
    do_BTHD: Tensor,
    q_BTHD: Tensor,
    k_BSGD: Tensor,
    v_BSGD: Tensor,
    o_BTHD: Tensor,
    lse_BHT: Tensor,
    random_state: Tensor,
    scale: float,
    w: int,
    size: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """The same gradients from pieces of ``size`` queries, each beside its own keys and the w - 1 before them.

    What the first piece lacks before it and the last one after it are documents without queries.
    """
    B, T = q_BTHD.shape[:2]
    n_pieces, reach = -(-T // size), size + w - 1
    rows_q, rows_k = _boundaries_of_pieces(B, T, size, w, q_BTHD.device)
    padding = (0, 0, 0, 0, w - 1, n_pieces * size - T)
    k, v = (
        torch.nn.functional.pad(x, padding).unfold(1, reach, size).movedim(-1, 2).flatten(0, 2)
        for x in (k_BSGD, v_BSGD)
    )
    do, q, o = (x.contiguous().flatten(0, 1) for x in (do_BTHD, q_BTHD, o_BTHD))
    lse = lse_BHT.transpose(0, 1).flatten(1).contiguous()
    dq, *grads = _backward(do, q, k, v, o, lse, random_state, rows_q, rows_k, (size, reach), scale, w)
    dk, dv = (_of_keys(x.unflatten(0, (B, n_pieces, reach)), w - 1)[:, :T] for x in grads)
    return dq.unflatten(0, (B, T)), dk.contiguous(), dv.contiguous()


def _boundaries_of_pieces(B: int, T: int, size: int, w: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """First query and first key of every piece of all rows, int32; they depend on shapes alone.

    Kept for good, because a CUDA graph may read them again; what is made while one is captured belongs to that graph.
    """
    is_captured = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
    return (_new_boundaries.__wrapped__ if is_captured else _new_boundaries)(B, T, size, w, device)


@cache
def _new_boundaries(B: int, T: int, size: int, w: int, device: torch.device) -> tuple[Tensor, Tensor]:
    n_pieces, reach = -(-T // size), size + w - 1
    first_P = torch.arange(-1, n_pieces + 1, device=device).clamp(min=0)
    first_q, first_k = (first_P * size).clamp(max=T), first_P * reach
    first_k[1:2].fill_(w - 1)  # an assignment would wait for the device
    first_k[-1:].fill_(n_pieces * reach - (n_pieces * size - T))
    return _of_rows(first_q, B, T), _of_rows(first_k, B, n_pieces * reach)


def _of_rows(first_P: Tensor, n_rows: int, row_length: int) -> Tensor:
    """int32 boundaries of the pieces of all rows, laid one behind the other; nothing is read back to the host."""
    row_B = torch.arange(n_rows, device=first_P.device) * row_length
    return torch.nn.functional.pad((row_B[:, None] + first_P).flatten(), (0, 1), value=n_rows * row_length).int()


def _of_keys(x_BPKGD: Tensor, overlap: int) -> Tensor:
    """Gradients of keys listed with their pieces, as gradients of keys: a key in two pieces gets both."""
    own_BPCGD = x_BPKGD[:, :, overlap:]
    if overlap:
        own_BPCGD[:, :-1, -overlap:] += x_BPKGD[:, 1:, :overlap]
    return own_BPCGD.flatten(1, 2)


def _backward(
    do: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    random_state: Tensor,
    first_q: Tensor | None,
    first_k: Tensor | None,
    longest: tuple[int, int],
    scale: float,
    w: int,
) -> tuple[Tensor, Tensor, Tensor]:
    with sums_in_order():
        return torch.ops.aten._flash_attention_backward(
            *(do, q, k, v, o, lse, first_q, first_k, *longest),
            dropout_p=0.0,
            is_causal=True,
            rng_state=random_state,
            unused=random_state,
            scale=scale,
            **_reach(w),
        )


@contextmanager
def sums_in_order() -> Iterator[None]:
    """Ask torch's kernels for a fixed order of summation while they are launched.

    The switch is the process's own: threads that launch other work at that moment see it too.
    """
    was_on, only_warned = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    filling = torch.utils.deterministic
    filled = filling.fill_uninitialized_memory  # pyrefly: ignore[missing-attribute] - a module property
    if not was_on:  # filling fresh memory takes time; only who turned determinism on has asked for it
        filling.fill_uninitialized_memory = False  # pyrefly: ignore[missing-attribute]
    torch.use_deterministic_algorithms(mode=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(was_on, warn_only=only_warned)
        filling.fill_uninitialized_memory = filled  # pyrefly: ignore[missing-attribute]


def _rows(cu_seqlens: Tensor | None, *tensors: Tensor) -> list[Tensor]:
    """The tensors as the kernel takes them: without the batch axis where documents are packed."""
    return [x if cu_seqlens is None else x[0] for x in tensors]


def _reach(w: int) -> dict[str, int]:
    return {"window_size_left": w - 1, "window_size_right": 0} if w else {}


@flash_attention.register_fake
def _(
    q_BTHD: Tensor, k_BSGD: Tensor, v_BSGD: Tensor, cu_seqlens: Tensor | None, scale: float, w: int
) -> tuple[Tensor, Tensor, Tensor]:
    B, T, H, _ = q_BTHD.shape
    lse_BHT = q_BTHD.new_empty(B, H, T, dtype=torch.float32)
    return torch.empty_like(q_BTHD), lse_BHT, q_BTHD.new_empty(2, dtype=torch.uint64)


@flash_attention_backward.register_fake
def _(
    do_BTHD: Tensor,
    q_BTHD: Tensor,
    k_BSGD: Tensor,
    v_BSGD: Tensor,
    o_BTHD: Tensor,
    lse_BHT: Tensor,
    random_state: Tensor,
    cu_seqlens: Tensor | None,
    scale: float,
    w: int,
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(q_BTHD), torch.empty_like(k_BSGD), torch.empty_like(v_BSGD)


def _save(
    ctx: FunctionCtx,
    inputs: tuple[Tensor, Tensor, Tensor, Tensor | None, float, int],
    output: tuple[Tensor, Tensor, Tensor],
) -> None:
    q_BTHD, k_BSGD, v_BSGD, cu_seqlens, *rest = inputs
    # torch takes None among the saved tensors; its annotation does not say so.
    ctx.save_for_backward(q_BTHD, k_BSGD, v_BSGD, *output, cu_seqlens)  # pyrefly: ignore[bad-argument-type]
    ctx.mark_non_differentiable(*output[1:])
    ctx.rest = rest  # pyrefly: ignore[missing-attribute] - the context takes any attribute


def _differentiate(ctx: FunctionCtx, do_BTHD: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    *kept, cu_seqlens = ctx.saved_tensors  # pyrefly: ignore[missing-attribute]
    scale, w = ctx.rest  # pyrefly: ignore[missing-attribute]
    return *flash_attention_backward(do_BTHD, *kept, cu_seqlens, scale, w), None, None, None


flash_attention.register_autograd(_differentiate, setup_context=_save)
