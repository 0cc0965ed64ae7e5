"""What must hold of the attention whatever its parts are, on a GPU: every route, in bf16, fp16 and fp32.

The groups of invariants that need no GPU to be shown stand in ``tests/nsa``; equality with the fp64 references
(forward, gradients, ragged lengths, memory that starts as NaN) in ``tests/nsa/test_kernels.py`` and beside this file.
"""

import math

import pytest
import torch

from nsa.attention.layer import NsaAttention
from nsa.blocks import BlockLayout
from nsa.config import RunConfig
from nsa.kernels import registry
from nsa.kernels.devices import is_hopper
from nsa.kernels.registry import Site, resolve_all
from nsa.model.build import build_model, site_of
from nsa.train.trainer import train

SIZES = {
    "train.device": "cuda",
    "train.seq_len": 160,
    "model.dim": 64,
    "model.n_layers": 2,
    "model.n_heads": 8,
    "model.n_kv_groups": 2,
    "model.d_k": 32,
    "model.d_v": 32,
    "model.l": 16,
    "model.d": 8,
    "model.l_slc": 16,
    "model.n": 4,
    "model.w": 20,
}
ROUTES = {
    "auto": {},  # tiles, up to 64 blocks and heads of 128
    "masked": {"compressed": "masked", "scores": "torch", "selected": "masked", "window": "masked", "combine": "torch"},
    "gather": {"compressed": "packed", "scores": "torch", "selected": "gather", "window": "sdpa", "combine": "torch"},
    "packed": {"compressed": "packed", "scores": "triton", "selected": "packed", "window": "flex"},
    # What auto takes of wide heads; flash takes no fp32, and tiles stand in there.
    "flash": {"compressed": "packed", "scores": "triton", "selected": "triton", "window": "flash", "policy": "auto"},
}
IN_ORDER = ("auto", "flash")
"""Routes whose sums have one order by themselves, in fp16 and bf16."""
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
CLOSE = {torch.bfloat16: 3e-2, torch.float16: 4e-3, torch.float32: 2e-4}
everywhere = pytest.mark.parametrize(("route", "dtype"), [(r, d) for r in ROUTES for d in DTYPES])
of_branches = pytest.mark.parametrize("dtype", DTYPES)
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning:torch")


def config_of(route, dtype, **changes):
    kernels = {f"kernels.{op}": name for op, name in ROUTES[route].items()}
    given = {k.replace("__", "."): v for k, v in changes.items()}
    return RunConfig().with_values({**SIZES, **kernels, "train.precision": dtype, **given})


