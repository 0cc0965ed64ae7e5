"""The kernels of a decoding step under the interpreter, against the same step in torch; by test_interpreted.py."""

from __future__ import annotations

import copy
import dataclasses

import oracle
import pytest
import torch
from interpreted import nan_filled

from nsa.attention.compress import make_phi
from nsa.attention.pages import PagedCache
from nsa.config import ModelConfig
from nsa.kernels.decode import torch as plain
from nsa.kernels.decode import triton as fast

__all__ = ["nan_filled"]


@dataclasses.dataclass(frozen=True)
class Case:
    positions: tuple[int, ...]
    H: int = 8
    G: int = 2
    D: int = 16
    E: int = 16
    l: int = 16  # noqa: E741 - the paper's letter
    d: int = 8
    l_slc: int = 16
    n: int = 4
    w: int = 20
    phi: str = "mlp"
    shared: bool = False
    dtype: torch.dtype = torch.float32
    max_tokens: int = 400
    how: fast.Plan | None = None


FEW = fast.Plan(splits=2, windows=1, selects=1)
CASES = {
    "first tokens, and blocks that end": Case((0, 14, 15, 22, 23, 31)),
    "many tiles": Case((150, 399, 255), d=2, l=4, l_slc=8, how=FEW),
    "odd widths, means": Case((5, 77, 79), D=24, E=40, H=6, phi="mean"),
    "shared keys": Case((40, 63), shared=True),
    "fp16": Case((79, 207), dtype=torch.float16),
    "long window": Case((390, 130, 64), w=150),
    "blocks longer than pages": Case((95, 96, 127), l=64, d=16),
}


def prepared(case):
    gen = torch.Generator().manual_seed(0)
    config = ModelConfig(
        dim=32, n_layers=1, n_heads=case.H, n_kv_groups=case.G, d_k=case.D, d_v=case.E, l=case.l, d=case.d,
        l_slc=case.l_slc, n=case.n, w=case.w, phi=case.phi, share_kv=case.shared,
    )  # fmt: skip
    B = len(case.positions)
    cache = PagedCache(config, n_rows=B, max_tokens=case.max_tokens, dtype=case.dtype, device=torch.device("cpu"))
    table = torch.randperm(cache.place.table_BM.numel(), generator=gen).view(cache.place.table_BM.shape).int()
    place = dataclasses.replace(cache.place, table_BM=table, position_B=torch.tensor(case.positions).int())
    pages = cache.layers[0]
    for x in pages.tensors():
        x.copy_(torch.randn(x.shape, generator=gen))
    phis = [make_phi(case.phi, l=case.l, width=width).to(case.dtype) for width in (case.D, case.E)]
    for phi in phis:
        for x in phi.parameters():
            x.data.copy_(torch.randn(x.shape, generator=gen) / max(x.shape) ** 0.5)
    K = case.G * (1 if case.shared else 3)
    shapes = (B, case.H, case.D), (B, K, case.D), (B, K, case.E), (B, case.H, 3)
    given = [torch.randn(shape, generator=gen).to(case.dtype) for shape in shapes]
    return given, pages, place, phis, config.layout


def both(case, *, spoil=lambda given, pages: None, how=None):
    given, pages, place, phis, layout = prepared(case)
    spoil(given, pages)
    other = copy.deepcopy(pages)
    want = plain.decode(*given, other, place, *phis, layout)
    got = fast.decode(*given, pages, place, *phis, layout, how=how or case.how)
    assert not place.arrived.any()
    return got, want, pages, other


@torch.no_grad()
@pytest.mark.parametrize("name", CASES)
def test_a_step_gives_and_keeps_what_torch_does(name):
    got, want, pages, other = both(CASES[name])
    limit = 2e-3 if CASES[name].dtype == torch.float16 else 1e-5
    assert oracle.relative(got, want) <= limit
    for x, y in zip(pages.tensors(), other.tensors(), strict=True):
        assert oracle.relative(x, y) <= limit


@torch.no_grad()
@pytest.mark.parametrize("how", [fast.Plan(splits=1, windows=1, selects=1), fast.Plan(splits=8, windows=3, selects=4)])
def test_however_the_work_is_divided_it_is_the_same(how):
    got, want, *_ = both(CASES["many tiles"], how=how)
    assert oracle.relative(got, want) <= 1e-5


@pytest.mark.filterwarnings("ignore:All-NaN slice")
@torch.no_grad()
@pytest.mark.parametrize("what", ["q", "k", "v"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_spoils_the_heads_that_see_it(what, bad):
    case = CASES["first tokens, and blocks that end"]

    def spoil(given, _):
        given["qkv".index(what)][1, 1, 3] = bad  # a head of the second row; k and v of its cmp branch
        given["qkv".index(what)][2, -1, 5] = bad

    got, want, pages, other = both(case, spoil=spoil)
    assert torch.equal(got.isnan(), want.isnan())
    assert 0 < got.isnan().any(-1).sum() < got[..., 0].numel()
    assert torch.equal(got.isnan().any(-1), got.isnan().all(-1))
    for x, y in zip(pages.tensors(), other.tensors(), strict=True):
        assert torch.equal(x.isnan(), y.isnan())
    assert oracle.relative(got.nan_to_num(), want.nan_to_num()) <= 1e-5


@torch.no_grad()
def test_of_blocks_that_tie_the_lower_numbers_are_taken():
    got, want, *_ = both(Case((150, 399, 255), d=2, l=4, l_slc=8), spoil=lambda given, _: given[0].zero_())
    assert oracle.relative(got, want) <= 1e-5


@torch.no_grad()
def test_memory_that_was_never_written_is_never_read():
    case = Case((0, 0, 0))

    given, pages, place, phis, layout = prepared(case)
    for x in pages.tensors():
        x.fill_(float("nan"))
    for _ in range(33):
        o = fast.decode(*given, pages, place, *phis, layout)
        assert o.isfinite().all()
        place.position_B.add_(1)
