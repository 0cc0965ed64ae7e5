"""Decoding as a server needs it: memory and, on a GPU, one CUDA graph for a batch, used for one text after another.

``Decoder.forward`` with a cache takes any number of tokens and launches every operator of every layer anew; a step of
one token is then hundreds of launches that the GPU waits for. Here the text is read by ``forward`` (``prefill``), and
what its cache holds is moved to pages; from there on a step is one replay. The graph is captured at the first step and
is good as long as the memory is: for every later text, and for weights that change where they are.
A step counts once the host has counted it: whatever ends it before, the same call again gives the same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from nsa.attention.layer import NsaAttention
from nsa.attention.pages import PagedCache
from nsa.errors import InputError
from nsa.kernels.decode.choice import step_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nsa.attention.cache import DecoderCache
    from nsa.kernels.decode.op import DecodeStep, LayerPages, Place
    from nsa.model.transformer import Block, Decoder

WARM_STEPS = 2
"""Steps before a capture: the first compiles kernels, and libraries take their workspaces."""


def refuses(model: Decoder) -> str | None:
    """Why ``Decoding`` cannot continue texts of this model, if it cannot; ``forward`` with a cache can."""
    if model.config.attention != "nsa" or model.config.branches != "all":
        return (
            f"attention {model.config.attention} with branches {model.config.branches} has no decoding step of its own"
        )
    weight = model.embed.weight
    if any(p.dtype != weight.dtype or p.device != weight.device for p in model.parameters()):
        return "its weights are of several types or on several devices"
    if torch.is_autocast_enabled(weight.device.type):
        return "autocast is on, and a step computes in the type of the weights"
    return None


class Decoding:
    """Texts of one batch, continued token by token.

    ``logits = decoding.prefill(prompts)``, then ``logits = decoding.step(ids)`` as often as there is room; ``prefill``
    again begins other texts in the same memory. Without gradients. A row's numbers do not depend on other rows'.
    """

    def __init__(self, model: Decoder, *, n_rows: int, max_tokens: int) -> None:
        """Take memory for ``n_rows`` texts of up to ``max_tokens`` tokens each.

        Args:
            model: with NSA in all three branches, its weights all of one type and on one device, where they stay.
            n_rows: rows of the batch.
            max_tokens: most tokens of a row, its prompt included.

        Raises:
            InputError: a model that has no decoding step of its own; the message says why.
        """
        refusal = refuses(model)
        if refusal is not None:
            raise InputError(
                f"this model cannot be decoded in memory of fixed shape: {refusal}; use forward and a cache"
            )
        weight = model.embed.weight
        self.model = model
        self.cache = PagedCache(
            model.config, n_rows=n_rows, max_tokens=max_tokens, dtype=weight.dtype, device=weight.device
        )
        self.attend = step_for(model.config, dtype=weight.dtype, device=weight.device)
        self._ids_B = torch.zeros(n_rows, dtype=torch.int64, device=weight.device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._logits_BV: Tensor | None = None

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens that every row holds."""
        return self.cache.lengths

    @torch.no_grad()
    def prefill(self, ids_BT: Tensor, *, lengths: Sequence[int] | None = None, chunk: int | None = None) -> Tensor:
        """Begin new texts.

        Args:
            ids_BT: prompts, one per row.
            lengths: tokens of every prompt, at its row's end: what is before is padding; all of them if None.
            chunk: read prompts in pieces of this many tokens; at once if None.

        Returns:
            Logits [B, V] of the token after each prompt.

        Raises:
            InputError: not as many rows as there is memory for, or a prompt without tokens.
            CacheError: a prompt does not fit.
        """
        B, T = ids_BT.shape
        sizes = [T] * B if lengths is None else list(lengths)
        if self.cache.n_rows != B or len(sizes) != B or not all(0 < n <= T for n in sizes):
            raise InputError(
                f"prompts of {sizes[:8]} tokens in {B} rows of {T}; needed are {self.cache.n_rows} rows with at least "
                "one token each"
            )
        logits_BV = None
        for size in dict.fromkeys(sizes):
            rows = [b for b in range(B) if sizes[b] == size]
            last, cache = self._read(ids_BT[rows, T - size :], chunk)
            self.cache.take(cache, rows)
            if logits_BV is None:
                logits_BV = last.new_empty(B, last.shape[1])
            logits_BV[rows] = last
        assert logits_BV is not None
        return logits_BV

    @torch.no_grad()
    def step(self, ids_B: Tensor) -> Tensor:
        """Logits [B, V] of the token after ``ids_B``, one new token for every row; good until the next step.

        Raises:
            CacheError: a row is full.
        """
        self.cache.begin()
        self._ids_B.copy_(ids_B.view(-1), non_blocking=True)
        if self._graph is not None:
            self._graph.replay()
        elif self._ids_B.is_cuda:
            self._capture()
        else:
            self._logits_BV = self._forward()
        assert self._logits_BV is not None
        self.cache.end()
        return self._logits_BV

    def _read(self, ids_BT: Tensor, chunk: int | None) -> tuple[Tensor, DecoderCache]:
        """The logits after a text, and a cache that holds it."""
        cache = self.model.new_cache(ids_BT.shape[1])
        *earlier, last = ids_BT.split(chunk or ids_BT.shape[1], dim=1)
        for piece in earlier:
            self.model(piece, cache=cache, n_last=1)
        return self.model(last, cache=cache, n_last=1)[:, -1], cache

    def _forward(self) -> Tensor:
        logits_BV = decode_token(self.model, self._ids_B, self.cache.layers, self.cache.place, self.attend)
        self.cache.place.position_B.add_(1)
        return logits_BV

    def _capture(self) -> None:
        """Take the step, and keep it as a graph. Each of the steps before writes what the next one writes again."""
        before_B = self.cache.place.position_B.clone()
        stream = torch.cuda.Stream(self._ids_B.device)
        stream.wait_stream(torch.cuda.current_stream(self._ids_B.device))
        with torch.cuda.stream(stream):
            for _ in range(WARM_STEPS):
                self._forward()
                self.cache.place.position_B.copy_(before_B)
        torch.cuda.current_stream(self._ids_B.device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._logits_BV = self._forward()
        graph.replay()
        self._graph = graph


def decode_token(
    model: Decoder, ids_B: Tensor, layers: Sequence[LayerPages], place: Place, attend: DecodeStep
) -> Tensor:
    """Logits [B, V] after one more token in every row; the layers' memory takes it in."""
    x_BX = model.embed(ids_B)
    for block, pages in zip(cast("Sequence[Block]", model.blocks), layers, strict=True):
        attended_BX = attention_of_token(block.attn, block.norm1(x_BX), pages, place, attend)
        x_BX, normed_BX = block.norm2(x_BX, attended_BX)
        x_BX = x_BX + block.mlp(normed_BX)
    return model.lm_head(model.norm_f(x_BX))


def attention_of_token(
    attention: nn.Module, x_BX: Tensor, pages: LayerPages, place: Place, attend: DecodeStep
) -> Tensor:
    """What ``attention`` gives for one more token in every row."""
    assert isinstance(attention, NsaAttention)
    config = attention.config
    q_BHD = attention.q_proj(x_BX).unflatten(-1, (config.n_heads, config.d_k))
    k_BKD = attention.k_proj(x_BX).unflatten(-1, (-1, config.d_k))
    v_BKE = attention.v_proj(x_BX).unflatten(-1, (-1, config.d_v))
    gate_BHC = attention.gate(x_BX[:, None])[:, 0]
    o_BHE = attend(q_BHD, k_BKD, v_BKE, gate_BHC, pages, place, attention.phi_k, attention.phi_v, attention.layout)
    return attention.o_proj(o_BHE.flatten(1))
