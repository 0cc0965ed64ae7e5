"""Where the host's time goes in one call of the attention, forward and backward, where the GPU waits for it.

    python bench/host_time.py [--heads 16] [--tokens 8192] [--calls 100] [--kernels scores=hopper ...]

First the host's time until all is launched, then each kernel's by the GPU, then a profile of the host's functions.
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

from bench.peers import inputs


def wall_ms(call, calls) -> float:
    """Median milliseconds until the host has launched all of a call."""
    took = []
    for _ in range(calls):
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
    parser.add_argument("--calls", type=int, default=100, help="of which the median is taken")
    parser.add_argument("--kernels", nargs="*", default=[], help="backends by operator, as op=name")
    args = parser.parse_args()
    kernels = dict(one.split("=") for one in args.kernels)
    from nsa import nsa_attention

    x = inputs(args.tokens, args.heads)

    leaves = (x.q, x.k["slc"], x.v["slc"], x.gate)

    @torch.no_grad()
    def forward():
        return nsa_attention(x.q, x.k["slc"], x.v["slc"], None, None, x.gate, kernels=kernels)

    o = nsa_attention(x.q, x.k["slc"], x.v["slc"], None, None, x.gate, kernels=kernels)

    def backward():
        return torch.autograd.grad(o, leaves, x.do, retain_graph=True)

    for name, call in (("forward", forward), ("backward", backward)):
        for _ in range(5):
            call()
        torch.cuda.synchronize()
        print(f"{name}: host {wall_ms(call, args.calls):.3f} ms", flush=True)
        print(name, "by the GPU alone", *kernels_us(call), sep="\n", flush=True)
        host_profile(call, args.calls)


def kernels_us(call) -> list[str]:
    """Microseconds (launches) of each kernel in one call, the longest first, and their sum."""
    from torch.profiler import ProfilerActivity, profile

    call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(3):
            call()
        torch.cuda.synchronize()
    took = {}
    for event in seen.events():
        us, n = took.get(event.name, (0.0, 0))
        took[event.name] = (us + event.device_time / 3, n + 1)
    lines = [f"{us:8.1f} ({n // 3}) {name[:90]}" for name, (us, n) in sorted(took.items(), key=lambda x: -x[1][0])]
    return [*lines, f"{sum(us for us, _ in took.values()):8.1f} in all"]


def host_profile(call, calls) -> None:
    """Print the host's functions by their own time, then with what they call; a backward's thread is not seen."""
    profile = cProfile.Profile()
    with profile:
        for _ in range(calls):
            call()
            torch.cuda.synchronize()
    stats = pstats.Stats(profile, stream=sys.stdout)
    stats.strip_dirs().sort_stats("tottime").print_stats(30)
    stats.sort_stats("cumtime").print_stats(30)


if __name__ == "__main__":
    main()
