"""The Hopper kernels on a Hopper GPU: parity with masked attention in fp64, equal bits, nothing leaks, every length."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

pytest.importorskip("triton.experimental.gluon")

from nsa.blocks import BlockLayout
from nsa.kernels import registry
from nsa.kernels.devices import is_hopper
from nsa.kernels.hopper import triton as hopper
from nsa.kernels.scores import hopper as scores
from nsa.kernels.scores import torch as exact
from nsa.kernels.scores import triton_hopper as score_launches
from nsa.kernels.selected import hopper as selection
from nsa.kernels.selected import masked as selected_masked
from nsa.kernels.selected import triton as selected_launches
from nsa.kernels.selected import triton_hopper as selected_hopper

IS_HOPPER = torch.cuda.is_available() and is_hopper(torch.device("cuda"))
pytestmark = pytest.mark.skipif(not IS_HOPPER, reason="needs a GPU of compute capability 9.0")
TOLERANCE = {torch.float16: (1e-3, 2e-3), torch.bfloat16: (4e-3, 8e-3)}
BRANCHES = ("window", "compressed")


@dataclass(frozen=True)
class Case:
    T: int = 300
    B: int = 1
    H: int = 16
    G: int = 1
    D: int = 128
    offset: int = 0
    w: int = 100
    l: int = 32  # noqa: E741 - the paper's letter
    d: int = 16

    @property
    def layout(self):
        return BlockLayout(l=self.l, d=self.d, l_slc=64, n=16, w=self.w)


CASES = {
    "group of 16": Case(),
    "one token": Case(T=1),
    "one token short of a block": Case(T=31),
    "one block": Case(T=32),
    "a window of one": Case(T=129, w=1),
    "a window beyond the sequence": Case(T=200, w=512),
    "two rows, two kv heads": Case(T=517, B=2, H=32, G=2),
    "group of 6": Case(T=333, H=6, l=16, d=8),
    "group of 1": Case(T=200, H=3, G=3, l=8, d=8),
    "group of 64": Case(T=150, H=64, w=33),
    "group of 128": Case(T=150, H=128, w=33),
    "behind a cache": Case(T=97, offset=400, w=130),
    "heads of 64": Case(T=700, B=2, H=12, G=2, D=64),
    "blocks of one token": Case(T=261, H=16, G=4, D=64, l=1, d=1, w=20),
}
of_cases = pytest.mark.parametrize(("op", "name"), [(op, name) for op in BRANCHES for name in CASES])


def inputs(op, case, dtype, seed=0):
    """q, k, v and do; k and v are compressed keys and values for the compressed branch."""
    gen = torch.Generator("cuda").manual_seed(seed)
    n_tokens = case.offset + case.T
    S = n_tokens if op == "window" else case.layout.n_cmp(n_tokens)
    rows, keys = (case.B, case.T, case.H, case.D), (case.B, S, case.G, case.D)
    return [torch.randn(*size, device="cuda", generator=gen).to(dtype) for size in (rows, keys, keys, rows)]


def attended(op, name, case, q, k, v):
    """O, and lse where the branch has one."""
    call = registry.load(op, name)
    if op == "window":
        return call(q, k, v, w=case.w, offset=case.offset), None
    return call(q, k, v, case.layout, offset=case.offset)


def results(op, name, case, q, k, v, do):
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    o, lse = attended(op, name, case, *leaves)
    return o.detach(), lse, *torch.autograd.grad(o, leaves, do.to(o.dtype))


def relative(got, want, do):
    """The distance in the 2-norm, relative to what is wanted, or to do where that is zero."""
    size = want.double().norm()
    return ((got.double() - want.double()).norm() / (do.double().norm() if size < 1e-9 else size)).item()


@of_cases
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.usefixtures("nan_filled")
def test_forward_and_gradients_equal_fp64_and_repeat_their_bits(op, name, dtype):
    case, (forward, backward) = CASES[name], TOLERANCE[dtype]
    given = inputs(op, case, dtype)
    got, again = (results(op, "hopper", case, *given) for _ in range(2))
    want = results(op, "masked", case, *(x.double() for x in given))
    assert relative(got[0], want[0], given[3]) < forward
    if got[1] is not None:
        torch.testing.assert_close(got[1].double(), want[1], rtol=forward, atol=forward)
    for label, a, b in zip(("dq", "dk", "dv"), got[2:], want[2:], strict=True):
        assert relative(a, b, given[3]) < backward, label
    assert all(a is None or torch.equal(a, b) for a, b in zip(got, again, strict=True))


def seen(op, case):
    """[T, S] whether a query sees a key."""
    t = torch.arange(case.T, device="cuda")[:, None] + case.offset
    if op == "window":
        distance = t - torch.arange(case.offset + case.T, device="cuda")
        return (distance >= 0) & (distance < case.w)
    return torch.arange(case.layout.n_cmp(case.offset + case.T), device="cuda") * case.d + case.l - 1 <= t


@pytest.mark.parametrize("op", BRANCHES)
@pytest.mark.parametrize("what", ["key", "value"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")], ids=str)
def test_what_is_not_finite_spoils_who_sees_it_and_changes_no_bit_elsewhere(op, what, bad):
    case = Case(T=400, l=4, d=2)
    q, k, v, do = inputs(op, case, torch.bfloat16)
    clean = results(op, "hopper", case, q, k, v, do)
    (k if what == "key" else v)[:, 97, :, 5] = bad
    o, _, dq, dk, dv = results(op, "hopper", case, q, k, v, do)
    sees = seen(op, case)
    rows = sees[:, 97]
    keys = sees[rows].any(0)
    for got, plain in ((o, clean[0]), (dq, clean[2])):
        assert got[0, rows].isnan().all()
        assert torch.equal(got[0, ~rows], plain[0, ~rows])
    for got, plain in ((dk, clean[3]), (dv, clean[4])):
        assert got[0, keys].isnan().all()
        assert torch.equal(got[0, ~keys], plain[0, ~keys])
    assert rows.any()
    assert (~rows).any()
    assert (~keys).any() == (op == "window")


@pytest.mark.parametrize("op", BRANCHES)
def test_editing_the_future_changes_no_earlier_bit(op):
    case = Case(T=500)
    q, k, v, _ = inputs(op, case, torch.float16)
    before = attended(op, "hopper", case, q, k, v)[0]
    first = case.layout.n_cmp(300) if op == "compressed" else 300
    q[:, 300:], k[:, first:], v[:, first:] = 7.0, 9.0, float("nan")
    after = attended(op, "hopper", case, q, k, v)[0]
    assert torch.equal(before[:, :300], after[:, :300])
    assert not torch.equal(before[:, 300:], after[:, 300:])


@pytest.mark.parametrize("op", BRANCHES)
def test_inputs_that_the_copy_engine_cannot_read_give_the_same_bits(op):
    case = Case()
    q, k, v, do = inputs(op, case, torch.bfloat16)
    want = results(op, "hopper", case, q, k, v, do)
    odd = torch.empty(q.numel() + 1, dtype=q.dtype, device="cuda")[1:].view(q.shape).copy_(q)  # begins at byte 2
    spread = torch.stack((do, do), -1)[..., 0]  # no two numbers side by side
    beside = torch.cat((k, v), 2)  # rows of k and v in turn
    got = results(op, "hopper", case, odd, beside[:, :, :1], beside[:, :, 1:], spread)
    for a, b in zip(got, want, strict=True):
        assert a is None or torch.equal(a, b)


@pytest.mark.parametrize("op", BRANCHES)
def test_operators_keep_what_torch_asks_of_them(op):
    case = Case(T=70)
    q, k, v, do = inputs(op, case, torch.bfloat16)
    kind, sizes = (hopper.WINDOW, (case.w, 0)) if op == "window" else (hopper.BLOCKS, (case.l, case.d))
    given = (*(x.requires_grad_() for x in (q, k, v)), kind, *sizes, 0.1, 0)
    kept = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(torch.ops.nsa.hopper_attention.default, given, test_utils=kept)
    o, lse = (x.detach() for x in torch.ops.nsa.hopper_attention(*given))
    backward = (do, *(x.detach() for x in (q, k, v)), o, lse, *given[3:])
    torch.library.opcheck(torch.ops.nsa.hopper_attention_backward.default, backward, test_utils=kept)


def test_what_does_not_fit_is_refused_at_the_call():
    q, k, v, _ = inputs("window", Case(), torch.bfloat16)
    how = {"kind": hopper.WINDOW, "sizes": (8, 0), "offset": 0}
    for wrong, said in (
        ({"scale": 0.0}, "must be positive"),
        ({"offset": -1, "scale": 1.0}, "do not fit"),
    ):
        with pytest.raises(ValueError, match=said):
            hopper.attend(q, k, v, **how | wrong)
    with pytest.raises(ValueError, match="of one type"):
        hopper.attend(q, k.half(), v, scale=1.0, **how)


@pytest.mark.parametrize("op", BRANCHES)
def test_a_graph_replays_forward_and_backward(op):
    case = Case(T=400)
    given = inputs(op, case, torch.bfloat16)
    want = results(op, "hopper", case, *given)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = results(op, "hopper", case, *given)
    graph.replay()
    for a, b in zip(got, want, strict=True):
        assert a is None or torch.equal(a, b)


def scored(case, dtype, seed=0):
    """q, compressed keys, lse, and the exact scores of every block (Eq. 8 to 10, fp64)."""
    q, kc, _, _ = inputs("compressed", case, dtype, seed)
    n_tokens = case.offset + case.T
    sees = seen("compressed", case)
    k = kc.double().repeat_interleave(case.H // case.G, 2)
    s = torch.einsum("bthd,bchd->bthc", q.double(), k) * case.D**-0.5
    s = s.masked_fill(~sees[None, :, None], -torch.inf)
    lse = s.logsumexp(-1)
    p = (s - lse.masked_fill(lse == -torch.inf, 0.0)[..., None]).exp().unflatten(2, (case.G, -1)).sum(3)
    return q, kc, lse.float(), exact.block_scores(p, case.layout.n_slc(n_tokens), case.layout)


SELECTIONS = {
    "paper": Case(T=2100, H=32, G=2),
    "two rows of odd length, group of 5, heads of 64": Case(T=1501, B=2, H=10, G=2, D=64),
    "group of 64": Case(T=1300, H=64),
    "l of two blocks": Case(T=1900, l=128, d=16),
    "l = d = l_slc": Case(T=1500, l=64, d=64),
    "behind a cache": Case(T=65, offset=3000),
    "fewer blocks than n": Case(T=900),
    "one token more than n blocks": Case(T=1025),
}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", SELECTIONS)
@pytest.mark.usefixtures("nan_filled")
def test_every_chosen_block_is_among_the_best(name, dtype):
    case = SELECTIONS[name]
    layout = case.layout
    q, kc, lse, score = scored(case, dtype)
    index, again = (scores.select(q, kc, lse, layout, offset=case.offset).long() for _ in range(2))
    assert torch.equal(index, again)
    position = torch.arange(case.T, device="cuda") + case.offset
    want = exact.top_blocks(score, position, layout).long()
    is_used = index >= 0
    assert torch.equal(is_used, want >= 0)
    ascending = index.where(is_used, score.shape[-1] + torch.arange(layout.n, device="cuda"))
    assert (ascending.diff(dim=-1) > 0).all()
    own = (position // layout.l_slc)[:, None, None, None]
    assert (index[..., None] <= own).all()
    for forced in (torch.zeros_like(own), own, (own - 1).clamp_min(0)):
        assert (index[..., None] == forced).any(3).all()
    got, best = (score.gather(-1, x.clamp_min(0)).masked_fill(~is_used, 0.0).sort(-1).values for x in (index, want))
    assert (best - got).max() <= 1e-4 * case.H / case.G


def test_chunks_and_split_ranking_do_not_change_the_choice(monkeypatch):
    case = Case(T=9000, H=32, G=2)
    q, kc, lse, _ = scored(case, torch.bfloat16)
    whole = scores.select(q, kc, lse, case.layout)
    monkeypatch.setattr(score_launches, "WORTH_SPLITTING", 1)
    assert torch.equal(whole, scores.select(q, kc, lse, case.layout))
    monkeypatch.setattr(score_launches, "SCORE_BYTES", 1 << 20)
    assert torch.equal(whole, scores.select(q, kc, lse, case.layout))


def test_equal_keys_choose_the_lowest_blocks():
    layout = Case().layout
    q = torch.randn(1, 4096, 16, 128, device="cuda").bfloat16()
    kc = torch.ones(1, layout.n_cmp(4096), 1, 128, device="cuda").bfloat16()
    n_seen = torch.tensor([max(1, layout.n_cmp(t + 1)) for t in range(4096)], device="cuda")
    lse = q.float().sum(-1) * 128**-0.5 + n_seen.log()[None, :, None]
    index = scores.select(q, kc, lse, layout)[0, :, 0]
    for t in (1024, 2000, 4095):
        own = t // 64
        assert index[t].tolist() == [*range(14), own - 1, own]


def test_block_selection_keeps_what_torch_asks_of_an_operator_and_never_waits():
    case = Case(T=1500)
    q, kc, lse, _ = scored(case, torch.bfloat16)
    given = (q, kc, lse, case.l, case.d, 64, 16, 0.1, 0)
    kept = ("test_schema", "test_faketensor")
    torch.library.opcheck(torch.ops.nsa.select_blocks_hopper.default, given, test_utils=kept)
    torch.cuda.set_sync_debug_mode("error")
    try:
        scores.select(q, kc, lse, case.layout)
    finally:
        torch.cuda.set_sync_debug_mode("default")


LISTS = {
    "64 heads, 4 kv heads": Case(T=1300, H=64, G=4),
    "one token": Case(T=1),
    "one token short of a block": Case(T=63),
    "two rows of odd length": Case(T=517, B=2, H=32, G=2),
    "group of 48": Case(T=333, H=48),
    "group of 64": Case(T=150, H=64),
    "group of 128": Case(T=150, H=128),
    "behind a cache": Case(T=97, offset=400),
    "one query behind a cache": Case(T=1, offset=900),
    "heads of 64": Case(T=700, B=2, H=32, G=2, D=64),
}


def listed(case, dtype, *, n=16, seed=0):
    """q, k, v, do, and random blocks of 64 keys, ascending; some queries use few slots, some none."""
    given = inputs("window", case, dtype, seed)
    gen = torch.Generator("cuda").manual_seed(seed)
    own = (torch.arange(case.T, device="cuda") + case.offset) // 64
    n_blocks = int(own.max()) + 1
    score = torch.rand(case.B, case.T, case.G, n_blocks, device="cuda", generator=gen)
    is_hidden = torch.arange(n_blocks, device="cuda") > own[:, None]
    value, block = score.masked_fill(is_hidden[None, :, None] | (score < 0.3), -1.0).sort(-1, descending=True)
    block = block.masked_fill(value < 0, n_blocks)[..., :n].sort(-1).values
    block = torch.nn.functional.pad(block, (0, n - block.shape[-1]), value=n_blocks)
    return given, block.masked_fill(block == n_blocks, -1).int()


def of_lists(call, case, q, k, v, do, index):
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    o, lse = call(*leaves, index, l_slc=64, offset=case.offset)
    return o.detach(), lse.detach(), *torch.autograd.grad(o, leaves, do.to(o.dtype))


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", LISTS)
@pytest.mark.usefixtures("nan_filled")
def test_attention_over_listed_blocks_equals_fp64_and_repeats_its_bits(name, dtype):
    case, (forward, backward) = LISTS[name], TOLERANCE[dtype]
    given, index = listed(case, dtype)
    got, again = (of_lists(selection.selected, case, *given, index) for _ in range(2))
    want = of_lists(selected_masked.selected, case, *(x.double() for x in given), index)
    assert relative(got[0], want[0], given[3]) < forward
    torch.testing.assert_close(got[1].double(), want[1], rtol=forward, atol=forward)
    for label, a, b in zip(("dq", "dk", "dv"), got[2:], want[2:], strict=True):
        assert relative(a, b, given[3]) < backward, label
    assert all(torch.equal(a, b) for a, b in zip(got, again, strict=True))


@pytest.mark.parametrize("what", [1, 2])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")], ids=str)
def test_of_a_listed_block_only_who_sees_the_key_that_is_not_finite_is_spoiled(what, bad):
    case = Case(T=320)
    given, _ = listed(case, torch.bfloat16)
    index = torch.tensor([0, 1, 3], device="cuda").int().expand(1, 320, 1, 3).contiguous()
    clean = of_lists(selection.selected, case, *given, index)
    given[what][:, 210, :, 5] = bad
    o, lse, dq, dk, dv = of_lists(selection.selected, case, *given, index)
    for got, plain in ((o, clean[0]), (lse, clean[1]), (dq, clean[2])):
        assert torch.equal(got[:, :210], plain[:, :210])
        assert got[:, 210:].isnan().all()
    for got, plain in ((dk, clean[3]), (dv, clean[4])):
        assert torch.equal(got[:, 128:192], plain[:, 128:192])  # of a block that nobody lists
        assert torch.equal(got[:, 256:], plain[:, 256:])
        assert not plain.isnan().any()
    assert dk[:, 210].isnan().all()


def test_editing_later_keys_of_a_listed_block_changes_no_earlier_bit():
    case = Case(T=500)
    given, index = listed(case, torch.float16)
    before = of_lists(selection.selected, case, *given, index)[:2]
    for x in given[:3]:
        x[:, 300:] = float("nan")
    after = of_lists(selection.selected, case, *given, index)[:2]
    for a, b in zip(before, after, strict=True):
        assert torch.equal(a[:, :300], b[:, :300])
    assert not torch.equal(before[0], after[0])


@pytest.mark.parametrize("by_wgmma", [True, False])
def test_a_gradient_of_lse_reaches_q_and_the_keys_of_listed_blocks(by_wgmma, monkeypatch):
    monkeypatch.setattr(selected_hopper, "BY_WGMMA", by_wgmma)
    case = Case(T=300, H=32, G=2)
    given, index = listed(case, torch.float16)
    found = []
    for call, kind in ((selection.selected, torch.float16), (selected_masked.selected, torch.float64)):
        leaves = [x.to(kind).requires_grad_() for x in given[:3]]
        o, lse = call(*leaves, index, l_slc=64)
        lse = lse.where(lse > -torch.inf, 0.0)
        found.append(torch.autograd.grad((o.double() * given[3]).sum() + lse.double().square().sum(), leaves))
    for a, b in zip(*found, strict=True):
        assert relative(a, b, given[3]) < 2e-3


def test_many_launches_of_listed_blocks_give_what_one_gives(monkeypatch):
    case = Case(T=600, B=2, H=32, G=2)
    given, index = listed(case, torch.float16)
    whole = of_lists(selection.selected, case, *given, index)
    monkeypatch.setattr(selected_launches, "SLOT_BYTES", 170 * 16 * 16 * 128 * 2)
    monkeypatch.setattr(selected_launches, "ROWS_PER_ITEM", 16 * 7)
    parts = of_lists(selection.selected, case, *given, index)
    for a, b in zip(parts, whole, strict=True):
        # A row that sees nothing has the lse -inf in both.
        empty = b == -torch.inf
        assert torch.equal(a == -torch.inf, empty)
        assert relative(a.masked_fill(empty, 0.0), b.masked_fill(empty, 0.0), given[3]) < 1e-3


def test_attention_over_listed_blocks_keeps_what_torch_asks_of_an_operator_and_never_waits():
    case = Case(T=200)
    (q, k, v, do), index = listed(case, torch.bfloat16)
    given = (*(x.requires_grad_() for x in (q, k, v)), index, 64, 0.1, 0)
    kept = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(torch.ops.nsa.selected_attention_hopper.default, given, test_utils=kept)
    o, lse = (x.detach() for x in torch.ops.nsa.selected_attention_hopper(*given))
    backward = (do, None, *(x.detach() for x in (q, k, v)), index, o, lse, 64, 0.1, 0)
    torch.library.opcheck(torch.ops.nsa.selected_attention_hopper_backward.default, backward, test_utils=kept)
    torch.cuda.set_sync_debug_mode("error")
    try:
        of_lists(selection.selected, case, q, k, v, do, index)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    want = of_lists(selection.selected, case, q, k, v, do, index)
    with torch.cuda.graph(graph):
        got = of_lists(selection.selected, case, q, k, v, do, index)
    graph.replay()
    for a, b in zip(got, want, strict=True):
        assert torch.equal(a, b)
