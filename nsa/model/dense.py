"""Full causal attention with the same heads: the control for every claim about sparse attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from nsa.attention.rope import rotate
from nsa.kernels.documents import token_documents
from nsa.kernels.masked import masked_attention
from nsa.kernels.visibility import win_visible

if TYPE_CHECKING:
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

    def forward(self, x_BTX: Tensor, *, cu_seqlens: Tensor | None = None) -> Tensor:
        """Attend to everything before, within each document."""
        T, config = x_BTX.shape[1], self.config
        if cu_seqlens is None:
            position_T = torch.arange(T, device=x_BTX.device)
        else:
            position_T = token_documents(cu_seqlens, T).position_S
        q_BTHD = self.q_proj(x_BTX).unflatten(-1, (config.n_heads, config.d_k))
        k_BTGD = self.k_proj(x_BTX).unflatten(-1, (config.n_kv_groups, config.d_k))
        v_BTGE = self.v_proj(x_BTX).unflatten(-1, (config.n_kv_groups, config.d_v))
        q_BTHD = rotate(q_BTHD, position_T, base=config.rope_base, scale=config.rope_scale)
        k_BTGD = rotate(k_BTGD, position_T, base=config.rope_base, scale=config.rope_scale)
        visible = win_visible(T, T, T, device=x_BTX.device, offset=0, k_offset=0, cu_seqlens=cu_seqlens)
        o_BTHE, _ = masked_attention(q_BTHD, k_BTGD, v_BTGE, visible, config.d_k**-0.5)
        return self.o_proj(o_BTHE.flatten(2))
