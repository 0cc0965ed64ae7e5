"""Dense-mask attention in fp64 and random causal block lists, written without the code under test."""

from __future__ import annotations

import math

import torch


def document_starts(T, cu):
    if cu is None:
        return torch.zeros(T, dtype=torch.long)
    cu = cu.long()
    return cu[torch.searchsorted(cu, torch.arange(T), right=True) - 1]


def visible(index, S, *, l_slc, offset=0, cu=None):
    """[B, G, T, S]: whether the key lies in a listed block of the query's document and not after the query."""
    T = index.shape[1]
    start = document_starts(T, cu)
    key = torch.arange(S)
    block = (key[None, :] - start[:, None]).div(l_slc, rounding_mode="floor")
    listed = (index.long()[..., None] == block[None, :, None, None, :]).any(3).transpose(1, 2)
    past = (key[None, :] <= torch.arange(T)[:, None] + offset) & (key[None, :] >= start[:, None])
    return listed & past


def attention(q, k, v, mask):
    """o and lse of masked softmax attention; a row without a key gives o = 0 and lse = -inf."""
    group = q.shape[2] // k.shape[2]
    k, v = (x.repeat_interleave(group, 2) for x in (k, v))
    mask = mask.repeat_interleave(group, 1)
    s = torch.einsum("bthd,bshd->bhts", q, k) / math.sqrt(q.shape[-1])
    s = s.masked_fill(~mask, -1e300)
    m = s.amax(-1, keepdim=True)
    p = (s - m).exp() * mask
    total = p.sum(-1, keepdim=True)
    some = total > 0
    o = torch.einsum("bhts,bshe->bthe", p / total.where(some, 1.0), v)
    lse = (m + total.where(some, 1.0).log()).where(some, -torch.inf)
    return o, lse[..., 0].transpose(1, 2)


def causal_index(B, T, G, n, *, l_slc, offset=0, cu=None, seed=0):
    """Ascending causal block numbers, -1 padded; some slots unused, some rows empty."""
    gen = torch.Generator().manual_seed(seed)
    own = (torch.arange(T) + offset - document_starts(T, cu)) // l_slc
    n_blocks = int(own.max()) + 1
    score = torch.rand(B, T, G, n_blocks, generator=gen)
    hidden = (torch.arange(n_blocks) > own[:, None])[None, :, None]
    score = score.masked_fill(hidden | (score < 0.3), -1.0)
    value, index = score.sort(-1, descending=True)
    index = index.masked_fill(value < 0, n_blocks)[..., :n].sort(-1).values
    index = torch.nn.functional.pad(index, (0, n - index.shape[-1]), value=n_blocks)
    return index.masked_fill(index == n_blocks, -1).int()


def relative(got, want):
    """Euclidean distance over the norm of what is wanted; a number that is not finite counts as infinitely far."""
    got, want = got.detach().double(), want.detach().double()
    if not torch.isfinite(got).all():
        return math.inf
    return float((got - want).norm() / want.norm().clamp_min(1e-300))
