"""Selected attention for Hopper under Triton's interpreter, against fp64; started by test_interpreted.py."""

from __future__ import annotations

from dataclasses import dataclass, replace

import oracle
import pytest
import torch
from interpreted import nan_filled

from nsa.blocks import BlockLayout
from nsa.kernels.scores.torch import top_blocks
from nsa.kernels.selected import hopper, triton, triton_hopper

__all__ = ["nan_filled"]


@dataclass(frozen=True)
class Case:
    B: int = 1
    T: int = 40
    S: int | None = None
    H: int = 32
    G: int = 2
    D: int = 64
    L: int = 16
    N: int = 3
    offset: int = 0


CASES = {
    "two kv heads": Case(),
    "two rows of odd length": Case(B=2, T=37),
    "group of 48": Case(H=48, G=1, T=20),
    "group of 32": Case(H=32, G=1, T=20),
    "heads of 128, one list": Case(D=128, N=1, T=33),
    "behind a cache": Case(T=9, S=67, offset=51, N=4),
    "keys that nobody has reached": Case(T=20, S=50),
}


def inputs(case, seed=0):
    gen = torch.Generator().manual_seed(seed)
    S = case.S or case.T
    sizes = ((case.B, case.T, case.H, case.D), (case.B, S, case.G, case.D), (case.B, S, case.G, case.D))
    index = oracle.causal_index(case.B, case.T, case.G, case.N, l_slc=case.L, offset=case.offset, cu=None)
    return [torch.randn(size, generator=gen).half() for size in sizes], index


@pytest.mark.parametrize("name", CASES)
def test_forward_and_gradients_equal_dense_masked_attention(name):
    case = CASES[name]
    given, index = inputs(case)
    qkv = [x.requires_grad_() for x in given]
    o, lse = hopper.selected(*qkv, index, l_slc=case.L, offset=case.offset)
    exact = [x.detach().double().requires_grad_() for x in qkv]
    mask = oracle.visible(index, qkv[1].shape[1], l_slc=case.L, offset=case.offset, cu=None)
    o_want, lse_want = oracle.attention(*exact, mask)
    assert torch.equal(lse.isfinite(), lse_want.isfinite())
    lse, lse_want = (x.where(x > -torch.inf, 0.0) for x in (lse, lse_want))
    gen = torch.Generator().manual_seed(1)
    do, dlse = torch.randn(o.shape, generator=gen).half(), torch.randn(lse.shape, generator=gen)
    got = [o, lse, *torch.autograd.grad([o, lse], qkv, [do, dlse])]
    want = [o_want, lse_want, *torch.autograd.grad([o_want, lse_want], exact, [do.double(), dlse.double()])]
    errors = [oracle.relative(a, b) for a, b in zip(got, want, strict=True)]
    assert max(errors) <= 1e-3, dict(zip(("o", "lse", "dq", "dk", "dv"), errors, strict=True))


def test_an_unused_slot_and_a_block_ahead_are_no_keys_wherever_they_stand():
    case = Case(T=40, H=16, G=1)
    qkv, _ = inputs(case)
    listed = torch.tensor([1, -1, 0, 9, 2], dtype=torch.int32).expand(1, 40, 1, 5).contiguous()
    plain = torch.tensor([1, 0, 2], dtype=torch.int32).expand(1, 40, 1, 3).contiguous()
    for a, b in zip(*(hopper.selected(*qkv, index, l_slc=16) for index in (listed, plain)), strict=True):
        assert torch.equal(a, b)
    none, lse = hopper.selected(*qkv, torch.full_like(plain, -1), l_slc=16)
    assert not none.any()
    assert (lse == -torch.inf).all()


