"""The Triton selected branch on a GPU against masked attention in fp64, forward and gradients."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

pytest.importorskip("triton")

from nsa.kernels.selected import triton as op
from nsa.kernels.selected.masked import selected as oracle

TOLERANCE = {torch.float32: (1e-5, 1e-5), torch.float16: (1e-3, 2e-3), torch.bfloat16: (4e-3, 8e-3)}


@dataclass(frozen=True)
class Case:
    H: int = 16
    G: int = 2
    B: int = 1
    T: int = 300
    S: int | None = None
    D: int = 64
    E: int = 64
    L: int = 64
    N: int = 4
    offset: int = 0
    cu: tuple[int, ...] | None = None
    kv_major: bool | None = None


CASES = {
    "group of 8, KV-major": Case(kv_major=True),
    "group of 8, query-major": Case(kv_major=False),
    "group of 16, D=128": Case(H=32, D=128, E=128, B=2, kv_major=True),
    "group of 16, D=128, query-major": Case(H=32, D=128, E=128, B=2, kv_major=False),
    "group of 1": Case(H=2, kv_major=True),
    "group of 1, query-major": Case(H=2, kv_major=False),
    "group of 7": Case(H=14, T=259, kv_major=True),
    "group of 7, query-major": Case(H=14, T=259, kv_major=False),
    "group of 48": Case(H=48, G=1, T=130, kv_major=True),
    "group of 96, query-major": Case(H=96, G=1, T=70, kv_major=False),
    "d_k=192 d_v=128": Case(H=8, D=192, E=128, T=200, kv_major=True),
    "d_k=192 d_v=128, query-major": Case(H=8, D=192, E=128, T=200, kv_major=False),
    "d_k=256 d_v=256": Case(H=4, D=256, E=256, T=200, kv_major=True),
    "d_k=40 d_v=96": Case(H=8, D=40, E=96, kv_major=True),
    "blocks of 16": Case(L=16, N=5, kv_major=True),
    "blocks of 48": Case(L=48, kv_major=True),
    "blocks of 128": Case(L=128, N=3, D=128, E=128, T=500, kv_major=True),
    "chunk behind a cache": Case(T=37, S=200, offset=150, kv_major=True),
    "one token behind a cache": Case(T=1, S=200, offset=199, kv_major=False),
    "cache longer than needed": Case(T=37, S=400, offset=150, kv_major=True),
    "documents": Case(T=400, cu=(0, 1, 1, 130, 171, 400), kv_major=True),
    "documents, query-major": Case(T=400, cu=(0, 1, 1, 130, 171, 400), kv_major=False),
    "one token": Case(T=1, kv_major=True),
}


def document_starts(T, cu):
    if cu is None:
        return torch.zeros(T, dtype=torch.long)
    cu = torch.tensor(cu)
    return cu[torch.searchsorted(cu, torch.arange(T), right=True) - 1]


def causal_index(case, *, seed=0):
    """Random ascending causal blocks; about a third of the slots stay unused, some rows have none at all."""
    gen = torch.Generator().manual_seed(seed)
    own = (torch.arange(case.T) + case.offset - document_starts(case.T, case.cu)) // case.L
    n_blocks = int(own.max()) + 1
    score = torch.rand(case.B, case.T, case.G, n_blocks, generator=gen)
    score = score.masked_fill((torch.arange(n_blocks) > own[:, None])[None, :, None] | (score < 0.3), -1.0)
    value, index = score.sort(-1, descending=True)
    index = index.masked_fill(value < 0, n_blocks)[..., : case.N].sort(-1).values
    index = torch.nn.functional.pad(index, (0, case.N - index.shape[-1]), value=n_blocks)
    return index.masked_fill(index == n_blocks, -1).int().cuda()


def inputs(case, dtype, *, seed=1):
    gen = torch.Generator("cuda").manual_seed(seed)
    S = case.S or case.T
    shapes = ((case.B, case.T, case.H, case.D), (case.B, S, case.G, case.D), (case.B, S, case.G, case.E))
    return [torch.randn(s, generator=gen, device="cuda").to(dtype).requires_grad_() for s in shapes]


def run(f, case, qkv, index, **kwargs):
    """o, lse (0 where -inf) and the gradients of q, k and v for a fixed cotangent of o and lse."""
    cu = None if case.cu is None else torch.tensor(case.cu, dtype=torch.int32, device="cuda")
    o, lse = f(*qkv, index, l_slc=case.L, offset=case.offset, cu_seqlens=cu, **kwargs)
    lse = lse.where(lse > -torch.inf, 0.0)
    gen = torch.Generator("cuda").manual_seed(7)
    do = torch.randn(o.shape, generator=gen, device="cuda").to(qkv[0].dtype).to(o.dtype)
    dlse = torch.randn(lse.shape, generator=gen, device="cuda").to(lse.dtype)
    return [o, lse, *torch.autograd.grad([o, lse], qkv, [do, dlse])]


def assert_near(name, got, want, tolerance):
    got, want = got.double(), want.double()
    assert torch.isfinite(got).all(), f"{name}: not finite"
    error = got - want
    assert error.norm() <= tolerance * want.norm() + 1e-30, f"{name}: {error.norm() / want.norm():.2e}"
    rows = error.flatten(0, -2).norm(dim=-1).max()
    largest = want.flatten(0, -2).norm(dim=-1).max()
    assert rows <= 4 * tolerance * largest + 1e-30, f"{name}, worst row: {rows / largest:.2e}"


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_equals_masked_attention_in_fp64(name, dtype, nan_filled):
    case = CASES[name]
    qkv, index = inputs(case, dtype), causal_index(case)
    got = run(op.selected_attention, case, qkv, index, kv_major=case.kv_major)
    exact = [x.detach().double().requires_grad_() for x in qkv]
    want = run(oracle, case, exact, index)
    forward, backward = TOLERANCE[dtype]
    for what, a, b in zip(("o", "lse", "dq", "dk", "dv"), got, want, strict=True):
        assert_near(what, a, b, forward if what in ("o", "lse") else backward)


@pytest.mark.parametrize("kv_major", [False, True])
def test_many_launches_give_what_one_launch_gives(monkeypatch, nan_filled, kv_major):
    case = Case(B=2, T=300, H=12, G=3)
    qkv, index = inputs(case, torch.float32), causal_index(case)
    whole = run(op.selected_attention, case, qkv, index, kv_major=kv_major)
    monkeypatch.setattr(op, "SLOT_BYTES", 70 * case.N * 4 * (64 * 4 + 4))
    monkeypatch.setattr(op, "ROWS_PER_ITEM", 40)
    parts = run(op.selected_attention, case, qkv, index, kv_major=kv_major)
    for what, a, b in zip(("o", "lse", "dq", "dk", "dv"), parts, whole, strict=True):
        assert_near(what, a, b, 1e-6)


@pytest.mark.parametrize("kv_major", [False, True])
def test_same_inputs_give_the_same_bits(kv_major):
    case = Case(T=3000, H=32, D=128, E=128, N=16)
    qkv, index = inputs(case, torch.bfloat16), causal_index(case)
    first = run(op.selected_attention, case, qkv, index, kv_major=kv_major)
    again = run(op.selected_attention, case, qkv, index, kv_major=kv_major)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize("kv_major", [False, True])
def test_the_host_never_waits(kv_major):
    case = Case(T=300, cu=(0, 100, 300))
    qkv, index = inputs(case, torch.bfloat16), causal_index(case)
    cu = torch.tensor(case.cu, dtype=torch.int32, device="cuda")

    def step():
        o, lse = op.selected_attention(*qkv, index, l_slc=case.L, cu_seqlens=cu, kv_major=kv_major)
        torch.autograd.grad(o.sum() + lse.sum(), qkv)

    step()
    torch.cuda.set_sync_debug_mode("error")
    try:
        step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("kv_major", [False, True])
def test_keys_nobody_selected_get_zero_and_those_all_selected_are_right(kv_major, nan_filled):
    case = Case(T=320, N=3)
    index = torch.full((1, case.T, case.G, case.N), -1, dtype=torch.int32, device="cuda")
    index[..., 0] = 0  # block 0: every query; block 1: one; blocks 2 to 4: none
    index[:, 200, :, 1] = 1
    qkv = inputs(case, torch.float32)
    got = run(op.selected_attention, case, qkv, index, kv_major=kv_major)
    want = run(oracle, case, [x.detach().double().requires_grad_() for x in qkv], index)
    for what, a, b in zip(("o", "lse", "dq", "dk", "dv"), got, want, strict=True):
        assert_near(what, a, b, 1e-5)
    assert not got[3][:, 128:].any()
    assert not got[4][:, 128:].any()


@pytest.mark.parametrize("kv_major", [False, True])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_key_that_is_not_finite_spoils_only_who_sees_it(kv_major, bad):
    case = Case(T=320, N=5)
    index = torch.arange(5, dtype=torch.int32, device="cuda").expand(1, case.T, case.G, 5).contiguous()
    clean = inputs(case, torch.float32)
    dirty = [x.detach().clone() for x in clean]
    dirty[1][:, 210, :, 3] = bad
    dirty[2][:, 215, :, 5] = bad
    dirty = [x.requires_grad_() for x in dirty]
    o, _, dq, _, _ = run(op.selected_attention, case, clean, index, kv_major=kv_major)
    o_dirty, _, dq_dirty, _, _ = run(op.selected_attention, case, dirty, index, kv_major=kv_major)
    assert torch.equal(o[:, :210], o_dirty[:, :210])
    assert torch.equal(dq[:, :210], dq_dirty[:, :210])
    assert not torch.isfinite(o_dirty[:, 215:]).all(-1).any()


@pytest.mark.parametrize("kv_major", [False, True])
def test_values_beyond_the_range_of_fp16_survive_in_bf16(kv_major):
    case = Case(T=300, H=16)
    qkv, index = inputs(case, torch.bfloat16), causal_index(case)
    with torch.no_grad():
        qkv[2][:, 64:128].mul_(2.0**40)
    o = run(op.selected_attention, case, qkv, index, kv_major=kv_major)[0]
    want = run(oracle, case, [x.detach().double().requires_grad_() for x in qkv], index)[0]
    assert_near("o", o, want, 4e-3)


def test_rows_past_the_reach_of_32_bit_offsets():
    T, H = 2**31 // (64 * 128) + 4096, 64
    case = Case(T=T, H=H, G=1, D=128, E=128, N=4)
    gen = torch.Generator("cuda").manual_seed(0)
    q = torch.randn(1, T, H, 128, generator=gen, device="cuda", dtype=torch.bfloat16).requires_grad_()
    k, v = (torch.randn(1, T, 1, 128, generator=gen, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    own = torch.arange(T, device="cuda", dtype=torch.int32) // 64
    index = torch.stack([own * i // 5 for i in (1, 2, 3, 5)], -1)[None, :, None, :]
    index = index.where(torch.nn.functional.pad(index.diff(dim=-1), (1, 0), value=1) > 0, -1)
    index = index.where(index >= 0, 2**30).sort(-1).values
    index = index.where(index < 2**30, -1).contiguous()
    tail = slice(T - 200, T)
    o, _ = op.selected_attention(q, k, v, index, l_slc=64, kv_major=True)
    (dq,) = torch.autograd.grad(o, q, torch.ones_like(o))
    q_tail = q.detach()[:, tail].double().requires_grad_()
    want, _ = oracle(q_tail, k.double(), v.double(), index[:, tail], l_slc=64, offset=T - 200)
    (dq_want,) = torch.autograd.grad(want, q_tail, torch.ones_like(want))
    assert_near("o", o[:, tail], want, 4e-3)
    assert_near("dq", dq[:, tail], dq_want, 8e-3)
    o2, _ = op.selected_attention(q.detach(), k, v, index, l_slc=64, kv_major=False)
    assert_near("o, query-major", o2[:, tail], want, 4e-3)
    assert case.T * H * 128 > 2**31


def test_compiles_as_one_graph_and_gives_the_same(nan_filled):
    case = Case(T=200)
    qkv, index = inputs(case, torch.float32), causal_index(case)

    def f(q, k, v, index, **kwargs):
        o, lse = op.selected_attention(q * 1.5, k, v, index, **kwargs)
        return o * 2.0, lse

    want = run(f, case, qkv, index)
    got = run(torch.compile(f, fullgraph=True), case, qkv, index)
    for what, a, b in zip(("o", "lse", "dq", "dk", "dv"), got, want, strict=True):
        assert_near(what, a, b, 1e-5)


def test_is_a_well_formed_operator():
    case = Case(T=130, H=8)
    args = (*inputs(case, torch.float32), causal_index(case), case.L, 0.1, 0, None, None)
    torch.library.opcheck(torch.ops.nsa.selected_attention_triton.default, args)


def test_wrong_shapes_are_named():
    case = Case(T=130)
    q, k, v = inputs(case, torch.float32)
    with pytest.raises(ValueError, match="index must be int32"):
        op.selected_attention(q, k, v, causal_index(case).long(), l_slc=64)
    with pytest.raises(ValueError, match="do not fit together"):
        op.selected_attention(q, k[:, :, :1], v, causal_index(case), l_slc=64)
