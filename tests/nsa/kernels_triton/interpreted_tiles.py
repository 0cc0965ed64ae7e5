"""Attention over tiles under Triton's interpreter, against the fp64 references; started by test_interpreted.py."""

from __future__ import annotations

from dataclasses import dataclass, replace

import oracle
import pytest
import torch
from interpreted import nan_filled

from nsa.blocks import BlockLayout
from nsa.kernels.compressed.reference import compressed as compressed_reference
from nsa.kernels.compressed.tiles import compressed
from nsa.kernels.selected import tiles
from nsa.kernels.selected.triton import selected_attention
from nsa.kernels.tiled import triton as tiled
from nsa.kernels.window.reference import window as window_reference
from nsa.kernels.window.tiles import window

__all__ = ["nan_filled"]


@dataclass(frozen=True)
class Case:
    op: str
    B: int = 1
    T: int = 37
    H: int = 6
    G: int = 2
    D: int = 16
    E: int = 16
    offset: int = 0
    w: int = 9
    dtype: torch.dtype = torch.float32
    parts: int = 1

    @property
    def layout(self):
        return BlockLayout(l=8, d=4, l_slc=16, n=3, w=self.w)


WINDOW, BLOCKS, BITS = Case("window"), Case("compressed"), Case("selected", T=53)
CASES = {
    "window": WINDOW,
    "window, fp16": replace(WINDOW, dtype=torch.float16, T=70),
    "window longer than the sequence": replace(WINDOW, w=64),
    "window with keys that all rows of a tile see, between others": replace(WINDOW, T=150, w=80, H=3, G=1),
    "window of one key": replace(WINDOW, w=1, T=7),
    "window, odd widths, behind a cache, in parts": replace(
        WINDOW, B=2, T=20, D=24, E=40, offset=33, H=3, G=1, parts=3
    ),
    "compressed": BLOCKS,
    "compressed, fp16": replace(BLOCKS, dtype=torch.float16, T=70),
    "compressed, with keys that a whole tile of rows sees": replace(BLOCKS, T=170, H=3, G=1),
    "compressed, no block is complete": replace(BLOCKS, T=7),
    "compressed, in parts": replace(BLOCKS, B=2, T=70, H=3, G=1, E=24, parts=3),
    "compressed, behind a cache": replace(BLOCKS, T=17, offset=30),
    "selected": BITS,
    "selected, fp16": replace(BITS, dtype=torch.float16),
    "selected, in parts": replace(BITS, B=2, D=24, E=40, H=3, G=1, parts=3),
    "selected, behind a cache": replace(BITS, T=17, offset=40),
}


def inputs(case):
    gen = torch.Generator().manual_seed(0)
    n_keys = case.T + case.offset
    if case.op == "compressed":
        n_keys = case.layout.n_cmp(n_keys)
    heads = torch.randn(case.B, case.T, case.H + 1, case.D, generator=gen).to(case.dtype)
    k = torch.randn(case.B, n_keys, case.G, case.D, generator=gen).to(case.dtype)
    v = torch.randn(case.B, n_keys, case.G, case.E, generator=gen).to(case.dtype)
    q = heads[:, :, :-1].detach()  # as the layer's queries: a slice, with strides of its own
    return [x.requires_grad_() for x in (q, k, v)], gen


def outcome(call, case, qkv, index):
    if case.op == "window":
        return call(*qkv, w=case.w, offset=case.offset), None
    if case.op == "compressed":
        return call(*qkv, case.layout, offset=case.offset)
    return call(*qkv, index, l_slc=case.layout.l_slc, offset=case.offset)


def selected_reference(q, k, v, index, *, l_slc, offset):
    return oracle.attention(q, k, v, oracle.visible(index, k.shape[1], l_slc=l_slc, offset=offset))


OURS = {"window": window, "compressed": compressed, "selected": tiles.selected}
WANTED = {"window": window_reference, "compressed": compressed_reference, "selected": selected_reference}


def random_blocks(case):
    return oracle.causal_index(case.B, case.T, case.G, case.layout.n, l_slc=case.layout.l_slc, offset=case.offset)