@pytest.mark.parametrize("B", [1, 2])
def test_a_query_begins_with_what_tiles_found_in_the_forced_blocks(B, monkeypatch):
    case, layout = Case(B=B, T=300, L=64, N=4), BlockLayout(l=32, d=16, l_slc=64, n=4, w=1)
    qkv, _ = inputs(case)
    score = torch.rand(B, case.T, case.G, layout.n_slc(case.T), generator=torch.Generator().manual_seed(3))
    index = top_blocks(score, torch.arange(case.T), layout).int()
    seen = []

    def tiles(q, k, v, o, lse, **how):  # Gluon has no interpreter
        seen.append(how)
        blocks = [layout.forced(t) for t in range(case.T)]
        forced = torch.tensor([[*some, -1, -1][:3] for some in blocks], dtype=torch.int32)
        forced = forced[None, :, None].expand(B, -1, case.G, -1).contiguous()
        for x, found in zip((o, lse), hopper.selected(q, k, v, forced, l_slc=64), strict=True):
            x.copy_(found)

    want = hopper.selected(*qkv, index, l_slc=64)
    monkeypatch.setattr(triton_hopper, "run_tiles", tiles)
    o, lse = (torch.full_like(x, float("nan")) for x in want)
    triton_hopper.run_forward(*qkv, index, o, lse, l_slc=64, scale=case.D**-0.5, offset=0, has_forced=True)
    assert seen == [{"kind": triton_hopper.FORCED, "sizes": (2, 1), "scale": case.D**-0.5, "offset": 0}]
    torch.testing.assert_close(o, want[0], rtol=2e-3, atol=2e-3)
    torch.testing.assert_close(lse, want[1])


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # of numpy, which multiplies for the interpreter
@pytest.mark.parametrize("what", [1, 2])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_key_that_is_not_finite_spoils_who_sees_it_and_changes_no_bit_elsewhere(what, bad):
    case = Case(T=48)
    given, _ = inputs(case)
    index = torch.arange(3, dtype=torch.int32).expand(1, 48, 2, 3).contiguous()
    results = []
    for is_dirty in (False, True):
        qkv = [x.detach().clone() for x in given]
        if is_dirty:
            qkv[what][:, 42, :, 3] = bad
        qkv = [x.requires_grad_() for x in qkv]
        o, lse = hopper.selected(*qkv, index, l_slc=16)
        results.append((o, lse, torch.autograd.grad(o, qkv[0], torch.ones_like(o))[0]))
    for clean, dirty in zip(*results, strict=True):
        assert torch.equal(clean[:, :42], dirty[:, :42])
        assert dirty[:, 42:].isnan().all()
        assert not clean.isnan().any()


def test_what_does_not_fit_is_refused_at_the_call():
    (q, k, v), index = inputs(Case())
    for wrong, said in (
        (((q[:, :, :24], k, v), {}), "16 heads of one group, and a group has 12"),
        (((q, k, v), {"l_slc": 48}), "l_slc is 48"),
        (((q, k.float(), v), {}), "of one type"),
        (((q, k, v[..., :32]), {}), "do not fit"),
        (((q, k, v), {"offset": -1}), "do not fit"),
    ):
        with pytest.raises(ValueError, match=said):
            hopper.selected(*wrong[0], index, **{"l_slc": 16} | wrong[1])
    with pytest.raises(ValueError, match="index must be int32"):
        hopper.selected(q, k, v, index.long(), l_slc=16)


