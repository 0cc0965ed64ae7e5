"""A decoder with pluggable attention: embedding, blocks, final norm, head.

``decoder = "tiny"`` has the shape of the original reports' TinyLM (fc1-SiLU-fc2); ``"modern"`` has SwiGLU.
Parameter order is part of the interface: block by block norm1, attn, norm2, mlp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nsa.attention.cache import CacheError, DecoderCache
from nsa.attention.compress import MlpPhi
from nsa.attention.documents import boundaries
from nsa.attention.gate import Gate
from nsa.attention.layer import NsaAttention
from nsa.attention.rope import turns
from nsa.attention.sequential import SequentialAttention
from nsa.errors import InputError
from nsa.kernels.norm.op import add_norm, norm
from nsa.model.dense import DenseAttention

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nsa.attention.cache import LayerCache
    from nsa.attention.rope import Turns
    from nsa.config import ModelConfig
    from nsa.kernels.registry import Resolution

STARTS_AT_ZERO = ("gate.fc2", "phi_k.fc2", "phi_v.fc2")
"""Layers whose weight is zero before the first step; ``nsa.attention`` says why."""


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


class Norm(nn.RMSNorm):
    """RMSNorm of rows, or of the sum of two: then what it gives is the sum and its norm."""

    def forward(self, x: Tensor, more: Tensor | None = None) -> Any:
        """The norm; with ``more`` x + more, which is the residual stream from here on, and its norm."""
        assert self.eps is not None, "every norm of a decoder is built with one"
        if more is None:
            return norm(x, self.weight, self.eps)
        return add_norm(x, more, self.weight, self.eps)


class Block(nn.Module):
    """x + attn(norm1 x), then + mlp(norm2 x)."""

    def __init__(self, config: ModelConfig, kernels: Mapping[str, Resolution]) -> None:
        super().__init__()
        self.norm1 = Norm(config.dim, eps=1e-6)
        match config.attention:
            case "nsa":
                self.attn = NsaAttention(config, kernels)
            case "legacy-sequential":
                self.attn = SequentialAttention(config, kernels)
            case _:
                self.attn = DenseAttention(config)
        self.norm2 = Norm(config.dim, eps=1e-6)
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
        attended_BTX = self.attn(self.norm1(x_BTX), cu_seqlens=cu_seqlens, cache=cache, turn=turn)
        x_BTX, normed_BTX = self.norm2(x_BTX, attended_BTX)
        return x_BTX + self.mlp(normed_BTX)


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
        self.norm_f = Norm(config.dim, eps=1e-6)
        self.lm_head = nn.Linear(config.dim, config.vocab, bias=False)
        self.reset_parameters()

    def forward(
        self,
        ids_BT: Tensor,
        *,
        cu_seqlens: Tensor | Sequence[int] | None = None,
        cache: DecoderCache | None = None,
        n_last: int | None = None,
    ) -> Tensor:
        """Logits [B, T, vocab] for the token after each of ``ids_BT``.

        Args:
            ids_BT: token ids; with a cache those that follow what it holds.
            cu_seqlens: document boundaries when documents are packed in one row: N + 1 numbers that the host knows, and
                each document costs what a row costs; or int32 or int64 [N + 1], and a mask hides the others.
            cache: from ``new_cache``; takes in the new tokens, in all layers or, after an exception, in none.
                Not with ``cu_seqlens``.
            n_last: logits of so many last tokens only; of all if None.

        Raises:
            InputError: ids or boundaries of a shape or type that does not fit, or boundaries out of order.
            CacheError: the tokens do not fit the cache, or it is of another model or batch.
        """
        x_BTX = self._through_blocks(ids_BT, cu_seqlens, cache)
        if n_last is not None:
            x_BTX = x_BTX[:, max(0, x_BTX.shape[1] - n_last) :]
        logits_BTV = self.lm_head(self.norm_f(x_BTX))
        if cache is not None:
            cache.end()
        return logits_BTV

    def hidden(self, ids_BT: Tensor, *, cu_seqlens: Tensor | Sequence[int] | None = None) -> Tensor:
        """What the head reads, [B, T, X]; arguments and errors as in ``forward``."""
        return self.norm_f(self._through_blocks(ids_BT, cu_seqlens, None))

    def _through_blocks(
        self, ids_BT: Tensor, cu_seqlens: Tensor | Sequence[int] | None, cache: DecoderCache | None
    ) -> Tensor:
        self._check(ids_BT, cache)
        lengths = None
        if cu_seqlens is not None:
            if cache is not None:
                raise InputError("a cache continues whole rows: hand in either cu_seqlens or cache")
            B, T = ids_BT.shape
            cu_seqlens, lengths = boundaries(cu_seqlens, n_rows=B, n_tokens=T, device=ids_BT.device)
        x_BTX = self.embed(ids_BT)
        layers = None if cache is None else cache.begin()
        first = 0 if layers is None else layers[0].n_tokens
        turn = self.turn
        is_packed = cu_seqlens is not None or lengths is not None
        if turn is None or first or is_packed or len(turn.tokens.cos_T1D) != x_BTX.shape[1]:
            turn = turns(self.config, x_BTX, first=first, cu_seqlens=cu_seqlens, lengths=lengths)
        for i, block in enumerate(self.blocks):
            layer_cache = None if layers is None else layers[i]
            if self.has_checkpointing and torch.is_grad_enabled():
                x_BTX = checkpoint(
                    block, x_BTX, use_reentrant=False, cu_seqlens=cu_seqlens, cache=layer_cache, turn=turn
                )
            else:
                x_BTX = block(x_BTX, cu_seqlens=cu_seqlens, cache=layer_cache, turn=turn)
        return x_BTX

    def _check(self, ids_BT: Tensor, cache: DecoderCache | None) -> None:
        if ids_BT.ndim != 2 or ids_BT.dtype not in (torch.int64, torch.int32):
            raise InputError(
                f"token ids are {ids_BT.dtype} of shape {tuple(ids_BT.shape)}; they need int64 [batch, tokens]"
            )
        if cache is not None and len(cache.layers) != len(self.blocks):
            raise CacheError(
                f"a cache of {len(cache.layers)} layers for {len(self.blocks)} blocks; use this model's new_cache"
            )

    def new_cache(self, max_tokens: int | None = None, *, rollback: int = 0) -> DecoderCache:
        """An empty cache for ``max_tokens`` tokens, of which the last ``rollback`` may be taken back.

        Without ``max_tokens`` its memory grows with the text.
        """
        return DecoderCache(self.config.layout, n_layers=self.config.n_layers, max_tokens=max_tokens, rollback=rollback)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw every weight anew, as the constructor did; after ``to_empty`` of a model built on the meta device.

        Normal weights of variance 1 / fan-in; layers that start at zero start there. Layers that write to the
        residual stream are smaller by sqrt(2 n_layers), so that depth does not change its scale; embedding and head
        start small, so that the first loss is close to ln(vocab).
        """
        if self.config.tied_head:  # also where moving to another device has parted them
            self.lm_head.weight = self.embed.weight
        for module in self.modules():
            if isinstance(module, nn.RMSNorm | MlpPhi | Gate):
                module.reset_parameters()
        for name, module in self.blocks.named_modules():
            if isinstance(module, nn.Linear) and not name.endswith(STARTS_AT_ZERO):
                is_residual = name.endswith(("o_proj", "mlp.fc2"))
                shrink = (2 * self.config.n_layers) ** -0.5 if is_residual else 1.0
                nn.init.normal_(module.weight, std=shrink * module.in_features**-0.5)
        nn.init.normal_(self.embed.weight, std=0.02)
        if not self.config.tied_head:
            nn.init.normal_(self.lm_head.weight, std=0.02)