def shaken(module):
    """Weights that start at zero (gates, phi) would hide errors: make every one of them count."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name.endswith(("fc2.weight", ".pe")):
                parameter.add_(torch.randn_like(parameter) * 0.3)
    return module


def model_of(route, dtype, **changes):
    torch.manual_seed(0)
    return shaken(build_model(config_of(route, dtype, **changes))[0]).to(DTYPES[dtype])


def layer_of(route, dtype, **changes):
    config = config_of(route, dtype, **changes)
    torch.manual_seed(0)
    kernels = resolve_all(config.kernels, site_of(config))
    return shaken(NsaAttention(config.model, kernels)).to("cuda", DTYPES[dtype])


def random_ids(n, rows=1):
    return torch.randint(256, (rows, n), device="cuda")


def activations(dtype, n, rows=1):
    return torch.randn(rows, n, 64, device="cuda").to(DTYPES[dtype])


def near(got, want, dtype):
    error = (got.double() - want.double()).norm() / want.double().norm()
    assert error < CLOSE[DTYPES[dtype]], f"{error:.1e}"


@pytest.fixture
def selections(monkeypatch):
    """Every selection that any layer makes, in order."""
    seen = []
    forward = NsaAttention.forward

    def recorded(self, *args, **how):
        if not hasattr(self, "_recorded"):
            inner = self.kernels["scores"]
            self.kernels["scores"] = lambda *a, **k: seen.append(inner(*a, **k)) or seen[-1]
            self._recorded = True
        return forward(self, *args, **how)

    monkeypatch.setattr(NsaAttention, "forward", recorded)
    return seen


def attended(op, name, q, k, v, *, index=None, w=20, layout=None):
    site = Site(
        device=q.device,
        dtype=q.dtype,
        seq_len=q.shape[1],
        n_heads=q.shape[2],
        n_kv_groups=k.shape[2],
        d_k=q.shape[3],
        d_v=v.shape[3],
        layout=layout or BlockLayout(l=16, d=8, l_slc=16, n=4, w=20),
    )
    refusal = registry.refusal_of(op, name, site)
    if refusal is not None:
        pytest.skip(refusal)
    call = registry.resolve(op, choice=name, policy="exact", site=site).call
    if op == "selected":
        return call(q, k, v, index, l_slc=16)[0]
    return call(q, k, v, w=w) if op == "window" else call(q, k, v, site.layout)[0]


def qkv(dtype, n=160, heads=8, groups=2):
    shapes = ((1, n, heads, 32), (1, n, groups, 32), (1, n, groups, 32))
    return [torch.randn(s, device="cuda").to(DTYPES[dtype]) for s in shapes]


def first_and_own(n=160, groups=2, slots=3):
    """Block 0 and the query's own; the last slot is empty."""
    own = torch.arange(n, device="cuda") // 16
    index = torch.stack([torch.zeros_like(own), own.masked_fill(own == 0, -1), torch.full_like(own, -1)], -1)
    return index[None, :, None, :slots].expand(1, n, groups, slots).int().contiguous()


# 1, 2: nothing later can be seen


@everywhere
@pytest.mark.parametrize("way", ["train", "documents", "cache"])
def test_editing_the_future_changes_no_earlier_bit_of_output_or_selection(route, dtype, way, selections):
    model, ids, cut = model_of(route, dtype), random_ids(160), 101
    other = ids.clone()
    other[:, cut:] = (other[:, cut:] + 1) % 256
    cu = torch.tensor([0, 37, 160], dtype=torch.int32, device="cuda") if way == "documents" else None

    def forward(x):
        if way != "cache":
            return model(x, cu_seqlens=cu)
        with torch.no_grad():
            cache, sizes = model.new_cache(160), [90, 11, 1, 1, 57]
            return torch.cat([model(part, cache=cache) for part in x.split(sizes, 1)], 1)

    before, after = forward(ids), forward(other)
    assert torch.equal(before[:, :cut], after[:, :cut])
    assert not torch.equal(before[:, cut:], after[:, cut:])
    half = len(selections) // 2
    assert half >= 2
    start = 0
    for i, (first, second) in enumerate(zip(selections[:half], selections[half:], strict=True)):
        seen = max(0, min(cut - start, first.shape[1]))
        assert torch.equal(first[:, :seen], second[:, :seen])
        start += first.shape[1] * (way == "cache" and i % 2 == 1)


@everywhere
@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_a_poisoned_future_changes_no_earlier_bit(route, dtype, poison):
    layer, x = layer_of(route, dtype), activations(dtype, 160)
    bad = x.clone()
    bad[:, 100:] = poison
    clean, dirty = layer(x), layer(bad)
    assert torch.equal(clean[:, :100], dirty[:, :100])
    assert not torch.isfinite(dirty[:, 100:]).all()


@everywhere
def test_no_output_has_a_gradient_at_a_later_token(route, dtype):
    layer, x = layer_of(route, dtype), activations(dtype, 100).requires_grad_()
    y = layer(x).float()
    for t in (0, 14, 15, 16, 31, 63, 98):
        (grad,) = torch.autograd.grad(y[0, t].square().sum(), x, retain_graph=True)
        assert not grad[0, t + 1 :].any()
        assert grad[0, t].any()


# 4, 5: what is selected


