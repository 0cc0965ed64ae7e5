"""Checks the Hopper kernels against fp64 and times them beside the kernels they replace, on one H100 or H200.

    python bench/hopper_check.py OUT                  # everything, under 400 s; OUT/hopper.md, OUT/hopper.json
    python bench/hopper_check.py OUT --parts parity   # only parts whose name contains one of these words

Each part is a process of its own with a limit, so that one failure loses only itself; what a failed part said last
stands in the table. *Parity* is of forward and gradients, relative to masked attention in fp64 (2-norm), on shapes at
the edges of tiles, in bf16 and fp16, twice for equal bits. *Times* are medians of ``triton.testing.do_bench`` (cache
flushed between runs), forward / backward in ms. *Variants* times other sizes of what streams through the kernels.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from nsa.attention.cache import Keys
from nsa.attention.compress import MeanPhi
from nsa.attention.layer import gated_output
from nsa.blocks import BlockLayout
from nsa.config import KernelConfig
from nsa.kernels import registry
from nsa.kernels.on_call import KernelOnCall
from nsa.kernels.registry import Site
from nsa.kernels.scores import torch as exact
from nsa.kernels.visibility import cmp_visible

LAYOUT = BlockLayout(l=32, d=16, l_slc=64, n=16, w=512)
TOLERANCE = {"fp16": (1e-3, 2e-3), "bf16": (4e-3, 8e-3)}
"""Of outputs and of gradients: every kernel's, as in tests/nsa/test_kernels.py."""
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
BEFORE = {"window": "flash", "compressed": "packed"}
LENGTHS = (8192, 32768, 65536)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One shape of the parity check; ``offset`` tokens lie before the first query."""

    B: int = 1
    T: int = 300
    H: int = 16
    G: int = 1
    D: int = 128
    offset: int = 0
    w: int = 512
    l: int = 32  # noqa: E741 - the paper's letter
    d: int = 16

    @property
    def layout(self):
        """Its block geometry."""
        return BlockLayout(l=self.l, d=self.d, l_slc=64, n=16, w=self.w)


SHAPES = [
    Shape(),
    Shape(T=1),
    Shape(T=31),
    Shape(T=129, w=1),
    Shape(T=517, B=2, H=32, G=2, w=100),
    Shape(T=1030, w=64),
    Shape(T=333, H=6, G=1, w=77, l=16, d=8),
    Shape(T=200, H=3, G=3, w=65, l=8, d=8),
    Shape(T=150, H=64, G=1, w=33),
    Shape(T=97, offset=400, w=130),
    Shape(T=700, B=2, H=12, G=2, D=64, w=512),
    Shape(T=261, H=16, G=4, D=64, w=20, l=1, d=1),
    Shape(T=2100, H=16, G=4),
    Shape(T=2050, H=16, G=1, D=64),
]


def site(shape_or_inputs, dtype=torch.bfloat16, layout=LAYOUT):
    x = shape_or_inputs
    return Site(
        device=torch.device("cuda"), dtype=dtype, seq_len=x.T, n_heads=x.H, n_kv_groups=x.G, d_k=x.D, d_v=x.D,
        layout=layout,
    )  # fmt: skip


def kernel(op, name, where):
    return registry.resolve(op, choice=name, policy="exact", site=where).call


def relative(got, want, do):
    """The distance in the 2-norm, relative to what is wanted, or to do where that is zero."""
    size = want.double().norm()
    return ((got.double() - want.double()).norm() / (do.double().norm() if size < 1e-9 else size)).item()


def attended(op, call, x, shape, index=None):
    if op == "selected":
        return call(x["q"], x["k"], x["v"], index, l_slc=shape.layout.l_slc, offset=shape.offset)
    if op == "window":
        return call(x["q"], x["k"], x["v"], w=shape.w, offset=shape.offset), None
    return call(x["q"], x["k"], x["v"], shape.layout, offset=shape.offset)


def parity(op, dtype):
    """Errors of the Hopper kernel and of its twin on every shape, and whether a second run gives the same bits."""
    if op == "selected":
        from nsa.kernels.selected import triton_hopper as launches

        shapes = [(shape, by_wgmma) for by_wgmma in (False, True) for shape in LISTS]
    else:
        shapes = [(shape, None) for shape in SHAPES]
    for shape, by_wgmma in shapes:
        if by_wgmma is not None:
            launches.BY_WGMMA = by_wgmma
        n_tokens = shape.offset + shape.T
        n_keys = shape.layout.n_cmp(n_tokens) if op == "compressed" else n_tokens
        if n_keys == 0:
            continue
        generator = torch.Generator("cuda").manual_seed(0)

        def drawn(*size, generator=generator):
            return torch.randn(*size, device="cuda", generator=generator).to(DTYPES[dtype])

        q = drawn(shape.B, shape.T, shape.H, shape.D)
        k, v = (drawn(shape.B, n_keys, shape.G, shape.D) for _ in range(2))
        do = drawn(*q.shape)
        where = site(shape, DTYPES[dtype], shape.layout)
        index = random_blocks(shape, generator) if op == "selected" else None

        def results(name, kind, given=(q, k, v), shape=shape, do=do, where=where, index=index):
            x = {key: t.detach().to(kind).requires_grad_() for key, t in zip("qkv", given, strict=True)}
            call = registry.load(op, name) if kind == torch.float64 else kernel(op, name, where)
            o, lse = attended(op, call, x, shape, index)
            lse = None if lse is None else lse.detach()
            return o.detach(), lse, *torch.autograd.grad(o, list(x.values()), do.to(kind))

        want = results("masked", torch.float64)
        first, again = (results("hopper", DTYPES[dtype]) for _ in range(2))
        twin = results("triton" if op == "selected" else "tiles", DTYPES[dtype])
        labels = ("o", "lse", "dq", "dk", "dv")
        name = str(shape) + ("" if by_wgmma is None else f", by wgmma {by_wgmma}")
        row = {"op": op, "dtype": dtype, "shape": name}
        row |= {"same_bits": all(a is None or torch.equal(a, b) for a, b in zip(first, again, strict=True))}
        errors, of_twin = {}, {}
        for label, got, other, right in zip(labels, first, twin, want, strict=True):
            if got is None:
                continue
            if label == "lse":
                seen = right > -torch.inf
                errors["lse_empty"] = 0.0 if torch.equal(got == -torch.inf, ~seen) else 1.0
                got, other, right = got[seen], other[seen], right[seen]
            errors[label], of_twin[label] = relative(got, right, do), relative(other, right, do)
        bounds = {label: TOLERANCE[dtype][label.startswith("d")] for label in errors}
        row |= {"errors": errors, "twin": of_twin}
        row["ok"] = row["same_bits"] and all(errors[label] < bounds[label] for label in errors)
        yield row


SELECTIONS = [
    Shape(T=2100, H=32, G=2),
    Shape(T=1501, B=2, H=10, G=2, D=64),
    Shape(T=1300, H=64),
    Shape(T=1900, l=128),
    Shape(T=1500, l=64, d=64),
    Shape(T=65, offset=3000),
    Shape(T=900),
    Shape(T=1025),
    Shape(T=9000),
]
SHORT_OF_BEST = 1e-4
"""Of a head's probability, as in tests/gpu/test_scores_triton.py."""