def test_two_sums_of_an_item_are_added_as_one():
    case = Case(T=24, H=4, G=2)
    (q, k, v), index = inputs(case)
    o, lse = triton.selected_attention(q, k, v, index, l_slc=16)
    do = torch.randn(o.shape, generator=torch.Generator().manual_seed(1)).half()
    given = (q, k, v, o, lse, index.new_empty(0), do, None, index, 16, 0.125, 0, None)

    def in_two(work, at):
        one = replace(work, dk_part=work.dk_part[::2].clone(), dv_part=work.dv_part[::2].clone())
        triton.run_items(one, at)
        for parts, sums in ((work.dk_part, one.dk_part), (work.dv_part, one.dv_part)):
            parts[::2], parts[1::2] = 0.25 * sums, 0.75 * sums

    for a, b in zip(triton.gradients(*given), triton.gradients(*given, run=in_two, parts=2), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
        assert a.any()


class Spelled:
    """``triton_selected_backward.backward_kernel`` row by row in torch, called as the launch calls it.

    Gluon has no interpreter; this one checks what the launch says and how the kernel finds its rows and slots.
    """

    def __getitem__(self, grid):
        def launch(*args, **constants):
            for pid in range(grid[0]):
                self.program(pid, *args, **constants)

        return launch

    def program(
        self, pid, q, do, k, v, slots, dk_part, dv_part, lse, delta, gate, least, pairs, start, item_start,
        item_bucket, launch, bg0, t0, n_buckets, max_items, n_blocks, bg_chunk, T, S, offset, scale,
        *, G, GROUP, PACK, N, SEG, STAGES, GATED, num_warps,
    ):  # fmt: skip
        assert (GATED, gate is lse, least is lse) == (False, True, True)
        assert (q.block_shape, k.block_shape, slots.block_shape) == ([PACK, 64], [64, 64], [PACK, 64])
        assert (STAGES > 1, num_warps, item_bucket.numel() % max_items) == (True, 4, 0)
        bucket = int(item_bucket.flatten()[launch * max_items + pid])
        if bucket >= n_buckets:
            return
        first = int(item_start.flatten()[launch * (n_buckets + 1) + bucket])
        lo = int(start[launch * n_buckets + bucket]) + (pid - first) * SEG
        hi = min(int(start[launch * n_buckets + bucket + 1]), lo + SEG)
        bg_local = bucket // n_blocks
        b, g = (bg0 + bg_local) // G, (bg0 + bg_local) % G
        first_t = b * T
        key = bucket % n_blocks * 64 + torch.arange(64)
        rows = (b * S + key).clamp(max=k.base.shape[0] - 1)
        k_block, v_block = (x.base[rows, g * 128 : g * 128 + 128].double() for x in (k, v))
        pair = pairs[lo:hi].long()[:, None].expand(-1, GROUP).flatten()
        head = torch.arange(GROUP).repeat(hi - lo)
        row = pair // N * GROUP + head
        last = (pair // (N * G) + offset - first_t).clamp(max=S - 1)
        slot = (pair // (N * G) * bg_chunk + bg_local - (first_t + t0) * bg_chunk) * N + pair % N
        s = q.base[row].double() @ k_block.T * scale - lse.flatten()[row, None]
        seen = key <= last[:, None]
        p = s.exp().where(seen, 0.0)
        ds = (p * (do.base[row].double() @ v_block.T - delta.flatten()[row, None])).where(seen, 0.0)
        slots.base[slot * GROUP + head] = (ds @ k_block * scale).to(slots.base.dtype)
        half = torch.arange(len(row)) // 64 % 2  # tiles of 64 rows, in turn
        for who in range(2):
            mine = half == who
            dk_part[pid * 2 + who] = (ds[mine].T @ q.base[row[mine]].double() * scale).float()
            dv_part[pid * 2 + who] = (p[mine].T @ do.base[row[mine]].double()).float()


@pytest.mark.parametrize("is_split", [False, True])
@pytest.mark.parametrize(("T", "offset", "B", "H", "G"), [(66, 0, 1, 32, 2), (9, 120, 2, 16, 1)])
def test_the_backward_by_wgmma_is_told_of_every_row_and_slot(T, offset, B, H, G, is_split, monkeypatch):
    case = Case(B=B, T=T, S=T + offset, H=H, G=G, D=128, L=64, offset=offset)
    given, index = inputs(case)
    if is_split:
        monkeypatch.setattr(triton, "SLOT_BYTES", 31 * case.N * (H // G) * 128 * 2)
        monkeypatch.setattr(triton, "ROWS_PER_ITEM", 5 * H // G)
    qkv = [x.requires_grad_() for x in given]
    o, lse = hopper.selected(*qkv, index, l_slc=64, offset=offset)
    do = torch.randn(o.shape, generator=torch.Generator().manual_seed(1)).half()
    dlse = torch.randn(lse.shape, generator=torch.Generator().manual_seed(2)).where(lse.isfinite(), 0.0)
    monkeypatch.setattr(triton_hopper.triton_selected_backward, "backward_kernel", Spelled())
    got = torch.autograd.grad([o, lse], qkv, [do, dlse], retain_graph=True)
    monkeypatch.setattr(triton_hopper, "BY_WGMMA", False)
    want = torch.autograd.grad([o, lse], qkv, [do, dlse])
    errors = [oracle.relative(a, b.double()) for a, b in zip(got, want, strict=True)]
    assert max(errors) <= 1e-3, errors
