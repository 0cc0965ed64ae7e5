"""Native Sparse Attention: three branches, each with its own keys and values, added by gates (Eq. 5).

Shape letters: B batch, T tokens, X model width, H query heads, G key/value heads, D and E head widths,
C compression blocks, N selected slots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from nsa.attention.compress import block_positions, blocks_of, make_phi
from nsa.attention.gate import BRANCHES, Gate
from nsa.attention.rope import rotate
from nsa.kernels.documents import token_documents

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nsa.config import ModelConfig
    from nsa.kernels.registry import Resolution


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """Queries, and keys and values per branch, after projection; queries and cmp-free keys are rotated."""

    q_BTHD: Tensor
    k: Mapping[str, Tensor]
    v: Mapping[str, Tensor]


class NsaAttention(nn.Module):
    """The attention of arXiv 2502.11089, section 3.

    Parameters: q_proj, k_proj, v_proj, o_proj, gate.{fc1, fc2}, phi_k.{pe, fc1, fc2}, phi_v.{pe, fc1, fc2}.
    ``k_proj`` and ``v_proj`` stack the independent projections of the branches (cmp, slc, win, each
    [G * D, X]) in one matrix; with ``share_kv`` there is one for all. With ``branches`` other than "all" only
    what that branch needs is built: "slc" keeps cmp keys, mean-pooled, to rank blocks; no gate is applied.
    """

    def __init__(self, config: ModelConfig, kernels: Mapping[str, Resolution]) -> None:
        super().__init__()
        self.config, self.layout = config, config.layout
        self.kernels = {op: resolution.call for op, resolution in kernels.items()}
        only = config.branches
        self.k_branches = {"all": BRANCHES, "slc": ("cmp", "slc")}.get(only, (only,))
        self.v_branches = BRANCHES if only == "all" else (only,)
        H, G = config.n_heads, config.n_kv_groups
        n_k, n_v = (1, 1) if config.share_kv else (len(self.k_branches), len(self.v_branches))
        self.q_proj = nn.Linear(config.dim, H * config.d_k, bias=False)
        self.k_proj = nn.Linear(config.dim, n_k * G * config.d_k, bias=False)
        self.v_proj = nn.Linear(config.dim, n_v * G * config.d_v, bias=False)
        self.o_proj = nn.Linear(H * config.d_v, config.dim, bias=False)
        if only == "all":
            self.gate = Gate(dim=config.dim, n_heads=H, kind=config.gate, has_grad=config.gate_grad)
        if only in ("all", "cmp"):
            self.phi_k = make_phi(config.phi, l=config.l, width=config.d_k)
            self.phi_v = make_phi(config.phi, l=config.l, width=config.d_v)
        elif only == "slc":
            self.phi_k = make_phi("mean", l=config.l, width=config.d_k)

    def forward(self, x_BTX: Tensor, *, cu_seqlens: Tensor | None = None) -> Tensor:
        """Attend causally; with ``cu_seqlens`` (B = 1) within each packed document."""
        heads = self.project(x_BTX, cu_seqlens)
        if self.config.branches != "all":
            return self.o_proj(self._branch(self.config.branches, heads, cu_seqlens).flatten(2))
        cmp_BTHE, slc_BTHE, win_BTHE = self._all_branches(heads, cu_seqlens)
        o_BTHE = self.kernels["combine"](cmp_BTHE, slc_BTHE, win_BTHE, self.gate(x_BTX))
        return self.o_proj(o_BTHE.flatten(2))

    def project(self, x_BTX: Tensor, cu_seqlens: Tensor | None = None) -> Heads:
        """Queries, and keys and values per branch; slc and win keys rotated, cmp keys raw for phi."""
        position_T = self._positions(x_BTX, cu_seqlens)
        q_BTHD = self.rotated(self.q_proj(x_BTX).unflatten(-1, (self.config.n_heads, -1)), position_T)
        k = self._split(self.k_proj(x_BTX), self.k_branches)
        v = self._split(self.v_proj(x_BTX), self.v_branches)
        k = {branch: t if branch == "cmp" else self.rotated(t, position_T) for branch, t in k.items()}
        return Heads(q_BTHD=q_BTHD, k=k, v=v)

    def rotated(self, x_BTHD: Tensor, position_T: Tensor) -> Tensor:
        """Rotary embedding with this model's base and scale."""
        return rotate(x_BTHD, position_T, base=self.config.rope_base, scale=self.config.rope_scale)

    def compressed_keys(self, k_BSGD: Tensor, cu_seqlens: Tensor | None = None) -> Tensor:
        """Phi over raw keys, then rotated to the block's position: pooling rotated keys would blur them."""
        kc_BCGD = self.phi_k(blocks_of(k_BSGD, self.layout, cu_seqlens))
        position_C = block_positions(kc_BCGD.shape[1], self.layout, k_BSGD, cu_seqlens, k_BSGD.shape[1])
        return self.rotated(kc_BCGD, position_C)

    def compressed_values(self, v_BSGE: Tensor, cu_seqlens: Tensor | None = None) -> Tensor:
        """Phi over values; values carry no position."""
        return self.phi_v(blocks_of(v_BSGE, self.layout, cu_seqlens))

    def _all_branches(self, heads: Heads, cu_seqlens: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        kc_BCGD = self.compressed_keys(heads.k["cmp"], cu_seqlens)
        vc_BCGE = self.compressed_values(heads.v["cmp"], cu_seqlens)
        cmp_BTHE, lse_BTH = self.kernels["compressed"](
            heads.q_BTHD, kc_BCGD, vc_BCGE, self.layout, cu_seqlens=cu_seqlens
        )
        slc_BTHE = self._selected(heads, kc_BCGD, lse_BTH, cu_seqlens)
        return cmp_BTHE, slc_BTHE, self._window(heads, cu_seqlens)

    def _branch(self, branch: str, heads: Heads, cu_seqlens: Tensor | None) -> Tensor:
        if branch == "win":
            return self._window(heads, cu_seqlens)
        kc_BCGD = self.compressed_keys(heads.k["cmp"], cu_seqlens)
        # Alone, slc needs only the lse of the compressed scores: the keys stand in for values.
        vc_BCGE = self.compressed_values(heads.v["cmp"], cu_seqlens) if branch == "cmp" else kc_BCGD
        cmp_BTHE, lse_BTH = self.kernels["compressed"](
            heads.q_BTHD, kc_BCGD, vc_BCGE, self.layout, cu_seqlens=cu_seqlens
        )
        return cmp_BTHE if branch == "cmp" else self._selected(heads, kc_BCGD, lse_BTH, cu_seqlens)

    def _selected(self, heads: Heads, kc_BCGD: Tensor, lse_BTH: Tensor, cu_seqlens: Tensor | None) -> Tensor:
        index_BTGN = self.kernels["scores"](heads.q_BTHD, kc_BCGD, lse_BTH, self.layout, cu_seqlens=cu_seqlens)
        return self.kernels["selected"](
            heads.q_BTHD, heads.k["slc"], heads.v["slc"], index_BTGN, l_slc=self.layout.l_slc, cu_seqlens=cu_seqlens
        )[0]

    def _window(self, heads: Heads, cu_seqlens: Tensor | None) -> Tensor:
        return self.kernels["window"](
            heads.q_BTHD, heads.k["win"], heads.v["win"], w=self.layout.w, cu_seqlens=cu_seqlens
        )

    def _positions(self, x_BTX: Tensor, cu_seqlens: Tensor | None) -> Tensor:
        if cu_seqlens is None:
            return torch.arange(x_BTX.shape[1], device=x_BTX.device)
        return token_documents(cu_seqlens, x_BTX.shape[1]).position_S

    def _split(self, x_BTY: Tensor, branches: tuple[str, ...]) -> dict[str, Tensor]:
        G = self.config.n_kv_groups
        if self.config.share_kv:
            return dict.fromkeys(branches, x_BTY.unflatten(-1, (G, -1)))
        parts = x_BTY.unflatten(-1, (len(branches), G, -1)).unbind(2)
        return dict(zip(branches, parts, strict=True))
