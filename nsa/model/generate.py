"""Continue a text token by token."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from nsa.errors import ConfigError, InputError
from nsa.model.decoding import Decoding, refuses

if TYPE_CHECKING:
    from collections.abc import Callable

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
    next_logits = _reader(model, ids_BT, n_new, prefill_chunk)
    unread = ids_BT
    has_ended_B1 = torch.zeros_like(ids_BT[:, :1], dtype=torch.bool)
    for _ in range(n_new):
        unread = sample(next_logits(unread), temperature=temperature, top_k=top_k, generator=generator)
        if stop is not None:
            unread = unread.masked_fill(has_ended_B1, stop)
            has_ended_B1 |= unread == stop
        ids_BT = torch.cat((ids_BT, unread), 1)
        if stop is not None and has_ended_B1.all():
            break
    return ids_BT


def _reader(model: Decoder, ids_BT: Tensor, n_new: int, prefill_chunk: int | None) -> Callable[[Tensor], Tensor]:
    """A function that reads the prompt, then token after token, and gives the logits [B, V] of the next one."""
    B, T = ids_BT.shape
    if model.config.attention == "legacy-sequential":
        read = [ids_BT[:, :0]]

        def whole(unread_BT: Tensor) -> Tensor:
            read[0] = torch.cat((read[0], unread_BT), 1)
            return model(read[0], n_last=1)[:, -1]

        return whole
    if n_new > 1 and B and refuses(model) is None:
        decoding = Decoding(model, n_rows=B, max_tokens=T + n_new)

        def paged(unread_BT: Tensor) -> Tensor:
            is_prompt = not any(decoding.lengths)
            return decoding.prefill(unread_BT, chunk=prefill_chunk) if is_prompt else decoding.step(unread_BT)

        return paged
    cache = model.new_cache(T + n_new)

    def cached(unread_BT: Tensor) -> Tensor:
        *earlier, last = unread_BT.split(prefill_chunk or unread_BT.shape[1], dim=1)
        for piece in earlier:
            model(piece, cache=cache, n_last=1)
        return model(last, cache=cache, n_last=1)[:, -1]

    return cached


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
