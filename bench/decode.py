"""One decoding step of the attention, sparse beside dense, by batch and length; each replayed as a CUDA graph.

    python bench/decode.py OUT                      # one GPU, under 150 s
    python bench/decode.py OUT --smoke              # tiny, on a CPU: does every part run?

A step takes new queries, keys and values of every row to the output of the attention, rotation included.
Sparse: ``nsa.kernels.decode`` on pages. Dense: one launch of the same rotation, the new key and value put where they
belong, and the fastest kernel of torch for one query per row (its flash kernel and cuDNN's, heads of a group as they
are or as rows of one head), over a contiguous cache that is exactly full, so that it needs no mask.
Each graph goes through several layers with memory of their own, more than the GPU's cache holds, where that fits.
Every 16th token ends a compression block; both kinds of step are timed, and the mean counts one in ``d``.

The model's step is ``nsa.Decoding`` with the 125M configuration: one graph, beside ``forward`` with a cache.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from nsa.attention.compress import make_phi
from nsa.attention.pages import PagedCache
from nsa.attention.rope import angles
from nsa.config import ModelConfig
from nsa.kernels.decode import torch as plain

BATCHES, LENGTHS = (1, 2, 4, 8, 16, 32, 64), (8192, 16384, 32768, 65536)
GIB = 1 << 30
HELD = 40 * GIB
"""Memory that the layers of a graph may take together, sparse and dense."""


def sizes(n_layers: int, *, smoke: bool) -> ModelConfig:
    """64 query heads over 4 kv heads of 128, the paper's blocks, which are not the configuration's default."""
    if smoke:
        return ModelConfig(dim=32, n_layers=n_layers, n_heads=8, n_kv_groups=2, d_k=16, d_v=16, l_slc=32, n=4, w=64)
    blocks = {"l": 32, "d": 16, "l_slc": 64, "n": 16, "w": 512}
    return ModelConfig(dim=64, n_layers=n_layers, n_heads=64, n_kv_groups=4, d_k=128, d_v=128, **blocks)


class Case:
    """A batch at a length: inputs, and both kinds of memory for several layers."""

    def __init__(
        self, n_rows: int, n_tokens: int, *, device: torch.device, dtype: torch.dtype, smoke: bool, n_layers: int = 8
    ) -> None:
        config = sizes(1, smoke=smoke)
        self.n_rows, self.n_tokens, self.device = n_rows, n_tokens, device
        width = 2 * config.n_kv_groups * config.d_k * dtype.itemsize
        n_layers = min(n_layers, max(1, HELD // (2 * n_rows * n_tokens * width)))
        self.config = config = sizes(n_layers, smoke=smoke)
        H, G, D = config.n_heads, config.n_kv_groups, config.d_k
        make = {"dtype": dtype, "device": device}
        self.q, self.k, self.v = (torch.randn(n_rows, heads, D, **make) for heads in (H, 3 * G, 3 * G))
        self.gate = torch.rand(n_rows, H, 3, **make)
        self.phis = [make_phi("mlp", l=config.l, width=D).to(**make) for _ in range(2)]
        self.pages = PagedCache(config, n_rows=n_rows, max_tokens=n_tokens, **make)
        for pages in self.pages.layers:
            for x in pages.tensors():
                x.normal_()
        self.dense = [torch.randn(2, n_rows, G, n_tokens, D, **make) for _ in range(n_layers)]
        self.turn = angles(torch.tensor([n_tokens - 1], device=device), D, base=config.rope_base, like=self.q)

    def at(self, n_before: int):
        """Let every row hold so many tokens."""
        self.pages.place.position_B.fill_(n_before)
        return self

    def sparse(self, attend):
        """One step of all layers."""
        for pages in self.pages.layers:
            o = attend(self.q, self.k, self.v, self.gate, pages, self.pages.place, *self.phis, self.config.layout)
        return o

    def dense_step(self, backend: SDPBackend, *, grouped: bool):
        """One step of all layers by a kernel of torch."""
        from nsa.kernels.rotary.op import rotate_heads

        G = self.config.n_kv_groups
        with sdpa_kernel(backend):
            for kv in self.dense:
                q, k = rotate_heads(self.q[:, None], self.k[:, None, :G], self.turn.cos_T1D, self.turn.sin_T1D)
                kv[0, :, :, -1] = k[:, 0]
                kv[1, :, :, -1] = self.v[:, :G]
                q = q[:, 0].unflatten(1, (G, -1)) if grouped else q.transpose(1, 2)
                o = torch.nn.functional.scaled_dot_product_attention(q, kv[0], kv[1], enable_gqa=not grouped)
        return o


def timed(step, n_layers: int, *, device: torch.device, budget_s: float = 0.15) -> float:
    """Microseconds of one layer: the median replay of a graph of all of them."""
    if device.type != "cuda":
        began = time.perf_counter()
        step()
        return (time.perf_counter() - began) * 1e6 / n_layers
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    graph.replay()
    torch.cuda.synchronize()
    took = []
    ends = time.perf_counter() + budget_s
    while len(took) < 5 or (time.perf_counter() < ends and len(took) < 50):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        took.append(begin.elapsed_time(end))
    return sorted(took)[len(took) // 2] * 1e3 / n_layers


def sparse_us(case: Case, attend, *, device: torch.device) -> dict[str, float]:
    """A step that ends no compression block, one that does, and their mean."""
    n, layout = case.config.n_layers, case.config.layout
    last = case.n_tokens - 1  # n_tokens is a multiple of d: a block ends with it
    plain_us = timed(lambda: case.at(last - 1).sparse(attend), n, device=device)
    due_us = timed(lambda: case.at(last).sparse(attend), n, device=device)
    return {"sparse_us": plain_us + (due_us - plain_us) / layout.d, "no_block_us": plain_us, "block_us": due_us}


def dense_us(case: Case, *, device: torch.device) -> dict[str, object]:
    """The fastest of torch's kernels."""
    ways = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
    if device.type != "cuda":
        ways = {"math": SDPBackend.MATH}
    found: dict[str, float] = {}
    for name, backend in ways.items():
        for grouped in (False, True):
            way = f"{name}, heads as rows" if grouped else name
            try:
                found[way] = timed(
                    lambda b=backend, g=grouped: case.dense_step(b, grouped=g), case.config.n_layers, device=device
                )
            except RuntimeError as error:
                print(f"dense by {way}: {str(error).splitlines()[0][:150]}", file=sys.stderr)
    best = min(found, key=found.__getitem__)
    return {"dense_us": found[best], "dense_by": best, "dense_all": found}


