"""Times packed documents beside the same documents as rows: forward and backward, medians, in one run.

    python bench/documents.py                                 # on the CPU, in fp32; three minutes on two cores
    python bench/documents.py --device cuda --dtype bfloat16  # under 60 s

Exit status 1 where ``--documents`` of ``--length`` tokens, packed with boundaries as numbers, take more than 1.2 times
what they take as rows of a batch. *Function* is ``nsa_attention`` of projected heads, *layer* is ``NSAAttention`` with
its projections, with gradients of everything. All ways take turns, round by round, so that a busy machine is busy for
all; on a CPU processor time is counted, on a GPU the time until it is done.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from itertools import accumulate
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from nsa import NSAAttention, nsa_attention

AT_MOST = 1.2
SIZES = {"cuda": {"n_heads": 16, "n_kv_groups": 1, "d_k": 64}, "cpu": {"n_heads": 4, "n_kv_groups": 2, "d_k": 32}}
ROWS, PACKED = "rows of a batch", "packed, boundaries as numbers"


def attended(subject, device, dtype):
    """A function of rows and boundaries that gives an output, the inputs' sizes, and the weights beside them."""
    sizes = SIZES[device]
    H, G, D = sizes.values()
    if subject == "layer":
        layer = NSAAttention(H * D, H, G, device=device, dtype=dtype)
        return lambda cu, x: layer(x, cu_seqlens=cu), [(H * D,)], list(layer.parameters())
    return (
        lambda cu, q, k, v, gates: nsa_attention(q, k, v, None, None, gates, cu_seqlens=cu),
        [(H, D), (G, D), (G, D), (H, 3)],
        [],
    )


def ways(documents, length, device):
    """Name, shape of the input, and boundaries."""
    equal = [i * length for i in range(documents + 1)]
    found = {ROWS: ((documents, length), None), PACKED: ((1, documents * length), equal)}
    if device == "cuda":
        found["packed, boundaries as a tensor"] = ((1, documents * length), torch.tensor(equal, device=device))
        found["one text, no boundaries"] = ((1, documents * length), None)
    shares = [2 * i * length // (documents + 1) for i in range(1, documents + 1)]
    shares[-1] += documents * length - sum(shares)
    unequal = [0, *accumulate(shares)]
    found["packed, no two of one length, as numbers"] = ((1, documents * length), unequal)
    return found


def seconds(device, call):
    """What it gives, and how long it takes."""
    clock = time.perf_counter if device == "cuda" else time.process_time
    if device == "cuda":
        torch.cuda.synchronize()
    start = clock()
    given = call()
    if device == "cuda":
        torch.cuda.synchronize()
    return given, clock() - start


def measure(subject, args, dtype):
    """Median milliseconds of forward and backward of every way."""
    attend, sizes, weights = attended(subject, args.device, dtype)
    inputs, times = {}, {}
    for name, (shape, cu) in ways(args.documents, args.length, args.device).items():
        xs = [torch.randn(*shape, *size, device=args.device, dtype=dtype).requires_grad_() for size in sizes]
        inputs[name], times[name] = (cu, xs), []
    for turn in range(args.rounds + 1):
        for name, (cu, xs) in inputs.items():
            o, forward = seconds(args.device, lambda: attend(cu, *xs))  # noqa: B023 - called at once
            do = torch.ones_like(o)
            _, backward = seconds(args.device, lambda: torch.autograd.grad(o, [*xs, *weights], do))  # noqa: B023
            if turn:  # the first one compiles
                times[name].append((1e3 * forward, 1e3 * backward))
    return {
        name: [statistics.median(each) for each in (*zip(*pairs, strict=True), [sum(pair) for pair in pairs])]
        for name, pairs in times.items()
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--documents", type=int, default=16)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--rounds", type=int, help="20 on a GPU, 5 on a CPU")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("no CUDA device; --device cpu measures the CPU")
    args.rounds = args.rounds or (20 if args.device == "cuda" else 5)
    if args.device == "cpu":
        torch.set_num_threads(1)
    torch.manual_seed(0)
    found = {subject: measure(subject, args, getattr(torch, args.dtype)) for subject in ("function", "layer")}
    name = torch.cuda.get_device_name() if args.device == "cuda" else f"CPU {platform.machine()}, one thread"
    sizes = ", ".join(f"{key} {value}" for key, value in SIZES[args.device].items())
    print(f"{name}, torch {torch.__version__}, {args.dtype}, {sizes}; medians of {args.rounds} rounds, ms\n")
    print(f"| {args.documents} documents, {args.length} tokens in the mean | forward | backward | both | beside rows |")
    print("|---|---|---|---|---|")
    for subject, times in found.items():
        for way, (forward, backward, both) in times.items():
            ratio = both / times[ROWS][2]
            print(f"| {subject}: {way} | {forward:.2f} | {backward:.2f} | {both:.2f} | {ratio:.2f} |")
    ratios = {subject: times[PACKED][2] / times[ROWS][2] for subject, times in found.items()}
    if args.json:
        args.json.write_text(json.dumps({"machine": name, "ms": found, "ratios": ratios}, indent=1) + "\n")
    print(f"\npacked beside rows: {', '.join(f'{k} {v:.3f}' for k, v in ratios.items())}; at most {AT_MOST}")
    sys.exit(1 if max(ratios.values()) > AT_MOST else 0)


if __name__ == "__main__":
    main()
