"""The flash-attn route with the real package on one GPU: its results beside fp64 and beside the kernels of ``auto``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from triton.testing import do_bench

from nsa.blocks import BlockLayout
from nsa.kernels import registry
from nsa.kernels.compressed.reference import compressed as compressed_reference
from nsa.kernels.registry import Site
from nsa.kernels.window.reference import window as window_reference

LAYOUT = BlockLayout(l=32, d=16, l_slc=64, n=16, w=512)
KERNELS = {"compressed": ("flash-attn", "hopper", "packed"), "window": ("flash-attn", "hopper", "flash")}


def inputs(op, n_tokens, *, width, dtype, n_heads=64, n_groups=4):
    """Queries, keys, values and the gradient of the output."""
    torch.manual_seed(n_tokens)
    S = LAYOUT.n_cmp(n_tokens) if op == "compressed" else n_tokens
    make = {"device": "cuda", "dtype": dtype}
    q, do = (torch.randn(1, n_tokens, n_heads, width, **make) for _ in range(2))
    k, v = (torch.randn(1, S, n_groups, width, **make) for _ in range(2))
    return [x.requires_grad_() for x in (q, k, v)], do


def output(op, call, leaves):
    """What a backend or the reference gives."""
    if op == "compressed":
        return call(*leaves, LAYOUT)[0]
    return call(*leaves, w=LAYOUT.w)


def far(got, want):
    """The distance relative to what is wanted."""
    return ((got.double() - want.double()).norm() / want.double().norm()).item()


def main() -> None:
    """Print one line for each backend."""
    for op, names in KERNELS.items():
        reference = compressed_reference if op == "compressed" else window_reference
        for dtype in (torch.bfloat16, torch.float16):
            leaves, do = inputs(op, 1200, width=128, dtype=dtype, n_heads=16, n_groups=1)
            exact = [x.detach().double().requires_grad_() for x in leaves]
            want = output(op, reference, exact)
            want_grads = torch.autograd.grad(want, exact, do.double())
            for name in names:
                o = output(op, registry.load(op, name), leaves)
                grads = torch.autograd.grad(o, leaves, do)
                apart = [far(a, b) for a, b in zip((o, *grads), (want, *want_grads), strict=True)]
                print(f"{op} {name} {dtype}: o, dq, dk, dv from fp64", *(f"{x:.1e}" for x in apart))
        for n_tokens in (8192, 32768):
            for name in names:
                leaves, do = inputs(op, n_tokens, width=128, dtype=torch.bfloat16)
                call = registry.load(op, name)
                site = Site(
                    device=do.device, dtype=do.dtype, seq_len=n_tokens, n_heads=64, n_kv_groups=4, d_k=128, d_v=128,
                    layout=LAYOUT,
                )  # fmt: skip
                why = registry.refusal_of(op, name, site)
                if why is not None:
                    print(op, name, n_tokens, why)
                    continue
                o = output(op, call, leaves)
                ms = [
                    do_bench(step, warmup=20, rep=60, return_mode="median")
                    for step in (
                        lambda: output(op, call, leaves),  # noqa: B023 - called at once
                        lambda: torch.autograd.grad(o, leaves, do, retain_graph=True),  # noqa: B023
                    )
                ]
                print(f"{op} {name} 64/4 heads of 128, {n_tokens} tokens: {ms[0]:.2f} / {ms[1]:.2f} ms")


if __name__ == "__main__":
    main()
