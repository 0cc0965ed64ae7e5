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
from nsa.attention.compress import MlpPhi, make_phi
from nsa.attention.documents import boundaries, by_length
from nsa.attention.gate import BRANCHES, Gate
from nsa.attention.rope import Angles, Turns, angles, rotate, rotate_both, turns
from nsa.config import check_fit
from nsa.errors import InputError
from nsa.kernels.combine import fused
from nsa.kernels.on_call import KernelOnCall

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nsa.attention.cache import LayerCache
    from nsa.blocks import BlockLayout
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
        check_fit(config)
        super().__init__()
        self.config, self.layout = config, config.layout
        self.kernels: dict[str, Any] = {op: KernelOnCall(resolution) for op, resolution in kernels.items()}
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

    def forward(
        self,
        x_BTX: Tensor,
        *,
        cu_seqlens: Tensor | Sequence[int] | None = None,
        cache: LayerCache | None = None,
        turn: Turns | None = None,
    ) -> Tensor:
        """Attend causally.

        Args:
            x_BTX: one row per token; with a cache the tokens that follow those it holds.
            cu_seqlens: document boundaries of a packed row (then B is 1); attention stays within documents. As numbers
                that the host knows, each document costs what a row costs; as a tensor, a mask hides the others.
            cache: keys and values of earlier tokens; it takes in the new ones. Not with ``cu_seqlens``.
            turn: ``nsa.attention.rope.turns`` of these tokens, where a model computes it once for all layers; it has
                checked ``cu_seqlens``, too.

        Returns:
            y_BTX.

        Raises:
            InputError: rows of another width, boundaries that do not divide the row, or boundaries with a cache.
            CacheError: the tokens do not fit the cache, or it is of another batch; an exception leaves it as it was.
        """
        lengths = None
        if turn is None:
            cu_seqlens, lengths = self._checked(x_BTX, cu_seqlens, cache)
        assert cu_seqlens is None or isinstance(cu_seqlens, Tensor), "whoever hands in ``turn`` has a tensor"
        if cache is not None:
            cache.begin(x_BTX)
        if turn is None:
            first = 0 if cache is None else cache.n_tokens
            turn = turns(self.config, x_BTX, first=first, cu_seqlens=cu_seqlens, lengths=lengths)
        if turn.lengths is None:
            return self.attended(x_BTX, turn, cu_seqlens, cache)

        def attend(x: Tensor) -> Tensor:
            return self.attended(x, turn.of_row(x.shape[1], self.layout), None, None)

        return by_length(turn.lengths, {"x": (x_BTX, turn.lengths)}, attend)

    def attended(self, x_BTX: Tensor, turn: Turns, cu_seqlens: Tensor | None, cache: LayerCache | None) -> Tensor:
        """What ``forward`` gives, of input that was checked."""
        heads = self.project(x_BTX, turn)
        keys = self._keys(heads, turn, cu_seqlens) if cache is None else self._cached_keys(heads, cache)
        where: dict[str, Any] = {"cu_seqlens": cu_seqlens, "offset": 0 if cache is None else cache.n_tokens}
        if self.config.branches == "all":
            o_BTHE = gated_output(self.kernels, self.layout, heads.q_BTHD, keys, self.gate(x_BTX), where)
        else:
            o_BTHE = branch_outputs(self.kernels, self.layout, heads.q_BTHD, keys, where)[self.config.branches]
        y_BTX = self.o_proj(o_BTHE.flatten(2))
        if cache is not None:
            cache.advance(x_BTX.shape[1])
        return y_BTX

    def reset_parameters(self) -> None:
        """Draw every weight anew, as the constructor did; after ``to_empty`` of a layer built on the meta device."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                module.reset_parameters()
        for module in self.modules():
            if isinstance(module, MlpPhi | Gate):
                module.reset_parameters()

    def _checked(
        self, x_BTX: Tensor, cu_seqlens: Tensor | Sequence[int] | None, cache: LayerCache | None
    ) -> tuple[Tensor | None, tuple[int, ...] | None]:
        """The boundaries on the rows' device, and the documents' lengths where the host knows them."""
        if x_BTX.ndim != 3 or x_BTX.shape[2] != self.config.dim:
            raise InputError(f"x has shape {tuple(x_BTX.shape)}; this layer takes [batch, tokens, {self.config.dim}]")
        if cu_seqlens is None:
            return None, None
        if cache is not None:
            raise InputError("a cache continues whole rows: hand in either cu_seqlens or cache")
        return boundaries(cu_seqlens, n_rows=x_BTX.shape[0], n_tokens=x_BTX.shape[1], device=x_BTX.device)

    def project(self, x_BTX: Tensor, turn: Turns) -> Heads:
        """Queries, and keys and values per branch; slc and win keys rotated, cmp keys raw for phi."""
        q_BTHD = self.q_proj(x_BTX).unflatten(-1, (self.config.n_heads, -1))
        k_BTKD = self.k_proj(x_BTX).unflatten(-1, (-1, self.config.d_k))
        q_BTHD, k = self._turned(q_BTHD, k_BTKD, turn)
        return Heads(q_BTHD=q_BTHD, k=k, v=self._values_of(x_BTX))

    def compressed_keys(self, k_BSGD: Tensor, by: Angles, *, cu_seqlens: Tensor | None = None) -> Tensor:
        """Phi over raw keys, then rotated to the block's last token: pooling rotated keys would blur them."""
        return rotate(self.phi_k(k_BSGD, self.layout, cu_seqlens), by)

    def compressed_values(self, v_BSGE: Tensor, *, cu_seqlens: Tensor | None = None) -> Tensor:
        """Phi over values, which carry no position."""
        return self.phi_v(v_BSGE, self.layout, cu_seqlens)

    def _keys(self, heads: Heads, turn: Turns, cu_seqlens: Tensor | None) -> Keys:
        """What a whole sequence attends to."""
        has_k, has_v = "cmp" in heads.k, "cmp" in heads.v
        return Keys(
            kc_BCGD=self.compressed_keys(heads.k["cmp"], turn.blocks, cu_seqlens=cu_seqlens) if has_k else None,
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
            found["kc_BCGD"] = cache.extend_compressed("kc", heads.k["cmp"], self._compressed_keys_from)
        if "cmp" in heads.v:
            found["vc_BCGE"] = cache.extend_compressed(
                "vc", heads.v["cmp"], lambda v_BSGE, *, first_block: self.compressed_values(v_BSGE)
            )
        if "slc" in heads.v:
            found["k_slc"] = cache.extend_whole("k_slc", heads.k["slc"])
            found["v_slc"] = cache.extend_whole("v_slc", heads.v["slc"])
        if "win" in heads.v:
            found["k_win"], found["win_first"] = cache.extend_window("k_win", heads.k["win"])
            found["v_win"], _ = cache.extend_window("v_win", heads.v["win"])
        return Keys(**found)

    def _compressed_keys_from(self, k_BSGD: Tensor, *, first_block: int) -> Tensor:
        """Compressed keys of raw keys that begin with block number ``first_block``."""
        layout, config = self.layout, self.config
        number_C = torch.arange(first_block, first_block + layout.n_cmp(k_BSGD.shape[1]), device=k_BSGD.device)
        by = angles(
            number_C * layout.d + layout.l - 1,
            config.d_k,
            base=config.rope_base,
            scale=config.rope_scale,
            like=k_BSGD,
        )
        return self.compressed_keys(k_BSGD, by)

    def _turned(self, q_BTHD: Tensor, k_BTKD: Tensor, turn: Turns) -> tuple[Tensor, dict[str, Tensor]]:
        """Queries, and keys of every branch, those of slc and win turned; a shared key is turned once."""
        branches, is_shared = self.k_branches, self.config.share_kv
        n_plain = 0 if is_shared else self.config.n_kv_groups * branches.count("cmp")
        q_BTHD, turned_BTKD = rotate_both(q_BTHD, k_BTKD, turn.tokens, n_plain=n_plain)
        if is_shared:
            return q_BTHD, {branch: k_BTKD if branch == "cmp" else turned_BTKD for branch in branches}
        return q_BTHD, dict(zip(branches, turned_BTKD.split(self.config.n_kv_groups, 2), strict=True))

    def _values_of(self, x_BTX: Tensor) -> dict[str, Tensor]:
        """Values of every branch."""
        v_BTVE = self.v_proj(x_BTX).unflatten(-1, (-1, self.config.d_v))
        n_branches = len(self.v_branches)
        parts = (v_BTVE,) * n_branches if self.config.share_kv else v_BTVE.split(self.config.n_kv_groups, 2)
        return dict(zip(self.v_branches, parts, strict=True))


def gated_output(
    kernels: Mapping[str, KernelOnCall],
    layout: BlockLayout,
    q_BTHD: Tensor,
    keys: Keys,
    gate_BTHC: Tensor,
    where: Mapping[str, Any],
) -> Tensor:
    """The three branches added by their gates (Eq. 5): by one operator where one serves them, else one by one.

    Args:
        kernels: the operators, or what stands in for them; where that has a ``name_for``, as they have, its ``note``
            gets the blocks that were chosen, if it has one, instead of a call.
        layout: block geometry.
        q_BTHD: queries.
        keys: what they attend to, in every branch.
        gate_BTHC: the gates, in the order cmp, slc, win.
        where: as ``branch_outputs`` takes it.
    """
    scale = where.get("scale")
    is_whole = where["offset"] == 0 and where["cu_seqlens"] is None and q_BTHD.numel() > 0
    if is_whole and keys.win_first == 0 and (scale is None or scale > 0):
        # A function that somebody put in a kernel's place has no backend's name, and is called.
        names = {op: k.name_for(q_BTHD) for op, k in kernels.items() if hasattr(k, "name_for")}
        if fused.serves(names):
            given: Any = (keys.kc_BCGD, keys.vc_BCGE, keys.k_slc, keys.v_slc, keys.k_win, keys.v_win)
            o_BTHE, index_BTGN = fused.attend(q_BTHD, given, gate_BTHC, layout, names, scale=scale)
            note = getattr(kernels["scores"], "note", None)
            if note is not None:  # somebody watches what it would have given
                note(index_BTGN)
            return o_BTHE
    outputs = branch_outputs(kernels, layout, q_BTHD, keys, where)
    return kernels["combine"](outputs["cmp"], outputs["slc"], outputs["win"], gate_BTHC)


def branch_outputs(
    kernels: Mapping[str, Any],
    layout: BlockLayout,
    q_BTHD: Tensor,
    keys: Keys,
    where: Mapping[str, Any],
) -> dict[str, Tensor]:
    """Each branch's output [B, T, H, E]; only the branches that have keys. Without queries, empty ones.

    Args:
        kernels: the operators' functions, as their contracts say.
        layout: block geometry.
        q_BTHD: queries.
        keys: what they attend to.
        where: ``offset``, ``cu_seqlens`` and perhaps ``scale``, as in the operators' contracts.
    """
    if q_BTHD.numel() == 0:
        return _no_outputs(q_BTHD, keys)
    outputs: dict[str, Tensor] = {}
    if keys.kc_BCGD is not None:
        # Without the cmp branch only the lse of its scores is needed, to rank blocks: keys stand in for values.
        vc_BCGE = keys.kc_BCGD if keys.vc_BCGE is None else keys.vc_BCGE
        outputs["cmp"], lse_BTH = kernels["compressed"](q_BTHD, keys.kc_BCGD, vc_BCGE, layout, **where)
        if keys.k_slc is not None:
            index_BTGN = kernels["scores"](q_BTHD, keys.kc_BCGD, lse_BTH, layout, **where)
            outputs["slc"], _ = kernels["selected"](
                q_BTHD, keys.k_slc, keys.v_slc, index_BTGN, l_slc=layout.l_slc, **where
            )
    if keys.k_win is not None:
        outputs["win"] = kernels["window"](q_BTHD, keys.k_win, keys.v_win, w=layout.w, k_offset=keys.win_first, **where)
    return outputs


def _no_outputs(q_BTHD: Tensor, keys: Keys) -> dict[str, Tensor]:
    """Empty outputs of a batch without queries; every input keeps its place in the graph."""
    pairs = {
        "cmp": (keys.kc_BCGD, keys.kc_BCGD if keys.vc_BCGE is None else keys.vc_BCGE),
        "slc": (keys.k_slc, keys.v_slc),
        "win": (keys.k_win, keys.v_win),
    }
    return {
        name: q_BTHD.new_zeros(*q_BTHD.shape[:3], v.shape[3]) + q_BTHD.sum() + k.sum() + v.sum()
        for name, (k, v) in pairs.items()
        if k is not None and v is not None
    }