@of_branches
@pytest.mark.parametrize("scores", ["torch", "triton"])
def test_selections_are_forced_ordered_whole_and_follow_the_groups(scores, dtype, selections):
    layer = layer_of("auto", dtype, kernels__scores=scores)
    layer(activations(dtype, 160))
    index = selections[0][0].long()  # T, G, n
    own = torch.arange(160, device="cuda") // 16
    used = index >= 0
    assert torch.equal(used.sum(-1), (own + 1).clamp(max=4)[:, None].expand(-1, 2))
    assert ((index == 0).any(-1) & (index == own[:, None, None]).any(-1)).all()
    assert (index == (own - 1).clamp(min=0)[:, None, None]).any(-1).all()
    assert (index <= own[:, None, None]).all()
    filled = index.masked_fill(~used, 999)
    assert (filled.diff(dim=-1) > 0)[used[..., 1:]].all()


@of_branches
@pytest.mark.parametrize("scores", ["torch", "triton"])
def test_permuting_groups_permutes_the_selection_and_permuting_heads_keeps_it(scores, dtype):
    layout = BlockLayout(l=16, d=8, l_slc=16, n=4, w=20)
    q, kc, _ = qkv(dtype)
    kc = kc[:, : layout.n_cmp(160)].contiguous()
    select = registry.load("scores", scores)
    lse = torch.full(q.shape[:3], 3.0, device="cuda")
    index = select(q, kc, lse, layout)
    swapped = select(q.unflatten(2, (2, 4)).flip(2).flatten(2, 3), kc.flip(2), lse, layout)
    assert torch.equal(swapped.flip(2), index)
    turned = select(q.unflatten(2, (2, 4)).flip(3).flatten(2, 3), kc, lse, layout)
    assert (turned == index).float().mean() > 0.99  # another order of the same sum


def test_ties_go_to_the_lowest_block_on_cpu_and_gpu_alike():
    layout = BlockLayout(l=16, d=8, l_slc=16, n=4, w=20)
    q, kc, lse = torch.randn(1, 160, 8, 32), torch.ones(1, 19, 2, 32), torch.full((1, 160, 8), 2.0)
    want = registry.load("scores", "torch")(torch.zeros_like(q), kc, lse, layout)
    for name in ("torch", "triton"):
        got = registry.load("scores", name)(torch.zeros_like(q).cuda(), kc.cuda(), lse.cuda(), layout)
        assert torch.equal(got.cpu(), want)


# 6: degeneracy


@of_branches
@pytest.mark.parametrize(
    ("op", "name"),
    [(op, n) for op in ("selected", "window", "compressed") for n in registry.KERNELS[op] if n != "flash-attn"],
)
def test_every_branch_is_dense_attention_where_it_sees_everything(op, name, dtype):
    q, k, v = qkv(dtype)
    own = torch.arange(160, device="cuda") // 16
    every = torch.arange(10, device="cuda").expand(160, 10)
    every = every.masked_fill(every > own[:, None], -1)[None, :, None].expand(1, 160, 2, 10).int().contiguous()
    layout = BlockLayout(l=1, d=1, l_slc=16, n=10, w=160)
    dense = torch.nn.functional.scaled_dot_product_attention(
        *(x.double().transpose(1, 2) for x in (q, k, v)), is_causal=True, enable_gqa=True
    ).transpose(1, 2)
    near(attended(op, name, q, k, v, index=every, w=160, layout=layout), dense, dtype)


# 7, 14: what must not matter


@of_branches
@pytest.mark.parametrize("name", list(registry.KERNELS["selected"]))
def test_the_order_of_selected_blocks_a_key_shift_and_an_affine_value_map(name, dtype):
    (q, k, v), index = qkv(dtype), first_and_own()
    o = attended("selected", name, q, k, v, index=index)
    near(attended("selected", name, q, k, 2 * v + 1, index=index), 2 * o.double() + 1, dtype)
    shift = torch.randn(32, device="cuda").to(k.dtype)
    near(attended("selected", name, q.float(), (k + shift).float(), v.float(), index=index), o, dtype)
    if name != "triton":  # its contract asks for ascending blocks
        near(attended("selected", name, q, k, v, index=index[..., [1, 0, 2]].contiguous()), o, dtype)


