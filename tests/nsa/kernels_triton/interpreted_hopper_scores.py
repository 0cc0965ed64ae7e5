"""Block selection for Hopper under Triton's interpreter, against fp64; started by test_interpreted.py."""

from __future__ import annotations

import pytest
import torch
from interpreted import Selection, assert_as_good, choose, layout, nan_filled

from nsa.kernels.scores import hopper
from nsa.kernels.scores import triton_hopper as launches
from nsa.kernels.sizes import cdiv, pow2

__all__ = ["nan_filled"]

SELECTIONS = {
    "overlapping": Selection(layout(8, 4, 8, 4), T=150),
    "several chunks": Selection(layout(8, 4, 8, 4), T=150, small=True),
    "l = d = l_slc": Selection(layout(4, 4, 4, 4), B=2, T=70, H=3, G=1),
    "l > l_slc": Selection(layout(16, 4, 8, 4), T=90, small=True),
    "l of four blocks": Selection(layout(32, 4, 8, 5), T=90, small=True),
    "behind a cache": Selection(layout(8, 4, 8, 4), T=65, H=2, offset=51),
    "two batches of one tile": Selection(layout(8, 4, 16, 3), B=2, T=52, H=6, G=3),
    "shorter than a compression block": Selection(layout(8, 4, 8, 4), T=6, H=2),
    "no compression block but many blocks": Selection(layout(64, 4, 4, 3), T=40, H=2),
}


@pytest.fixture(autouse=True)
def fresh_launches():
    """The tiles that a test changes are none of what launches are kept by."""
    launches._work.cache_clear()
    yield
    launches._work.cache_clear()


@pytest.mark.parametrize("name", SELECTIONS)
def test_selection_is_as_good_as_the_exact_one(name, monkeypatch):
    case = SELECTIONS[name]
    monkeypatch.setattr(launches, "QUERIES", 16)
    monkeypatch.setattr(launches, "KEYS", 16)
    monkeypatch.setattr(launches, "LEAST_RANKED", 4)
    if case.small:
        monkeypatch.setattr(launches, "SCORE_BYTES", 4 * 2 * 2 * 8 * 40)
        monkeypatch.setattr(launches, "WORTH_SPLITTING", 1)
    gen = torch.Generator().manual_seed(0)
    q = torch.randn(case.B, case.T, case.H, 64, generator=gen).half()
    kc = torch.randn(case.B, case.layout.n_cmp(case.T + case.offset), case.G, 64, generator=gen).half()
    score, lse, start = choose(q, kc, case.layout, offset=case.offset, cu=None)
    index = hopper.select(q, kc, lse, case.layout, offset=case.offset)
    assert_as_good(case, index, score, start)


def test_equal_scores_choose_the_lowest_blocks():
    lay = layout(4, 4, 4, 5)
    q = torch.randn(1, 60, 2, 64, generator=torch.Generator().manual_seed(0)).half()
    kc = torch.ones(1, 15, 1, 64).half()
    seen = (torch.arange(60) + 1) // 4
    lse = (q.float().sum(-1) / 8 + seen.clamp_min(1).log()[None, :, None]).contiguous()
    index = hopper.select(q, kc, lse, lay)
    assert index[0, 59, 0].tolist() == [0, 1, 2, 13, 14]


def test_a_key_that_is_not_finite_changes_no_choice_of_who_does_not_see_it():
    case = Selection(layout(8, 4, 8, 4), T=150)
    gen = torch.Generator().manual_seed(0)
    q = torch.randn(1, 150, 4, 64, generator=gen).half()
    kc = torch.randn(1, case.layout.n_cmp(150), 2, 64, generator=gen).half()
    _, lse, _ = choose(q, kc, case.layout, offset=0, cu=None)
    want = hopper.select(q, kc, lse, case.layout)
    kc[:, 20], lse[:, 20 * 4 + 7 :] = torch.nan, torch.nan  # who sees the key has no lse either
    got = hopper.select(q, kc, lse, case.layout)
    assert torch.equal(got[:, : 20 * 4 + 7], want[:, : 20 * 4 + 7])
    for row in got[0, 20 * 4 + 7 :].flatten(0, 1).tolist():
        assert row == sorted(set(row))
        assert row[0] == 0


@pytest.mark.parametrize("t1", [1, 64, 4096, 4160, 32000, 65536])
@pytest.mark.parametrize("offset", [0, 5000])
@pytest.mark.parametrize("rows", [1, 1 << 20])
def test_every_query_is_ranked_once_by_a_launch_that_has_room_for_its_blocks(t1, offset, rows):
    n_blocks = cdiv(offset + t1, 64)
    found = list(launches.ranges(0, t1, offset=offset, l_slc=64, n_blocks=n_blocks, rows=rows))
    assert [first for first, _, _ in found] == [0, *(past for _, past, _ in found[:-1])]
    assert found[-1][1] == t1
    assert all((past - 1 + offset) // 64 < blocks == pow2(blocks) for _, past, blocks in found)
    assert len(found) <= (3 if rows > 1 else 1)


def test_what_does_not_fit_is_refused_at_the_call():
    q, kc, lse = torch.zeros(1, 64, 4, 64).half(), torch.zeros(1, 10, 2, 64).half(), torch.zeros(1, 64, 4)
    lay = layout(8, 4, 8, 4)
    for wrong, said in (
        ((q, kc[..., :32], lse), "do not fit"),
        ((q, kc, lse[:, :3]), "do not fit"),
        ((q, kc.bfloat16(), lse), "of one type"),
    ):
        with pytest.raises(ValueError, match=said):
            hopper.select(*wrong, lay)
    with pytest.raises(ValueError, match="whole blocks"):
        hopper.select(q, kc, lse, layout(8, 4, 12, 4))
