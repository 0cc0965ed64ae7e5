"""Against an implementation that nobody here wrote: the naive reference of fla-core, where it covers the paper.

It covers l = d = l', mean pooling, the compressed and the selected branch, and the choice of blocks.
"""

import warnings

import pytest
import torch

from nsa.attention.compress import MeanPhi
from nsa.blocks import BlockLayout
from nsa.kernels import registry
from nsa.kernels.compressed.masked import compressed as compressed_masked
from nsa.kernels.scores.torch import select

SIZE, T, H, G, D, E = 8, 64, 16, 1, 16, 12
LAYOUT = BlockLayout(l=SIZE, d=SIZE, l_slc=SIZE, n=4, w=8)
SCALE = D**-0.5


@pytest.fixture(scope="module")
def fla():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("fla.ops.nsa.naive", reason="fla-core is not installed", exc_type=ImportError)


def inputs():
    generator = torch.Generator().manual_seed(5)
    shapes = ((2, T, H, D), (2, T, G, D), (2, T, G, E))
    return [torch.randn(*shape, generator=generator).requires_grad_() for shape in shapes]


def pooled(x):
    return MeanPhi()(x, LAYOUT)


def assert_equal_with_gradients(ours, theirs, mine, copies):
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    do = torch.randn(ours.shape, generator=torch.Generator().manual_seed(9))
    ours.backward(do)
    theirs.backward(do)
    for x, y in zip(mine, copies, strict=True):
        assert (x.grad - y.grad).norm() <= 1e-5 * y.grad.norm()


@pytest.mark.parametrize("name", ["packed", pytest.param("masked", marks=pytest.mark.long)])
def test_compressed_branch_and_lse_with_gradients(fla, name):
    mine, copies = inputs(), inputs()
    o, lse = registry.load("compressed", name)(mine[0], pooled(mine[1]), pooled(mine[2]), LAYOUT)
    pool = [x.unflatten(1, (-1, SIZE)).mean(2) for x in copies[1:]]
    theirs, lse_theirs = fla.naive_nsa_compression(copies[0], *pool, SIZE, SCALE)
    torch.testing.assert_close(lse, lse_theirs, rtol=1e-5, atol=1e-5)
    assert_equal_with_gradients(o, theirs, mine, copies)


def test_the_choice_of_blocks(fla):
    q, k, v = inputs()
    kc = pooled(k)
    _, lse = compressed_masked(q, kc, pooled(v), LAYOUT)
    ours = select(q, kc, lse, LAYOUT)
    theirs = fla.naive_nsa_topk(q, kc, LAYOUT.n, SIZE, SCALE)
    last = torch.iinfo(torch.int64).max
    theirs = theirs.masked_fill(theirs < 0, last).sort(-1).values
    assert torch.equal(ours.long(), theirs.masked_fill(theirs == last, -1))
    rows = ours[:, 5 * SIZE :, 0]
    assert len({tuple(row) for row in rows.flatten(0, 1).tolist()}) > 10, "too little choice to tell apart"


@pytest.mark.parametrize("name", ["masked", "sdpa", "gather", "packed"])
def test_selected_branch_with_gradients(fla, name):
    mine, copies = inputs(), inputs()
    kc = pooled(mine[1].detach())
    _, lse = compressed_masked(mine[0].detach(), kc, kc, LAYOUT)
    index = select(mine[0].detach(), kc, lse, LAYOUT)
    o, _ = registry.load("selected", name)(*mine, index, l_slc=SIZE)
    wide = copies[2]  # their output takes v's shape, so v must be as wide as they expect: any E
    theirs = fla.naive_nsa_selection(copies[0], copies[1], wide, index.long(), SIZE, SCALE)
    assert_equal_with_gradients(o, theirs, mine, copies)