def measure(n_rows: int, n_tokens: int, attend, *, device, dtype, smoke: bool, n_layers: int) -> dict[str, object]:
    """One row of the table."""
    case = Case(n_rows, n_tokens, device=device, dtype=dtype, smoke=smoke, n_layers=n_layers)
    row: dict[str, object] = {"batch": n_rows, "tokens": n_tokens, "layers": case.config.n_layers}
    row |= sparse_us(case, attend, device=device) | dense_us(case, device=device)
    row["ratio"] = row["dense_us"] / row["sparse_us"]
    layout, width = case.config.layout, 2 * case.config.n_kv_groups * case.config.d_k * dtype.itemsize
    row["sparse_gb_s"] = n_rows * layout.tokens_read(n_tokens - 1) * width / row["sparse_us"] / 1e3
    row["dense_gb_s"] = n_rows * n_tokens * width / row["dense_us"] / 1e3
    return row


def model_rows(*, device: torch.device, smoke: bool, lengths, batches) -> list[dict[str, object]]:
    """Steps of the 125M model: one graph, and ``forward`` with a cache."""
    from nsa.config import RunConfig
    from nsa.model.build import build_model
    from nsa.model.decoding import Decoding

    small = {"dim": 32, "n_layers": 2, "n_heads": 4, "n_kv_groups": 2, "d_k": 8, "d_v": 8}
    large = {"dim": 768, "n_layers": 12, "n_heads": 12, "n_kv_groups": 2, "d_k": 64, "d_v": 64, "vocab": 50304}
    large |= {"l": 32, "d": 16, "l_slc": 64, "n": 16, "w": 512}
    values = {f"model.{k}": v for k, v in (small if smoke else large).items()}
    values |= {"train.device": str(device.type), "train.precision": "fp32" if smoke else "bf16"}
    torch.manual_seed(0)
    model = build_model(RunConfig().with_values(values))[0].requires_grad_(requires_grad=False)
    model.to(torch.float32 if smoke else torch.bfloat16)
    rows = []
    for n_tokens in lengths:
        for n_rows in batches:
            ids = torch.randint(256, (n_rows, n_tokens), device=device)
            decoding = Decoding(model, n_rows=n_rows, max_tokens=n_tokens + 64)
            cache = model.new_cache(n_tokens + 64)
            last = decoding.prefill(ids, chunk=4096)
            for piece in ids.split(4096, 1):
                model(piece, cache=cache, n_last=1)
            new = last.argmax(-1)
            seen = [decoding.step(new), model(new[:, None], cache=cache, n_last=1)[:, -1]]
            apart = ((seen[0] - seen[1]).norm() / seen[1].norm()).item()
            row = {"batch": n_rows, "tokens": n_tokens, "apart": apart}
            n_steps = 3 if smoke else 30
            row["graph_us"] = wall_us(partial(decoding.step, new), n_steps, device)
            row["forward_us"] = wall_us(partial(model, new[:, None], cache=cache, n_last=1), n_steps, device)
            rows.append(row)
            print(row, file=sys.stderr, flush=True)
    return rows


