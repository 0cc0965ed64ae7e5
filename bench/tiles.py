"""Which tile is the fastest for attention over tiles, per mask and pass, at the shape of the 125M configuration.

    python bench/tiles.py OUT.json             # one GPU, about a minute: every choice compiles first
    python bench/tiles.py OUT.json --shapes 2048x16 --masks window

A line per mask, shape and pass, the fastest first, beside the tile that ``nsa.kernels.tiled.triton.tiles`` has now and
the route that ``auto`` takes. Times are medians of triton's do_bench: forward alone, and forward + backward less the
forward. Every choice's results are compared with those of the present tile, so a fast wrong one is seen.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import astuple
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

H, G, D, LAYOUT = 12, 2, 64, {"l": 32, "d": 16, "l_slc": 64, "n": 16, "w": 512}
CHOICES = {
    "forward": [(128, 64, 4, 3), (128, 64, 8, 3), (128, 64, 8, 2), (64, 64, 4, 3), (64, 64, 4, 2), (128, 32, 4, 3)],
    "dq": [(64, 64, 4, 2), (128, 64, 8, 2), (64, 64, 4, 3), (64, 32, 4, 2)],
    "dk and dv": [(64, 64, 4, 2), (32, 64, 4, 2), (32, 64, 4, 3), (128, 64, 8, 2), (64, 64, 8, 2)],
}
"""Rows, keys, warps and stages of a tile."""
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


def timed(call, args, how) -> tuple[float, float, list]:
    """Forward ms, backward ms, and results to compare."""
    import torch
    from triton.testing import do_bench

    def forward():
        o = call(*args, **how)
        return o[0] if isinstance(o, tuple) else o

    def both():
        return torch.autograd.grad(forward(), args[:3], do)

    torch.manual_seed(0)
    do = torch.randn_like(forward())
    forward_ms = do_bench(forward, warmup=10, rep=40, return_mode="median")
    both_ms = do_bench(both, warmup=10, rep=40, return_mode="median")
    return forward_ms, both_ms - forward_ms, [forward().detach(), *both()]


def apart(a: list, b: list) -> float:
    """The largest relative distance of two lists of results."""
    return max(float((x.double() - y.double()).norm() / y.double().norm()) for x, y in zip(a, b, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--shapes", nargs="+", default=["2048x16", "16384x2"], metavar="SxB")
    parser.add_argument("--masks", nargs="+", default=["window", "compressed", "selected"])
    parser.add_argument("--budget-s", type=float, default=100.0)
    args = parser.parse_args()
    from nsa.kernels.tiled import triton as tiled

    began, results = time.monotonic(), []
    present = tiled.tiles
    library = {"window": "flash", "compressed": "packed", "selected": "triton"}
    for mask in args.masks:
        for shape in args.shapes:
            S, B = map(int, shape.split("x"))
            if mask == "selected" and S > 4096:
                continue
            given = inputs(mask, S, B)
            forward_ms, backward_ms, _ = timed(call_of(mask, library[mask]), *given)
            results.append([mask, shape, library[mask], "", forward_ms, backward_ms, 0.0])
            tiled.tiles = present
            forward_ms, backward_ms, want = timed(call_of(mask, "tiles"), *given)
            now = present(width=D, itemsize=2)
            results.append([mask, shape, "tiles", "present", forward_ms, backward_ms, 0.0])
            for place, (name, choices) in enumerate(CHOICES.items()):
                for choice in choices:
                    if time.monotonic() - began > args.budget_s or choice == astuple(now[place]):
                        continue
                    tile = tiled.Tile(**dict(zip(("rows", "keys", "num_warps", "num_stages"), choice, strict=True)))
                    changed = (*now[:place], tile, *now[place + 1 :])
                    tiled.tiles = lambda *, changed=changed, **_: changed
                    forward_ms, backward_ms, got = timed(call_of(mask, "tiles"), *given)
                    row = [mask, shape, name, " ".join(map(str, choice)), forward_ms, backward_ms, apart(got, want)]
                    results.append(row)
                    print(f"[{time.monotonic() - began:4.0f} s] {row}", file=sys.stderr, flush=True)
                    args.out.write_text(json.dumps(results))
            tiled.tiles = present
    print(
        "| mask | S x B | what | rows keys warps stages | forward ms | backward ms | apart |",
        "|---" * 7 + "|",
        sep="\n",
    )
    for *names, forward_ms, backward_ms, far in sorted(results, key=order):
        print("| " + " | ".join(names) + f" | {forward_ms:.3f} | {backward_ms:.3f} | {far:.1e} |")


def order(row: list) -> tuple:
    """By mask, shape and pass, then by the time of that pass."""
    mask, shape, what, _, forward_ms, backward_ms, _ = row
    return mask, shape, what, backward_ms if what in ("dq", "dk and dv") else forward_ms


if __name__ == "__main__":
    main()
