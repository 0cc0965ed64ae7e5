"""Continue a text token by token."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

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
        generator: source of randomness, on the model's device.

    Returns:
        ids of shape [B, T + n_new].
    """
    has_cache = model.config.attention != "legacy-sequential"
    cache = model.new_cache(ids_BT.shape[1] + n_new) if has_cache else None
    unread = ids_BT
    for _ in range(n_new):
        if cache is None:
            logits_BV = model(ids_BT)[:, -1]
        else:
            *earlier, last = unread.split(prefill_chunk or unread.shape[1], dim=1)
            for piece in earlier:
                model(piece, cache=cache)
            logits_BV = model(last, cache=cache)[:, -1]
        unread = sample(logits_BV, temperature=temperature, top_k=top_k, generator=generator)
        ids_BT = torch.cat((ids_BT, unread), 1)
    return ids_BT


def sample(logits_BV: Tensor, *, temperature: float, top_k: int | None, generator: torch.Generator | None) -> Tensor:
    """One token id per row, [B, 1]."""
    if temperature == 0.0:
        return logits_BV.argmax(-1, keepdim=True)
    if top_k is not None:
        worst_B1 = logits_BV.topk(min(top_k, logits_BV.shape[-1])).values[:, -1:]
        logits_BV = logits_BV.masked_fill(logits_BV < worst_B1, -torch.inf)
    return torch.multinomial((logits_BV / temperature).softmax(-1), 1, generator=generator)
