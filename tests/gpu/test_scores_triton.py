"""Block selection and the gated sum in Triton on a GPU, against fp64."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

pytest.importorskip("triton")

from nsa.blocks import BlockLayout
from nsa.kernels.combine import triton as combine
from nsa.kernels.documents import token_documents
from nsa.kernels.scores import torch as exact
from nsa.kernels.scores import triton as op
from nsa.kernels.visibility import cmp_visible

PAPER = BlockLayout(l=32, d=16, l_slc=64, n=16, w=512)


@dataclass(frozen=True)
class Case:
    layout: BlockLayout = PAPER
    T: int = 2100
    H: int = 32
    G: int = 2
    D: int = 128
    B: int = 1
    offset: int = 0
    cu: tuple[int, ...] | None = None


CASES = {
    "paper": Case(),
    "batch, odd group": Case(T=1500, H=10, D=64, B=2),
    "l = d = l_slc": Case(layout=BlockLayout(l=64, d=64, l_slc=64, n=8, w=64), T=1500),
    "l > l_slc": Case(layout=BlockLayout(l=32, d=8, l_slc=16, n=6, w=64), T=700, D=64),
    "three strides per block": Case(layout=BlockLayout(l=16, d=8, l_slc=24, n=5, w=64), T=700, D=64),
    "behind a cache": Case(T=5, offset=3000),
    "documents": Case(T=3000, cu=(0, 7, 7, 1400, 3000)),
    "d_k=192": Case(D=192, T=1300),
}


def positions(case):
    if case.cu is None:
        return torch.arange(case.T, device="cuda") + case.offset
    return token_documents(torch.tensor(case.cu, device="cuda"), case.T).position_S


def make(case, dtype):
    gen = torch.Generator("cuda").manual_seed(0)
    C = case.layout.n_cmp(case.T + case.offset) if case.cu is None else case.T // case.layout.d
    q = torch.randn(case.B, case.T, case.H, case.D, generator=gen, device="cuda").to(dtype)
    kc = torch.randn(case.B, C, case.G, case.D, generator=gen, device="cuda").to(dtype)
    cu = None if case.cu is None else torch.tensor(case.cu, dtype=torch.int32, device="cuda")
    seen = cmp_visible(case.T, C, case.layout, device=q.device, offset=case.offset, cu_seqlens=cu)[0, 0]
    k = kc.double().repeat_interleave(case.H // case.G, 2)
    s = torch.einsum("bthd,bchd->bthc", q.double(), k) * case.D**-0.5
    s = s.masked_fill(~seen[None, :, None], -torch.inf)
    lse = s.logsumexp(-1)
    p = (s - lse.masked_fill(lse == -torch.inf, 0.0)[..., None]).exp().unflatten(2, (case.G, -1)).sum(3)
    return q, kc, lse.float(), cu, p


def exact_scores(case, p, cu):
    """Eq. 9 by the overlap matrix, in fp64; block numbers count from each document's start."""
    layout = case.layout
    n_blocks = layout.n_slc(case.T + case.offset)
    overlap = torch.tensor([[layout.overlap(i, j) for j in range(n_blocks)] for i in range(p.shape[-1])])
    overlap = overlap.double().cuda()
    if cu is None:
        return p @ overlap
    out = torch.zeros(*p.shape[:-1], n_blocks, dtype=torch.float64, device="cuda")
    slot = 0
    for lo, hi in zip(case.cu, case.cu[1:], strict=False):
        count = layout.n_cmp(hi - lo)
        out[:, lo:hi] = p[:, lo:hi, :, slot : slot + count] @ overlap[:count]
        slot += count
    return out


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_every_chosen_block_is_among_the_best(name, dtype):
    case = CASES[name]
    layout = case.layout
    q, kc, lse, cu, p = make(case, dtype)
    index = op.select_blocks(q, kc, lse, layout, offset=case.offset, cu_seqlens=cu).long()
    score = exact_scores(case, p, cu)
    position = positions(case)
    want = exact.top_blocks(score, position, layout).long()
    is_used = index >= 0
    assert torch.equal(is_used, want >= 0)
    n_blocks = score.shape[-1]
    ascending = index.where(is_used, n_blocks + torch.arange(layout.n, device="cuda"))
    assert (ascending.diff(dim=-1) > 0).all()
    assert (index <= (position // layout.l_slc)[:, None, None]).all()
    got_score, want_score = (score.gather(-1, x.clamp_min(0)).masked_fill(~is_used, 0.0) for x in (index, want))
    regret = want_score.sort(-1).values - got_score.sort(-1).values
    tolerance = 1e-5 if dtype == torch.float32 else 1e-4
    assert regret.max() <= tolerance * case.H / case.G
    own = (position // layout.l_slc)[:, None, None, None]
    for forced in (torch.zeros_like(own), own, (own - 1).clamp_min(0)):
        assert (index[..., None] == forced).any(3).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_equal_keys_choose_the_lowest_blocks(dtype):
    q = torch.randn(1, 4096, 16, 128, device="cuda").to(dtype)
    kc = torch.ones(1, PAPER.n_cmp(4096), 1, 128, device="cuda").to(dtype)
    seen = torch.tensor([max(1, PAPER.n_cmp(t + 1)) for t in range(4096)], device="cuda")
    lse = q.float().sum(-1) * 128**-0.5 + seen.log()[None, :, None]
    index = op.select_blocks(q, kc, lse, PAPER)[0, :, 0]
    for t in (1024, 2000, 4095):
        own = t // 64
        assert index[t].tolist() == [*range(14), own - 1, own]


def test_chunks_do_not_change_the_choice_and_the_same_inputs_give_the_same_bits(monkeypatch):
    q, kc, lse, cu, _ = make(CASES["documents"], torch.bfloat16)
    whole = op.select_blocks(q, kc, lse, PAPER, cu_seqlens=cu)
    assert torch.equal(whole, op.select_blocks(q, kc, lse, PAPER, cu_seqlens=cu))
    monkeypatch.setattr(op, "SCORE_BYTES", 1 << 18)
    assert torch.equal(whole, op.select_blocks(q, kc, lse, PAPER, cu_seqlens=cu))


def test_no_score_for_every_pair_is_ever_held():
    T = 65536
    q = torch.randn(1, T, 16, 128, device="cuda", dtype=torch.bfloat16)
    kc = torch.randn(1, PAPER.n_cmp(T), 4, 128, device="cuda", dtype=torch.bfloat16)
    lse = torch.full((1, T, 16), 9.0, device="cuda")
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    index = op.select_blocks(q, kc, lse, PAPER)
    extra = torch.cuda.max_memory_allocated() - before - index.numel() * 4
    assert extra <= 300 << 20


def test_the_host_never_waits_and_one_graph_holds_it():
    q, kc, lse, cu, _ = make(CASES["documents"], torch.bfloat16)
    want = op.select_blocks(q, kc, lse, PAPER, cu_seqlens=cu)
    torch.cuda.set_sync_debug_mode("error")
    try:
        op.select_blocks(q, kc, lse, PAPER, cu_seqlens=cu)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    f = torch.compile(lambda q: op.select_blocks(q * 1.0, kc, lse, PAPER, cu_seqlens=cu) + 0, fullgraph=True)
    assert torch.equal(f(q), want)
    args = (q, kc, lse, 32, 16, 64, 16, 128**-0.5, 0, cu)
    torch.library.opcheck(torch.ops.nsa.select_blocks_triton.default, args)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.bfloat16, 4e-3), (torch.float16, 1e-3), (torch.float32, 1e-6)], ids=str
)
@pytest.mark.parametrize("E", [128, 96])
def test_gated_sum_and_its_gradients(dtype, tolerance, E, nan_filled):
    gen = torch.Generator("cuda").manual_seed(0)
    branches = [torch.randn(2, 77, 6, E, generator=gen, device="cuda").to(dtype) for _ in range(3)]
    gate = torch.rand(2, 77, 6, 3, generator=gen, device="cuda").to(dtype)
    inputs = [x.requires_grad_() for x in (*branches, gate)]
    do = torch.randn(2, 77, 6, E, generator=gen, device="cuda").to(dtype)
    o = combine.combine(*inputs)
    got = [o, *torch.autograd.grad(o, inputs, do)]
    wide = [x.detach().double().requires_grad_() for x in inputs]
    want = sum(wide[c] * wide[3][..., c, None] for c in range(3))
    wants = [want, *torch.autograd.grad(want, wide, do.double())]
    for a, b in zip(got, wants, strict=True):
        assert (a.double() - b).norm() <= tolerance * b.norm()
    torch.library.opcheck(torch.ops.nsa.combine_triton.default, inputs)
