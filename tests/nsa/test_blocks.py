import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsa.blocks import BlockLayout
from nsa.errors import ConfigError

layouts = st.builds(
    lambda d, a, b, n, w: BlockLayout(l=a * d, d=d, l_slc=b * d, n=n, w=w),
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(3, 6),
    st.integers(1, 20),
)


@given(layouts, st.integers(0, 90))
def test_compression_blocks_are_exactly_the_complete_ones(layout, n_tokens):
    complete = [i for i in range(n_tokens + 1) if layout.cmp_span(i).stop <= n_tokens]
    assert layout.n_cmp(n_tokens) == len(complete)


@given(layouts, st.integers(0, 12), st.integers(0, 12))
def test_overlap_counts_shared_strides(layout, i, j):
    shared = set(layout.cmp_span(i)) & set(layout.slc_span(j))
    assert layout.overlap(i, j) * layout.d == len(shared)


@given(layouts, st.integers(0, 12))
def test_overlap_is_equation_9_with_the_papers_one_based_indices(layout, j):
    printed = {}
    for m in range(layout.l_slc // layout.d):
        for n in range(layout.l // layout.d):
            i = (layout.l_slc // layout.d) * (j + 1) - m - n  # 1-based, j + 1 being the paper's j
            printed[i - 1] = printed.get(i - 1, 0) + 1
    for i in range(40):
        assert layout.overlap(i, j) == printed.get(i, 0)


@given(layouts, st.integers(0, 200))
def test_forced_blocks_are_initial_own_and_previous_each_once(layout, position):
    own = position // layout.l_slc
    assert layout.forced(position) == tuple(sorted({0, max(0, own - 1), own}))
    assert layout.n_selected(position) == min(layout.n, own + 1)


@pytest.mark.parametrize(("n_tokens", "expected"), [(8192, 2048), (16384, 2560), (32768, 3584), (65536, 5632)])
def test_tokens_read_per_decoding_step_are_table_4_of_the_paper(n_tokens, expected):
    layout = BlockLayout(l=32, d=16, l_slc=64, n=16, w=512)
    assert layout.tokens_read(n_tokens - 1) == expected - 1  # the table counts s/d blocks; s/d - 1 are complete


@pytest.mark.parametrize("sizes", [(16, 5, 16), (16, 8, 20), (0, 1, 1)])
def test_sizes_that_do_not_divide_are_refused(sizes):
    with pytest.raises(ConfigError):
        BlockLayout(**dict(zip(("l", "d", "l_slc"), sizes, strict=True)), n=3, w=1)
