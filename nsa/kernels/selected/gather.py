"""Selected branch by gathering each query's blocks, a chunk of queries at a time.

Memory does not grow with T squared: only q, k, v, index, o are kept for backward, which gathers again. Keys that
a query may not see are never read into its sums. Deterministic: contributions to dk and dv are added in order.
In fp16 and bf16 scores and dO v are products in fp32, as in ``nsa.kernels.masked``.
Shape letters: N selected slots, K = N l_slc keys in a row's list, R query heads per group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nsa.kernels.masked import SCORES_AT_ONCE, accumulation_dtype, log_sum_exp, softmax_or_zero
from nsa.kernels.operators import operator
from nsa.kernels.quarantine import quarantined, spoiled, unspoiled
from nsa.kernels.scale import scale_of
from nsa.kernels.selected.blocks import gathered, listed_keys

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.autograd.function import FunctionCtx


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
    """Contract: ``nsa.kernels.selected.op.SelectedAttention``."""
    scale = scale_of(q_BTHD, scale)
    key_BTGK, visible_BTGK = listed_keys(index_BTGN, k_BSGD.shape[1], l_slc=l_slc, offset=offset, cu_seqlens=cu_seqlens)
    return gather_attention(q_BTHD, k_BSGD, v_BSGE, key_BTGK, visible_BTGK, scale)


@operator("nsa::gather_attention")
def gather_attention(
    q_BTHD: Tensor, k_BSGD: Tensor, v_BSGE: Tensor, key_BTGK: Tensor, visible_BTGK: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """Each query attends to its own list of keys; returns o_BTHE and lse_BTH."""
    B, T, H, _ = q_BTHD.shape
    k_BSGD, v_BSGE, is_bad_BSG = quarantined(k_BSGD, v_BSGE)
    o_BTHE = q_BTHD.new_empty(B, T, H, v_BSGE.shape[3])
    lse_BTH = q_BTHD.new_empty(B, T, H, dtype=accumulation_dtype(q_BTHD.dtype))
    for rows in _chunks(q_BTHD, v_BSGE, key_BTGK):
        k_BTGKD, v_BTGKE = _lists(k_BSGD, v_BSGE, key_BTGK[:, rows], visible_BTGK[:, rows])
        s_BTGRK = _scores(q_BTHD[:, rows], k_BTGKD, visible_BTGK[:, rows], scale)
        p_BTGRK = softmax_or_zero(s_BTGRK, visible_BTGK[:, rows, :, None])
        o_BTHE[:, rows] = (p_BTGRK.to(v_BTGKE.dtype) @ v_BTGKE).flatten(2, 3)
        lse_BTH[:, rows] = log_sum_exp(s_BTGRK, p_BTGRK).flatten(2, 3)
        seen_BTGK = gathered(is_bad_BSG[..., None], key_BTGK[:, rows])[..., 0] & visible_BTGK[:, rows]
        o_BTHE[:, rows] = spoiled(o_BTHE[:, rows], seen_BTGK.any(-1))
    return o_BTHE, lse_BTH


@operator("nsa::gather_attention_backward")
def gather_attention_backward(
    do_BTHE: Tensor,
    dlse_BTH: Tensor,
    q_BTHD: Tensor,
    k_BSGD: Tensor,
    v_BSGE: Tensor,
    key_BTGK: Tensor,
    visible_BTGK: Tensor,
    o_BTHE: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v, from probabilities recomputed over the same lists."""
    acc, G = accumulation_dtype(q_BTHD.dtype), k_BSGD.shape[2]
    dq_BTHD = torch.empty_like(q_BTHD, memory_format=torch.contiguous_format)
    dk_BSGD = torch.zeros(k_BSGD.shape, dtype=acc, device=k_BSGD.device)
    dv_BSGE = torch.zeros(v_BSGE.shape, dtype=acc, device=v_BSGE.device)
    k_BSGD, v_BSGE, _ = quarantined(k_BSGD, v_BSGE)
    do_BTHE, dlse_BTH, q_BTHD, o_BTHE = unspoiled(do_BTHE, dlse_BTH, q_BTHD, o_BTHE)
    delta_BTH = (do_BTHE.to(acc) * o_BTHE.to(acc)).sum(-1) - dlse_BTH.to(acc)
    b = torch.arange(q_BTHD.shape[0], device=q_BTHD.device)[:, None, None, None]
    g = torch.arange(G, device=q_BTHD.device)[:, None]
    for rows in _chunks(q_BTHD, v_BSGE, key_BTGK):
        q_BTGRD, do_BTGRE = (x[:, rows].unflatten(2, (G, -1)) for x in (q_BTHD, do_BTHE))
        k_BTGKD, v_BTGKE = _lists(k_BSGD, v_BSGE, key_BTGK[:, rows], visible_BTGK[:, rows])
        s_BTGRK = _scores(q_BTHD[:, rows], k_BTGKD, visible_BTGK[:, rows], scale)
        p_BTGRK = softmax_or_zero(s_BTGRK, visible_BTGK[:, rows, :, None])
        ds_BTGRK = do_BTGRE.to(acc) @ v_BTGKE.to(acc).transpose(3, 4)
        ds_BTGRK = ds_BTGRK.sub_(delta_BTH[:, rows].unflatten(2, (G, -1))[..., None]).mul_(p_BTGRK).mul_(scale)
        dq_BTHD[:, rows] = (ds_BTGRK.to(k_BTGKD.dtype) @ k_BTGKD).flatten(2, 3)
        where = (b, key_BTGK[:, rows], g)
        dk_BSGD.index_put_(where, ds_BTGRK.transpose(3, 4) @ q_BTGRD.to(acc), accumulate=True)
        dv_BSGE.index_put_(where, p_BTGRK.transpose(3, 4) @ do_BTGRE.to(acc), accumulate=True)
    return dq_BTHD, dk_BSGD.to(k_BSGD.dtype), dv_BSGE.to(v_BSGE.dtype)