@of_branches
@pytest.mark.parametrize(
    ("op", "name"), [(op, n) for op in ("selected", "window") for n in registry.KERNELS[op] if n != "flash-attn"]
)
def test_scores_of_a_thousand_stay_finite(op, name, dtype):
    q, k, v = qkv(dtype)
    inputs = [(q * 40).requires_grad_(), (k * 10).requires_grad_(), v.requires_grad_()]
    o = attended(op, name, *inputs, index=first_and_own())
    o.sum().backward()
    assert torch.isfinite(o).all()
    assert all(torch.isfinite(x.grad).all() for x in inputs)


# 8: one path


@everywhere
def test_decoding_and_chunks_equal_prefill(route, dtype):
    model, ids = model_of(route, dtype, model__n=10), random_ids(150)  # every block: no near-tie can differ
    with torch.no_grad():
        whole = model(ids)
        for sizes in ([1] * 150, [7, 64, 1, 78], [149, 1]):
            cache = model.new_cache(150)
            near(torch.cat([model(part, cache=cache) for part in ids.split(sizes, 1)], 1), whole, dtype)


# 9, 10: every length


@everywhere
@pytest.mark.parametrize("length", [1, 15, 16, 17, 67])
def test_every_parameter_gets_a_finite_gradient_at_every_length(route, dtype, length):
    layer = layer_of(route, dtype)
    y = layer(activations(dtype, length, rows=2))
    assert torch.isfinite(y).all()
    y.float().square().sum().backward()
    bad = [n for n, p in layer.named_parameters() if p.grad is None or not torch.isfinite(p.grad).all()]
    assert bad == []


# 11: exactly w keys


@of_branches
@pytest.mark.parametrize("name", [n for n in registry.KERNELS["window"] if n != "flash-attn"])
@pytest.mark.parametrize("w", [1, 20, 45])
def test_the_window_holds_exactly_w_keys(name, dtype, w):
    q, k, v = qkv(dtype)
    o = attended("window", name, q, k, v, w=w)
    for t in (w, 120):
        outside, edge = v.clone(), v.clone()
        outside[:, t - w] += 100.0
        edge[:, t - w + 1] += 100.0
        assert torch.equal(attended("window", name, q, k, outside, w=w)[:, t], o[:, t])
        assert not torch.equal(attended("window", name, q, k, edge, w=w)[:, t], o[:, t])


# 13: equal bits


def gradients(model, ids):
    model.zero_grad()
    y = model(ids)
    y.float().square().mean().backward()
    return [y, *(p.grad.clone() for p in model.parameters())]


@everywhere
def test_runs_streams_and_recomputation_give_the_same_bits(route, dtype):
    model, ids = model_of(route, dtype), random_ids(160, rows=2)
    if route not in IN_ORDER or dtype == "fp32":  # torch's own kernels keep an order only when they are all told to
        torch.use_deterministic_algorithms(mode=True)
    try:
        first = gradients(model, ids)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            second = gradients(model, ids)
        torch.cuda.synchronize()
        for block in model.blocks:
            block.forward = lambda x, f=block.forward, **k: torch.utils.checkpoint.checkpoint(
                f, x, use_reentrant=False, **k
            )
        third = gradients(model, ids)
    finally:
        torch.use_deterministic_algorithms(mode=False)
    names = ["output", *(n for n, _ in model.named_parameters())]
    for again in (second, third):
        differ = [n for n, a, b in zip(names, first, again, strict=True) if not torch.equal(a, b)]
        assert differ == []


@everywhere
def test_a_row_does_not_depend_on_its_place_in_the_batch(route, dtype):
    model, ids = model_of(route, dtype), random_ids(160, rows=3)
    with torch.no_grad():
        y, turned = model(ids), model(ids.roll(1, 0))
        assert torch.equal(turned, y.roll(1, 0))


