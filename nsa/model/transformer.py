"""A decoder with pluggable attention: embedding, blocks, final norm, head.

``decoder = "tiny"`` has the shape of the original reports' TinyLM (fc1-SiLU-fc2); ``"modern"`` has SwiGLU.
Parameter order is part of the interface: block by block norm1, attn, norm2, mlp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nsa.attention.cache import DecoderCache
from nsa.attention.layer import NsaAttention
from nsa.attention.rope import turns
from nsa.attention.sequential import SequentialAttention
from nsa.model.dense import DenseAttention

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nsa.attention.cache import LayerCache
    from nsa.attention.rope import Turns
    from nsa.config import ModelConfig
    from nsa.kernels.registry import Resolution


class TinyMlp(nn.Module):
    """fc2(SiLU(fc1 x)), four times as wide inside."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, 4 * dim, bias=False)
        self.fc2 = nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x_BTX: Tensor) -> Tensor:
        """Row by row."""
        return self.fc2(nn.functional.silu(self.fc1(x_BTX)))


class SwiGlu(nn.Module):
    """fc2(SiLU(gate x) * fc1 x), 8/3 times as wide inside, rounded up to a multiple of 8."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        hidden = -(-8 * dim // 24) * 8
        self.gate = nn.Linear(dim, hidden, bias=False)
        self.fc1 = nn.Linear(dim, hidden, bias=False)
        self.fc2 = nn.Linear(hidden, dim, bias=False)

    def forward(self, x_BTX: Tensor) -> Tensor:
        """Row by row."""
        return self.fc2(nn.functional.silu(self.gate(x_BTX)) * self.fc1(x_BTX))


class Block(nn.Module):
    """x + attn(norm1 x), then + mlp(norm2 x)."""

    def __init__(self, config: ModelConfig, kernels: Mapping[str, Resolution]) -> None:
        super().__init__()
        self.norm1 = nn.RMSNorm(config.dim, eps=1e-6)
        match config.attention:
            case "nsa":
                self.attn = NsaAttention(config, kernels)
            case "legacy-sequential":
                self.attn = SequentialAttention(config, kernels)
            case _:
                self.attn = DenseAttention(config)
        self.norm2 = nn.RMSNorm(config.dim, eps=1e-6)
        self.mlp = TinyMlp(config.dim) if config.decoder == "tiny" else SwiGlu(config.dim)

    def forward(
        self,
        x_BTX: Tensor,
        *,
        cu_seqlens: Tensor | None = None,
        cache: LayerCache | None = None,
        turn: Turns | None = None,
    ) -> Tensor:
        """One decoder block over [B, T, X]; arguments as in ``NsaAttention.forward``."""
        x_BTX = x_BTX + self.attn(self.norm1(x_BTX), cu_seqlens=cu_seqlens, cache=cache, turn=turn)
        return x_BTX + self.mlp(self.norm2(x_BTX))


class Decoder(nn.Module):
    """Token ids in, next-token logits out."""

    def __init__(
        self, config: ModelConfig, kernels: Mapping[str, Resolution], *, has_checkpointing: bool = False
    ) -> None:
        super().__init__()
        self.config, self.has_checkpointing = config, has_checkpointing
        self.turn: Turns | None = None
        """Angles of whole sequences of one length, where somebody keeps them from pass to pass."""
        self.embed = nn.Embedding(config.vocab, config.dim)
        self.blocks = nn.ModuleList(Block(config, kernels) for _ in range(config.n_layers))
        self.norm_f = nn.RMSNorm(config.dim, eps=1e-6)
        self.lm_head = nn.Linear(config.dim, config.vocab, bias=False)
        self._initialise()
        if config.tied_head:
            self.lm_head.weight = self.embed.weight

    def forward(self, ids_BT: Tensor, *, cu_seqlens: Tensor | None = None, cache: DecoderCache | None = None) -> Tensor:
        """Logits [B, T, vocab] for the token after each of ``ids_BT``.

        Args:
            ids_BT: token ids; with a cache those that follow what it holds.
            cu_seqlens: document boundaries when documents are packed in one row.
            cache: from ``new_cache``; takes in the new tokens.
        """
        x_BTX = self.embed(ids_BT)
        first = 0 if cache is None else cache.n_tokens
        turn = self.turn
        if turn is None or first or cu_seqlens is not None or len(turn.tokens.cos_T1D) != x_BTX.shape[1]:
            turn = turns(self.config, x_BTX, first=first, cu_seqlens=cu_seqlens)
        for i, block in enumerate(self.blocks):
            layer_cache = None if cache is None else cache.layers[i]
            if self.has_checkpointing and torch.is_grad_enabled():
                x_BTX = checkpoint(
                    block, x_BTX, use_reentrant=False, cu_seqlens=cu_seqlens, cache=layer_cache, turn=turn
                )
            else:
                x_BTX = block(x_BTX, cu_seqlens=cu_seqlens, cache=layer_cache, turn=turn)
        return self.lm_head(self.norm_f(x_BTX))

    def new_cache(self, max_tokens: int, *, rollback: int = 0) -> DecoderCache:
        """An empty cache for ``max_tokens`` tokens, of which the last ``rollback`` may be taken back."""
        return DecoderCache(self.config.layout, n_layers=self.config.n_layers, max_tokens=max_tokens, rollback=rollback)

    @torch.no_grad()
    def _initialise(self) -> None:
        """Normal weights of variance 1 / fan-in; layers that start at zero stay there.

        Layers that write to the residual stream are smaller by sqrt(2 n_layers), so that depth does not change
        its scale; embedding and head start small, so that the first loss is close to ln(vocab).
        """
        for name, module in self.blocks.named_modules():
            if isinstance(module, nn.Linear) and module.weight.any():
                is_residual = name.endswith(("o_proj", "mlp.fc2"))
                shrink = (2 * self.config.n_layers) ** -0.5 if is_residual else 1.0
                nn.init.normal_(module.weight, std=shrink * module.in_features**-0.5)
        nn.init.normal_(self.embed.weight, std=0.02)
        nn.init.normal_(self.lm_head.weight, std=0.02)
