"""Forward, backward and a decoding step at small sizes, for compute-sanitizer to watch.

Without torch's memory cache a tensor's end is the memory's end:

    PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck python bench/sanitize.py
    compute-sanitizer --tool racecheck python bench/sanitize.py whole decode
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from bench.decode import Case
from nsa import nsa_attention
from nsa.kernels.decode import triton as decode

SHAPES = {"group of 16": (200, 16, 1, 128), "group of 4": (200, 4, 1, 128), "heads of 64": (200, 16, 1, 64)}


def whole(name: str) -> None:
    """The three branches and their sum, forward and backward."""
    n_tokens, n_heads, n_groups, width = SHAPES[name]
    make = {"device": "cuda", "dtype": torch.bfloat16}
    torch.manual_seed(0)
    q = torch.randn(1, n_tokens, n_heads, width, **make)
    k, v = (torch.randn(1, n_tokens, n_groups, width, **make) for _ in range(2))
    gate = torch.rand(1, n_tokens, n_heads, 3, **make)
    leaves = [x.requires_grad_() for x in (q, k, v, gate)]
    o = nsa_attention(leaves[0], leaves[1], leaves[2], None, None, leaves[3], kernels={"combine": "fused"})
    grads = torch.autograd.grad(o.float().square().sum(), leaves)
    torch.cuda.synchronize()
    print(name, "finite", all(x.isfinite().all().item() for x in (o, *grads)), flush=True)


@torch.no_grad()
def step() -> None:
    """One decoding step in which a compression block ends."""
    case = Case(2, 2048, device=torch.device("cuda"), dtype=torch.bfloat16, smoke=False)
    o = case.at(2047).sparse(decode.decode)
    torch.cuda.synchronize()
    print("decode finite", o.isfinite().all().item(), flush=True)


if __name__ == "__main__":
    wanted = sys.argv[1:] or ["whole", "decode"]
    if "whole" in wanted:
        for shape in SHAPES:
            whole(shape)
    if "decode" in wanted:
        step()