def parity_of_scores(dtype):
    """How much score the chosen blocks of the Hopper kernel, and of its twin, are short of the best in fp64."""
    for shape in SELECTIONS:
        layout, n_tokens = shape.layout, shape.offset + shape.T
        generator = torch.Generator("cuda").manual_seed(0)
        q, kc = (
            torch.randn(*size, device="cuda", generator=generator).to(DTYPES[dtype])
            for size in (
                (shape.B, shape.T, shape.H, shape.D), (shape.B, layout.n_cmp(n_tokens), shape.G, shape.D)
            )
        )  # fmt: skip
        k = kc.double().repeat_interleave(shape.H // shape.G, 2)
        s = torch.einsum("bthd,bchd->bthc", q.double(), k) * shape.D**-0.5
        where_seen = {"device": q.device, "offset": shape.offset, "cu_seqlens": None}
        sees = cmp_visible(shape.T, kc.shape[1], layout, **where_seen)[0, 0]
        s = s.masked_fill(~sees[None, :, None], -torch.inf)
        lse = s.logsumexp(-1)
        p = (s - lse.masked_fill(lse == -torch.inf, 0.0)[..., None]).exp().unflatten(2, (shape.G, -1)).sum(3)
        score = exact.block_scores(p, layout.n_slc(n_tokens), layout)
        del s, p
        position = torch.arange(shape.T, device="cuda") + shape.offset
        best = exact.top_blocks(score, position, layout).long()
        where = site(shape, DTYPES[dtype], layout)

        def chosen(name, q=q, kc=kc, lse=lse, layout=layout, where=where, shape=shape):
            return kernel("scores", name, where)(q, kc, lse.float(), layout, offset=shape.offset).long()

        def short(index, score=score, best=best):
            if not torch.equal(index >= 0, best >= 0) or (index.max(-1).values != best.max(-1).values).any():
                return float("inf")
            found = [score.gather(-1, x.clamp_min(0)).masked_fill(x < 0, 0.0).sort(-1).values for x in (best, index)]
            return (found[0] - found[1]).max().item()

        first, again, twin = chosen("hopper"), chosen("hopper"), chosen("triton")
        row = {"op": "scores", "dtype": dtype, "shape": str(shape), "same_bits": torch.equal(first, again)}
        row |= {"errors": {"short": short(first)}, "twin": {"short": short(twin)}}
        row["ok"] = row["same_bits"] and row["errors"]["short"] <= SHORT_OF_BEST * shape.H / shape.G
        yield row


LISTS = [
    Shape(T=1300, H=64, G=4),
    Shape(T=1),
    Shape(T=63),
    Shape(T=517, B=2, H=32, G=2),
    Shape(T=333, H=48),
    Shape(T=150, H=64),
    Shape(T=97, offset=400),
    Shape(T=700, B=2, H=32, G=2, D=64),
    Shape(T=2100),
]


def random_blocks(shape, generator):
    """[B, T, G, n] random blocks that a query may see, ascending, -1 at the end; some queries use few slots."""
    layout = shape.layout
    own = (torch.arange(shape.T, device="cuda") + shape.offset) // layout.l_slc
    n_blocks = int(own.max()) + 1
    score = torch.rand(shape.B, shape.T, shape.G, n_blocks, device="cuda", generator=generator)
    is_hidden = torch.arange(n_blocks, device="cuda") > own[:, None]
    value, block = score.masked_fill(is_hidden[None, :, None] | (score < 0.3), -1.0).sort(-1, descending=True)
    block = block.masked_fill(value < 0, n_blocks)[..., : layout.n].sort(-1).values
    block = torch.nn.functional.pad(block, (0, layout.n - block.shape[-1]), value=n_blocks)
    return block.masked_fill(block == n_blocks, -1).int()


class Inputs:
    """q, k and v of every branch, gates, and compressed keys for those who start from them."""

    def __init__(self, T, H, G, D, B=1):
        def leaf(*size):
            return torch.randn(*size, device="cuda", dtype=torch.bfloat16).requires_grad_()

        self.T, self.H, self.G, self.D = T, H, G, D
        self.q = leaf(B, T, H, D)
        self.k = {branch: leaf(B, T, G, D) for branch in ("cmp", "slc", "win")}
        self.v = {branch: leaf(B, T, G, D) for branch in ("cmp", "slc", "win")}
        self.gate = torch.rand(B, T, H, 3, device="cuda", dtype=torch.bfloat16).requires_grad_()
        self.kc, self.vc = (leaf(B, LAYOUT.n_cmp(T), G, D) for _ in range(2))


def branch(op, name, x):
    call = kernel(op, name, site(x))
    if op == "window":
        leaves = (x.q, x.k["win"], x.v["win"])
        return lambda: call(*leaves, w=LAYOUT.w), leaves
    leaves = (x.q, x.kc, x.vc)
    return lambda: call(*leaves, LAYOUT)[0], leaves


def whole(x, **names):
    """Pooling, three branches, choice and gated sum; ``names`` in place of what ``auto`` takes."""
    config = KernelConfig(**names, policy="auto")
    kernels = {op: KernelOnCall(r) for op, r in registry.resolve_all(config, site(x)).items()}
    where = {"offset": 0, "cu_seqlens": None}

    def call():
        kc, vc = (MeanPhi()(t, LAYOUT) for t in (x.k["cmp"], x.v["cmp"]))
        own = {f"{kind}_{name}": t[name] for kind, t in (("k", x.k), ("v", x.v)) for name in ("slc", "win")}
        return gated_output(kernels, LAYOUT, x.q, Keys(kc_BCGD=kc, vc_BCGE=vc, **own), x.gate, where)

    return call, (x.q, *x.k.values(), *x.v.values(), x.gate)


def choice(name, x):
    """Block selection from q, compressed keys and the compressed branch's lse."""
    _, lse = kernel("compressed", "tiles", site(x))(x.q.detach(), x.kc.detach(), x.vc.detach(), LAYOUT)
    call = kernel("scores", name, site(x))
    return lambda: call(x.q, x.kc, lse, LAYOUT), None


def listed(name, x):
    """The selected branch over the blocks that are chosen from random queries and compressed keys."""
    index = choice("triton", x)[0]()
    call, leaves = kernel("selected", name, site(x)), (x.q, x.k["slc"], x.v["slc"])
    return lambda: call(*leaves, index, l_slc=LAYOUT.l_slc)[0], leaves


def timed(call, leaves, rep_ms=60):
    """Forward and backward ms, and the peak of both above the inputs in GB; no backward where there are no leaves."""
    from triton.testing import do_bench

    call()
    torch.cuda.synchronize()
    if leaves is None:
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        call()
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() - before
        forward = do_bench(call, warmup=rep_ms // 3, rep=rep_ms, return_mode="median")
        return {"forward_ms": forward, "peak_gb": peak / 1e9}
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    o = call()
    do = torch.randn_like(o)
    torch.autograd.grad(o, leaves, do)
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - before
    with torch.no_grad():
        forward = do_bench(call, warmup=rep_ms // 3, rep=rep_ms, return_mode="median")
    o = call()
    backward = do_bench(
        lambda: torch.autograd.grad(o, leaves, do, retain_graph=True),
        warmup=rep_ms // 3, rep=rep_ms, return_mode="median",
    )  # fmt: skip
    return {"forward_ms": forward, "backward_ms": backward, "peak_gb": peak / 1e9}


def or_why(make):
    try:
        return timed(*make())
    except Exception as error:  # noqa: BLE001 - whatever it is, the other rows go on
        return {"why": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}


def times(H, G, D, sizes):
    for T, B in sizes:
        x = Inputs(T, H, G, D, B)
        head = {"heads": f"{H}/{G}, d {D}", "T": T, "B": B}
        for op, before in BEFORE.items():
            for name in (before, "tiles", "hopper"):
                yield head | {"row": f"{op}, {name}"} | or_why(lambda op=op, name=name, x=x: branch(op, name, x))
        for name in ("triton", "hopper"):
            yield head | {"row": f"scores, {name}"} | or_why(lambda name=name, x=x: choice(name, x))
        taken = {op: r.kernel for op, r in registry.resolve_all(KernelConfig(), site(x)).items()}
        ways = {
            "full, auto": {},
            "full, packed + flash": BEFORE,
            "full, tiles": dict.fromkeys(BEFORE, "tiles"),
            "full, hopper window, compressed": dict.fromkeys(BEFORE, "hopper"),
            "full, hopper": dict.fromkeys((*BEFORE, "scores"), "hopper"),
        }
        for name, names in ways.items():
            yield head | {"row": name, "auto": taken} | or_why(lambda names=names, x=x: whole(x, **names))
        del x
        torch.cuda.empty_cache()


def times_of_selected(H, G, D, sizes):
    """The selected branch alone and in the whole, by every route that a GPU has for long sequences."""
    from nsa.kernels.selected import triton_hopper as launches

    serves = H // G % launches.HEADS == 0
    # What has run before comes first, at every length: a kernel that never ends takes only itself along.
    for by_wgmma in (False, True) if serves else (False,):
        launches.BY_WGMMA = by_wgmma
        label = "hopper" if by_wgmma else "hopper with triton's backward"
        for T, B in sizes:
            x = Inputs(T, H, G, D, B)
            head = {"heads": f"{H}/{G}, d {D}", "T": T, "B": B}
            taken = {op: r.kernel for op, r in registry.resolve_all(KernelConfig(), site(x)).items()}
            if not by_wgmma:
                yield head | {"row": "selected, triton"} | or_why(lambda x=x: listed("triton", x))
                yield head | {"row": "full, auto", "auto": taken} | or_why(lambda x=x: whole(x))
            if serves:
                yield head | {"row": f"selected, {label}"} | or_why(lambda x=x: listed("hopper", x))
                row = head | {"row": f"full, selected {label}", "auto": taken}
                yield row | or_why(lambda x=x: whole(x, selected="hopper"))
            del x
            torch.cuda.empty_cache()


def times_of_whole(H, G, D, sizes):
    """All branches as one operator and one by one, the selected branch alone, and a profile of both passes."""
    parts = dict.fromkeys(("compressed", "window"), "hopper")
    for T, B in sizes:
        x = Inputs(T, H, G, D, B)
        head = {"heads": f"{H}/{G}, d {D}", "T": T, "B": B}
        taken = {op: r.kernel for op, r in registry.resolve_all(KernelConfig(), site(x)).items()}
        yield head | {"row": "full, fused", "auto": taken} | or_why(lambda x=x: whole(x, **parts, combine="fused"))
        yield (
            head
            | {"row": "full, fused, scores hopper"}
            | or_why(lambda x=x: whole(x, **parts, scores="hopper", combine="fused"))
        )
        yield head | {"row": "full, one by one"} | or_why(lambda x=x: whole(x, **parts, combine="triton"))
        for name in ("triton", "hopper") if H // G % 16 == 0 else ("triton",):
            yield head | {"row": f"selected, {name}"} | or_why(lambda name=name, x=x: listed(name, x))
        yield head | {"profile": profiled(*whole(x, **parts, combine="fused"))}
        del x
        torch.cuda.empty_cache()


def profiled(call, leaves, n=5):
    """Microseconds of every kernel of a forward and backward, and of the time between kernels."""
    from torch.profiler import ProfilerActivity, profile

    o = call()
    do = torch.randn_like(o)
    for _ in range(2):
        torch.autograd.grad(call(), leaves, do)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(n):
            torch.autograd.grad(call(), leaves, do)
        end.record()
        torch.cuda.synchronize()
    rows = {e.key: [e.device_time_total / n, e.count / n] for e in seen.key_averages()}
    busy = sum(us for us, _ in rows.values())
    rows["between kernels"] = [1e3 * begin.elapsed_time(end) / n - busy, 0]
    return dict(sorted(rows.items(), key=lambda row: -row[1][0]))


def sizes_of_items():
    """Other cuts of the selected branch's work at 64/4 and at 16/4 heads of 128."""
    from nsa.kernels.selected import triton as launches

    names = ("ROWS_PER_ITEM", "FEW_ROWS", "FEWER_ROWS")
    chosen = [getattr(launches, name) for name in names]
    for T in (2048, *LENGTHS):
        for H, name in ((64, "hopper"), (16, "triton")):
            x = Inputs(T, H, 4, 128)
            for rows in (1024, 2048, 4096, 8192):
                for constant in names:
                    setattr(launches, constant, rows)
                launches._kept_plan.cache_clear()
                row = {"row": f"{T}, {H}/4: items of {rows} rows", "T": T}
                yield row | or_why(lambda x=x, name=name: listed(name, x))
    for constant, rows in zip(names, chosen, strict=True):
        setattr(launches, constant, rows)


def tiles_of_small_groups():
    """Other tiles of the selected branch's KV-major kernels, at 16/4 heads of 128."""
    from nsa.kernels.selected import triton as launches

    forward, backward, rows_chosen = launches.forward_tile, launches.backward_tile, launches.ROWS_PER_ITEM
    choices = (
        (None, None, 8192), ((64, 4, 2), (64, 8, 2), 8192), ((64, 4, 3), (64, 4, 1), 8192),
        ((128, 8, 1), (32, 4, 2), 8192), ((32, 4, 2), (128, 8, 1), 8192),
    )  # fmt: skip
    for T in (8192, 32768):
        x = Inputs(T, 16, 4, 128)
        for first, second, rows in choices:
            made = [c and launches.Tile(rows=c[0], num_warps=c[1], num_stages=c[2]) for c in (first, second)]
            launches.forward_tile = forward if first is None else lambda tile=made[0], **_: tile
            launches.backward_tile = backward if second is None else lambda tile=made[1], **_: tile
            launches.ROWS_PER_ITEM = rows
            row = {"row": f"{T}: forward {first}, backward {second}, items of {rows} rows", "T": T}
            yield row | or_why(lambda x=x: listed("triton", x))
    launches.forward_tile, launches.backward_tile, launches.ROWS_PER_ITEM = forward, backward, rows_chosen


def variants_of_selected():
    """Other ways to compile the forward of the selected branch, at 64/4 heads of 128 and 32,768 tokens."""
    from nsa.kernels.selected import triton_hopper as selected

    x, chosen = Inputs(32768, 64, 4, 128), selected.PIPE
    selected.BY_WGMMA = False
    for warps, stages in ((chosen.warps, chosen.stages), (1, 2), (1, 3), (2, 1), (2, 2)):
        selected.PIPE = selected.Pipe(warps=warps, stages=stages)
        row = {"row": f"selected, {warps} warps x 16 heads, {stages} stages", "T": x.T}
        yield row | or_why(lambda: listed("hopper", x))
    selected.PIPE, selected.BY_WGMMA = chosen, True
    for stages in (3, 2, 4):
        selected.BACKWARD_STAGES = stages
        row = {"row": f"selected, backward with {stages} tiles under way", "T": x.T}
        yield row | or_why(lambda: listed("hopper", x))


def variants():
    """Other sizes of what streams through the kernels, at 64/4 heads of 128 and 32,768 tokens."""
    from nsa.kernels.hopper import triton as hopper

    x, chosen = Inputs(32768, 64, 4, 128), hopper.streams
    choices = {
        "as it is": {},
        "forward 64 keys x 4": {0: (64, 4)},
        "forward 64 keys x 3": {0: (64, 3)},
        "forward 128 keys x 2": {0: (128, 2)},
        "dq 64 keys x 3": {1: (64, 3)},
        "dq 128 keys x 1": {1: (128, 1)},
        "dk, dv 64 rows x 3": {2: (64, 3)},
        "dk, dv 32 rows x 4": {2: (32, 4)},
    }
    for op in BEFORE:
        for name, changes in choices.items():

            def changed(*, width, kind, changes=changes):
                own = list(chosen(width=width, kind=kind))
                for at, (size, stages) in changes.items():
                    own[at] = hopper.Stream(size=size, stages=stages)
                return tuple(own)

            hopper.streams = changed
            yield {"row": f"{op}, {name}", "T": x.T} | or_why(lambda op=op: branch(op, "hopper", x))


PARTS = {
    **{f"parity {op} {d}": (lambda op=op, d=d: parity(op, d), 150) for op in BEFORE for d in DTYPES},
    **{f"parity scores {d}": (lambda d=d: parity_of_scores(d), 150) for d in DTYPES},
    **{f"parity selected {d}": (lambda d=d: parity("selected", d), 100) for d in DTYPES},
    "times selected 64/4": (lambda: times_of_selected(64, 4, 128, [(T, 1) for T in LENGTHS]), 60),
    "times selected 16/4": (lambda: times_of_selected(16, 4, 128, [(T, 1) for T in LENGTHS]), 40),
    "variants of selected": (variants_of_selected, 40),
    "times whole 64/4": (lambda: times_of_whole(64, 4, 128, [(T, 1) for T in LENGTHS]), 70),
    "times whole 16/4": (lambda: times_of_whole(16, 4, 128, [(T, 1) for T in LENGTHS]), 50),
    "variants of items": (sizes_of_items, 60),
    "variants of small groups": (tiles_of_small_groups, 60),
    "times 64/4": (lambda: times(64, 4, 128, [(T, 1) for T in LENGTHS]), 130),
    "times 16/4": (lambda: times(16, 4, 128, [(T, 1) for T in LENGTHS]), 100),
    "times 12/2 of 64": (lambda: times(12, 2, 64, [(2048, 16), (16384, 2)]), 60),
    "variants": (variants, 90),
}
"""Name, what it yields, and its limit in seconds. Parity parts run side by side, the others one by one."""


def run_part(name, out):
    rows = []
    try:
        torch.manual_seed(0)
        for row in PARTS[name][0]():
            rows.append(row)
            out.write_text(json.dumps(rows))
    except Exception as error:
        rows.append({"failed": f"{type(error).__name__}: {str(error)[:600]}", "where": traceback.format_exc()[-1500:]})
        out.write_text(json.dumps(rows))
        raise


def start(name, folder):
    log = (folder / f"{name.replace('/', '-')}.log").open("w")
    out = folder / f"{name.replace('/', '-')}.json"
    command = [sys.executable, __file__, str(folder), "--one", name, "--rows", str(out)]
    return name, subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True), out, Path(log.name)


def finish(started, limit_s):
    """The part's rows, and why there are no more if it failed."""
    name, process, out, log = started
    try:
        status = process.wait(timeout=max(1.0, limit_s))
        why = None if status == 0 else f"status {status}"
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()
        why = f"stopped after {limit_s:.0f} s"
    rows = json.loads(out.read_text()) if out.exists() else []
    said = log.read_text()[-1200:] if why else ""
    return {"part": name, "rows": rows, "why": why, "said": said}


def number(row):
    if "why" in row:
        return row["why"][:160]
    backward = f" / {row['backward_ms']:.2f}" if "backward_ms" in row else ""
    return f"{row['forward_ms']:.2f}{backward} ({row['peak_gb']:.1f})"


def best_routes(rows, sizes):
    """The fastest route of each operator at each size, by forward and backward together."""
    lines = ["", "| fastest | " + " | ".join(f"{T} x {B}" for T, B in sizes) + " |", "|---" * (len(sizes) + 1) + "|"]
    for op in dict.fromkeys(row["row"].split(", ")[0] for row in rows):
        cells = []
        for size in sizes:
            found = [
                (row["forward_ms"] + row.get("backward_ms", 0.0), row["row"].split(", ", 1)[1])
                for row in rows
                if row["row"].startswith(f"{op}, ") and (row["T"], row["B"]) == size and "why" not in row
            ]
            cells.append("{1} {0:.2f}".format(*min(found)) if found else "none")
        lines.append(f"| {op} | " + " | ".join(cells) + " |")
    return lines


def markdown(results, machine):
    lines = [f"{machine}", "", "Times: forward / backward in ms (peak memory of both above the inputs in GB).", ""]
    for result in results:
        profiles = [row for row in result["rows"] if "profile" in row]
        rows = [row for row in result["rows"] if "failed" not in row and "profile" not in row]
        lines += [f"## {result['part']}", ""]
        if result["part"].startswith("parity"):
            bad = [row for row in rows if not row["ok"]]
            lines.append(f"{len(rows) - len(bad)} of {len(rows)} shapes within the tolerance and equal bits twice.")
            for label in ("o", "lse", "dq", "dk", "dv", "short"):
                found = [(r["errors"][label], r["twin"][label]) for r in rows if label in r["errors"]]
                if found:
                    worst, twin = (max(column) for column in zip(*found, strict=True))
                    lines.append(f"- {label}: at most {worst:.1e} (the kernel it replaces {twin:.1e})")
            lines += [f"- WRONG {row['shape']}: bits {row['same_bits']}, {row['errors']}" for row in bad]
        elif result["part"].startswith("variants"):
            lines += ["| variant | 32k |", "|---|---|", *(f"| {row['row']} | {number(row)} |" for row in rows)]
        else:
            sizes = list(dict.fromkeys((row["T"], row["B"]) for row in rows))
            heads = rows[0]["heads"] if rows else ""
            lines.append(f"| {heads} | " + " | ".join(f"{T} x {B}" for T, B in sizes) + " |")
            lines.append("|---" * (len(sizes) + 1) + "|")
            for name in dict.fromkeys(row["row"] for row in rows):
                found = {(row["T"], row["B"]): number(row) for row in rows if row["row"] == name}
                lines.append(f"| {name} | " + " | ".join(found.get(size, "") for size in sizes) + " |")
            lines += best_routes(rows, sizes)
            taken = next((row["auto"] for row in rows if "auto" in row), None)
            if taken:
                lines += ["", "auto: " + ", ".join(f"{op} {name}" for op, name in taken.items())]
        for row in profiles:
            lines += ["", f"Profile at {row['T']} x {row['B']}, microseconds (launches), what takes 5 or more:", ""]
            lines += [f"- {us:.0f} ({n:.0f}): {name[:90]}" for name, (us, n) in row["profile"].items() if us >= 5]
        if result["why"]:
            failed = next((row for row in result["rows"] if "failed" in row), {})
            lines += ["", f"FAILED: {result['why']}. {failed.get('failed', '')}"]
            lines += ["", "```", failed.get("where") or result["said"], "```"]
        lines.append("")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--parts", nargs="+", help="only parts whose name contains one of these words")
    parser.add_argument("--budget-s", type=float, default=390.0)
    parser.add_argument("--one", choices=list(PARTS), help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("this needs a CUDA device; torch sees none")
    if args.one:
        run_part(args.one, args.rows)
        return
    import triton

    args.out.mkdir(parents=True, exist_ok=True)
    began, results = time.monotonic(), []
    machine = (
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}, "
        f"Python {platform.python_version()}"
    )

    def keep(result):
        results.append(result)
        (args.out / "hopper.json").write_text(json.dumps({"machine": machine, "parts": results}, indent=1))
        (args.out / "hopper.md").write_text(markdown(results, machine))
        print(f"{time.monotonic() - began:4.0f} s {result['part']}: {result['why'] or 'ended'}", file=sys.stderr)

    def left():
        return args.budget_s - (time.monotonic() - began)

    wanted = [name for name in PARTS if not args.parts or any(word in name for word in args.parts)]
    with tempfile.TemporaryDirectory() as folder:
        together = [start(name, Path(folder)) for name in wanted if name.startswith("parity")]
        until = time.monotonic() + 150
        for started in together:
            keep(finish(started, min(until - time.monotonic(), left())))
        for name in wanted:
            if not name.startswith("parity") and left() > 15:
                keep(finish(start(name, Path(folder)), min(PARTS[name][1], left())))
    print(markdown(results, machine))


if __name__ == "__main__":
    main()
