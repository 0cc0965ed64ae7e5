"""Where the host's time goes in one forward call of the attention, where the GPU waits for it.

    python bench/host_time.py [--heads 16] [--tokens 8192]

First its time with the GPU's own beside it (a CUDA graph's replay of the same call), then a profile of the host's
functions by their own time.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from bench.decode import timed
from bench.peers import inputs

CALLS = 100


def wall_ms(call) -> float:
    """Median milliseconds until the host has launched all of a call."""
    took = []
    for _ in range(CALLS):
        torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        took.append((time.perf_counter() - began) * 1e3)
    return sorted(took)[len(took) // 2]


def main() -> None:
    """Print the times, then the profile."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=8192)
    args = parser.parse_args()
    from nsa import nsa_attention

    x = inputs(args.tokens, args.heads)

    def forward():
        return nsa_attention(x.q, x.k["slc"], x.v["slc"], None, None, x.gate)

    for _ in range(5):
        forward()
    gpu_us = timed(forward, 1, device=torch.device("cuda"))
    print(f"forward: host {wall_ms(forward):.3f} ms, GPU alone {gpu_us / 1e3:.3f} ms", flush=True)
    profile = cProfile.Profile()
    torch.cuda.synchronize()
    with profile:
        for _ in range(CALLS):
            forward()
            torch.cuda.synchronize()
    stats = pstats.Stats(profile, stream=sys.stdout)
    stats.strip_dirs().sort_stats("tottime").print_stats(30)
    stats.sort_stats("cumtime").print_stats(30)


if __name__ == "__main__":
    main()