# 15: beyond 2^31 elements


LONG = 2**31 // (64 * 128) + 4096
"""Tokens of 64 heads of width 128 that 32-bit offsets no longer reach; more than 65,535 rows, too."""
TAIL = slice(LONG - 100, LONG)


def skip_without_hopper(name):
    if name == "hopper" and not is_hopper(torch.device("cuda")):
        pytest.skip("needs a GPU of compute capability 9.0")


@pytest.mark.parametrize("name", ["packed", "tiles", "hopper"])
def test_the_compressed_branch_reaches_past_32_bit_offsets(name):
    skip_without_hopper(name)
    layout = BlockLayout(l=32, d=16, l_slc=64, n=16, w=512)
    q = torch.randn(1, LONG, 64, 128, device="cuda", dtype=torch.bfloat16)
    kc, vc = (torch.randn(1, layout.n_cmp(LONG), 1, 128, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    masked = registry.load("compressed", "masked")
    tail = q[:, TAIL].double().requires_grad_()
    want, lse_want = masked(tail, kc.double(), vc.double(), layout, offset=TAIL.start)
    (dq_want,) = torch.autograd.grad(want.sum(), tail)
    q.requires_grad_()
    o, lse = registry.load("compressed", name)(q, kc, vc, layout)
    (dq,) = torch.autograd.grad(o, q, torch.ones_like(o))
    near(o[:, TAIL], want, "bf16")
    near(lse[:, TAIL], lse_want, "bf16")
    near(dq[:, TAIL], dq_want, "bf16")


@pytest.mark.parametrize("name", ["flash", "flex", "tiles", "hopper"])
def test_the_window_reaches_past_32_bit_offsets(name):
    skip_without_hopper(name)
    q = torch.randn(1, LONG, 64, 128, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    k, v = (torch.randn(1, LONG, 1, 128, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    o = registry.load("window", name)(q, k, v, w=64)
    (dq,) = torch.autograd.grad(o, q, torch.ones_like(o))
    tail, keys = q.detach()[:, TAIL].double().requires_grad_(), slice(TAIL.start - 63, LONG)
    want = registry.load("window", "masked")(
        tail, k[:, keys].double(), v[:, keys].double(), w=64, offset=TAIL.start, k_offset=keys.start
    )
    (dq_want,) = torch.autograd.grad(want.sum(), tail)
    near(o[:, TAIL], want, "bf16")
    near(dq[:, TAIL], dq_want, "bf16")


def test_selection_and_gated_sum_reach_past_32_bit_offsets():
    layout = BlockLayout(l=32, d=16, l_slc=64, n=16, w=512)
    q = torch.randn(1, LONG, 64, 128, device="cuda", dtype=torch.bfloat16)
    kc = torch.randn(1, layout.n_cmp(LONG), 1, 128, device="cuda", dtype=torch.bfloat16)
    lse = torch.full((1, LONG, 64), 12.0, device="cuda")
    select = registry.load("scores", "triton")
    whole, part = select(q, kc, lse, layout), select(q[:, TAIL], kc, lse[:, TAIL], layout, offset=TAIL.start)
    assert torch.equal(whole[:, TAIL], part)
    gate = torch.rand(1, LONG, 64, 3, device="cuda", dtype=torch.bfloat16)
    o = registry.load("combine", "triton")(q, q, q, gate)
    near(o[:, TAIL], q[:, TAIL].double() * gate[:, TAIL].double().sum(-1, keepdim=True), "bf16")


# 17: one graph


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_block_compiles_as_one_graph_with_the_same_numbers(dtype):
    torch._dynamo.reset()
    block, x = model_of("auto", dtype).blocks[0], activations(dtype, 160, rows=2)
    results = []
    for call in (block, torch.compile(block, fullgraph=True, backend="aot_eager")):
        block.zero_grad()
        y = call(x)
        y.float().square().mean().backward()
        results.append([y, *(p.grad.clone() for p in block.parameters())])
    for eager, compiled in zip(*results, strict=True):
        near(compiled, eager, dtype)


@pytest.mark.parametrize("route", [{}, {"compressed": "packed", "selected": "triton", "window": "flash"}], ids=str)
def test_inductor_compiles_a_block_of_the_shipped_shape_to_the_same_numbers(route):
    torch._dynamo.reset()
    shape = {"model.dim": 768, "model.n_heads": 12, "model.n_kv_groups": 2, "model.d_k": 64, "model.d_v": 64}
    blocks = {"model.l": 32, "model.d": 16, "model.l_slc": 64, "model.n": 32, "model.w": 512, "train.seq_len": 2048}
    kernels = {f"kernels.{op}": name for op, name in route.items()}
    torch.manual_seed(0)
    config = RunConfig().with_values({**SIZES, **shape, **blocks, **kernels, "train.precision": "bf16"})
    block = shaken(build_model(config)[0]).to(torch.bfloat16).blocks[0]
    x, results = torch.randn(2, 2048, 768, device="cuda", dtype=torch.bfloat16), []
    for call in (block, torch.compile(block, fullgraph=True, dynamic=False)):
        block.zero_grad()
        y = call(x)
        y.float().square().mean().backward()
        results.append([y, *(p.grad.clone() for p in block.parameters())])
    for eager, compiled in zip(*results, strict=True):
        near(compiled, eager, "bf16")


# 17: autocast


@of_branches
@pytest.mark.parametrize(
    ("op", "name"),
    [(op, n) for op in ("selected", "window", "compressed") for n in registry.KERNELS[op] if n != "flash-attn"],
)
def test_a_kernel_gives_the_same_bits_with_autocast_around_it(op, name, dtype):
    if dtype == "fp32":
        pytest.skip("autocast gives the attention half types")
    layout = BlockLayout(l=1, d=1, l_slc=16, n=3, w=20)
    inputs, bits = [x.requires_grad_() for x in qkv(dtype)], []
    torch.use_deterministic_algorithms(mode=True)  # torch's own kernels keep an order only when they are all told to
    try:
        for is_on in (False, True):
            with torch.autocast("cuda", dtype=DTYPES[dtype], enabled=is_on):
                o = attended(op, name, *inputs, index=first_and_own(), layout=layout)
            bits.append([o, *torch.autograd.grad(o, inputs, torch.ones_like(o))])
    finally:
        torch.use_deterministic_algorithms(mode=False)
    for plain, cast in zip(*bits, strict=True):
        assert plain.dtype == cast.dtype == DTYPES[dtype]
        assert torch.equal(plain, cast)


@pytest.mark.parametrize(("route", "precision"), [*((r, "bf16") for r in ROUTES), ("auto", "fp16")])
def test_a_model_trains_in_mixed_precision_alike_with_every_recomputation(route, precision):
    config = config_of(route, precision, train__steps=3, train__batch_size=2, train__deterministic=True)
    assert config.train.precision_mode == "autocast"
    kinds = ["none", "nonreentrant", "reentrant"]
    if route != "packed":  # flex is no operator whose results could be kept
        kinds.append("selective")
    try:
        losses = {kind: train(config.with_value("train.checkpointing", kind)).losses for kind in kinds}
    finally:
        torch.use_deterministic_algorithms(mode=False)
    assert losses == dict.fromkeys(kinds, losses["none"])
    assert all(0 < loss < 10 for loss in losses["none"])


# the operators themselves


def test_the_flash_operator_is_well_formed():
    q, k, v = (x.requires_grad_() for x in qkv("bf16"))
    kernel = torch.ops.nsa.flash_attention.default
    torch.library.opcheck(kernel, (q, k, v, None, 0.2, 20), test_utils=("test_schema", "test_autograd_registration"))
    cu = torch.tensor([0, 37, 160], dtype=torch.int32, device="cuda")
    torch.library.opcheck(kernel, (q, k, v, cu, 0.2, 0), test_utils=("test_schema", "test_autograd_registration"))
