"""torch.compile takes a whole block as one graph, and the custom operators keep torch's rules."""

import pytest
import torch

from nsa.config import RunConfig
from nsa.kernels.combine import fused
from nsa.kernels.masked import masked_attention
from nsa.kernels.samples import BY_NAME, random_index, tensors
from nsa.kernels.scores.torch import _select_blocks
from nsa.kernels.selected.blocks import listed_keys
from nsa.kernels.selected.gather import gather_attention
from nsa.model.build import build_model

SIZES = {"model.n_layers": 1, "model.dim": 32, "model.n_heads": 4, "train.seq_len": 96}
ROUTES = [
    ("packed", "sdpa", "sdpa"),
    ("packed", "masked", "sdpa"),
    ("masked", "gather", "masked"),
    ("packed", "packed", "sdpa"),
]


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize(
    "route",
    [pytest.param(route, marks=[pytest.mark.long] * (route is not ROUTES[2])) for route in ROUTES],
    ids="-".join,
)
def test_a_block_compiles_as_one_graph_with_the_same_numbers(route):
    names = dict(zip(("kernels.compressed", "kernels.selected", "kernels.window"), route, strict=True))
    model, _ = build_model(RunConfig().with_values({**SIZES, **names}))
    block = model.blocks[0]
    grads, outputs = [], []
    for call in (block, torch.compile(block, fullgraph=True, backend="aot_eager")):
        x = torch.randn(2, 96, 32, generator=torch.Generator().manual_seed(1)).requires_grad_()
        block.zero_grad()
        y = call(x)
        y.square().mean().backward()
        outputs.append(y)
        grads.append([x.grad, *(p.grad.clone() for p in block.parameters())])
    torch.testing.assert_close(*outputs, rtol=1e-6, atol=1e-6)
    for eager, compiled in zip(*grads, strict=True):
        torch.testing.assert_close(eager, compiled, rtol=1e-5, atol=1e-7)


def test_a_compiler_sees_the_one_operator_for_all_branches():
    pytest.importorskip("triton.experimental.gluon")
    graphs = []

    def backend(graph, _inputs):
        graphs.append(str(graph.graph))
        return lambda *_: (torch.ones(()),)

    names = {"compressed": "hopper", "scores": "hopper", "selected": "triton", "window": "hopper", "combine": "fused"}
    layout = RunConfig().model.layout
    q, gate = torch.randn(1, 64, 4, 64, dtype=torch.bfloat16), torch.rand(1, 64, 4, 3)
    keys = tuple(torch.randn(1, n, 2, 64, dtype=torch.bfloat16) for n in (layout.n_cmp(64),) * 2 + (64,) * 4)
    torch.compile(lambda *given: fused.attend(*given, layout, names)[0].sum(), backend=backend, fullgraph=True)(
        q, keys, gate
    )
    assert "hopper_whole" in graphs[0]


def test_custom_operators_pass_torchs_own_check(opcheck):
    case = BY_NAME["plain"]
    x, index = tensors(case), random_index(case)
    visible = torch.ones(case.T, case.T, dtype=torch.bool).tril()[None, None]
    opcheck(masked_attention.overload, (x["q"], x["k"], x["v"], visible, 0.3))
    keys = listed_keys(index, case.S, l_slc=case.l_slc, offset=0, cu_seqlens=None)
    opcheck(gather_attention.overload, (x["q"], x["k"], x["v"], *keys, 0.3))
    sizes = [case.l, case.d, case.l_slc, case.n, case.w]
    lse = torch.zeros(case.B, case.T, case.H)
    opcheck(_select_blocks.overload, (x["q"].detach(), x["kc"].detach(), lse, None, sizes, 0.3, 0))


@pytest.mark.parametrize("op", [masked_attention, _select_blocks, gather_attention])
def test_shapes_are_known_without_data(op):
    case = BY_NAME["documents"]
    meta = {k: v.detach().to("meta") for k, v in tensors(case).items()}
    if op is masked_attention:
        o, lse = op(meta["q"], meta["k"], meta["v"], torch.ones(1, 1, case.T, case.S, device="meta").bool(), 1.0)
    elif op is gather_attention:
        keys = torch.zeros(case.B, case.T, case.G, 24, dtype=torch.int64, device="meta")
        o, lse = op(meta["q"], meta["k"], meta["v"], keys, keys.bool(), 1.0)
    else:
        sizes = [case.l, case.d, case.l_slc, case.n, case.w]
        index = op(meta["q"], meta["kc"], meta["q"][..., 0], None, sizes, 1.0, 0)
        assert (tuple(index.shape), index.dtype) == ((case.B, case.T, case.G, case.n), torch.int32)
        return
    assert tuple(o.shape) == (case.B, case.T, case.H, case.E)
    assert tuple(lse.shape) == (case.B, case.T, case.H)


def autograd_nodes(loss):
    seen, waiting = set(), [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting.extend(parent for parent, _ in node.next_functions)
    return len(seen)


@pytest.mark.parametrize("route", ROUTES, ids="-".join)
def test_autograd_nodes_do_not_grow_with_the_sequence(route):
    names = dict(zip(("kernels.compressed", "kernels.selected", "kernels.window"), route, strict=True))
    model, _ = build_model(RunConfig().with_values({**SIZES, **names, "model.n_layers": 2}))
    counts = {n: autograd_nodes(model(torch.randint(256, (1, n))).mean()) for n in (32, 96, 200)}
    assert len(set(counts.values())) == 1, counts
    assert counts[32] < 2 * 250


@pytest.mark.parametrize("route", [("packed", "gather", "sdpa")], ids="-".join)
def test_what_is_kept_for_backward_grows_with_the_length_not_its_square(route):
    names = dict(zip(("kernels.compressed", "kernels.selected", "kernels.window"), route, strict=True))
    model, _ = build_model(RunConfig().with_values({**SIZES, **names}))

    def kept(n_tokens):
        bytes_of = {}

        def pack(x):
            bytes_of[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            loss = model(torch.randint(256, (1, n_tokens))).mean()
        loss.backward()
        return sum(bytes_of.values())

    base = kept(256)
    assert kept(1024) < 4.2 * base
