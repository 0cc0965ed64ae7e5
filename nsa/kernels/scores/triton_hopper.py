"""Block selection by the Hopper kernels as a torch operator, and how each kernel is launched.

Between the two passes lies one fp32 number (two when compression blocks overlap) per query, kv head and selection
block, for a chunk of queries at a time, as in the ``triton`` backend.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from nsa.blocks import N_INITIAL, N_LOCAL
from nsa.kernels.hopper.triton_boxes import for_copies, plain_boxes
from nsa.kernels.hopper.triton_scores import LOG2E, choose_kernel, lse_by_head_kernel, scores_kernel
from nsa.kernels.operators import operator
from nsa.kernels.prepared import Prepared, kept, places
from nsa.kernels.sizes import cdiv, pow2

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Size, Tensor

WIDTHS = (64, 128)
"""Head widths whose tiles fit three programs on a processor."""
HALF_TYPES = (torch.bfloat16, torch.float16)
QUERIES, KEYS = 64, 128
"""Of a tile; the fastest of what a prototype was timed with on an H200 at 32,768 tokens."""
SCORE_BYTES = 1 << 28  # block scores held at one time
WORTH_SPLITTING = 1 << 24
"""From so many scores on, queries with half as many blocks are ranked by launches of their own."""
LEAST_RANKED = 64


def uneven(d: int, l_slc: int) -> str | None:
    """Why blocks of l_slc tokens whose compressed keys are d apart do not fill a tile, if they do not."""
    strides = l_slc // d
    if strides & (strides - 1) or strides > KEYS:
        return f"a tile of {KEYS} compressed keys must be whole blocks, and l_slc / d is {strides}"
    return None


@operator(
    "nsa::select_blocks_hopper",
    schema="(Tensor q, Tensor kc, Tensor lse, int l, int d, int l_slc, int n, float scale, int offset) -> Tensor",
)
def select_op(
    q: Tensor, kc: Tensor, lse: Tensor, l: int, d: int, l_slc: int, n: int, scale: float, offset: int  # noqa: E741
) -> Tensor:  # fmt: skip
    """Block numbers [B, T, G, n], as ``nsa.kernels.scores.op.SelectBlocks`` says."""
    B, T, H, D = q.shape
    C, G = kc.shape[1:3]
    if kc.shape != (B, C, G, D) or lse.shape != (B, T, H) or H % G or D not in WIDTHS or offset < 0:
        raise ValueError(f"q {tuple(q.shape)}, kc {tuple(kc.shape)}, lse {tuple(lse.shape)}, {offset} do not fit")
    if q.dtype not in HALF_TYPES or q.dtype != kc.dtype:
        raise ValueError(f"q and kc must be of one type, bf16 or fp16, got {q.dtype} and {kc.dtype}")
    why = uneven(d, l_slc)
    if why:
        raise ValueError(why)
    index = q.new_empty(B, T, G, n, dtype=torch.int32)
    if index.numel() == 0:
        return index
    how = (l, d, l_slc, n, scale, offset, SCORE_BYTES, WORTH_SPLITTING)
    work = _work(q.shape, kc.shape, how, places(q, kc, lse))
    score = q.new_empty(work.n_scores, dtype=torch.float32)
    rows = keys = by_head = None
    if work.by_head is not None:
        rows = plain_boxes(for_copies(q.contiguous()).view(B * T, H * D), (QUERIES, D))
        keys = plain_boxes(for_copies(kc.contiguous()).view(B * C, G * D), (KEYS, D))
        by_head = q.new_empty(B, H, T, dtype=torch.float32)
        work.by_head(lse.float().contiguous(), by_head)
    else:
        score.zero_()
    for scores, choices in work.launches:
        if scores is not None:
            scores(rows, keys, by_head, score)
        for choose in choices:
            choose(score, index)
    return index


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """The launches of one call: lse by head, then scores and ranking of a chunk of queries at a time."""

    n_scores: int
    by_head: Prepared | None
    launches: tuple[tuple[Prepared | None, tuple[Prepared, ...]], ...]


@kept
def _work(q: Size, kc: Size, how: tuple[int, int, int, int, float, int, int, int], _: object) -> _Work:
    (B, T, H, D), (C, G) = q, kc[1:3]
    l, d, l_slc, n, scale, offset, score_bytes, worth_splitting = how  # noqa: E741 - the paper's letter
    J, spills = cdiv(offset + T, l_slc), (l_slc // d - 2 + l // d) // (l_slc // d)
    is_ranked = n < J
    chunk = max(1, score_bytes // (4 * (spills + 1) * B * G * J)) if is_ranked else T
    chunk = min(T, cdiv(chunk, QUERIES) * QUERIES)
    spill = (chunk if is_ranked else 0) * B * G * J
    by_head, launches = None, []
    if is_ranked and C:
        heads = min(pow2(H), 64)
        grid = (cdiv(T, 64), B, cdiv(H, heads))
        by_head = Prepared(lse_by_head_kernel, grid, T, H=H, BT=64, BH=heads, num_warps=4)
    for t0 in range(0, T, chunk):
        t1, scores = min(t0 + chunk, T), None
        n_free = (t1 - 1 + offset) // l_slc - N_LOCAL + 1
        if is_ranked and C and n_free > 0:
            scores = Prepared(
                scores_kernel, (cdiv(n_free * (l_slc // d), KEYS), cdiv(t1 - t0, QUERIES), B * G),
                t0, t1, T, C, offset, J, scale * LOG2E.value, spill,
                D=D, G=G, GROUP=H // G, BT=QUERIES, BC=KEYS, L=l, STRIDE=d, L_SLC=l_slc, N=n, SPILLS=spills,
                LOCAL=N_LOCAL, num_warps=4, num_stages=2,
            )  # fmt: skip
        choices = []
        split = {"rows": B * T * G, "worth_splitting": worth_splitting}
        for first, past, blocks in ranges(t0, t1, offset=offset, l_slc=l_slc, n_blocks=J, **split):
            choices.append(
                Prepared(
                    choose_kernel, (past - first, B * G), t0, first, past, T, offset, J, spill,
                    G=G, L_SLC=l_slc, N=n, BN=pow2(n), BJ=blocks, ROWS=1, SPILLS=spills,
                    INITIAL=N_INITIAL, LOCAL=N_LOCAL, num_warps=max(1, min(8, blocks // 2048)),
                )
            )  # fmt: skip
        launches.append((scores, tuple(choices)))
    return _Work(n_scores=(spills + 1) * spill, by_head=by_head, launches=tuple(launches))


def ranges(
    t0: int, t1: int, *, offset: int, l_slc: int, n_blocks: int, rows: int, worth_splitting: int = WORTH_SPLITTING
) -> Iterator[tuple[int, int, int]]:
    """Queries first .. past - 1 of t0 .. t1 - 1, and a power of two that none of them has more blocks than."""
    most = max(LEAST_RANKED, pow2(n_blocks))
    blocks = max(LEAST_RANKED, most // 4) if rows * n_blocks >= worth_splitting else most
    first = t0
    while first < t1:
        past = min(t1, max(first, blocks * l_slc - offset)) if blocks < most else t1
        if past > first:
            yield first, past, blocks
        first, blocks = past, 2 * blocks


@select_op.register_fake
def _(
    q: Tensor, kc: Tensor, lse: Tensor, l: int, d: int, l_slc: int, n: int, scale: float, offset: int  # noqa: E741
) -> Tensor:  # fmt: skip
    return q.new_empty(q.shape[0], q.shape[1], kc.shape[2], n, dtype=torch.int32)
