"""Times native sparse attention, whole and by branch, beside dense attention and fla-core, on one GPU in one run.

    python bench/attention.py --json results.json --md results.md

Every row starts from projected q, k and v (bf16, batch 1) and ends with the attention output: median forward and
backward milliseconds (``triton.testing.do_bench``, cache flushed between runs) and the peak memory of one forward
and backward above its inputs. *Selected* rows use random causal blocks: block 0, the query's own and the one
before it, and random others. *Full* rows pool keys by their mean, attend to compressed keys, choose blocks, attend
to them and to the window, and add the three by their gates, with keys and values of its own for each branch.
A row that cannot run says why.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from contextlib import nullcontext
from pathlib import Path

import torch
import torch._functorch.config
import triton
from torch.nn.attention import SDPBackend, sdpa_kernel
from triton.testing import do_bench

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from nsa.attention.compress import MeanPhi
from nsa.blocks import BlockLayout
from nsa.config import KernelConfig
from nsa.kernels import flash as ordered_sums
from nsa.kernels.compressed import packed
from nsa.kernels.registry import Site, refusal_of, resolve_all
from nsa.kernels.scores import triton as scores
from nsa.kernels.selected import triton as selected
from nsa.kernels.window import flash, flex

IN_ORDER = ordered_sums.sums_in_order
LAYOUT = BlockLayout(l=32, d=16, l_slc=64, n=16, w=512)


def random_index(T, G):
    """[1, T, G, n] int32: block 0, own, previous and random causal blocks, ascending, -1 padded."""
    own = torch.arange(T, device="cuda") // LAYOUT.l_slc
    n_blocks = LAYOUT.n_slc(T)
    block = torch.arange(n_blocks, device="cuda")
    index = torch.empty(1, T, G, LAYOUT.n, dtype=torch.int32, device="cuda")
    for t0 in range(0, T, 4096):
        rows = slice(t0, min(t0 + 4096, T))
        o = own[rows, None]
        score = torch.rand(o.shape[0], G, n_blocks, device="cuda")
        score.masked_fill_(((block == 0) | (block == o) | (block == o - 1))[:, None], 2.0)
        score.masked_fill_((block > o)[:, None], -1.0)
        value, chosen = score.topk(min(LAYOUT.n, n_blocks), -1)
        chosen = chosen.masked_fill(value < 0, n_blocks).sort(-1).values
        index[0, rows] = chosen.masked_fill(chosen == n_blocks, -1).int()
    return index


def cudnn_with_lse(q_BHJD, k_BGJD, v_BGJE, *, scale):
    """Causal attention and its lse by cuDNN, keys and values not repeated."""
    o, lse = torch.ops.aten._scaled_dot_product_cudnn_attention(
        q_BHJD, k_BGJD, v_BGJE, attn_bias=None, compute_log_sumexp=True, dropout_p=0.0, is_causal=True, scale=scale
    )[:2]
    return o, lse.reshape(q_BHJD.shape[:3])


class Inputs:
    """What one shape needs; made once and shared by its rows."""

    def __init__(self, T, H, G, D):
        def leaf(*shape):
            return torch.randn(*shape, device="cuda", dtype=torch.bfloat16).requires_grad_()

        self.T, self.H, self.G, self.D = T, H, G, D
        self.q = leaf(1, T, H, D)
        self.k = {branch: leaf(1, T, G, D) for branch in ("cmp", "slc", "win")}
        self.v = {branch: leaf(1, T, G, D) for branch in ("cmp", "slc", "win")}
        self.gate = torch.rand(1, T, H, 3, device="cuda", dtype=torch.bfloat16).requires_grad_()
        self.index = random_index(T, G)
        with torch.no_grad():
            self.kc, self.vc = (MeanPhi()(x, LAYOUT).contiguous() for x in (self.k["cmp"], self.v["cmp"]))
            o, self.lse = packed.compressed(self.q, self.kc, self.vc, LAYOUT)
            if torch.backends.cudnn.is_available():
                o_cudnn, lse_cudnn = packed.compressed(self.q, self.kc, self.vc, LAYOUT, attend=cudnn_with_lse)
                torch.testing.assert_close(o_cudnn, o, rtol=0.02, atol=0.02)
                torch.testing.assert_close(lse_cudnn, self.lse, rtol=1e-3, atol=1e-3)
                del o_cudnn, lse_cudnn
            del o
        self.kc.requires_grad_()
        self.vc.requires_grad_()

    def site(self):
        """What the registry needs to choose kernels."""
        return Site(
            device=torch.device("cuda"), dtype=torch.bfloat16, seq_len=self.T, n_heads=self.H,
            n_kv_groups=self.G, d_k=self.D, d_v=self.D, layout=LAYOUT,
        )  # fmt: skip


def dense(x, backend):
    qkv = [t.transpose(1, 2) for t in (x.q, x.k["slc"], x.v["slc"])]

    def call():
        with sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(*qkv, is_causal=True, enable_gqa=True)

    return call, (x.q, x.k["slc"], x.v["slc"])


def full(x, kernels):
    def call():
        kc, vc = (MeanPhi()(t, LAYOUT) for t in (x.k["cmp"], x.v["cmp"]))
        o_cmp, lse = kernels["compressed"](x.q, kc, vc, LAYOUT)
        index = kernels["scores"](x.q, kc, lse, LAYOUT)
        o_slc, _ = kernels["selected"](x.q, x.k["slc"], x.v["slc"], index, l_slc=LAYOUT.l_slc)
        o_win = kernels["window"](x.q, x.k["win"], x.v["win"], w=LAYOUT.w)
        return kernels["combine"](o_cmp, o_slc, o_win, x.gate)

    return call, (x.q, *x.k.values(), *x.v.values(), x.gate)


def full_resolved(x):
    kernels = {op: r.call for op, r in resolve_all(KernelConfig(), x.site()).items()}
    return full(x, kernels)


def full_cudnn(x):
    kernels = {op: r.call for op, r in resolve_all(KernelConfig(), x.site()).items()}
    kernels["compressed"] = lambda *args: packed.compressed(*args, attend=cudnn_with_lse)
    return full(x, kernels)


def ours(x, *, kv_major=None):
    qkv = (x.q, x.k["slc"], x.v["slc"])
    return lambda: selected.selected_attention(*qkv, x.index, l_slc=LAYOUT.l_slc, kv_major=kv_major)[0], qkv


def fla(x):
    try:
        from fla.ops.nsa.parallel import ParallelNSAFunction
    except ImportError as error:
        raise NotImplementedError(f"fla-core is not installed ({error})") from error
    group = x.H // x.G
    if group < 16 or group & (group - 1):
        raise NotImplementedError(f"fla-core takes groups of 16, 32, ..., not {group}")
    qkv = (x.q, x.k["slc"], x.v["slc"])
    index = x.index.long()

    def call():
        return ParallelNSAFunction.apply(*qkv, index, LAYOUT.n, LAYOUT.l_slc, x.D**-0.5, None)

    with torch.no_grad():
        torch.testing.assert_close(call(), ours(x)[0](), rtol=0.02, atol=0.02)
    return call, qkv


def compressed(x, **how):
    return lambda: packed.compressed(x.q, x.kc, x.vc, LAYOUT, **how)[0], (x.q, x.kc, x.vc)


def any_order(make):
    """The row with torch's faster sums, whose last bits differ from run to run."""

    def made(x):
        call, leaves = make(x)
        ordered_sums.sums_in_order = nullcontext
        return call, leaves

    return made