@pytest.mark.parametrize("name", CASES)
def test_a_branch_over_tiles_equals_its_reference(name, monkeypatch):
    case = CASES[name]
    if case.parts > 1:
        monkeypatch.setattr(tiled, "n_parts", lambda **_: case.parts)
    tiled._dkdv.cache_clear()  # launches are not kept by what is changed here
    index = random_blocks(case) if case.op == "selected" else None
    qkv, gen = inputs(case)
    exact = [x.detach().double().requires_grad_() for x in qkv]
    o, lse = outcome(OURS[case.op], case, qkv, index)
    o_want, lse_want = outcome(WANTED[case.op], case, exact, index)
    do = torch.randn(o.shape, generator=gen).to(case.dtype)
    got = [o, *torch.autograd.grad(o, qkv, do)]
    want = [o_want, *torch.autograd.grad(o_want, exact, do.double(), materialize_grads=True)]
    if lse is not None:
        assert lse.dtype == torch.float32
        assert torch.equal(lse.isfinite(), lse_want.isfinite())
        got.append(lse.where(lse.isfinite(), 0.0))
        want.append(lse_want.where(lse_want.isfinite(), 0.0))
    tolerance = 1e-5 if case.dtype == torch.float32 else 2e-3
    for a, b in zip(got, want, strict=True):
        # A gradient may be zero: of one key alone, and where no key is seen.
        assert oracle.relative(a, b) <= tolerance or (b.norm() == 0 and a.norm() <= tolerance * do.norm())


@pytest.mark.parametrize("op", OURS)
def test_a_key_that_is_not_finite_spoils_only_who_sees_it(op):
    case = Case(op, T=28, w=5)
    index = torch.arange(3, dtype=torch.int32).expand(1, case.T, case.G, 3).contiguous()
    outs = []
    for bad in (None, 1, 2):
        qkv, _ = inputs(case)
        key = 3 if op == "compressed" else 18
        if bad is not None:
            qkv[bad].data[:, key, 0, 3] = torch.inf if bad == 1 else torch.nan
        o, _ = outcome(OURS[op], case, qkv, index)
        outs.append((o, torch.autograd.grad(o, qkv[0], torch.ones_like(o))[0]))
    first = 3 * 4 + 8 - 1 if op == "compressed" else 18
    last = first + case.w if op == "window" else case.T
    for clean, *dirty in zip(*outs, strict=True):
        for found in dirty:
            hit = found[:, first:last, : case.H // case.G]
            assert not hit.isfinite().all(-1).any()
            rest = torch.ones_like(found, dtype=torch.bool)
            rest[:, first:last, : case.H // case.G] = False
            assert torch.equal(found[rest], clean[rest])


def test_the_operators_keep_what_torch_asks_of_operators():
    case = Case("selected", T=9, H=3, G=1)
    (q, k, v), _ = inputs(case)
    bits = tiled.block_bits(random_blocks(case))
    given = (q, k, v, bits, tiled.BITS, case.layout.l_slc, 0, 0.25, 0)
    kept = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(torch.ops.nsa.tiled_attention.default, given, test_utils=kept)
    o, lse, *clean = (x.detach() for x in torch.ops.nsa.tiled_attention(*given))
    backward = (torch.ones_like(o), q.detach(), o, lse, *clean, *given[3:])
    torch.library.opcheck(torch.ops.nsa.tiled_attention_backward.default, backward, test_utils=kept)
    torch.library.opcheck(torch.ops.nsa.block_bits.default, (random_blocks(case),), test_utils=kept)


@pytest.mark.parametrize(("T", "n_keys"), [(20, 16 * 65), (9, 16 * 4)])
def test_what_is_no_work_for_tiles_runs_as_in_the_triton_backend(T, n_keys):
    q, k = torch.randn(1, T, 2, 16), torch.randn(1, n_keys, 1, 16)
    index = oracle.causal_index(1, T, 1, 3, l_slc=16, offset=n_keys - T)
    how = {"l_slc": 16, "offset": n_keys - T}
    got, want = tiles.selected(q, k, k, index, **how), selected_attention(q, k, k, index, **how)
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
