"""Where a training step's time goes: the 125M production configuration, sparse beside dense, kernel by kernel.

    python bench/profile_training.py OUT                  # one GPU, under 150 s
    python bench/profile_training.py OUT --smoke          # tiny and on a CPU: does every way run? (no kernels to list)
    python bench/profile_training.py OUT --ways nsa nsa-tiles dense --shapes 2048x16
    python bench/profile_training.py OUT --list           # the ways and what each changes

Every way is ``nsa.train.trainer.train`` with the shipped configuration, in one process, one way after another, the most
telling first. Steps are timed without a profiler; then a few more run under torch.profiler, with every part of the
model marked, and its trace is read: which part of the model launched a kernel (in backward by the sequence number
of the forward operator), how long kernels ran, when the GPU had nothing to do, how often and how long the host waited.
Marks are not possible inside compiled blocks and graphs: there kernels are told by their name alone.

``OUT/profile.json`` and ``OUT/profile.md`` are written again after each way, so a kill loses the way in progress only;
what ``--budget-s`` leaves no time for is listed. Losses are there to see that all ways train alike.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import sys
import time
from pathlib import Path

from profile_table import report
from profile_watch import Watch, summary
from training_rows import Row, configuration
from training_table import describe

TILES = "compressed=tiles window=tiles selected=tiles"
HOPPER = "compressed=hopper window=hopper"
WHOLE = f"{HOPPER} selected=triton combine=fused"
WAYS: dict[str, dict] = {
    "nsa": {},
    "dense": {"attention": "dense"},
    "nsa-libraries": {"routes": "compressed=packed window=flash selected=triton"},
    "nsa-tiles": {"routes": TILES},
    "nsa-window": {"routes": "window=tiles"},
    "nsa-compressed": {"routes": "compressed=tiles"},
    "nsa-selected": {"routes": "selected=tiles"},
    "nsa-hopper": {"routes": HOPPER},
    "nsa-whole": {"routes": WHOLE},
    "nsa-compiled": {"compile": "inductor"},
    "dense-compiled": {"attention": "dense", "compile": "inductor"},
    "nsa-tiles-compiled": {"routes": TILES, "compile": "inductor"},
    "nsa-graphed": {"cuda_graphs": "blocks"},
    "dense-graphed": {"attention": "dense", "cuda_graphs": "blocks"},
    "nsa-tiles-graphed": {"routes": TILES, "cuda_graphs": "blocks"},
    "nsa-hopper-graphed": {"routes": HOPPER, "cuda_graphs": "blocks"},
    "nsa-whole-graphed": {"routes": WHOLE, "cuda_graphs": "blocks"},
    "dense-cudnn": {"attention": "dense", "sdpa": "cudnn"},
}
"""Name, and what it changes in a Row."""
DEFAULT_WAYS = (
    "nsa", "dense", "nsa-graphed", "dense-graphed", "nsa-compiled", "dense-compiled", "nsa-libraries", "dense-cudnn",
)  # fmt: skip
LARGEST_TILED = 4096
"""Tokens above which ``selected=tiles`` refuses; longer shapes then run the other tiles alone."""
WARM, TIMED, PROFILED = 4, 10, 2


def measure(way: str, shape: tuple[int, int], *, smoke: bool) -> dict:
    """Train this way; what it took, or why it did not run."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from nsa.train.trainer import train

    changes = dict(WAYS[way])
    if shape[0] > LARGEST_TILED and way != "nsa-selected":
        changes["routes"] = changes.get("routes", "").replace("selected=tiles", "").strip()
    if smoke and "cuda_graphs" in changes:
        return {"failed": "CUDA graphs need a GPU"}
    steps = (2, 2, 1) if smoke else (WARM, TIMED, PROFILED)
    row = Row(gpus=1, mode="single", seq_len=shape[0], batch_per_gpu=shape[1], steps=sum(steps), **changes)
    config = configuration(row, smoke=smoke).with_value("train.steps", sum(steps))
    watch = Watch(steps=steps)
    on_gpu = config.train.device == "cuda"
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    is_cudnn = on_gpu and row.sdpa == "cudnn"
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION) if is_cudnn else contextlib.nullcontext():
        train(config, [watch])
    result = summary(watch)
    result["tokens_per_s"] = config.train.batch_size * config.train.seq_len / result["step_ms"] * 1e3
    result["peak_gb"] = torch.cuda.max_memory_allocated() / 1e9 if on_gpu else None
    result["took_s"] = time.perf_counter() - began
    return result


def run(args: argparse.Namespace) -> int:
    """All ways at all shapes, as long as there is time; 1 when one failed that should run."""
    began = time.monotonic()
    args.out.mkdir(parents=True, exist_ok=True)
    machine = describe(smoke=args.smoke, commit=args.commit)
    shapes = [tuple(map(int, shape.split("x"))) for shape in args.shapes]
    plan = [(way, shape) for way in args.ways for shape in shapes]
    plan = [(way, shape) for way, shape in plan if not (way == "nsa-selected" and shape[0] > LARGEST_TILED)]
    results: dict[str, dict[str, dict]] = {f"{S} x {B}": {} for S, B in shapes}
    longest = 0.0
    for i, (way, shape) in enumerate(plan):
        now = time.monotonic() - began
        if now + longest > args.budget_s:
            break
        _say(f"[{now:4.0f} s] {way} at {shape[0]} x {shape[1]}")
        try:
            result = measure(way, shape, smoke=args.smoke)
        except Exception as error:  # noqa: BLE001 - a way that fails is a result; the next ones run
            result = {"failed": f"{type(error).__name__}: {str(error).splitlines()[0][:300] if str(error) else ''}"}
        longest = max(longest, time.monotonic() - began - now) if i else 0.0
        results[f"{shape[0]} x {shape[1]}"][way] = result
        _say(f"         {result['failed'] if 'failed' in result else format(result['step_ms'], '.1f') + ' ms a step'}")
        skipped = [f"{w} at {s[0]} x {s[1]}" for w, s in plan[i + 1 :]]
        (args.out / "profile.json").write_text(json.dumps({"machine": machine, "results": results}, indent=1))
        (args.out / "profile.md").write_text(report(results, machine, skipped))
        gc.collect()
    failed = [way for ways in results.values() for way, r in ways.items() if "failed" in r and "graph" not in way]
    print((args.out / "profile.md").read_text())
    return 1 if failed else 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?", help="folder for profile.json and profile.md")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(DEFAULT_WAYS), metavar="WAY")
    parser.add_argument("--shapes", nargs="+", default=["2048x16", "16384x2"], metavar="SxB")
    parser.add_argument("--budget-s", type=float, default=140.0, help="begin no way that may end later (default 140)")
    parser.add_argument("--smoke", action="store_true", help="tiny, on a CPU")
    parser.add_argument("--list", action="store_true", help="print the ways and stop")
    parser.add_argument("--commit", default="", help="of the tree that is measured, for the record")
    args = parser.parse_args()
    if args.list:
        for way, changes in WAYS.items():
            print(f"{way:20} {', '.join(f'{k}: {v}' for k, v in changes.items()) or 'as shipped'}")
        return
    if args.out is None:
        parser.error("name the folder for the results")
    sys.exit(run(args))


if __name__ == "__main__":
    main()
