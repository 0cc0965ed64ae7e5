# ruff: noqa: ANN001, ANN201 - a kernel's arguments are pointers and numbers whose types the launch decides
"""Which queries chose a block: the inverse of ``index``, as a CSR that is built on the device without atomics.

Shapes: B batch, T queries, S keys, G kv heads, N slots per query, H = G * group query heads, D = d_k, E = d_v.

A *pair* is one entry of ``index_BTGN``; its number is ``((b * T + t) * G + g) * N + n``. A *bucket* is one key block
of one kv head. A *launch* is a rectangle of ``bg_chunk`` kv heads and ``t_chunk`` queries: it bounds the scratch
memory, and buckets are numbered so that those of one launch are contiguous. An *item* is at most ``seg`` pairs of
one bucket, the work of one program. Everything that depends on data stays on the device; only upper bounds, which
follow from shapes, reach the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """Where documents and their blocks lie in a packed row; absent for a plain batch."""

    start_T: Tensor  # first row of the token's document, int32
    block_T: Tensor  # number, over the whole row, of that document's first block, int32
    block_lo: Tensor  # first key row of each block of the row, int32
    block_hi: Tensor  # one past its last key row, int32


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The split of one call into launches; a function of shapes alone."""

    B: int
    T: int
    S: int
    G: int
    N: int
    n_blocks: int  # per kv head, an upper bound when documents are packed
    t_chunk: int
    bg_chunk: int
    seg: int  # pairs per item at most

    @property
    def n_t(self) -> int:
        """Launches along the queries."""
        return triton.cdiv(self.T, self.t_chunk)

    @property
    def n_bg(self) -> int:
        """Launches along the kv heads."""
        return triton.cdiv(self.B * self.G, self.bg_chunk)

    @property
    def launches(self) -> int:
        """Launches in all."""
        return self.n_t * self.n_bg

    @property
    def buckets(self) -> int:
        """Buckets per launch."""
        return self.bg_chunk * self.n_blocks

    @property
    def items(self) -> int:
        """Items per launch at most: every bucket may end in one that is not full."""
        pairs = self.t_chunk * self.bg_chunk * self.N
        return min(pairs, pairs // self.seg + self.buckets)


@dataclass(frozen=True, slots=True, kw_only=True)
class Csr:
    """The inverse index of one call."""

    pairs: Tensor  # pair numbers, by bucket, queries ascending within each; int32
    start: Tensor  # first position of each bucket in ``pairs``; [launches * buckets + 1] int32
    item_start: Tensor  # first item of each bucket within its launch; [launches, buckets + 1] int32
    item_bucket: Tensor  # bucket of each item, ``buckets`` where the item does not exist; [launches, items] int32


def documents(cu_seqlens: Tensor, *, T: int, n_blocks: int, l_slc: int) -> Documents:
    """Lay out the blocks of a packed row; block numbers in ``index`` count from the document's own start."""
    cu = cu_seqlens.long()
    n_docs = cu.numel() - 1
    first_block = torch.zeros_like(cu)
    torch.cumsum((cu.diff() + l_slc - 1) // l_slc, 0, out=first_block[1:])
    token = torch.arange(T, device=cu.device)
    doc_T = torch.searchsorted(cu[1:].contiguous(), token, right=True).clamp_(max=n_docs - 1)
    block = torch.arange(n_blocks, device=cu.device)
    doc = torch.searchsorted(first_block[1:].contiguous(), block, right=True)
    in_use = doc < n_docs
    doc = doc.clamp_(max=n_docs - 1)
    lo = cu[doc] + (block - first_block[doc]) * l_slc
    hi = torch.minimum(lo + l_slc, cu[doc + 1])
    lo, hi = torch.where(in_use, lo, T), torch.where(in_use, hi, T)
    return Documents(start_T=cu[doc_T].int(), block_T=first_block[doc_T].int(), block_lo=lo.int(), block_hi=hi.int())


@triton.jit
def pair_keys_kernel(
    index_ptr, key_ptr, doc_start_ptr, doc_block_ptr, n_pairs, T, S, offset, n_blocks, t_chunk, bg_chunk, n_bg,
    absent,
    L: tl.constexpr, G: tl.constexpr, N: tl.constexpr, VARLEN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write each pair's bucket; a pair without a visible key gets ``absent``, which sorts last."""
    pair = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = pair < n_pairs
    block = tl.load(index_ptr + pair, mask=live, other=-1)
    row = pair // N
    g = row % G
    t = (row // G) % T
    bg = (row // G // T) * G + g
    if VARLEN:
        start = tl.load(doc_start_ptr + t, mask=live, other=0)
        first_block = tl.load(doc_block_ptr + t, mask=live, other=0)
    else:
        start = tl.zeros_like(t)
        first_block = tl.zeros_like(t)
    # Compared as block numbers: block * L could overflow for a number that is not a block.
    seen = (block >= 0) & (block <= (tl.minimum(t + offset, S - 1) - start) // L) & (t + offset >= start)
    unit = ((t // t_chunk) * n_bg + bg // bg_chunk) * bg_chunk + bg % bg_chunk
    tl.store(key_ptr + pair, tl.where(seen, unit * n_blocks + first_block + block, absent), mask=live)


def build(index_BTGN: Tensor, plan: Plan, docs: Documents | None, *, l_slc: int, offset: int) -> Csr:
    """Invert ``index``. Deterministic: one stable sort by bucket, then integer prefix sums."""
    n_pairs = index_BTGN.numel()
    absent = plan.launches * plan.buckets
    if max(n_pairs, absent) >= 2**31 - 2**20:
        raise ValueError(f"{n_pairs} index entries over {absent} blocks do not fit 32-bit numbers; split the batch")
    key = torch.empty(n_pairs, dtype=torch.int32, device=index_BTGN.device)
    block = 1024
    pair_keys_kernel[(triton.cdiv(n_pairs, block),)](
        index_BTGN, key, docs.start_T if docs else key, docs.block_T if docs else key,
        n_pairs, plan.T, plan.S, offset, plan.n_blocks, plan.t_chunk, plan.bg_chunk, plan.n_bg, absent,
        L=l_slc, G=plan.G, N=plan.N, VARLEN=docs is not None, BLOCK=block, num_warps=4,
    )  # fmt: skip
    key, pairs = torch.sort(key, stable=True)
    bounds = torch.arange(absent + 1, dtype=torch.int32, device=key.device)
    start = torch.searchsorted(key, bounds, out_int32=True)
    n_items = ((start.diff() + plan.seg - 1) // plan.seg).view(plan.launches, plan.buckets)
    item_start = torch.zeros(plan.launches, plan.buckets + 1, dtype=torch.int32, device=key.device)
    torch.cumsum(n_items, 1, dtype=torch.int32, out=item_start[:, 1:])
    item = torch.arange(plan.items, dtype=torch.int32, device=key.device).expand(plan.launches, -1)
    item_bucket = torch.searchsorted(item_start[:, 1:].contiguous(), item.contiguous(), right=True, out_int32=True)
    return Csr(pairs=pairs.int(), start=start, item_start=item_start, item_bucket=item_bucket)
