"""Which tile is the fastest for attention over tiles, per mask and pass, at the shape of the 125M configuration.

    python bench/tiles.py OUT.json             # one GPU, about two minutes: every choice compiles first
    python bench/tiles.py OUT.json --shapes 2048x16 --masks window

A line per mask, shape and kernel, the fastest first, beside the tile that ``nsa.kernels.tiled.triton.tiles`` has now
and all the kernels of the library's route. Times are medians of what torch's profiler says each kernel ran on the GPU.
Every choice's results are compared with those of the present tiles, so a fast wrong one is seen.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import astuple
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

H, G, D, LAYOUT = 12, 2, 64, {"l": 32, "d": 16, "l_slc": 64, "n": 16, "w": 512}
KINDS = {"window": 0, "compressed": 1, "selected": 2}
KERNELS = ("forward_kernel", "dq_kernel", "dkdv_kernel")
CHOICES = [
    ((64, 64, 4, 3), (64, 64, 4, 3), (64, 64, 4, 3)),
    ((64, 64, 4, 2), (64, 64, 4, 2), (64, 64, 4, 2)),
    ((128, 64, 8, 3), (64, 32, 4, 3), (32, 64, 4, 3)),
    ((128, 64, 8, 2), (128, 64, 8, 2), (32, 64, 4, 2)),
    ((128, 32, 4, 3), (64, 64, 4, 4), (64, 32, 4, 3)),
    ((64, 32, 4, 3), (64, 32, 4, 2), (64, 32, 4, 2)),
    ((64, 64, 4, 4), (32, 64, 4, 3), (128, 64, 8, 2)),
]
"""Rows, keys, warps and stages of the tiles of the three kernels, which are timed in one go."""
DEVICE = "cuda"


def inputs(mask: str, S: int, B: int):
    """Arguments of the branch, in bf16; queries are a slice, as the layer's."""
    import torch

    from nsa.blocks import BlockLayout

    layout = BlockLayout(**LAYOUT)
    make = {"device": DEVICE, "dtype": torch.bfloat16}
    n_keys = layout.n_cmp(S) if mask == "compressed" else S
    q = torch.randn(B, S, H, D, **make).requires_grad_()
    k, v = (torch.randn(B, n_keys, G, D, **make).requires_grad_() for _ in range(2))
    if mask == "window":
        return (q, k, v), {"w": layout.w}
    if mask == "compressed":
        return (q, k, v, layout), {}
    score = torch.rand(B, S, G, layout.n_slc(S), device=DEVICE)
    own = (torch.arange(S, device=DEVICE) // layout.l_slc)[:, None]
    block = torch.arange(score.shape[-1], device=DEVICE)
    hidden, forced = block > own, (block < 1) | (block > own - 2)
    score = score.masked_fill(forced[None, :, None], 2.0).masked_fill(hidden[None, :, None], -1.0)
    value, index = score.topk(min(layout.n, score.shape[-1]), dim=-1)
    index = index.masked_fill(value < 0, 2**30).sort(-1).values
    return (q, k, v, index.masked_fill(index == 2**30, -1).int()), {"l_slc": layout.l_slc}


def call_of(mask: str, kernel: str):
    """A branch's function by the name of its kernel."""
    from nsa.kernels.registry import load

    return load(mask, kernel)


def timed(call, args, how, *, rounds: int = 8) -> tuple[dict[str, float], list]:
    """Median microseconds of each kernel in forward and backward, their sum per round, and results to compare."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    def both():
        o = call(*args, **how)
        o = o[0] if isinstance(o, tuple) else o
        return [o.detach(), *torch.autograd.grad(o, args[:3], do)]

    torch.manual_seed(0)
    o = call(*args, **how)
    do = torch.randn_like(o[0] if isinstance(o, tuple) else o)
    result = [both() for _ in range(2)][-1]
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as found:
        for _ in range(rounds):
            both()
        torch.cuda.synchronize()
    times: dict[str, list[float]] = {}
    for event in found.events() or ():
        if event.device_type.name == "CUDA":
            times.setdefault(event.name, []).append(event.device_time)
    kernel_us = {name: statistics.median(us) for name, us in times.items()}
    kernel_us["all"] = sum(map(sum, times.values())) / rounds
    return kernel_us, result


def apart(a: list, b: list) -> float:
    """The largest relative distance of two lists of results."""
    return max(float((x.double() - y.double()).norm() / y.double().norm()) for x, y in zip(a, b, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--shapes", nargs="+", default=["2048x16", "16384x2"], metavar="SxB")
    parser.add_argument("--masks", nargs="+", default=["window", "compressed", "selected"])
    parser.add_argument("--budget-s", type=float, default=150.0)
    args = parser.parse_args()
    from nsa.kernels.tiled import triton as tiled

    began, rows = time.monotonic(), []
    present = tiled.tiles
    library = {"window": "flash", "compressed": "packed", "selected": "triton"}
    for mask in args.masks:
        for shape in args.shapes:
            S, B = map(int, shape.split("x"))
            if mask == "selected" and S > 4096:
                continue
            given, kind = inputs(mask, S, B), KINDS[mask]
            kernel_us, _ = timed(call_of(mask, library[mask]), *given)
            rows.append([mask, shape, f"all of {library[mask]}", "", kernel_us["all"], 0.0])
            tiled.tiles = present
            kernel_us, want = timed(call_of(mask, "tiles"), *given)
            rows.append([mask, shape, "all of tiles", "present", kernel_us["all"], 0.0])
            now = tuple(astuple(tile) for tile in present(width=D, itemsize=2, kind=kind))
            rows += [
                [mask, shape, name, f"{spelt(tile)}: present", kernel_us[name], 0.0]
                for name, tile in zip(KERNELS, now, strict=True)
            ]
            for choice in CHOICES:
                if time.monotonic() - began > args.budget_s:
                    break
                made = tuple(
                    tiled.Tile(**dict(zip(("rows", "keys", "num_warps", "num_stages"), x, strict=True))) for x in choice
                )
                tiled.tiles = lambda *, made=made, **_: made
                kernel_us, got = timed(call_of(mask, "tiles"), *given)
                far = apart(got, want)
                rows += [
                    [mask, shape, name, spelt(tile), kernel_us[name], far]
                    for name, tile in zip(KERNELS, choice, strict=True)
                ]
                print(f"[{time.monotonic() - began:4.0f} s] {rows[-3:]}", file=sys.stderr, flush=True)
                args.out.write_text(json.dumps(rows))
            tiled.tiles = present
    print("| mask | S x B | kernel | rows keys warps stages | us | apart |", "|---" * 6 + "|", sep="\n")
    for *names, us, far in sorted(rows, key=lambda row: (*row[:3], row[4])):
        print("| " + " | ".join(names) + f" | {us:.0f} | {far:.1e} |")


def spelt(tile: tuple) -> str:
    """A tile's numbers, side by side."""
    return " ".join(map(str, tile))


if __name__ == "__main__":
    main()