def choose(x):
    return lambda: scores.select_blocks(x.q, x.kc, x.lse, LAYOUT), None


def window(x, module):
    why = refusal_of("window", module.__name__.rpartition(".")[2], x.site())
    if why:
        raise NotImplementedError(why)
    qkv = (x.q, x.k["win"], x.v["win"])
    return lambda: module.window(*qkv, w=LAYOUT.w), qkv


def combine(x):
    kernel = resolve_all(KernelConfig(), x.site())["combine"].call
    branches = tuple(torch.randn_like(x.q).requires_grad_() for _ in range(3))
    return lambda: kernel(*branches, x.gate), (*branches, x.gate)


ROWS = {
    "dense, cuDNN": lambda x: dense(x, SDPBackend.CUDNN_ATTENTION),
    "dense, flash": lambda x: dense(x, SDPBackend.FLASH_ATTENTION),
    "full NSA": full_resolved,
    "full NSA, compressed by cuDNN": full_cudnn,
    "full NSA, sums in any order": any_order(full_resolved),
    "selected": ours,
    "selected, query-major forward": lambda x: ours(x, kv_major=False),
    "selected, KV-major forward": lambda x: ours(x, kv_major=True),
    "selected, fla-core": fla,
    "compressed (packed, flash)": compressed,
    "compressed (packed, cuDNN)": lambda x: compressed(x, attend=cudnn_with_lse),
    "compressed (packed, flash), sums in any order": any_order(compressed),
    "block selection": choose,
    "window, flash": lambda x: window(x, flash),
    "window, flash, sums in any order": any_order(lambda x: window(x, flash)),
    "window, flex_attention": lambda x: window(x, flex),
    "gated sum": combine,
}


