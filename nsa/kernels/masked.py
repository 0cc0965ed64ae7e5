"""Softmax attention under any boolean mask, with its own backward: the workhorse of the torch backends.

Only q, k, v, o and the mask are kept for backward; probabilities are recomputed, a chunk of queries at a time, so
memory never holds a score for every pair. One autograd node, whatever the length.
In fp16 and bf16 the two products whose results are subtracted or exponentiated, scores and dO v, are taken in fp32: a
product rounded to bf16 puts up to 2^-8 of a score into its exponent. TF32, where allowed, loses nothing of them.
Shape letters: B batch, T queries, S keys, H query heads, G key/value heads, R = H / G, D and E head widths.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nsa.kernels.operators import operator
from nsa.kernels.quarantine import quarantined, unspoiled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.autograd.function import FunctionCtx

SCORES_AT_ONCE = 1 << 24
"""Scores held at one time; 2^24 in fp32 are 64 MiB."""


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type softmax runs in: fp64 for fp64, fp32 for everything else."""
    return torch.float64 if dtype == torch.float64 else torch.float32


@operator("nsa::masked_attention")
def masked_attention(
    q_BTHD: Tensor, k_BSGD: Tensor, v_BSGE: Tensor, visible_BGTS: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """Attend wherever ``visible_BGTS`` is true (it may have size 1 in B and G).

    Returns:
        o_BTHE and lse_BTH (natural log, fp32 or fp64). A query that sees nothing gets o = 0, lse = -inf and
        zero gradients. A key or value that is not finite spoils exactly the queries that see it, as
        ``nsa.kernels.quarantine`` says.
    """
    B, T, H, _ = q_BTHD.shape
    E = v_BSGE.shape[3]
    k_BGSD, v_BGSE, is_bad_BGS = quarantined(k_BSGD.transpose(1, 2), v_BSGE.transpose(1, 2))
    k_BGSD = k_BGSD.to(accumulation_dtype(q_BTHD.dtype))
    o_BTHE = q_BTHD.new_empty(B, T, H, E)
    lse_BTH = q_BTHD.new_empty(B, T, H, dtype=accumulation_dtype(q_BTHD.dtype))
    for rows in _chunks(B * H * k_BSGD.shape[1], T):
        s_BGRTS = _scores(q_BTHD[:, rows], k_BGSD, visible_BGTS[:, :, rows], scale)
        p_BGRTS = softmax_or_zero(s_BGRTS, visible_BGTS[:, :, None, rows])
        lse_BGRT = log_sum_exp(s_BGRTS, p_BGRTS)
        o_BGRTE = _times(p_BGRTS.to(v_BGSE.dtype), v_BGSE)
        is_spoiled_BGT = (visible_BGTS[:, :, rows] & is_bad_BGS[:, :, None]).any(-1)
        o_BGRTE = o_BGRTE.masked_fill(is_spoiled_BGT[:, :, None, :, None], torch.nan)
        o_BTHE[:, rows] = o_BGRTE.permute(0, 3, 1, 2, 4).reshape(B, -1, H, E)
        lse_BTH[:, rows] = lse_BGRT.permute(0, 3, 1, 2).reshape(B, -1, H)
    return o_BTHE, lse_BTH


@operator("nsa::masked_attention_backward")
def masked_attention_backward(
    do_BTHE: Tensor,
    dlse_BTH: Tensor,
    q_BTHD: Tensor,
    k_BSGD: Tensor,
    v_BSGE: Tensor,
    visible_BGTS: Tensor,
    o_BTHE: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v, from recomputed probabilities."""
    B, T, H, D = q_BTHD.shape
    G, acc = k_BSGD.shape[2], accumulation_dtype(q_BTHD.dtype)
    k_BGSD, v_BGSE, _ = quarantined(k_BSGD.transpose(1, 2), v_BSGE.transpose(1, 2))
    v_BGSE = v_BGSE.to(acc)
    do_BTHE, dlse_BTH, q_BTHD, o_BTHE = unspoiled(do_BTHE, dlse_BTH, q_BTHD, o_BTHE)
    exact_k_BGSD = k_BGSD.to(acc)
    dq_BTHD = torch.empty_like(q_BTHD, memory_format=torch.contiguous_format)
    dk_BGSD = torch.zeros(k_BGSD.shape, dtype=acc, device=k_BGSD.device)
    dv_BGSE = torch.zeros(v_BGSE.shape, dtype=acc, device=v_BGSE.device)
    delta_BTH = (do_BTHE.to(acc) * o_BTHE.to(acc)).sum(-1) - dlse_BTH.to(acc)
    for rows in _chunks(B * H * k_BSGD.shape[1], T):
        q_BGRTD, do_BGRTE = _grouped(q_BTHD[:, rows], G), _grouped(do_BTHE[:, rows], G)
        s_BGRTS = _scores(q_BTHD[:, rows], exact_k_BGSD, visible_BGTS[:, :, rows], scale)
        p_BGRTS = softmax_or_zero(s_BGRTS, visible_BGTS[:, :, None, rows])
        ds_BGRTS = _times(do_BGRTE.to(acc), v_BGSE.transpose(2, 3))
        ds_BGRTS = ds_BGRTS.sub_(_grouped(delta_BTH[:, rows, :, None], G)).mul_(p_BGRTS).to(q_BTHD.dtype)
        dq_BGRTD = _times(ds_BGRTS, k_BGSD) * scale
        dq_BTHD[:, rows] = dq_BGRTD.permute(0, 3, 1, 2, 4).reshape(B, -1, H, D)
        dk_BGSD += ds_BGRTS.flatten(2, 3).transpose(2, 3) @ (q_BGRTD * scale).flatten(2, 3)
        dv_BGSE += p_BGRTS.to(q_BTHD.dtype).flatten(2, 3).transpose(2, 3) @ do_BGRTE.flatten(2, 3)
    return (
        dq_BTHD,
        dk_BGSD.transpose(1, 2).to(k_BSGD.dtype).contiguous(),
        dv_BGSE.transpose(1, 2).to(v_BSGE.dtype).contiguous(),
    )


def _scores(q_BTHD: Tensor, k_BGSD: Tensor, visible_BGTS: Tensor, scale: float) -> Tensor:
    q_BGRTD = _grouped(q_BTHD, k_BGSD.shape[1]).to(k_BGSD.dtype)
    s_BGRTS = _times(q_BGRTD, k_BGSD.transpose(2, 3)).mul_(scale)
    return s_BGRTS.masked_fill_(~visible_BGTS[:, :, None], -torch.inf)


def softmax_or_zero(s: Tensor, visible: Tensor) -> Tensor:
    """Softmax over the last axis; all zero for a query that sees nothing (the softmax of nothing is NaN)."""
    return s.softmax(-1).masked_fill_(~visible.any(-1, keepdim=True), 0.0)


def log_sum_exp(s: Tensor, p: Tensor) -> Tensor:
    """The softmax's normaliser, from its largest entry: p = exp(s - lse), so lse = max s - log(max p)."""
    if s.shape[-1] == 0:
        return s.new_full(s.shape[:-1], -torch.inf)
    top = s.amax(-1)
    return torch.where(top == -torch.inf, top, top - p.amax(-1).log())


def _grouped(x_BTHD: Tensor, n_groups: int) -> Tensor:
    """[B, T, H, D] to [B, G, R, T, D]: query heads beside the key/value head they share."""
    return x_BTHD.unflatten(2, (n_groups, -1)).permute(0, 2, 3, 1, 4)


def _times(a_BGRTX: Tensor, b_BGXY: Tensor) -> Tensor:
    """Matrix product that reads ``b`` once for all R heads of a group."""
    B, G, R, T, X = a_BGRTX.shape
    return (a_BGRTX.reshape(B, G, R * T, X) @ b_BGXY).view(B, G, R, T, b_BGXY.shape[3])


def _chunks(scores_per_row: int, n_rows: int) -> Iterator[slice]:
    step = max(1, SCORES_AT_ONCE // max(1, scores_per_row))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


@masked_attention.register_fake
def _(q_BTHD: Tensor, k_BSGD: Tensor, v_BSGE: Tensor, visible_BGTS: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    B, T, H, _ = q_BTHD.shape
    lse_BTH = q_BTHD.new_empty(B, T, H, dtype=accumulation_dtype(q_BTHD.dtype))
    return q_BTHD.new_empty(B, T, H, v_BSGE.shape[3]), lse_BTH


@masked_attention_backward.register_fake
def _(
    do_BTHE: Tensor,
    dlse_BTH: Tensor,
    q_BTHD: Tensor,
    k_BSGD: Tensor,
    v_BSGE: Tensor,
    visible_BGTS: Tensor,
    o_BTHE: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    return q_BTHD.new_empty(q_BTHD.shape), k_BSGD.new_empty(k_BSGD.shape), v_BSGE.new_empty(v_BSGE.shape)


def _save(
    ctx: FunctionCtx, inputs: tuple[Tensor, Tensor, Tensor, Tensor, float], output: tuple[Tensor, Tensor]
) -> None:
    ctx.save_for_backward(*inputs[:4], output[0])
    ctx.scale = inputs[4]  # pyrefly: ignore[missing-attribute] - the context takes any attribute


def _backward(ctx: FunctionCtx, do_BTHE: Tensor, dlse_BTH: Tensor) -> tuple[Tensor | None, ...]:
    q_BTHD, k_BSGD, v_BSGE, visible_BGTS, o_BTHE = ctx.saved_tensors  # pyrefly: ignore[missing-attribute]
    grads = masked_attention_backward(
        do_BTHE,
        dlse_BTH,
        q_BTHD,
        k_BSGD,
        v_BSGE,
        visible_BGTS,
        o_BTHE,
        ctx.scale,  # pyrefly: ignore[missing-attribute]
    )
    return *grads, None, None


masked_attention.register_autograd(_backward, setup_context=_save)