def _lists(k_BSGD: Tensor, v_BSGE: Tensor, key_BTGK: Tensor, visible_BTGK: Tensor) -> tuple[Tensor, Tensor]:
    """Gathered keys and values; what a query may not see is zero, so that it cannot spoil a sum."""
    hidden_BTGK1 = ~visible_BTGK[..., None]
    k_BTGKD = gathered(k_BSGD, key_BTGK).masked_fill_(hidden_BTGK1, 0.0)
    return k_BTGKD, gathered(v_BSGE, key_BTGK).masked_fill_(hidden_BTGK1, 0.0)


def _scores(q_BTHD: Tensor, k_BTGKD: Tensor, visible_BTGK: Tensor, scale: float) -> Tensor:
    q_BTGRD = q_BTHD.unflatten(2, (k_BTGKD.shape[2], -1))
    acc = accumulation_dtype(q_BTHD.dtype)
    s_BTGRK = (q_BTGRD.to(acc) @ k_BTGKD.to(acc).transpose(3, 4)).mul_(scale)
    return s_BTGRK.masked_fill_(~visible_BTGK[:, :, :, None], -torch.inf)


def _chunks(q_BTHD: Tensor, v_BSGE: Tensor, key_BTGK: Tensor) -> Iterator[slice]:
    B, T, H, D = q_BTHD.shape
    G, K = key_BTGK.shape[2:]
    step = max(1, SCORES_AT_ONCE // max(1, B * K * (H + G * (D + v_BSGE.shape[3]))))
    for start in range(0, T, step):
        yield slice(start, min(start + step, T))


@gather_attention.register_fake
def _(
    q_BTHD: Tensor, k_BSGD: Tensor, v_BSGE: Tensor, key_BTGK: Tensor, visible_BTGK: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    B, T, H, _ = q_BTHD.shape
    lse_BTH = q_BTHD.new_empty(B, T, H, dtype=accumulation_dtype(q_BTHD.dtype))
    return q_BTHD.new_empty(B, T, H, v_BSGE.shape[3]), lse_BTH


@gather_attention_backward.register_fake
def _(
    do_BTHE: Tensor,
    dlse_BTH: Tensor,
    q_BTHD: Tensor,
    k_BSGD: Tensor,
    v_BSGE: Tensor,
    key_BTGK: Tensor,
    visible_BTGK: Tensor,
    o_BTHE: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    return q_BTHD.new_empty(q_BTHD.shape), k_BSGD.new_empty(k_BSGD.shape), v_BSGE.new_empty(v_BSGE.shape)


def _save(
    ctx: FunctionCtx, inputs: tuple[Tensor, Tensor, Tensor, Tensor, Tensor, float], output: tuple[Tensor, Tensor]
) -> None:
    ctx.save_for_backward(*inputs[:5], output[0])
    ctx.scale = inputs[5]  # pyrefly: ignore[missing-attribute] - the context takes any attribute


def _backward(ctx: FunctionCtx, do_BTHE: Tensor, dlse_BTH: Tensor) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors  # pyrefly: ignore[missing-attribute]
    scale = ctx.scale  # pyrefly: ignore[missing-attribute]
    return *gather_attention_backward(do_BTHE, dlse_BTH, *saved, scale), None, None, None


gather_attention.register_autograd(_backward, setup_context=_save)
