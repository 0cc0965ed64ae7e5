"""torch's flash kernel (fp16 and bf16 on a GPU) with a backward whose sums are in a fixed order.

torch's own autograd adds the pieces of dq in whatever order they come, so two runs differ in their last bits. The
same kernel has a fixed order too, but only torch's global switch asks for it; here the switch is on for exactly the
backward of this operator. What that costs is in ``bench/results``.
Shape letters: T queries, S keys, H query heads, G key/value heads; both head widths are D.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.autograd.function import FunctionCtx


@torch.library.custom_op("nsa::flash_attention", mutates_args=())
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
    q, k, v, reach = *_rows(cu_seqlens, q_BTHD, k_BSGD, v_BSGD), _reach(w)
    o, lse, random_state, *_ = torch.ops.aten._flash_attention_forward(
        *(q, k, v, cu_seqlens, cu_seqlens, q_BTHD.shape[1], k_BSGD.shape[1]),
        dropout_p=0.0,
        is_causal=True,
        return_debug_mask=False,
        scale=scale,
        **reach,
    )
    if cu_seqlens is not None:
        o, lse = o[None], lse[None]
    return o, lse, random_state


@torch.library.custom_op("nsa::flash_attention_backward", mutates_args=())
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
    do, q, k, v, o = _rows(cu_seqlens, do_BTHD.contiguous(), q_BTHD, k_BSGD, v_BSGD, o_BTHD)
    lse = lse_BHT if cu_seqlens is None else lse_BHT[0]
    with sums_in_order():
        grads = torch.ops.aten._flash_attention_backward(
            *(do, q, k, v, o, lse, cu_seqlens, cu_seqlens, q_BTHD.shape[1], k_BSGD.shape[1]),
            dropout_p=0.0,
            is_causal=True,
            rng_state=random_state,
            unused=random_state,
            scale=scale,
            **_reach(w),
        )
    dq, dk, dv = grads if cu_seqlens is None else (x[None] for x in grads)
    return dq, dk, dv


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
    filled = filling.fill_uninitialized_memory  # pyright: ignore[reportAttributeAccessIssue]  # a module property
    if not was_on:  # filling fresh memory takes time; only who turned determinism on has asked for it
        filling.fill_uninitialized_memory = False  # pyright: ignore[reportAttributeAccessIssue]
    torch.use_deterministic_algorithms(mode=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(was_on, warn_only=only_warned)
        filling.fill_uninitialized_memory = filled  # pyright: ignore[reportAttributeAccessIssue]


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
    ctx.save_for_backward(q_BTHD, k_BSGD, v_BSGD, *output, cu_seqlens)  # pyright: ignore[reportArgumentType]
    ctx.mark_non_differentiable(*output[1:])
    ctx.rest = rest  # pyright: ignore[reportAttributeAccessIssue]  # the context takes any attribute


def _backward(ctx: FunctionCtx, do_BTHD: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    *kept, cu_seqlens = ctx.saved_tensors  # pyright: ignore[reportAttributeAccessIssue]
    scale, w = ctx.rest  # pyright: ignore[reportAttributeAccessIssue]
    return *flash_attention_backward(do_BTHD, *kept, cu_seqlens, scale, w), None, None, None


flash_attention.register_autograd(_backward, setup_context=_save)
