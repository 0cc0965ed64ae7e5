# ruff: noqa: ANN001, ANN201, ANN202 - a kernel's arguments are pointers and numbers whose types the launch decides
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
    def pairs(self) -> int:
        """Pairs of the call."""
        return self.B * self.T * self.G * self.N

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
    """The inverse index of one call, as views of the one tensor that ``build`` fills."""

    pairs: Tensor  # pair numbers, by bucket, queries ascending within each; int32
    start: Tensor  # first position of each bucket in ``pairs``; [launches * buckets + 1] int32
    item_start: Tensor  # first item of each bucket within its launch; [launches, buckets + 1] int32
    item_bucket: Tensor  # bucket of each item, ``buckets`` where the item does not exist; [launches, items] int32


def sizes(plan: Plan) -> tuple[int, int, int, int]:
    """Numbers in each part of a ``Csr``, in the order of its fields."""
    buckets = plan.launches * plan.buckets
    return plan.pairs, buckets + 1, buckets + plan.launches, plan.launches * plan.items


def views(flat: Tensor, plan: Plan) -> Csr:
    """What ``build`` filled."""
    pairs, start, item_start, item_bucket = flat.split(sizes(plan))
    return Csr(
        pairs=pairs,
        start=start,
        item_start=item_start.view(plan.launches, plan.buckets + 1),
        item_bucket=item_bucket.view(plan.launches, plan.items),
    )


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


@triton.jit
def _count_below(ptr, n, x, steps, OR_EQUAL: tl.constexpr):
    """How many of the n ascending numbers are below x, or equal to it; ``steps`` halvings reach every n < 2^steps."""
    lo = tl.zeros_like(x)
    hi = lo + n
    for _ in range(steps):
        is_open = lo < hi
        middle = (lo + hi) // 2
        found = tl.load(ptr + middle, mask=is_open, other=0)
        is_below = found <= x if OR_EQUAL else found < x
        lo = tl.where(is_open & is_below, middle + 1, lo)
        hi = tl.where(is_open & (is_below ^ True), middle, hi)
    return lo


@triton.jit
def starts_kernel(key_ptr, start_ptr, n_pairs, n_starts, steps, BLOCK: tl.constexpr):
    """Where each bucket begins among the sorted keys."""
    bucket = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(start_ptr + bucket, _count_below(key_ptr, n_pairs, bucket, steps, OR_EQUAL=False), mask=bucket < n_starts)


@triton.jit
def item_starts_kernel(start_ptr, item_start_ptr, buckets, seg, BLOCK: tl.constexpr):
    """The first item of each bucket of one launch: a running sum, in one program."""
    start_ptr += tl.program_id(0) * buckets
    item_start_ptr += tl.program_id(0) * (buckets + 1)
    n_items = 0
    for first in range(0, buckets, BLOCK):
        bucket = first + tl.arange(0, BLOCK)
        live = bucket < buckets
        n_pairs = tl.load(start_ptr + bucket + 1, mask=live, other=0) - tl.load(start_ptr + bucket, mask=live, other=0)
        items = (n_pairs + seg - 1) // seg
        tl.store(item_start_ptr + bucket, n_items + tl.cumsum(items, 0) - items, mask=live)
        n_items += tl.sum(items, 0)
    tl.store(item_start_ptr + buckets, n_items)


@triton.jit
def item_buckets_kernel(item_start_ptr, item_bucket_ptr, buckets, items, steps, BLOCK: tl.constexpr):
    """The bucket of each item of one launch."""
    item_start_ptr += tl.program_id(1) * (buckets + 1) + 1
    item = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bucket = _count_below(item_start_ptr, buckets, item, steps, OR_EQUAL=True)
    tl.store(item_bucket_ptr + tl.program_id(1) * items + item, bucket, mask=item < items)


def build(index_BTGN: Tensor, plan: Plan, docs: Documents | None, *, l_slc: int, offset: int) -> Tensor:
    """Invert ``index``; ``views`` of the result are the ``Csr``. Deterministic: a stable sort, integer sums."""
    n_pairs = plan.pairs
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
    flat = key.new_empty(sum(sizes(plan)))
    csr = views(flat, plan)
    csr.pairs.copy_(pairs)
    starts_kernel[(triton.cdiv(absent + 1, 256),)](
        key, csr.start, n_pairs, absent + 1, n_pairs.bit_length(), BLOCK=256, num_warps=4
    )
    item_starts_kernel[(plan.launches,)](csr.start, csr.item_start, plan.buckets, plan.seg, BLOCK=1024, num_warps=4)
    item_buckets_kernel[(triton.cdiv(plan.items, 256), plan.launches)](
        csr.item_start, csr.item_bucket, plan.buckets, plan.items, plan.buckets.bit_length(), BLOCK=256, num_warps=4
    )
    return flat
