"""The three branches and their gated sum as one operator: equal to fp64 and to the branches apart, on a Hopper GPU."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

pytest.importorskip("triton.experimental.gluon")

from nsa import nsa_attention
from nsa.attention.layer import gated_output
from nsa.blocks import BlockLayout
from nsa.kernels import registry
from nsa.kernels.combine import fused
from nsa.kernels.devices import is_hopper
from nsa.kernels.hopper import triton_whole as whole
from nsa.kernels.selected import triton as selected_launches

IS_HOPPER = torch.cuda.is_available() and is_hopper(torch.device("cuda"))
pytestmark = pytest.mark.skipif(not IS_HOPPER, reason="needs a GPU of compute capability 9.0")
TOLERANCE = {torch.float16: (1e-3, 2e-3), torch.bfloat16: (4e-3, 8e-3)}
LABELS = ("q", "kc", "vc", "ks", "vs", "kw", "vw", "gate")


@dataclass(frozen=True)
class Case:
    T: int = 300
    B: int = 1
    H: int = 16
    G: int = 1
    D: int = 128
    w: int = 100
    l: int = 32  # noqa: E741 - the paper's letter
    d: int = 16
    l_slc: int = 64
    n: int = 4
    gate: torch.dtype | None = None
    is_positive: bool = False

    @property
    def layout(self):
        return BlockLayout(l=self.l, d=self.d, l_slc=self.l_slc, n=self.n, w=self.w)


CASES = {
    "group of 16": Case(),
    "one token": Case(T=1),
    "one token short of a block": Case(T=31),
    "two rows, two kv heads": Case(T=517, B=2, H=32, G=2),
    "all slots": Case(T=1500, H=64, G=4, n=16, w=512),
    "group of 4": Case(T=700, H=16, G=4, n=16),
    "group of 6": Case(T=333, H=6, l=16, d=8),
    "group of 1": Case(T=200, H=3, G=3, l=8, d=8),
    "group of 64": Case(T=150, H=64, w=33),
    "group of 48": Case(T=150, H=48, w=33),
    "heads of 64": Case(T=700, B=2, H=32, G=2, D=64),
    "heads of 64, group of 6": Case(T=700, B=2, H=12, G=2, D=64, gate=torch.float32),
    "blocks of 32": Case(T=400, l_slc=32, l=16, d=16),
    "gates in fp32": Case(T=400, gate=torch.float32),
    "no negative gate": Case(T=400, is_positive=True),
}


def inputs(case, dtype, seed=0):
    """Q, keys and values of every branch, gates of every sign and size, some of them zero."""
    gen = torch.Generator("cuda").manual_seed(seed)
    C = case.layout.n_cmp(case.T)
    sizes = [(case.B, case.T, case.H, case.D)]
    sizes += [(case.B, S, case.G, case.D) for S in (C, C, case.T, case.T, case.T, case.T)]
    given = [torch.randn(size, device="cuda", generator=gen).to(dtype) for size in sizes]
    gate = torch.randn(case.B, case.T, case.H, 3, device="cuda", generator=gen)
    gate = gate.where(torch.rand(gate.shape, device="cuda", generator=gen) > 0.1, 0.0)
    gate = gate.abs() if case.is_positive else gate  # then no kernel looks at signs
    return [*given, gate.to(case.gate or dtype)], torch.randn(sizes[0], device="cuda", generator=gen).to(dtype)


def by_one(case, given, do, *, by_tma=None):
    """Every output of the operator, and the gradients of all it takes."""
    leaves = [x.detach().requires_grad_() for x in given]
    y = case.layout
    tma_slc = case.H // case.G % 16 == 0 if by_tma is None else by_tma
    found = whole.attention(*leaves, y.l, y.d, y.l_slc, y.n, y.w, case.D**-0.5, True, tma_slc)
    return found, torch.autograd.grad(found[0], leaves, do)


def apart(case, given, do, index, names):
    """The same sum and gradients by other kernels, one after the other, over the same blocks."""
    q, kc, vc, ks, vs, kw, vw, gate = leaves = [x.detach().requires_grad_() for x in given]
    cmp, _ = registry.load("compressed", names["compressed"])(q, kc, vc, case.layout)
    slc, _ = registry.load("selected", names["selected"])(q, ks, vs, index, l_slc=case.l_slc)
    win = registry.load("window", names["window"])(q, kw, vw, w=case.w)
    out = registry.load("combine", names["combine"])(cmp, slc, win, gate)
    return out, torch.autograd.grad(out, leaves, do)


EXACT = {"compressed": "masked", "selected": "masked", "window": "masked", "combine": "torch"}
TWINS = {"compressed": "hopper", "selected": "triton", "window": "hopper", "combine": "triton"}


def relative(got, want, scale):
    size = want.double().norm()
    return ((got.double() - want.double()).norm() / (scale.double().norm() if size < 1e-9 else size)).item()


@pytest.mark.parametrize("dtype", TOLERANCE, ids=["fp16", "bf16"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("nan_filled")
def test_one_operator_equals_fp64_and_its_parts_and_repeats_its_bits(name, dtype):
    case, (forward, backward) = CASES[name], TOLERANCE[dtype]
    given, do = inputs(case, dtype)
    (found, grads), (again, grads_again) = (by_one(case, given, do) for _ in range(2))
    want, wanted = apart(case, [x.double() for x in given], do.double(), found[7], EXACT)
    twin, twins = apart(case, given, do, found[7], TWINS)
    assert relative(found[0], want, do) < forward
    assert relative(found[0], want, do) < 1.1 * relative(twin, want, do) + 1e-6
    for label, got, right, other in zip(LABELS, grads, wanted, twins, strict=True):
        if right.numel():
            assert relative(got, right, do) < backward, label
            assert relative(got, right, do) < 1.2 * relative(other, right, do) + 1e-5, label
    for a, b in zip((*found[:7], *grads), (*again[:7], *grads_again), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("what", range(1, 7))
@pytest.mark.parametrize("bad", [float("nan"), float("inf")], ids=str)
def test_only_who_sees_a_key_that_is_not_finite_is_spoiled(what, bad):
    case = Case(T=320, n=3)
    given, do = inputs(case, torch.bfloat16)
    (clean, *_), clean_grads = by_one(case, given, do)
    at = 12 if what in (1, 2) else 210
    given[what][:, at, :, 5] = bad
    (o, *_), grads = by_one(case, given, do)
    first = at * case.d + case.l - 1 if what in (1, 2) else 210
    assert torch.equal(o[:, :first], clean[:, :first])
    assert o[:, first:].isnan().any()
    assert torch.equal(grads[0][:, :first], clean_grads[0][:, :first])
    assert not any(x.isnan().any() for x in clean_grads)


def test_editing_later_tokens_changes_no_earlier_bit():
    case = Case(T=500)
    given, do = inputs(case, torch.float16)
    before = by_one(case, given, do)[0][0]
    for x in given[3:7]:
        x[:, 300:] = float("nan")
    given[0][:, 300:] = 7.0
    for x in given[1:3]:
        x[:, case.layout.n_cmp(300) :] = float("nan")
    after = by_one(case, given, do)[0][0]
    assert torch.equal(before[:, :300], after[:, :300])
    assert not torch.equal(before[:, 300:], after[:, 300:])


def test_many_launches_give_what_one_gives(monkeypatch):
    case = Case(T=600, B=2, H=32, G=2)
    given, do = inputs(case, torch.float16)
    one = by_one(case, given, do)[1]
    monkeypatch.setattr(selected_launches, "SLOT_BYTES", 170 * 4 * 16 * 128 * 2)
    monkeypatch.setattr(selected_launches, "ROWS_PER_ITEM", 16 * 7)
    many = by_one(case, given, do)[1]
    for a, b in zip(one, many, strict=True):
        assert relative(a, b, do) < 1e-3


def test_the_function_takes_one_operator_where_it_serves_and_its_parts_where_they_are_named(monkeypatch):
    case, calls = Case(T=400, H=16, n=16, w=512), []
    attend = fused.attend
    monkeypatch.setattr(fused, "attend", lambda *a, **k: calls.append(a) or attend(*a, **k))
    (q, _, _, ks, vs, *_, gate), _ = inputs(case, torch.bfloat16)
    o = nsa_attention(q, ks, vs, None, None, gate)
    assert len(calls) == 1
    for named in ({"combine": "triton"}, {"window": "tiles"}, {"selected": "gather"}):
        other = nsa_attention(q, ks, vs, None, None, gate, kernels=named)
        assert relative(other, o, o) < 6e-3
    nsa_attention(q[:, 100:], ks, vs, None, None, gate[:, 100:])  # behind 100 tokens
    assert len(calls) == 1
    assert gated_output.__doc__


def test_it_keeps_what_torch_asks_of_an_operator_and_never_waits():
    case = Case(T=200)
    given, do = inputs(case, torch.bfloat16)
    y = case.layout
    rest = (y.l, y.d, y.l_slc, y.n, y.w, 0.1, True, True)
    kept = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(
        torch.ops.nsa.hopper_whole.default, (*(x.requires_grad_() for x in given), *rest), test_utils=kept
    )
    given = [x.detach() for x in given]
    found = torch.ops.nsa.hopper_whole(*given, *rest)
    backward = (do, *given, *found[1:], y.l, y.d, y.l_slc, y.w, 0.1, True)
    torch.library.opcheck(torch.ops.nsa.hopper_whole_backward.default, backward, test_utils=kept)
    torch.cuda.set_sync_debug_mode("error")
    try:
        want = by_one(case, given, do)[1]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = by_one(case, given, do)[1]
    graph.replay()
    for a, b in zip(got, want, strict=True):
        assert torch.equal(a, b)
