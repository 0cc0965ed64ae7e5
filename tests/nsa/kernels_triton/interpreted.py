"""The kernels under Triton's interpreter; started by test_interpreted.py, which sets TRITON_INTERPRET first."""

from __future__ import annotations

from dataclasses import dataclass

import oracle
import pytest
import torch

from nsa.blocks import BlockLayout
from nsa.kernels.combine import triton as combine
from nsa.kernels.scores import triton as scores
from nsa.kernels.selected import triton as selected


@pytest.fixture(autouse=True)
def nan_filled(monkeypatch):
    """New tensors start as NaN, so an element nobody writes shows."""

    def poisoned(make):
        def create(*args, **kwargs):
            made = make(*args, **kwargs)
            return made.fill_(
                float("nan") if made.is_floating_point() else -(2**14 if made.dtype == torch.int16 else 2**30)
            )

        return create

    for owner, name in ((torch, "empty"), (torch, "empty_like"), (torch.Tensor, "new_empty")):
        monkeypatch.setattr(owner, name, poisoned(getattr(owner, name)))


@dataclass(frozen=True)
class Case:
    B: int = 1
    T: int = 40
    S: int = 40
    H: int = 4
    G: int = 2
    D: int = 16
    E: int = 16
    N: int = 3
    offset: int = 0
    cu: tuple[int, ...] | None = None
    kv_major: bool = True
    dtype: torch.dtype = torch.float32
    many_launches: bool = False


CASES = {
    "KV-major": Case(),
    "query-major": Case(kv_major=False),
    "fp16": Case(dtype=torch.float16),
    "fp16, query-major": Case(dtype=torch.float16, kv_major=False, T=24, S=24),
    "group of 3, d_k=24, behind a cache": Case(B=2, T=9, S=37, H=3, G=1, D=24, offset=27),
    "group of 3, d_k=24, behind a cache, query-major": Case(B=2, T=9, S=37, H=3, G=1, D=24, offset=27, kv_major=False),
    "documents, d_v=32": Case(T=41, S=41, E=32, cu=(0, 5, 5, 22, 41)),
    "documents, query-major": Case(T=41, S=41, cu=(0, 5, 5, 22, 41), kv_major=False),
    "many launches, many items": Case(B=2, T=21, S=21, many_launches=True),
}


@pytest.mark.parametrize("name", CASES)
def test_selected_attention_equals_dense_masked_attention(name, monkeypatch):
    case = CASES[name]
    cu = None if case.cu is None else torch.tensor(case.cu, dtype=torch.int32)
    if case.many_launches:
        monkeypatch.setattr(selected, "SLOT_BYTES", 7 * case.N * (case.H // case.G) * case.D * 4)
        monkeypatch.setattr(selected, "ROWS_PER_ITEM", 6)
    gen = torch.Generator().manual_seed(0)
    shapes = ((case.B, case.T, case.H, case.D), (case.B, case.S, case.G, case.D), (case.B, case.S, case.G, case.E))
    qkv = [torch.randn(s, generator=gen).to(case.dtype).requires_grad_() for s in shapes]
    index = oracle.causal_index(case.B, case.T, case.G, case.N, l_slc=8, offset=case.offset, cu=cu)
    o, lse = selected.selected_attention(
        *qkv, index, l_slc=8, offset=case.offset, cu_seqlens=cu, kv_major=case.kv_major
    )
    exact = [x.detach().double().requires_grad_() for x in qkv]
    mask = oracle.visible(index, case.S, l_slc=8, offset=case.offset, cu=cu)
    o_want, lse_want = oracle.attention(*exact, mask)
    assert torch.equal(lse.isfinite(), lse_want.isfinite())
    lse, lse_want = (x.where(x > -torch.inf, 0.0) for x in (lse, lse_want))
    do = torch.randn(o.shape, generator=gen).to(case.dtype)
    dlse = torch.randn(lse.shape, generator=gen)
    got = [o, lse, *torch.autograd.grad([o, lse], qkv, [do, dlse])]
    want = [o_want, lse_want, *torch.autograd.grad([o_want, lse_want], exact, [do.double(), dlse.double()])]
    tolerance = 1e-5 if case.dtype == torch.float32 else 1e-3
    errors = [oracle.relative(a, b) for a, b in zip(got, want, strict=True)]
    assert max(errors) <= tolerance, dict(zip(("o", "lse", "dq", "dk", "dv"), errors, strict=True))


@pytest.mark.parametrize("kv_major", [True, False])
def test_a_key_that_is_not_finite_spoils_only_who_sees_it(kv_major):
    gen = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 20, h, 16, generator=gen) for h in (2, 1, 1))
    index = torch.arange(3, dtype=torch.int32).expand(1, 20, 1, 3).contiguous()
    clean = [x.clone().requires_grad_() for x in (q, k, v)]
    k[:, 18, 0, 3] = torch.nan
    v[:, 18, 0, 5] = torch.nan
    dirty = [x.clone().requires_grad_() for x in (q, k, v)]
    outs = []
    for qkv in (clean, dirty):
        o, _ = selected.selected_attention(*qkv, index, l_slc=8, kv_major=kv_major)
        outs.append((o, torch.autograd.grad(o, qkv[0], torch.ones_like(o))[0]))
    for a, b in zip(*outs, strict=True):
        assert torch.equal(a[:, :18], b[:, :18])
        assert not b[:, 18:].isfinite().all(-1).any()


