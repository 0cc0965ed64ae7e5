"""Continue a text token by token."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from nsa.errors import ConfigError, InputError

if TYPE_CHECKING:
    from torch import Tensor

    from nsa.model.transformer import Decoder


@torch.no_grad()
def generate(
    model: Decoder,
    ids_BT: Tensor,
    n_new: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    prefill_chunk: int | None = None,
    stop: int | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Append ``n_new`` sampled tokens to every row.

    Args:
        model: any decoder; legacy-sequential attention has no cache and reads the whole text for every token.
        ids_BT: the prompt, at least one token.
        n_new: tokens to append.
        temperature: divides the logits; 0 takes the likeliest token.
        top_k: sample among the k likeliest only.
        prefill_chunk: read the prompt in pieces of this many tokens; at once if None.
        stop: token id that ends a row; what follows in it is the same id again, and nothing once all rows have ended.
        generator: source of randomness, on the model's device.

    Returns:
        ids of shape [B, T + n_new], or fewer where all rows have ended.

    Raises:
        ConfigError: a setting that means nothing, such as top_k = 0.
        InputError: a prompt without tokens.
    """
    _check(ids_BT, n_new=n_new, temperature=temperature, top_k=top_k, prefill_chunk=prefill_chunk)
    has_cache = model.config.attention != "legacy-sequential"
    cache = model.new_cache(ids_BT.shape[1] + n_new) if has_cache else None
    unread = ids_BT
    has_ended_B1 = torch.zeros_like(ids_BT[:, :1], dtype=torch.bool)
    for _ in range(n_new):
        if cache is None:
            logits_BV = model(ids_BT, n_last=1)[:, -1]
        else:
            *earlier, last = unread.split(prefill_chunk or unread.shape[1], dim=1)
            for piece in earlier:
                model(piece, cache=cache, n_last=1)
            logits_BV = model(last, cache=cache, n_last=1)[:, -1]
        unread = sample(logits_BV, temperature=temperature, top_k=top_k, generator=generator)
        if stop is not None:
            unread = unread.masked_fill(has_ended_B1, stop)
            has_ended_B1 |= unread == stop
        ids_BT = torch.cat((ids_BT, unread), 1)
        if stop is not None and has_ended_B1.all():
            break
    return ids_BT


def _check(ids_BT: Tensor, *, n_new: int, temperature: float, top_k: int | None, prefill_chunk: int | None) -> None:
    if ids_BT.ndim != 2 or ids_BT.shape[1] == 0:
        raise InputError(f"a prompt of shape {tuple(ids_BT.shape)}; it needs [batch, tokens] with at least one token")
    if n_new < 0:
        raise ConfigError(f"n_new = {n_new} tokens cannot be appended; use 0 or more")
    if not temperature >= 0.0:
        raise ConfigError(f"temperature = {temperature} is below zero or no number; 0 takes the likeliest token")
    if top_k is not None and top_k < 1:
        raise ConfigError(f"top_k = {top_k} leaves no token to choose; use 1 or more")
    if prefill_chunk is not None and prefill_chunk < 1:
        raise ConfigError(f"prefill_chunk = {prefill_chunk} reads nothing; use 1 or more tokens")


def sample(logits_BV: Tensor, *, temperature: float, top_k: int | None, generator: torch.Generator | None) -> Tensor:
    """One token id per row, [B, 1]."""
    if temperature == 0.0:
        return logits_BV.argmax(-1, keepdim=True)
    if top_k is not None:
        worst_B1 = logits_BV.topk(min(top_k, logits_BV.shape[-1])).values[:, -1:]
        logits_BV = logits_BV.masked_fill(logits_BV < worst_B1, -torch.inf)
    return torch.multinomial((logits_BV / temperature).softmax(-1), 1, generator=generator)
