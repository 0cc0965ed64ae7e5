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
from functools import cached_property
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from nsa.kernels.prepared import Prepared, kept, places
from nsa.kernels.sizes import cdiv

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """Where documents and their blocks lie in a packed row; absent for a plain batch."""

    start_T: Tensor  # first row of the token's document, int32
    block_T: Tensor  # number, over the whole row, of that document's first block, int32
    block_lo: Tensor  # first key row of each block of the row, int32
    block_hi: Tensor  # one past its last key row, int32


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """The split of one call into launches; a function of shapes alone, which keeps it: launches are kept by it."""

    B: int
    T: int
    S: int
    G: int
    N: int
    n_blocks: int  # per kv head, an upper bound when documents are packed
    t_chunk: int
    bg_chunk: int
    seg: int  # pairs per item at most

    @cached_property
    def n_t(self) -> int:
        """Launches along the queries."""
        return cdiv(self.T, self.t_chunk)

    @cached_property
    def n_bg(self) -> int:
        """Launches along the kv heads."""
        return cdiv(self.B * self.G, self.bg_chunk)

    @cached_property
    def launches(self) -> int:
        """Launches in all."""
        return self.n_t * self.n_bg

    @cached_property
    def pairs(self) -> int:
        """Pairs of the call."""
        return self.B * self.T * self.G * self.N

    @cached_property
    def buckets(self) -> int:
        """Buckets per launch."""
        return self.bg_chunk * self.n_blocks

    @cached_property
    def items(self) -> int:
        """Items per launch at most: every bucket may end in one that is not full."""
        pairs = self.t_chunk * self.bg_chunk * self.N
        return min(pairs, pairs // self.seg + self.buckets)

    @cached_property
    def sizes(self) -> tuple[int, int, int, int]:
        """Numbers in each part of a ``Csr``, in the order of its fields."""
        buckets = self.launches * self.buckets
        return self.pairs, buckets + 1, buckets + self.launches, self.launches * self.items


@dataclass(frozen=True, slots=True, kw_only=True)
class Csr:
    """The inverse index of one call, as views of the one tensor that ``build`` fills."""

    pairs: Tensor  # pair numbers, by bucket, queries ascending within each; int32
    start: Tensor  # first position of each bucket in ``pairs``; [launches * buckets + 1] int32
    item_start: Tensor  # first item of each bucket within its launch; [launches * (buckets + 1)] int32
    item_bucket: Tensor  # bucket of each item, ``buckets`` where the item does not exist; [launches * items] int32


def views(flat: Tensor, plan: Plan) -> Csr:
    """What ``build`` filled."""
    pairs, start, item_start, item_bucket = torch.split_with_sizes(flat, plan.sizes)
    return Csr(pairs=pairs, start=start, item_start=item_start, item_bucket=item_bucket)


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
def starts_kernel(key_ptr, sorted_ptr, pairs_ptr, start_ptr, n_pairs, n_starts, steps, BLOCK: tl.constexpr):
    """Where each bucket begins among the sorted keys; and the sorted pairs, as ``sorted_ptr`` has them in int64."""
    bucket = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    one = tl.load(sorted_ptr + bucket, mask=bucket < n_pairs, other=0)
    tl.store(pairs_ptr + bucket, one.to(tl.int32), mask=bucket < n_pairs)
    if tl.program_id(0) * BLOCK < n_starts:
        found = _count_below(key_ptr, n_pairs, bucket, steps, OR_EQUAL=False)
        tl.store(start_ptr + bucket, found, mask=bucket < n_starts)


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
    launches = _launches(plan, l_slc, offset, docs is not None, places(index_BTGN))
    key = index_BTGN.new_empty(plan.pairs, dtype=launches.key)
    of_docs = (docs.start_T, docs.block_T) if docs else (key, key)
    launches.keys(index_BTGN, key, *of_docs)
    key, pairs = torch.sort(key, stable=True)
    flat = index_BTGN.new_empty(sum(plan.sizes))
    csr = views(flat, plan)
    launches.starts(key, pairs, csr.pairs, csr.start)
    launches.item_starts(csr.start, csr.item_start)
    launches.item_buckets(csr.item_start, csr.item_bucket)
    return flat


SHORT = 2**15
"""So many buckets have numbers of 16 bits, and sorting those takes half of the passes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Launches:
    """Those of ``build``, and the type of its keys."""

    key: torch.dtype
    keys: Prepared
    starts: Prepared
    item_starts: Prepared
    item_buckets: Prepared


@kept
def _launches(plan: Plan, l_slc: int, offset: int, is_varlen: bool, _: object) -> _Launches:  # noqa: FBT001
    n_pairs, absent = plan.pairs, plan.launches * plan.buckets
    if max(n_pairs, absent) >= 2**31 - 2**20:
        raise ValueError(f"{n_pairs} index entries over {absent} blocks do not fit 32-bit numbers; split the batch")
    block = 1024
    return _Launches(
        key=torch.int16 if absent < SHORT else torch.int32,
        keys=Prepared(
            pair_keys_kernel, (cdiv(n_pairs, block),),
            n_pairs, plan.T, plan.S, offset, plan.n_blocks, plan.t_chunk, plan.bg_chunk, plan.n_bg, absent,
            L=l_slc, G=plan.G, N=plan.N, VARLEN=is_varlen, BLOCK=block, num_warps=4,
        ),
        starts=Prepared(
            starts_kernel, (cdiv(max(n_pairs, absent + 1), 256),), n_pairs, absent + 1, n_pairs.bit_length(),
            BLOCK=256, num_warps=4,
        ),
        item_starts=Prepared(
            item_starts_kernel, (plan.launches,), plan.buckets, plan.seg, BLOCK=1024, num_warps=4
        ),
        item_buckets=Prepared(
            item_buckets_kernel, (cdiv(plan.items, 256), plan.launches),
            plan.buckets, plan.items, plan.buckets.bit_length(), BLOCK=256, num_warps=4,
        ),
    )  # fmt: skip
