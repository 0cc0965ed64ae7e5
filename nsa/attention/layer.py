"""Native Sparse Attention: three branches, each with its own keys and values, added by gates (Eq. 5).

Shape letters: B batch, T tokens, X model width, H query heads, G key/value heads, D and E head widths,
C compression blocks, N selected slots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from nsa.attention.cache import Keys
from nsa.attention.compress import block_numbers, blocks_of, make_phi
from nsa.attention.gate import BRANCHES, Gate
from nsa.attention.rope import rotate
from nsa.kernels.documents import token_documents

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nsa.attention.cache import LayerCache
    from nsa.config import ModelConfig
    from nsa.kernels.registry import Resolution


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """Queries, and keys and values per branch; queries and slc and win keys are rotated."""

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

    def forward(self, x_BTX: Tensor, *, cu_seqlens: Tensor | None = None, cache: LayerCache | None = None) -> Tensor:
        """Attend causally.

        Args:
            x_BTX: one row per token; with a cache the tokens that follow those it holds.
            cu_seqlens: document boundaries of a packed row (then B is 1); attention stays within documents.
            cache: keys and values of earlier tokens; it takes in the new ones. Not with ``cu_seqlens``.
        """
        heads = self.project(x_BTX, cu_seqlens, cache)
        keys = self._keys(heads, cu_seqlens) if cache is None else self._cached_keys(heads, cache)
        where: dict[str, Any] = {"cu_seqlens": cu_seqlens, "offset": 0 if cache is None else cache.n_tokens}
        outputs = self._branches(heads.q_BTHD, keys, where)
        if cache is not None:
            cache.advance(x_BTX.shape[1])
        if self.config.branches != "all":
            return self.o_proj(outputs[self.config.branches].flatten(2))
        o_BTHE = self.kernels["combine"](outputs["cmp"], outputs["slc"], outputs["win"], self.gate(x_BTX))
        return self.o_proj(o_BTHE.flatten(2))

    def project(self, x_BTX: Tensor, cu_seqlens: Tensor | None = None, cache: LayerCache | None = None) -> Heads:
        """Queries, and keys and values per branch; slc and win keys rotated, cmp keys raw for phi."""
        if cache is not None:
            cache.room_for(x_BTX.shape[1])
        position_T = self._positions(x_BTX, cu_seqlens, 0 if cache is None else cache.n_tokens)
        q_BTHD = self.q_proj(x_BTX).unflatten(-1, (self.config.n_heads, -1))
        k = self._split(self.k_proj(x_BTX), self.k_branches)
        v = self._split(self.v_proj(x_BTX), self.v_branches)
        turned = [branch for branch in k if branch != "cmp"]
        together = self.rotated(torch.cat([q_BTHD, *(k[branch] for branch in turned)], 2), position_T)
        q_BTHD, *rest = together.split([t.shape[2] for t in (q_BTHD, *(k[branch] for branch in turned))], 2)
        k |= dict(zip(turned, rest, strict=True))
        return Heads(q_BTHD=q_BTHD, k=k, v=v)

    def rotated(self, x_BTHD: Tensor, position_T: Tensor) -> Tensor:
        """Rotary embedding with this model's base and scale."""
        return rotate(x_BTHD, position_T, base=self.config.rope_base, scale=self.config.rope_scale)

    def compressed_keys(self, k_BSGD: Tensor, *, cu_seqlens: Tensor | None = None, first_block: int = 0) -> Tensor:
        """Phi over raw keys, then rotated to the block's position: pooling rotated keys would blur them."""
        kc_BCGD = self.phi_k(blocks_of(k_BSGD, self.layout, cu_seqlens))
        number_C = block_numbers(kc_BCGD.shape[1], self.layout, k_BSGD, cu_seqlens) + first_block
        return self.rotated(kc_BCGD, number_C * self.layout.d + self.layout.l - 1)

    def compressed_values(self, v_BSGE: Tensor, *, cu_seqlens: Tensor | None = None, first_block: int = 0) -> Tensor:
        """Phi over values; values carry no position, whatever ``first_block`` is."""
        return self.phi_v(blocks_of(v_BSGE, self.layout, cu_seqlens))

    def _keys(self, heads: Heads, cu_seqlens: Tensor | None) -> Keys:
        """What a whole sequence attends to."""
        has_k, has_v = "cmp" in heads.k, "cmp" in heads.v
        return Keys(
            kc_BCGD=self.compressed_keys(heads.k["cmp"], cu_seqlens=cu_seqlens) if has_k else None,
            vc_BCGE=self.compressed_values(heads.v["cmp"], cu_seqlens=cu_seqlens) if has_v else None,
            k_slc=heads.k.get("slc"),
            v_slc=heads.v.get("slc"),
            k_win=heads.k.get("win"),
            v_win=heads.v.get("win"),
        )

    def _cached_keys(self, heads: Heads, cache: LayerCache) -> Keys:
        """What new tokens attend to: the cache with their own keys and values added."""
        found: dict[str, Any] = {}
        if "cmp" in heads.k:
            found["kc_BCGD"] = cache.extend_compressed("kc", heads.k["cmp"], self.compressed_keys)
        if "cmp" in heads.v:
            found["vc_BCGE"] = cache.extend_compressed("vc", heads.v["cmp"], self.compressed_values)
        if "slc" in heads.v:
            found["k_slc"] = cache.extend_whole("k_slc", heads.k["slc"])
            found["v_slc"] = cache.extend_whole("v_slc", heads.v["slc"])
        if "win" in heads.v:
            found["k_win"], found["win_first"] = cache.extend_window("k_win", heads.k["win"])
            found["v_win"], _ = cache.extend_window("v_win", heads.v["win"])
        return Keys(**found)

    def _branches(self, q_BTHD: Tensor, keys: Keys, where: dict[str, Any]) -> dict[str, Tensor]:
        """Each branch's output [B, T, H, E]; only the branches that were built."""
        outputs: dict[str, Tensor] = {}
        if keys.kc_BCGD is not None:
            # Without the cmp branch only the lse of its scores is needed, to rank blocks: keys stand in for values.
            vc_BCGE = keys.kc_BCGD if keys.vc_BCGE is None else keys.vc_BCGE
            outputs["cmp"], lse_BTH = self.kernels["compressed"](q_BTHD, keys.kc_BCGD, vc_BCGE, self.layout, **where)
            if keys.k_slc is not None:
                index_BTGN = self.kernels["scores"](q_BTHD, keys.kc_BCGD, lse_BTH, self.layout, **where)
                outputs["slc"], _ = self.kernels["selected"](
                    q_BTHD, keys.k_slc, keys.v_slc, index_BTGN, l_slc=self.layout.l_slc, **where
                )
        if keys.k_win is not None:
            outputs["win"] = self.kernels["window"](
                q_BTHD, keys.k_win, keys.v_win, w=self.layout.w, k_offset=keys.win_first, **where
            )
        return outputs

    def _positions(self, x_BTX: Tensor, cu_seqlens: Tensor | None, first: int) -> Tensor:
        if cu_seqlens is None:
            return torch.arange(first, first + x_BTX.shape[1], device=x_BTX.device)
        return token_documents(cu_seqlens, x_BTX.shape[1]).position_S

    def _split(self, x_BTY: Tensor, branches: tuple[str, ...]) -> dict[str, Tensor]:
        G = self.config.n_kv_groups
        if self.config.share_kv:
            return dict.fromkeys(branches, x_BTY.unflatten(-1, (G, -1)))
        parts = x_BTY.unflatten(-1, (len(branches), G, -1)).unbind(2)
        return dict(zip(branches, parts, strict=True))
