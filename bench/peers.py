"""Times this attention beside public implementations of the same paper and beside dense attention, on one GPU.

    python bench/peers.py TREES OUT    # everything, under eight minutes; OUT/peers.md, OUT/peers.json
    python bench/peers.py TREES OUT --only ours flash_nsa --lengths 8192

TREES holds the peers' source trees, as cloned; one that is missing is said to be, and the others run:

    Scalable-Flash-Native-Sparse-Attention   https://github.com/mdy666/Scalable-Flash-Native-Sparse-Attention
    native-sparse-attention-triton           https://github.com/XunhaoLai/native-sparse-attention-triton
    Flash-Sparse-Attention                   https://github.com/Relaxed-System-Lab/Flash-Sparse-Attention

fla-core is imported where it is installed. What a peer needs to run on a newer triton is mended in a copy of its tree,
and said beside its rows. Each peer is a process of its own with a limit: a crash, a hang or a poisoned context costs
its own rows. All compile side by side first; then one after the other is timed.

Inputs are the same for all: bf16, batch 1, heads of 128, l, d, l', n, w = 32, 16, 64, 16, 512, random q, k, v and
gates. Times are medians of ``triton.testing.do_bench`` (cache flushed between runs), memory is the peak of one forward
and backward above its inputs. *Whole* rows pool keys, attend to them, choose blocks, attend to those and to the window,
and add the three by gates; a row that leaves something out says so. Beside a peer's time stands how far its result is
from ours on the same input, where it computes the same.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import types
from pathlib import Path
from types import SimpleNamespace

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

D, G = 128, 4
LENGTHS, HEADS = (8192, 32768, 65536), (64, 16)
REP_MS = 60
REPETITIONS = 7
"""At least so many, also of what takes longer than ``REP_MS``: one alone was up to a seventh off."""
LIMIT_S = {"ours": 100, "dense": 60, "flash_nsa": 90, "xunhao": 60, "fsa": 60, "fla": 45}
COMPILE_S = 120
TREES = {
    "flash_nsa": "Scalable-Flash-Native-Sparse-Attention",
    "xunhao": "native-sparse-attention-triton",
    "fsa": "Flash-Sparse-Attention",
}
MENDED = {
    "flash_nsa": "its window needs flash-attn or FlashAttention-3; torch's own FlashAttention-2 stands in",
    "fsa": "one pointer stands in a tuple, which triton 3.6 does not load from: taken out of it",
}
BARS = {64: 0.75, 16: 0.5}
"""Of ours to flash_nsa, forward and backward, by query heads."""


def inputs(T, H):
    """Leaves for every branch, gates and the gradient of the output, and random causal blocks."""
    import torch

    torch.manual_seed(H * 1000 + T)

    def leaf(*size):
        return torch.randn(*size, device="cuda", dtype=torch.bfloat16).requires_grad_()

    from bench.attention import random_index

    x = SimpleNamespace(T=T, H=H, q=leaf(1, T, H, D), do=torch.randn(1, T, H, D, device="cuda", dtype=torch.bfloat16))
    x.gate = torch.rand(1, T, H, 3, device="cuda", dtype=torch.bfloat16).requires_grad_()
    x.k, x.v = ({branch: leaf(1, T, G, D) for branch in ("cmp", "slc", "win")} for _ in range(2))
    x.index = random_index(T, G)
    x.bounds = torch.tensor([0, T], device="cuda", dtype=torch.int32)
    return x


class Rows:
    """Times calls and writes a row for each at once."""

    def __init__(self, out, *, compiles_only):
        self.out, self.compiles_only = out, compiles_only

    def add(self, name, x, call, leaves, *, want=None, do=None):
        """Time a call, and how far its result is from ``want``; while all compile, run it once."""
        import torch

        row = {"row": name, "heads": x.H, "T": x.T}
        try:
            do = x.do if do is None else do
            o = first(call())
            torch.autograd.grad(o, leaves, do.view_as(o), allow_unused=True)
            torch.cuda.synchronize()
            if self.compiles_only:
                return
            row |= timed(call, leaves, do)
            if want is not None:
                far = first(call()).detach().view_as(want).float() - want.float()
                row["distance"] = (far.norm() / want.float().norm()).item()
        except Exception as error:
            traceback.print_exc()
            row["why"] = f"{type(error).__name__}: {error}"[:300]
            if "CUDA error" in str(error):
                raise
        finally:
            if not self.compiles_only or "why" in row:
                with self.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
            torch.cuda.empty_cache()


def first(found):
    """The output of a call that may give more."""
    return found[0] if isinstance(found, tuple) else found


def timed(call, leaves, do):
    """Median milliseconds forward and backward, and the peak of both above the inputs in GB."""
    import torch

    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    o = first(call())
    torch.autograd.grad(o, leaves, do.view_as(o), allow_unused=True)
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - before
    del o
    with torch.no_grad():
        forward = median_ms(call)
    o = first(call())
    backward = median_ms(lambda: torch.autograd.grad(o, leaves, do.view_as(o), retain_graph=True, allow_unused=True))
    return {"forward_ms": forward, "backward_ms": backward, "peak_gb": peak / 1e9}


def median_ms(call):
    """Median milliseconds of a call, of at least ``REPETITIONS``."""
    from triton.testing import do_bench

    one = do_bench(call, warmup=REP_MS // 3, rep=REP_MS, return_mode="median")
    if one * REPETITIONS <= REP_MS:
        return one
    return do_bench(call, warmup=int(2 * one), rep=int((REPETITIONS + 1) * one), return_mode="median")


def our_attention(x, *, is_shared=False, **kernels):
    """A call of ours on these inputs, and its leaves; with one pair of keys and values for all branches, as peers."""
    from nsa import nsa_attention

    k, v = (x.k["slc"], x.v["slc"])
    if is_shared:
        return lambda: nsa_attention(x.q, k, v, None, None, x.gate, kernels=kernels), (x.q, k, v, x.gate)
    from nsa.attention.compress import MeanPhi
    from nsa.blocks import BlockLayout

    layout = BlockLayout(l=32, d=16, l_slc=64, n=16, w=512)

    def call():
        kc, vc = (MeanPhi()(t, layout) for t in (x.k["cmp"], x.v["cmp"]))
        own = {"k_win_BSGD": x.k["win"], "v_win_BSGE": x.v["win"], "kernels": kernels}
        return nsa_attention(x.q, k, v, kc, vc, x.gate, **own)

    return call, (x.q, *x.k.values(), *x.v.values(), x.gate)


def our_selected(x):
    """The selected branch of ours over the same blocks."""
    from nsa.kernels.selected.triton import selected_attention

    return selected_attention(x.q, x.k["slc"], x.v["slc"], x.index, l_slc=64)[0]


def ours(sizes, rows, tree):
    from nsa.kernels.selected import hopper, triton

    for T, H in sizes:
        x = inputs(T, H)
        rows.add("whole, keys and values for each branch", x, *our_attention(x))
        rows.add("whole, one pair of keys and values, as peers", x, *our_attention(x, is_shared=True))
        rows.add("whole, its branches one by one", x, *our_attention(x, combine="triton"))
        call = hopper.selected if H // G % 16 == 0 else triton.selected_attention
        leaves = (x.q, x.k["slc"], x.v["slc"])
        rows.add("selected", x, lambda x=x, c=call, leaves=leaves: c(*leaves, x.index, l_slc=64)[0], leaves)


def dense(sizes, rows, tree):
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    for T, H in sizes:
        x = inputs(T, H)
        for name, backend in (("cuDNN", SDPBackend.CUDNN_ATTENTION), ("flash", SDPBackend.FLASH_ATTENTION)):
            if name == "flash" and (T > 32768 or rows.compiles_only):
                continue  # 0.7 s a pass

            def call(x=x, backend=backend):
                q, k, v = (t.transpose(1, 2) for t in (x.q, x.k["slc"], x.v["slc"]))
                with sdpa_kernel(backend):
                    o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
                return o.transpose(1, 2)

            rows.add(f"causal, {name}", x, call, (x.q, x.k["slc"], x.v["slc"]))


def stand_in_for_flash_attn():
    """``flash_attn_interface`` and ``pkg_resources``, where they are missing, of what torch brings along."""
    import torch

    if importlib.util.find_spec("pkg_resources") is None:
        module = types.ModuleType("pkg_resources")
        module.parse_version = importlib.import_module("packaging.version").parse
        sys.modules["pkg_resources"] = module
    aten = torch.ops.aten

    class Window(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v, bounds, n, scale, left):
            o, lse, rng, *_ = aten._flash_attention_forward(
                q, k, v, bounds, bounds, n, n, dropout_p=0.0, is_causal=True, return_debug_mask=False, scale=scale,
                window_size_left=left, window_size_right=0,
            )  # fmt: skip
            ctx.save_for_backward(q, k, v, o, lse, rng, bounds)
            ctx.rest = n, scale, left
            return o

        @staticmethod
        def backward(ctx, do):
            q, k, v, o, lse, rng, bounds = ctx.saved_tensors
            n, scale, left = ctx.rest
            found = aten._flash_attention_backward(
                do.contiguous(), q, k, v, o, lse, bounds, bounds, n, n, dropout_p=0.0, is_causal=True, rng_state=rng,
                unused=rng, scale=scale, window_size_left=left, window_size_right=0,
            )  # fmt: skip
            return *found, None, None, None, None

    def flash_attn_varlen_func(q, k, v, bounds, _, n, __, window_size=(-1, -1), softmax_scale=None, **more):
        return Window.apply(q, k, v, bounds, n, softmax_scale or q.shape[-1] ** -0.5, window_size[0])

    module = types.ModuleType("flash_attn_interface")
    module.flash_attn_varlen_func, module._flash_attn_forward = flash_attn_varlen_func, None
    module._flash_attn_backward = None
    sys.modules["flash_attn_interface"] = module


def flash_nsa(sizes, rows, tree):
    import torch

    stand_in_for_flash_attn()
    sys.path.insert(0, str(tree))
    from flash_nsa import HFNSACore, NSAConfig, select_attn

    for T, H in sizes:
        x = inputs(T, H)
        q, k, v = leaves = [t.detach()[0].requires_grad_() for t in (x.q, x.k["slc"], x.v["slc"])]
        weights = torch.logit(x.gate.detach()[0].float().clamp(0.01, 0.99)).bfloat16().requires_grad_()
        core = HFNSACore(NSAConfig(num_heads=H, num_kv_heads=G, head_dim=D)).to(q)
        with torch.no_grad():
            want = our_attention(x, is_shared=True)[0]() if not rows.compiles_only else None
        rows.add(
            "whole", x, lambda core=core, q=q, k=k, v=v, w=weights, x=x: core(q, k, v, w, x.bounds),
            (*leaves, weights), want=want, do=x.do[0],
        )  # fmt: skip
        index = x.index[0].transpose(0, 1).contiguous()
        index = index.masked_fill(index < 0, 10**6)
        with torch.no_grad():
            want = our_selected(x) if not rows.compiles_only else None
        call = lambda q=q, k=k, v=v, index=index: select_attn(q, k, v, index)  # noqa: E731
        rows.add("selected", x, call, leaves, want=want, do=x.do[0])


def xunhao(sizes, rows, tree):
    import torch

    sys.path.insert(0, str(tree))
    from native_sparse_attention.ops import avgpool_compress, compressed_attention
    from native_sparse_attention.ops.triton.topk_sparse_attention import topk_sparse_attention

    for T, H in sizes:
        x = inputs(T, H)
        q, k, v = leaves = [t.detach()[0].requires_grad_() for t in (x.q, x.k["slc"], x.v["slc"])]

        def both(q=q, k=k, v=v, bounds=x.bounds):
            kc, of_blocks = avgpool_compress(k, None, bounds, 32, 16, None)
            vc, _ = avgpool_compress(v, None, bounds, 32, 16, None)
            o, chosen = compressed_attention(
                q, kc, vc, 32, 16, 64, 16, bounds, of_blocks, init_blocks=1, local_blocks=2
            )
            return o + topk_sparse_attention(q, k, v, chosen, 64, bounds)

        rows.add("whole without window and gates", x, both, leaves, do=x.do[0])
        index = x.index[0].transpose(0, 1).contiguous()
        with torch.no_grad():
            want = our_selected(x) if not rows.compiles_only else None
        call = lambda q=q, k=k, v=v, i=index, b=x.bounds: topk_sparse_attention(q, k, v, i, 64, b)  # noqa: E731
        rows.add("selected", x, call, leaves, want=want, do=x.do[0])


def fsa(sizes, rows, tree):
    import torch

    copy = Path(tempfile.mkdtemp()) / "tree"
    shutil.copytree(tree, copy)
    file = copy / "fsa/ops/FSA_topk_sparse_attention.py"
    found, mended = "lse_ptrs = (lse_ptr + pid_q_j * stride_lse_n,)", "lse_ptrs = lse_ptr + pid_q_j * stride_lse_n"
    file.write_text(file.read_text().replace(found, mended))
    sys.path.insert(0, str(copy))
    from fsa.ops import FSA_topk_sparse_attention

    for T, H in sorted(sizes, key=lambda size: size[1]):  # its kernels are for few heads in a group
        x = inputs(T, H)
        q, k, v = leaves = [t.detach()[0].requires_grad_() for t in (x.q, x.k["slc"], x.v["slc"])]
        index = x.index[0].transpose(0, 1).contiguous()
        with torch.no_grad():
            want = our_selected(x) if not rows.compiles_only else None
        call = lambda q=q, k=k, v=v, i=index, b=x.bounds: FSA_topk_sparse_attention(q, k, v, i, 64, b, None)  # noqa: E731
        rows.add("selected", x, call, leaves, want=want, do=x.do[0])


def fla(sizes, rows, tree):
    import torch
    from fla.ops.nsa.parallel import ParallelNSAFunction

    for T, H in sizes:
        if H // G % 16:
            continue  # it asks for groups of a multiple of 16 heads
        x = inputs(T, H)
        leaves, index = (x.q, x.k["slc"], x.v["slc"]), x.index.long()
        with torch.no_grad():
            want = our_selected(x) if not rows.compiles_only else None
        call = lambda leaves=leaves, i=index: ParallelNSAFunction.apply(*leaves, i, 16, 64, D**-0.5, None)  # noqa: E731
        rows.add("selected", x, call, leaves, want=want)


PEERS = {"ours": ours, "dense": dense, "flash_nsa": flash_nsa, "xunhao": xunhao, "fsa": fsa, "fla": fla}


def child(args):
    import torch
    import torch._functorch.config

    torch._functorch.config.donated_buffer = False  # a backward is taken more than once
    sizes = [(T, H) for H in args.heads for T in args.lengths]
    if args.compiles:
        sizes = [(min(args.lengths), H) for H in args.heads]
    tree = args.trees / TREES[args.one] if args.one in TREES else None
    PEERS[args.one](sizes, Rows(args.rows, compiles_only=args.compiles), tree)


def launch(args, name, folder, *, compiles):
    log = (folder / f"{name}{'-compiles' if compiles else ''}.log").open("w")
    rows = folder / f"{name}.jsonl"
    command = [sys.executable, __file__, str(args.trees), str(args.out), "--one", name, "--rows", str(rows)]
    command += ["--lengths", *map(str, args.lengths), "--heads", *map(str, args.heads)]
    command += ["--compiles"] if compiles else []
    process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    return process, rows, Path(log.name)


def finish(process, limit_s):
    """Why the process did not end well, if it did not."""
    try:
        status = process.wait(timeout=max(1.0, limit_s))
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()
        return f"stopped after {limit_s:.0f} s"
    return None if status == 0 else f"status {status}"


def cell(row):
    if row is None:
        return ""
    if "why" in row:
        return "failed"
    far = f" ~{row['distance']:.0e}" if row.get("distance") is not None else ""
    return f"{row['forward_ms']:.2f} / {row['backward_ms']:.2f} ({row['peak_gb']:.1f}){far}"


def at(rows, peer, name, H, T):
    found = [r for r in rows if (r["peer"], r["row"], r["heads"], r["T"]) == (peer, name, H, T)]
    return found[-1] if found else None


def ratios(rows, H, lengths):
    """Ours to each other whole, forward and backward, and whether that keeps the bar."""
    own = "whole, keys and values for each branch"
    others = [("flash_nsa", "whole"), ("xunhao", "whole without window and gates"), ("dense", "causal, cuDNN")]
    lines = ["", f"| ours to, {H} heads | " + " | ".join(map(str, lengths)) + " |", "|---" * (len(lengths) + 1) + "|"]
    for peer, name in others:
        cells = []
        for T in lengths:
            mine, other = at(rows, "ours", own, H, T), at(rows, peer, name, H, T)
            if mine is None or other is None or "why" in mine or "why" in other:
                cells.append("")
                continue
            forward, backward = (mine[key] / other[key] for key in ("forward_ms", "backward_ms"))
            both = (mine["forward_ms"] + mine["backward_ms"]) / (other["forward_ms"] + other["backward_ms"])
            kept = "" if peer != "flash_nsa" else " kept" if max(forward, backward) <= BARS.get(H, 1.0) else " MISSED"
            cells.append(f"{forward:.2f} / {backward:.2f}, both {both:.2f}{kept}")
        lines.append(f"| {peer}, {name} | " + " | ".join(cells) + " |")
    return lines


def markdown(rows, said, machine, args):
    lines = [machine, "", "Forward / backward in ms (peak memory of both above the inputs in GB) ~distance from ours."]
    for H in args.heads:
        lines += ["", f"## {H} heads in {G} groups", ""]
        lines += [f"| {H}/{G} | " + " | ".join(map(str, args.lengths)) + " |", "|---" * (len(args.lengths) + 1) + "|"]
        for peer, name in dict.fromkeys((r["peer"], r["row"]) for r in rows if r["heads"] == H):
            cells = [cell(at(rows, peer, name, H, T)) for T in args.lengths]
            lines.append(f"| {peer}: {name} | " + " | ".join(cells) + " |")
        lines += ratios(rows, H, args.lengths)
    lines += ["", "## What was mended, and what failed", ""]
    lines += [f"- {peer}: {text}" for peer, text in MENDED.items() if any(r["peer"] == peer for r in rows)]
    lines += [f"- {peer}: {text}" for peer, text in said.items() if text]
    failed = [r for r in rows if "why" in r]
    lines += [f"- {r['peer']}, {r['row']}, {r['heads']} heads, {r['T']} tokens: {r['why']}" for r in failed]
    return "\n".join(lines) + "\n"


def parser():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("trees", type=Path, help="folder of the peers' source trees")
    parser.add_argument("out", type=Path, help="folder for peers.md and peers.json")
    parser.add_argument("--only", nargs="+", choices=list(PEERS), help="these alone")
    parser.add_argument("--lengths", nargs="+", type=int, default=list(LENGTHS), help="tokens in a row")
    parser.add_argument("--heads", nargs="+", type=int, default=list(HEADS), help="query heads, in four groups")
    parser.add_argument("--budget-s", type=float, default=460.0, help="end within so many seconds")
    for hidden in ("--one", "--rows"):
        parser.add_argument(hidden, type=Path if hidden == "--rows" else str, help=argparse.SUPPRESS)
    parser.add_argument("--compiles", action="store_true", help=argparse.SUPPRESS)
    return parser


def main():
    args = parser().parse_args()
    import torch
    import triton

    if not torch.cuda.is_available():
        parser().error("this needs a CUDA device; torch sees none")
    if args.one:
        child(args)
        return
    args.out.mkdir(parents=True, exist_ok=True)
    began, rows, said = time.monotonic(), [], {}
    machine = (
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}, "
        f"Python {platform.python_version()}"
    )

    def left():
        return args.budget_s - (time.monotonic() - began)

    wanted = [name for name in args.only or PEERS if name not in TREES or (args.trees / TREES[name]).is_dir()]
    said |= {name: f"no folder {TREES[name]} in {args.trees}" for name in args.only or PEERS if name not in wanted}
    with tempfile.TemporaryDirectory() as folder:
        together = [(name, launch(args, name, Path(folder), compiles=True)[0]) for name in wanted]
        until = time.monotonic() + min(COMPILE_S, args.budget_s / 3)
        for name, process in together:
            why = finish(process, until - time.monotonic())
            print(f"{time.monotonic() - began:4.0f} s {name} compiled: {why or 'ended'}", file=sys.stderr, flush=True)
        for name in wanted:
            if left() < 10:
                said[name] = "no time was left"
                continue
            process, file, log = launch(args, name, Path(folder), compiles=False)
            why = finish(process, min(LIMIT_S[name], left()))
            said[name] = why and f"{why}; it said last: {log.read_text()[-300:]!r}"
            found = file.read_text().splitlines() if file.exists() else []
            rows += [{"peer": name, **json.loads(line)} for line in found]
            print(f"{time.monotonic() - began:4.0f} s {name}: {why or 'ended'}", file=sys.stderr, flush=True)
            kept = {"machine": machine, "seconds": time.monotonic() - began, "said": said, "rows": rows}
            (args.out / "peers.json").write_text(json.dumps(kept, indent=1))
            (args.out / "peers.md").write_text(markdown(rows, said, machine, args))
    print(markdown(rows, said, machine, args))


if __name__ == "__main__":
    main()