def choose(q, kc, layout, *, offset, cu):
    """Eq. 8-11 in fp64 for one query at a time: the exact scores, and the chosen blocks with their forced ones."""
    B, T, H, D = q.shape
    G = kc.shape[2]
    start = oracle.document_starts(T, cu)
    slot = 0
    first_slot = {}
    for lo, hi in [(0, T + offset)] if cu is None else zip(cu.tolist(), cu.tolist()[1:], strict=False):
        first_slot[lo] = slot
        slot += layout.n_cmp(hi - lo)
    lse = torch.full((B, T, H), -torch.inf, dtype=torch.float64)
    score = torch.zeros(B, T, G, layout.n_slc(T + offset), dtype=torch.float64)
    for t in range(T):
        pos = t + offset - int(start[t])
        first, n_cmp = first_slot[int(start[t])], layout.n_cmp(pos + 1)
        if n_cmp == 0:
            continue
        keys = kc[:, first : first + n_cmp].double().repeat_interleave(H // G, 2)
        s = torch.einsum("bhd,bchd->bhc", q[:, t].double(), keys) * D**-0.5
        lse[:, t] = s.logsumexp(-1)
        p = s.softmax(-1).unflatten(1, (G, H // G)).sum(2)
        overlap = torch.tensor(
            [[layout.overlap(i, j) for j in range(score.shape[-1])] for i in range(n_cmp)], dtype=torch.float64
        )
        score[:, t] = p @ overlap
    return score, lse.float(), start


@dataclass(frozen=True)
class Selection:
    layout: BlockLayout
    B: int = 1
    T: int = 60
    H: int = 4
    G: int = 2
    offset: int = 0
    cu: tuple[int, ...] | None = None
    small: bool = False


def layout(l, d, l_slc, n):  # noqa: E741 - the paper's letters
    return BlockLayout(l=l, d=d, l_slc=l_slc, n=n, w=8)


SELECTIONS = {
    "overlapping": Selection(layout(8, 4, 8, 4)),
    "several chunks": Selection(layout(8, 4, 8, 4), small=True),
    "l = d = l_slc": Selection(layout(4, 4, 4, 4), B=2, T=40, H=3, G=1),
    "l > l_slc": Selection(layout(16, 4, 8, 4)),
    "l > l_slc, several chunks": Selection(layout(16, 4, 8, 4), T=90, small=True),
    "three strides per block": Selection(layout(8, 4, 12, 3), T=80, H=2),
    "behind a cache": Selection(layout(8, 4, 8, 4), T=9, H=2, offset=51),
    "documents": Selection(layout(8, 4, 8, 4), T=90, H=2, G=1, cu=(0, 3, 3, 40, 90)),
    "shorter than a compression block": Selection(layout(8, 4, 8, 4), T=6, H=2),
}


@pytest.mark.parametrize("name", SELECTIONS)
def test_selection_is_as_good_as_the_exact_one(name, monkeypatch):
    case = SELECTIONS[name]
    lay = case.layout
    if case.small:
        monkeypatch.setattr(scores, "SCORE_BYTES", 4 * 2 * 2 * 8 * 20)
        monkeypatch.setattr(scores, "ROWS", 32)
        monkeypatch.setattr(scores, "COLUMNS", 8)
    cu = None if case.cu is None else torch.tensor(case.cu, dtype=torch.int32)
    gen = torch.Generator().manual_seed(0)
    n_cmp = lay.n_cmp(case.T + case.offset) if cu is None else case.T // lay.d
    q = torch.randn(case.B, case.T, case.H, 16, generator=gen)
    kc = torch.randn(case.B, n_cmp, case.G, 16, generator=gen)
    score, lse, start = choose(q, kc, lay, offset=case.offset, cu=cu)
    index = scores.select_blocks(q, kc, lse, lay, offset=case.offset, cu_seqlens=cu)
    assert_as_good(case, index, score, start)


def assert_as_good(case, index, score, start):
    """Every row lists what it must, ascending, and of the others those with the best exact scores."""
    lay = case.layout
    for t in range(case.T):
        pos = t + case.offset - int(start[t])
        forced, own = set(lay.forced(pos)), lay.slc_of(pos)
        free = sorted(set(range(own + 1)) - forced)
        for b in range(case.B):
            for g in range(case.G):
                got = [j for j in index[b, t, g].tolist() if j >= 0]
                assert got == sorted(set(got))
                assert index[b, t, g].tolist() == got + [-1] * (lay.n - len(got))
                assert len(got) == lay.n_selected(pos)
                assert forced <= set(got) <= set(range(own + 1))
                best = sorted((float(score[b, t, g, j]) for j in free), reverse=True)[: lay.n - len(forced)]
                mine = sorted((float(score[b, t, g, j]) for j in got if j not in forced), reverse=True)
                assert mine == pytest.approx(best, abs=1e-6)


def test_equal_scores_choose_the_lowest_blocks():
    lay = layout(4, 4, 4, 5)
    q = torch.randn(1, 60, 2, 16, generator=torch.Generator().manual_seed(0))
    kc = torch.ones(1, 15, 1, 16)
    seen = (torch.arange(60) + 1) // 4
    lse = (q.sum(-1) / 4 + seen.clamp_min(1).log()[None, :, None]).contiguous()
    index = scores.select_blocks(q, kc, lse, lay)
    assert index[0, 59, 0].tolist() == [0, 1, 2, 13, 14]


def test_gated_sum_and_its_gradients():
    gen = torch.Generator().manual_seed(0)
    branches = [torch.randn(1, 7, 3, 24, generator=gen).requires_grad_() for _ in range(3)]
    gate = torch.rand(1, 7, 3, 3, generator=gen).requires_grad_()
    do = torch.randn(1, 7, 3, 24, generator=gen)
    o = combine.combine(*branches, gate)
    exact = [x.detach().double().requires_grad_() for x in (*branches, gate)]
    want = sum(exact[c] * exact[3][..., c, None] for c in range(3))
    got = [o, *torch.autograd.grad(o, [*branches, gate], do)]
    wants = [want, *torch.autograd.grad(want, exact, do.double())]
    assert max(oracle.relative(a, b) for a, b in zip(got, wants, strict=True)) <= 1e-6
