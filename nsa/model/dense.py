"""Full causal attention with the same heads: the control for every claim about sparse attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from nsa.attention.documents import by_length
from nsa.attention.rope import rotate_both, turns
from nsa.kernels.masked import masked_attention
from nsa.kernels.visibility import win_visible

if TYPE_CHECKING:
    from nsa.attention.cache import LayerCache
    from nsa.attention.rope import Turns
    from nsa.config import ModelConfig


class DenseAttention(nn.Module):
    """Grouped-query causal attention; parameters q_proj, k_proj, v_proj, o_proj."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.q_proj = nn.Linear(config.dim, config.n_heads * config.d_k, bias=False)
        self.k_proj = nn.Linear(config.dim, config.n_kv_groups * config.d_k, bias=False)
        self.v_proj = nn.Linear(config.dim, config.n_kv_groups * config.d_v, bias=False)
        self.o_proj = nn.Linear(config.n_heads * config.d_v, config.dim, bias=False)

    def forward(
        self,
        x_BTX: Tensor,
        *,
        cu_seqlens: Tensor | None = None,
        cache: LayerCache | None = None,
        turn: Turns | None = None,
    ) -> Tensor:
        """Attend to everything before, within each document; with a cache, to what it holds as well."""
        if cache is not None:
            cache.begin(x_BTX)
        first = 0 if cache is None else cache.n_tokens
        if turn is None:
            turn = turns(self.config, x_BTX, first=first, cu_seqlens=cu_seqlens)
        if turn.lengths is None:
            return self._attended(x_BTX, turn, cu_seqlens, cache, first)

        def attend(x: Tensor) -> Tensor:
            return self._attended(x, turn.of_row(x.shape[1], self.config.layout), None, None, 0)

        return by_length(turn.lengths, {"x": (x_BTX, turn.lengths)}, attend)

    def _attended(
        self, x_BTX: Tensor, turn: Turns, cu_seqlens: Tensor | None, cache: LayerCache | None, first: int
    ) -> Tensor:
        T, config = x_BTX.shape[1], self.config
        q_BTHD = self.q_proj(x_BTX).unflatten(-1, (config.n_heads, config.d_k))
        k_BSGD = self.k_proj(x_BTX).unflatten(-1, (config.n_kv_groups, config.d_k))
        v_BSGE = self.v_proj(x_BTX).unflatten(-1, (config.n_kv_groups, config.d_v))
        q_BTHD, k_BSGD = rotate_both(q_BTHD, k_BSGD, turn.tokens)
        if cache is not None:
            k_BSGD, v_BSGE = cache.extend_whole("k", k_BSGD), cache.extend_whole("v", v_BSGE)
            cache.advance(T)
        S = k_BSGD.shape[1]
        if S == T and cu_seqlens is None:
            return self.o_proj(_causal(q_BTHD, k_BSGD, v_BSGE).flatten(2))
        visible = win_visible(T, S, S, device=x_BTX.device, offset=first, k_offset=0, cu_seqlens=cu_seqlens)
        o_BTHE, _ = masked_attention(q_BTHD, k_BSGD, v_BSGE, visible, config.d_k**-0.5)
        return self.o_proj(o_BTHE.flatten(2))


def _causal(q_BTHD: Tensor, k_BSGD: Tensor, v_BSGE: Tensor) -> Tensor:
    """Whole rows by the fastest kernel torch has: what sparse attention must be compared with."""
    q, k, v = (x.transpose(1, 2) for x in (q_BTHD, k_BSGD, v_BSGE))
    is_grouped = q_BTHD.shape[2] != k_BSGD.shape[2]
    o_BHTE = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=is_grouped)
    return o_BHTE.transpose(1, 2)