def wall_us(step, n_steps: int, device: torch.device) -> float:
    """Microseconds of a step on the host's clock, with the device's work done."""
    _settle(device)
    began = time.perf_counter()
    for _ in range(n_steps):
        step()
    _settle(device)
    return (time.perf_counter() - began) * 1e6 / n_steps


def _settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def table(results: dict) -> str:
    """The results in Markdown."""
    lines = [
        "| batch | tokens | sparse us | dense us | dense / sparse | sparse, of which GB/s | dense GB/s | dense by |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r['batch']} | {r['tokens']:,} | {r['sparse_us']:.1f} | {r['dense_us']:.1f} | {r['ratio']:.2f} "
        f"| {r['sparse_gb_s']:.0f} | {r['dense_gb_s']:.0f} | {r['dense_by']} |"
        for r in results["attention"]
    ]
    lines += [
        "",
        "| model: batch | tokens | step by graph, us | forward with a cache, us | ratio | logits apart |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r['batch']} | {r['tokens']:,} | {r['graph_us']:.0f} | {r['forward_us']:.0f} "
        f"| {r['forward_us'] / r['graph_us']:.1f} | {r['apart']:.1e} |"
        for r in results["model"]
    ]
    return "\n".join(lines) + "\n"


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder for the results")
    parser.add_argument("--smoke", action="store_true", help="tiny, on a CPU")
    parser.add_argument("--batches", type=int, nargs="+", default=list(BATCHES))
    parser.add_argument("--lengths", type=int, nargs="+", default=list(LENGTHS))
    parser.add_argument("--layers", type=int, default=8, help="of a graph, at most (default: 8)")
    parser.add_argument("--no-model", action="store_true", help="the attention alone")
    parser.add_argument("--budget-s", type=float, default=140.0, help="begin nothing after this many seconds")
    parser.add_argument("--commit", default="", help="of the tree that is measured, for the record")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    torch.manual_seed(0)
    device = torch.device("cpu" if args.smoke else "cuda")
    dtype = torch.float32 if args.smoke else torch.bfloat16
    attend = plain.decode
    if not args.smoke:
        from nsa.kernels.decode import triton as fast

        attend = fast.decode
    batches, lengths = ((1, 3), (128, 256)) if args.smoke else (args.batches, args.lengths)
    results: dict = {
        "device": "cpu" if args.smoke else torch.cuda.get_device_name(), "torch": torch.__version__,
        "commit": args.commit, "attention": [], "model": [],
    }  # fmt: skip

    def write() -> None:
        (args.out / "decode.json").write_text(json.dumps(results, indent=1))
        (args.out / "decode.md").write_text(table(results))

    for n_tokens in sorted(lengths, reverse=True):
        for n_rows in batches:
            if time.monotonic() - began > args.budget_s:
                break
            row = measure(n_rows, n_tokens, attend, device=device, dtype=dtype, smoke=args.smoke, n_layers=args.layers)
            results["attention"].append(row)
            print(f"[{time.monotonic() - began:4.0f} s] {row}", file=sys.stderr, flush=True)
            write()
    if not args.no_model and time.monotonic() - began < args.budget_s:
        shapes = {"lengths": (96,), "batches": (2,)} if args.smoke else {"lengths": (8192, 32768), "batches": (1, 16)}
        results["model"] = model_rows(device=device, smoke=args.smoke, **shapes)
    write()
    print((args.out / "decode.md").read_text())


if __name__ == "__main__":
    main()
