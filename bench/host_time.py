"""Where the host's time goes in one call of the attention, forward and backward, where the GPU waits for it.

    python bench/host_time.py [--heads 16] [--tokens 8192]

First the times of both with the GPU's own beside them (a CUDA graph's replay of the same calls), then a profile of the
host's functions by their own time.
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


def graph_ms(call) -> float:
    """Median milliseconds of the GPU alone: a graph's replay."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    took = []
    for _ in range(30):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        took.append(begin.elapsed_time(end))
    return sorted(took)[len(took) // 2]


def main() -> None:
    """Print the times, then the profiles."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=8192)
    args = parser.parse_args()
    from nsa import nsa_attention

    x = inputs(args.tokens, args.heads)

    def forward():
        return nsa_attention(x.q, x.k["slc"], x.v["slc"], None, None, x.gate)

    leaves = [x.q, x.k["slc"], x.v["slc"], x.gate]
    o = forward()
    calls = {"forward": forward, "backward": lambda: torch.autograd.grad(o, leaves, x.do, retain_graph=True)}
    for name, call in calls.items():
        for _ in range(5):
            call()
        torch.cuda.synchronize()
        print(f"{name}: host {wall_ms(call):.3f} ms, GPU alone {graph_ms(call):.3f} ms", flush=True)
        profile = cProfile.Profile()
        torch.cuda.synchronize()
        with profile:
            for _ in range(CALLS):
                call()
                torch.cuda.synchronize()
        stats = pstats.Stats(profile, stream=sys.stdout)
        stats.strip_dirs().sort_stats("tottime").print_stats(30)
        stats.sort_stats("cumtime").print_stats(30)


if __name__ == "__main__":
    main()
