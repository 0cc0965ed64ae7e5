"""A decoding step in torch operators: for every device and type, and what the kernels are compared with.

It reads the memory of the compressed and window branches whole, with masks; selected blocks alone are gathered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nsa.kernels.quarantine import tainted
from nsa.kernels.scores.torch import block_scores, top_blocks

if TYPE_CHECKING:
    from nsa.attention.compress import MeanPhi, MlpPhi
    from nsa.blocks import BlockLayout
    from nsa.kernels.decode.op import LayerPages, Place


def decode(
    q_BHD: Tensor,
    k_BKD: Tensor,
    v_BKE: Tensor,
    gate_BHC: Tensor,
    pages: LayerPages,
    place: Place,
    phi_k: MeanPhi | MlpPhi,
    phi_v: MeanPhi | MlpPhi,
    layout: BlockLayout,
) -> Tensor:
    """Contract: ``nsa.kernels.decode.op.DecodeStep``."""
    G = pages.k_slc.shape[1]
    position_B = place.position_B.long()
    cos_B1D, sin_B1D = (x[position_B] for x in (place.turn.cos_T1D, place.turn.sin_T1D))
    k_cmp, k_slc, k_win = (k_BKD,) * 3 if k_BKD.shape[1] == G else k_BKD.split(G, 1)
    v_cmp, v_slc, v_win = (v_BKE,) * 3 if v_BKE.shape[1] == G else v_BKE.split(G, 1)
    # A query that is not finite becomes NaN, so that it spoils its whole row.
    q_BHD = _turned(q_BHD, cos_B1D, sin_B1D) + torch.linalg.vector_norm(q_BHD, torch.inf, 2, keepdim=True) * 0.0
    _append(pages, place, position_B, _turned(k_slc, cos_B1D, sin_B1D), v_slc)
    _append_to_rings(pages, position_B, k_cmp, v_cmp, _turned(k_win, cos_B1D, sin_B1D), v_win)
    _append_block(pages, position_B, phi_k, phi_v, layout, (cos_B1D, sin_B1D))
    o_cmp, index_BGN = _compressed(q_BHD, pages, place, position_B, layout)
    o_slc = _selected(q_BHD, pages, place, position_B, index_BGN)
    o_win = _window(q_BHD, pages, position_B, layout.w)
    parts = torch.stack((o_cmp, o_slc, o_win), -1) * gate_BHC.to(o_cmp.dtype)[:, :, None]
    return parts.sum(-1).to(q_BHD.dtype)


def _turned(x_BHD: Tensor, cos_B1D: Tensor, sin_B1D: Tensor) -> Tensor:
    """Every head turned by its row's angle, rounded once."""
    x = x_BHD.to(cos_B1D.dtype)
    return (x * cos_B1D + x.roll(x.shape[2] // 2, 2) * sin_B1D).to(x_BHD.dtype)


def _append(pages: LayerPages, place: Place, position_B: Tensor, k_BGD: Tensor, v_BGE: Tensor) -> None:
    """Keys and values of the slc branch into their pages."""
    size = pages.k_slc.shape[2]
    page_B = place.table_BM.gather(1, (position_B // size)[:, None])[:, 0].long()
    k, v = tainted(k_BGD, v_BGE)
    pages.k_slc[page_B, :, position_B % size] = k
    pages.v_slc[page_B, :, position_B % size] = v


def _append_to_rings(pages: LayerPages, position_B: Tensor, *new: Tensor) -> None:
    """Raw keys and values, and those of the window, into their rings."""
    k_cmp, v_cmp, k_win, v_win = new
    k_win, v_win = tainted(k_win, v_win)
    row_B = torch.arange(len(position_B), device=position_B.device)
    rings = ((pages.k_raw, k_cmp), (pages.v_raw, v_cmp), (pages.k_win, k_win), (pages.v_win, v_win))
    for ring, x in rings:
        ring[row_B, :, position_B % ring.shape[2]] = x


def _append_block(
    pages: LayerPages,
    position_B: Tensor,
    phi_k: MeanPhi | MlpPhi,
    phi_v: MeanPhi | MlpPhi,
    layout: BlockLayout,
    angle: tuple[Tensor, Tensor],
) -> None:
    """The compressed block that ends with a row's new token, where one does; other rows write what was there."""
    first_B = position_B + 1 - layout.l
    is_due_B = (first_B >= 0) & (first_B % layout.d == 0)
    block_B = (first_B.clamp(min=0) // layout.d).clamp(max=pages.kc.shape[2] - 1)
    raw_BS = (first_B[:, None] + torch.arange(layout.l, device=position_B.device)) % pages.k_raw.shape[2]
    row_B = torch.arange(len(position_B), device=position_B.device)
    k_BGD, v_BGE = (
        phi(ring[row_B[:, None], :, raw_BS], layout)[:, 0] for phi, ring in ((phi_k, pages.k_raw), (phi_v, pages.v_raw))
    )
    k_BGD, v_BGE = tainted(_turned(k_BGD, *angle), v_BGE)
    for memory, new in ((pages.kc, k_BGD), (pages.vc, v_BGE)):
        memory[row_B, :, block_B] = new.where(is_due_B[:, None, None], memory[row_B, :, block_B])


def _compressed(
    q_BHD: Tensor, pages: LayerPages, place: Place, position_B: Tensor, layout: BlockLayout
) -> tuple[Tensor, Tensor]:
    """Output [B, H, E] of the compressed branch, and the blocks that its scores choose, [B, G, N]."""
    n_B = torch.where(position_B + 1 >= layout.l, (position_B + 1 - layout.l) // layout.d + 1, 0)
    live_BC = torch.arange(pages.kc.shape[2], device=q_BHD.device) < n_B[:, None]
    o_BHE, p_BGRC = _attended(q_BHD, pages.kc, pages.vc, live_BC[:, None, None])
    score_BGJ = block_scores(p_BGRC.sum(2), place.table_BM.shape[1], layout)
    # The rows of this batch are the tokens of that function's: each has a position of its own.
    return o_BHE, top_blocks(score_BGJ[None], position_B, layout)[0]


def _selected(q_BHD: Tensor, pages: LayerPages, place: Place, position_B: Tensor, index_BGN: Tensor) -> Tensor:
    B, G, _ = index_BGN.shape
    size = pages.k_slc.shape[2]
    block_BGN = index_BGN.long().clamp(min=0)
    page_BGN = place.table_BM[:, None].expand(B, G, -1).gather(2, block_BGN).long()
    head_G1 = torch.arange(G, device=q_BHD.device)[:, None]
    k, v = (memory[page_BGN, head_G1].flatten(2, 3) for memory in (pages.k_slc, pages.v_slc))
    token_BGNL = block_BGN[..., None] * size + torch.arange(size, device=q_BHD.device)
    live_BGNL = (index_BGN >= 0)[..., None] & (token_BGNL <= position_B[:, None, None, None])
    return _attended(q_BHD, k, v, live_BGNL.flatten(2)[:, :, None])[0]


def _window(q_BHD: Tensor, pages: LayerPages, position_B: Tensor, w: int) -> Tensor:
    n_slots = pages.k_win.shape[2]
    age_BW = (position_B[:, None] - torch.arange(n_slots, device=q_BHD.device)) % n_slots
    live_BW = age_BW <= position_B[:, None].clamp(max=w - 1)
    return _attended(q_BHD, pages.k_win, pages.v_win, live_BW[:, None, None])[0]


def _attended(q_BHD: Tensor, k_BGSD: Tensor, v_BGSE: Tensor, live: Tensor) -> tuple[Tensor, Tensor]:
    """Output [B, H, E] and weights [B, G, R, S] over the keys that are ``live``; zeros where none is."""
    real = torch.promote_types(q_BHD.dtype, torch.float32)
    k = k_BGSD.to(real).masked_fill(~live[:, :, 0, :, None], 0.0)
    v = v_BGSE.to(real).masked_fill(~live[:, :, 0, :, None], 0.0)
    q_BGRD = q_BHD.to(real).unflatten(1, (k.shape[1], -1))
    s_BGRS = (q_BGRD @ k.mT * q_BHD.shape[2] ** -0.5).masked_fill(~live, -torch.inf)
    # A row whose query is not finite has no largest score that is a number; NaN comes out of it, as it should.
    largest = s_BGRS.amax(3, keepdim=True).detach()
    p_BGRS = (s_BGRS - largest.masked_fill(largest == -torch.inf, 0.0)).exp()
    total = p_BGRS.sum(3, keepdim=True)
    p_BGRS = p_BGRS / total.masked_fill(total == 0.0, 1.0)
    return (p_BGRS @ v).flatten(1, 2), p_BGRS
