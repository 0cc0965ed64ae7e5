"""Block selection: equation 9, grouping, forced blocks, ties, and the choice itself against fp64 scores."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nsa.blocks import BlockLayout
from nsa.kernels.compressed.masked import compressed
from nsa.kernels.samples import BY_NAME, CASES, boundaries, tensors
from nsa.kernels.scores.reference import scores as reference_scores
from nsa.kernels.scores.reference import select as reference_select
from nsa.kernels.scores.torch import block_scores, select, stride_weights

layouts = st.builds(
    lambda d, a, b, n: BlockLayout(l=a * d, d=d, l_slc=b * d, n=n, w=4),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(3, 5),
)


def selection(case, *, dtype=torch.float64, x=None):
    x = tensors(case, dtype=dtype) if x is None else x
    where = {"offset": case.offset, "cu_seqlens": boundaries(case)}
    _, lse = compressed(x["q"], x["kc"], x["vc"], case.layout, **where)
    return select(x["q"], x["kc"], lse, case.layout, **where)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_the_selection_is_the_references_in_fp64(case):
    x = tensors(case, dtype=torch.float64)
    want = reference_select(
        x["q"], x["kc"], x["q"][..., 0], case.layout, offset=case.offset, cu_seqlens=boundaries(case)
    )
    assert torch.equal(selection(case), want)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", [c for c in CASES if c.T > 16], ids=lambda c: c.name)
def test_lower_precision_never_regrets_its_choice_by_more_than_rounding(case, dtype):
    x = tensors(case, dtype=dtype)
    index = selection(case, x=x)
    importance = reference_scores(x["q"], x["kc"], case.layout, offset=case.offset, cu_seqlens=boundaries(case))
    epsilon = 1e-4 if dtype == torch.float32 else 5e-2
    best = reference_select(
        x["q"], x["kc"], x["q"][..., 0], case.layout, offset=case.offset, cu_seqlens=boundaries(case)
    )
    for b, t, g in torch.cartesian_prod(*(torch.arange(n) for n in index.shape[:3])).tolist():
        score = importance[b][t][g]
        chosen = [j for j in index[b, t, g].tolist() if j >= 0]
        worst_best = sum(score[j] for j in best[b, t, g].tolist() if j >= 0)
        assert sum(score[j] for j in chosen) >= worst_best - epsilon


@given(layouts, st.integers(0, 60), st.integers(1, 60))
def test_block_scores_are_the_overlap_matrix(layout, n_cmp, n_tokens):
    n_slc = layout.n_slc(n_tokens)
    p = torch.rand(2, n_cmp, dtype=torch.float64)
    overlap = torch.tensor(
        [[float(layout.overlap(i, j)) for j in range(n_slc)] for i in range(n_cmp)], dtype=torch.float64
    ).reshape(n_cmp, n_slc)
    torch.testing.assert_close(block_scores(p, n_slc, layout), p @ overlap)


def test_the_papers_sizes_have_the_weights_1_2_2_2_1():
    weights = stride_weights(BlockLayout(l=32, d=16, l_slc=64, n=16, w=512), torch.zeros(1))
    assert weights.tolist() == [1, 2, 2, 2, 1]


def test_equal_blocks_score_as_their_compression_blocks():
    layout = BlockLayout(l=4, d=4, l_slc=4, n=3, w=4)
    p = torch.rand(3, 5)
    assert torch.equal(block_scores(p, 5, layout), p)


@given(layouts, st.integers(1, 50))
def test_probability_is_conserved_up_to_the_tail(layout, n_tokens):
    n_cmp, n_slc = layout.n_cmp(n_tokens), layout.n_slc(n_tokens)
    p = torch.rand(n_cmp, dtype=torch.float64)
    # Every compression block lies inside the tokens, so every one of its l / d strides lies in some block.
    total = block_scores(p, n_slc, layout).sum()
    torch.testing.assert_close(total, p.sum() * (layout.l // layout.d))


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_rows_hold_forced_blocks_once_in_order_and_nothing_ahead(case):
    index = selection(case)
    cu = case.cu or (0, case.T)
    positions = [case.offset + t for a, b in pairwise(cu) for t in range(b - a)]
    for t, position in enumerate(positions):
        for row in index[:, t].flatten(0, 1).tolist():
            chosen = [j for j in row if j >= 0]
            assert row == chosen + [-1] * (case.n - len(chosen))
            assert chosen == sorted(set(chosen))
            assert set(case.layout.forced(position)) <= set(chosen)
            assert chosen[-1] == case.layout.slc_of(position)
            assert len(chosen) == case.layout.n_selected(position)


def test_equal_scores_go_to_the_lowest_block():
    case = BY_NAME["plain"]
    x = tensors(case)
    x["kc"] = torch.zeros_like(x["kc"])
    # All probabilities equal: inner blocks tie, and block 0 is forced anyway.
    layout = BlockLayout(l=8, d=8, l_slc=8, n=4, w=8)
    kc = x["kc"][:, : layout.n_cmp(case.T)]
    _, lse = compressed(x["q"], kc, kc, layout)
    index = select(x["q"], kc, lse, layout)
    assert index[0, -1, 0].tolist() == [0, 1, 4, 5]


def test_permuting_heads_inside_a_group_changes_nothing_and_groups_permute_with_their_heads():
    case = BY_NAME["ragged-prime"]
    x = tensors(case, dtype=torch.float64)
    index = selection(case, x=x)
    within = {**x, "q": x["q"][:, :, [1, 0, 3, 2]]}
    assert torch.equal(selection(case, x=within), index)
    across = {
        **x,
        "q": x["q"][:, :, [2, 3, 0, 1]],
        "kc": x["kc"][:, :, [1, 0]],
        "vc": x["vc"][:, :, [1, 0]],
    }
    assert torch.equal(selection(case, x=across), index[:, :, [1, 0]])


def test_small_chunks_of_queries_select_the_same(monkeypatch):
    for case in (BY_NAME["ragged-prime"], BY_NAME["documents"]):
        whole = selection(case)
        monkeypatch.setattr("nsa.kernels.scores.torch.SCORES_AT_ONCE", 300)
        assert torch.equal(selection(case), whole)


def test_heads_of_a_group_vote_together():
    case = BY_NAME["mqa-group-of-6"]
    x = tensors(case, dtype=torch.float64)
    single = [selection(case, x={**x, "q": x["q"][:, :, [h] * 6]}) for h in range(6)]
    together = selection(case, x=x)
    assert any(not torch.equal(one, together) for one in single), "the case is too easy to tell heads apart"
    assert together.shape[2] == 1