def measure(make, x, rep_ms):
    call, leaves = make(x)
    if leaves is None:
        with torch.no_grad():
            forward_ms = do_bench(call, warmup=rep_ms // 4, rep=rep_ms, return_mode="median")
        return {"forward_ms": forward_ms, "backward_ms": None, "peak_bytes": None}
    call()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    o = call()
    do = torch.randn_like(o)
    torch.autograd.grad(o, leaves, do)
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - before
    with torch.no_grad():
        forward_ms = do_bench(call, warmup=rep_ms // 4, rep=rep_ms, return_mode="median")
    o = call()
    backward_ms = do_bench(
        lambda: torch.autograd.grad(o, leaves, do, retain_graph=True),
        warmup=rep_ms // 4, rep=rep_ms, return_mode="median",
    )  # fmt: skip
    return {"forward_ms": forward_ms, "backward_ms": backward_ms, "peak_bytes": peak}


def cell(result):
    if "why" in result:
        return "n/a"
    if result["backward_ms"] is None:
        return f"{result['forward_ms']:.2f}"
    gigabytes = result["peak_bytes"] / 1e9
    return f"{result['forward_ms']:.2f} / {result['backward_ms']:.2f} ({gigabytes:.1f})"


def table(results, lengths, heads, kv_heads):
    lines = []
    for H in heads:
        lines += [
            f"| {H} query heads, {kv_heads} kv heads | " + " | ".join(f"{T // 1024}k" for T in lengths) + " |",
            "|---" * (len(lengths) + 1) + "|",
        ]
        for name in ROWS:
            found = {r["T"]: r for r in results if r["H"] == H and r["row"] == name}
            if found:
                lines.append(f"| {name} | " + " | ".join(cell(found[T]) if T in found else "" for T in lengths) + " |")
        lines += ["", *sorted({f"{r['row']}: {r['why']}" for r in results if r["H"] == H and "why" in r}), ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[8192, 16384, 32768, 65536])
    parser.add_argument("--heads", type=int, nargs="+", default=[64, 16])
    parser.add_argument("--kv-heads", type=int, default=4)
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--rows", nargs="+", help="only rows whose name contains one of these words")
    parser.add_argument("--rep-ms", type=int, default=100, help="milliseconds of repetition per number")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--md", type=Path)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("this needs a CUDA device; torch sees none")
    torch.manual_seed(0)
    # Timing repeats a backward pass; a compiled one would otherwise give its saved tensors away in the first.
    torch._functorch.config.donated_buffer = False
    wanted = {n: f for n, f in ROWS.items() if not args.rows or any(word in n for word in args.rows)}
    machine = {
        "gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__,
        "python": platform.python_version(), "dtype": "bfloat16", "head_dim": args.head_dim,
        "kv_heads": args.kv_heads, "layout": {k: getattr(LAYOUT, k) for k in ("l", "d", "l_slc", "n", "w")},
    }  # fmt: skip
    results, kernels = [], {}
    for H in args.heads:
        for T in args.lengths:
            x = Inputs(T, H, args.kv_heads, args.head_dim)
            kernels[f"{H}x{T}"] = [r.row() for r in resolve_all(KernelConfig(), x.site()).values()]
            for name, make in wanted.items():
                result = {"H": H, "T": T, "row": name}
                ordered_sums.sums_in_order = IN_ORDER
                try:
                    result |= measure(make, x, args.rep_ms)
                except (NotImplementedError, RuntimeError) as error:
                    result["why"] = str(error).splitlines()[0]
                results.append(result)
                print(f"{H} {T} {name}: {result.get('why') or cell(result)}", file=sys.stderr, flush=True)
                if args.json:
                    args.json.write_text(
                        json.dumps({"machine": machine, "kernels": kernels, "results": results}, indent=1)
                    )
                torch.cuda.empty_cache()
            del x
    text = (
        f"{machine['gpu']}, torch {machine['torch']}, triton {machine['triton']}, bf16, d = {args.head_dim}, batch 1, "
        f"l, d, l', n, w = {', '.join(str(v) for v in machine['layout'].values())}.\n"
        "Cells: forward / backward in ms (peak memory of both above the inputs in GB).\n\n"
    )
    text += table(results, args.lengths, args.heads, args.kv_heads)
    print(text)
    if args.md:
        args.md.write_text(text)


if __name__ == "__main__":
    main()
