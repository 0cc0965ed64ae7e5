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
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from training import ROOT, Row, configuration, describe

sys.path.insert(0, str(ROOT))

TILES = "compressed=tiles window=tiles selected=tiles"
WAYS: dict[str, dict] = {
    "nsa": {},
    "dense": {"attention": "dense"},
    "nsa-tiles": {"routes": TILES},
    "nsa-window": {"routes": "window=tiles"},
    "nsa-compressed": {"routes": "compressed=tiles"},
    "nsa-selected": {"routes": "selected=tiles"},
    "nsa-compiled": {"compile": "inductor"},
    "dense-compiled": {"attention": "dense", "compile": "inductor"},
    "nsa-tiles-compiled": {"routes": TILES, "compile": "inductor"},
    "nsa-graphed": {"graphed": True},
    "dense-graphed": {"attention": "dense", "graphed": True},
    "nsa-tiles-graphed": {"routes": TILES, "graphed": True},
    "dense-cudnn": {"attention": "dense", "sdpa": "cudnn"},
}
"""Name, and what it changes in a Row; ``graphed``: every block is replayed as a CUDA graph, forward and backward."""
DEFAULT_WAYS = (
    "nsa", "dense", "nsa-tiles", "nsa-compiled", "dense-compiled", "nsa-window", "nsa-compressed", "nsa-selected",
    "nsa-tiles-compiled", "nsa-tiles-graphed", "dense-graphed", "nsa-graphed",
)  # fmt: skip
LARGEST_TILED = 4096
"""Tokens above which ``selected=tiles`` refuses; longer shapes then run the other tiles alone."""
MARK = "part: "
TOP = 40
WARM, TIMED, PROFILED = 4, 10, 2

PART_BY_NAME = {
    "kv_major_|combine_slots|sum_items|sum_slots|pair_keys|query_major": "selected",
    "clean_kernel|forward_kernel|dq_kernel|dkdv_kernel|sum_parts|bits_kernel": "attention over tiles",
    "block_scores|top_blocks": "selection",
    "combine_kernel|combine_backward": "combine",
    "flash_fwd|flash_bwd|fmha|cudnn|sdpa": "attention by a library",
    "multi_tensor|adam": "optimizer",
    "nll_loss|softmax": "loss",
}
"""Parts of kernels that nobody marked, by a piece of their name; tried in this order."""
KIND_BY_NAME = {
    "gemm|cutlass|nvjet|xmma|wgmma|splitk": "matrix product",
    "flash_|fmha|cudnn|sdpa": "attention",
    "triton_": "fused by the compiler",
    "elementwise|vectorized|copy|catarray|fill|memcpy|memset|unfold|gather|scatter|index": "elementwise, copies",
    "reduce|sort|scan|radix|search|norm|softmax|nll": "reductions, sorts",
}


# One way: train, time, profile ---------------------------------------------------------------------------------------


@dataclass
class Watch:
    """A probe of the trainer: times steps, then has the profiler look at a few more."""

    graphed: bool
    steps: tuple[int, int, int]
    ends: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    forward_s: list[float] = field(default_factory=list)
    kernels: dict[str, str] = field(default_factory=dict)
    trace: dict | None = None
    profiled_s: float = 0.0

    def __post_init__(self):
        self._undo = contextlib.ExitStack()
        self._profiler = self._phase = None

    def resolved(self, table):
        """Keep which kernels run."""
        self.kernels = {row["op"]: row["kernel"] for row in table}

    def built(self, state):
        """Keep the model; replace its blocks by graphs if that is the way."""
        self.state = state
        if self.graphed:
            graph_blocks(state, self.shape)

    def mark(self, *, phase, edge, step, detail=None):
        """Time forward, which ends with a wait for the loss; show the optimizer's part to the profiler."""
        import torch

        if edge == "begin" and phase == "forward":
            self._began = time.perf_counter()
        if edge == "end" and phase == "forward":
            self.forward_s.append(time.perf_counter() - self._began)
        if self._profiler is not None and phase == "optim" and edge != "progress":
            if edge == "begin":
                self._phase = torch.profiler.record_function(MARK + "optimizer")
                self._phase.__enter__()
            elif self._phase is not None:
                self._phase.__exit__(None, None, None)

    def step_done(self, *, step, facts):
        """Note the time and the loss; begin and end profiling."""
        import torch

        warm, timed, profiled = self.steps
        self.ends.append(time.perf_counter())
        self.losses.append(facts["loss"])
        if step + 1 == warm + timed:
            if not self.graphed and not is_compiled(self.state):
                self._undo.enter_context(marked(self.state.model))
            activities = [torch.profiler.ProfilerActivity.CPU]
            activities += [torch.profiler.ProfilerActivity.CUDA] * torch.cuda.is_available()
            self._profiler = torch.profiler.profile(activities=activities)
            self._profiler.__enter__()
            self._profiled_from = time.perf_counter()
        elif step + 1 == warm + timed + profiled:
            self.profiled_s = time.perf_counter() - self._profiled_from
            self._profiler.__exit__(None, None, None)
            self._undo.close()
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "trace.json"
                self._profiler.export_chrome_trace(str(file))
                self.trace = json.loads(file.read_text())
            self._profiler = None


def is_compiled(state) -> bool:
    """Whether blocks have a forward of their own."""
    return "forward" in vars(state.blocks[0])


def graph_blocks(state, shape) -> None:
    """Replay every block as a CUDA graph, captured here for one shape; hooks stay outside."""
    import torch

    from nsa.attention.rope import turns

    class Inside(torch.nn.Module):
        def __init__(self, block):
            super().__init__()
            self.parts = torch.nn.ModuleDict(dict(block.named_children()))
            self.block = [block]  # not a submodule: it has hooks

        def forward(self, x):
            return type(self.block[0]).forward(self.block[0], x, turn=turn)

    weight = next(state.model.parameters())
    turn = turns(state.model.config, weight.new_empty(*shape), first=0, cu_seqlens=None)
    inside = tuple(Inside(block) for block in state.blocks)
    samples = tuple(
        (torch.randn(*shape, device=weight.device, dtype=weight.dtype, requires_grad=True),) for _ in inside
    )
    graphed = torch.cuda.make_graphed_callables(inside, samples)
    for block, call in zip(state.blocks, graphed, strict=True):
        block.forward = lambda x, call=call, **_: call(x)


@contextlib.contextmanager
def marked(model):
    """Mark what belongs to which part, until the context ends; the innermost mark counts."""
    import nsa.attention.layer
    import nsa.model.dense
    import nsa.model.transformer
    import nsa.train.run

    undo = contextlib.ExitStack()

    def patch(owner, name, part):
        if not hasattr(owner, name):
            return
        was_own, call = name in vars(owner), getattr(owner, name)
        setattr(owner, name, in_part(part, call))
        undo.callback(setattr, owner, name, call) if was_own else undo.callback(delattr, owner, name)

    patch(nsa.train.run, "next_token_loss", "loss")
    patch(nsa.model.dense, "_causal", "attention by a library")
    for module in (nsa.model.dense, nsa.attention.layer):
        patch(module, "rotate", "rotary")
    patch(nsa.model.transformer, "turns", "rotary")
    modules = {"embed": "embedding, head", "lm_head": "embedding, head", "norm_f": "norms"}
    for name, part in modules.items():
        patch(getattr(model, name), "forward", part)
    for block in model.blocks:
        patch(block, "forward", "residual sums")
        patch(block.norm1, "forward", "norms")
        patch(block.norm2, "forward", "norms")
        patch(block.mlp, "forward", "MLP")
        attention = block.attn
        patch(attention, "forward", "layout around attention")
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            patch(getattr(attention, name), "forward", "projections")
        patch(getattr(attention, "gate", None), "forward", "gate")
        for name in ("compressed_keys", "compressed_values"):
            patch(attention, name, "phi")
        kernels = getattr(attention, "kernels", None)
        if kernels is not None:
            attention.kernels = {
                op: in_part("selection" if op == "scores" else op, call) for op, call in kernels.items()
            }
            undo.callback(setattr, attention, "kernels", kernels)
    with undo:
        yield


def in_part(part: str, call):
    """``call`` under a mark."""
    import torch

    def inside(*args, **kwargs):
        with torch.profiler.record_function(MARK + part):
            return call(*args, **kwargs)

    return inside


# Reading a trace -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Launch:
    """Something the GPU did, and on whose behalf."""

    name: str
    start_us: float
    us: float
    part: str
    is_backward: bool


def launches_of(trace: dict) -> list[Launch]:
    """What the GPU did, in its order, each with the part of the model that asked for it."""
    by_thread: dict[object, list[dict]] = defaultdict(list)
    device = []
    for event in trace["traceEvents"]:
        if event.get("ph") != "X":
            continue
        kind = event.get("cat", "")
        if kind in ("kernel", "gpu_memcpy", "gpu_memset"):
            device.append(event)
        elif kind in ("cpu_op", "user_annotation", "cuda_runtime", "cuda_driver"):
            by_thread[event["tid"]].append(event)
    part_of_call, part_of_forward = {}, {}
    asked_by_backward = {}
    for events in by_thread.values():
        _walk(events, part_of_call, part_of_forward, asked_by_backward)
    found = []
    for event in sorted(device, key=lambda e: e["ts"]):
        call = event.get("args", {}).get("correlation")
        part, is_backward = part_of_call.get(call), False
        if part is None and call in asked_by_backward:
            part, is_backward = part_of_forward.get(asked_by_backward[call]), True
        name = event["name"]
        found.append(
            Launch(
                name=name,
                start_us=event["ts"],
                us=event.get("dur", 0.0),
                part=part or by_name(name, PART_BY_NAME, "gradient sums" if is_backward else "other"),
                is_backward=is_backward,
            )
        )
    return found


def _walk(events: list[dict], part_of_call: dict, part_of_forward: dict, asked_by_backward: dict) -> None:
    """One thread's events, properly nested: note for each launch its innermost mark or its backward node."""
    open_now: list[tuple[float, str | None, int | None]] = []  # end, mark, sequence number of a backward node
    for event in sorted(events, key=lambda e: (e["ts"], -e.get("dur", 0.0))):
        while open_now and open_now[-1][0] <= event["ts"]:
            open_now.pop()
        args, name = event.get("args", {}), event["name"]
        mark = next((m for _, m, _ in reversed(open_now) if m), None)
        node = next((s for _, _, s in reversed(open_now) if s is not None), None)
        if event["cat"] in ("cuda_runtime", "cuda_driver"):
            call = args.get("correlation")
            if mark is not None:
                part_of_call[call] = mark
            elif node is not None:
                asked_by_backward[call] = node
            continue
        number = args.get("Sequence number", -1)
        is_node = name.startswith("autograd::engine::evaluate_function")
        if event["cat"] == "cpu_op" and number >= 0 and mark is not None and node is None:
            part_of_forward[number] = mark  # the last operator with this number made the node
        own = name.removeprefix(MARK) if name.startswith(MARK) else None
        open_now.append((event["ts"] + event.get("dur", 0.0), own, number if is_node else None))


def by_name(name: str, table: dict[str, str], otherwise: str) -> str:
    """The first row of ``table`` of which a piece is in ``name``."""
    low = name.lower()
    return next((what for pieces, what in table.items() if any(p in low for p in pieces.split("|"))), otherwise)


def busy_us(found: list[Launch]) -> float:
    """Time during which the GPU ran something."""
    total = end = 0.0
    for launch in found:
        stop = launch.start_us + launch.us
        total += max(0.0, stop - max(end, launch.start_us))
        end = max(end, stop)
    return total


def host_calls(trace: dict) -> tuple[int, float]:
    """Launches of kernels and copies that the host asked for, and microseconds in which it waited for the device."""
    n, waited = 0, 0.0
    for event in trace["traceEvents"]:
        if event.get("ph") == "X" and event.get("cat") in ("cuda_runtime", "cuda_driver"):
            name = event["name"]
            n += any(word in name for word in ("Launch", "Memcpy", "Memset"))
            waited += event.get("dur", 0.0) if "Synchronize" in name else 0.0
    return n, waited


def summary(watch: Watch) -> dict:
    """What a way took, by step."""
    warm, timed, profiled = watch.steps
    ends = watch.ends[warm - 1 : warm + timed]
    steps_ms = [1e3 * (b - a) for a, b in pairwise(ends)]
    found = launches_of(watch.trace)
    calls, waited_us = host_calls(watch.trace)
    kernels: dict[tuple[str, str], list[float]] = defaultdict(list)
    parts: dict[str, Counter] = defaultdict(Counter)
    for launch in found:
        kernels[launch.name, launch.part].append(launch.us)
        kind = by_name(launch.name, KIND_BY_NAME, "kernels of ours")
        parts[launch.part]["backward_ms" if launch.is_backward else "forward_ms"] += launch.us / 1e3 / profiled
        parts[launch.part]["launches"] += 1 / profiled
        parts[launch.part][kind] += launch.us / 1e3 / profiled
    gpu_ms = busy_us(found) / 1e3 / profiled
    top = sorted(kernels.items(), key=lambda item: -sum(item[1]))[:TOP]
    host_ms = 1e3 * watch.profiled_s / profiled - waited_us / 1e3 / profiled
    return {
        "step_ms": statistics.median(steps_ms), "step_ms_least": min(steps_ms), "step_ms_most": max(steps_ms),
        "forward_ms": 1e3 * statistics.median(watch.forward_s[warm : warm + timed]),
        "profiled_step_ms": 1e3 * watch.profiled_s / profiled, "gpu_ms": gpu_ms,
        "gpu_busy": gpu_ms / statistics.median(steps_ms), "host_ms_profiled": host_ms,
        "launches": calls / profiled, "loss": watch.losses[warm + timed - 1], "kernels": watch.kernels,
        "parts": {name: dict(counts) for name, counts in sorted(parts.items(), key=lambda p: -_ms(p[1]))},
        "top": [
            {"kernel": name, "part": part, "ms": sum(us) / 1e3 / profiled, "count": len(us) / profiled}
            for (name, part), us in top
        ],
    }  # fmt: skip


def _ms(part: dict) -> float:
    return part.get("forward_ms", 0.0) + part.get("backward_ms", 0.0)


# All ways ------------------------------------------------------------------------------------------------------------


def measure(way: str, shape: tuple[int, int], *, smoke: bool) -> dict:
    """Train this way; what it took, or why it did not run."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from nsa.train.trainer import train

    changes = dict(WAYS[way])
    graphed = changes.pop("graphed", False)
    if shape[0] > LARGEST_TILED and way != "nsa-selected":
        changes["routes"] = changes.get("routes", "").replace("selected=tiles", "").strip()
    if graphed and smoke:
        return {"failed": "CUDA graphs need a GPU"}
    steps = (2, 2, 1) if smoke else (WARM, TIMED, PROFILED)
    row = Row(gpus=1, mode="single", seq_len=shape[0], batch_per_gpu=shape[1], steps=sum(steps), **changes)
    config = configuration(row, smoke=smoke).with_value("train.steps", sum(steps))
    watch = Watch(graphed=graphed, steps=steps)
    watch.shape = (config.train.batch_size, config.train.seq_len, config.model.dim)
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


def report(results: dict[str, dict[str, dict]], machine: dict, skipped: list[str]) -> str:
    """Everything as Markdown: an overview per shape, parts side by side, then kernels."""
    lines = [", ".join(f"{key} {value}" for key, value in machine.items()) + ".", ""]
    if skipped:
        lines += [f"No time was left for: {', '.join(skipped)}.", ""]
    for shape, ways in results.items():
        good = {way: r for way, r in ways.items() if "failed" not in r}
        lines += [f"## S x B = {shape}", "", *_overview(good), ""]
        lines += [f"- {way} did not run: {r['failed']}" for way, r in ways.items() if "failed" in r]
        lines += ["", *_parts(good), ""]
        for way, r in ((way, r) for way, r in good.items() if r["top"]):
            lines += [f"### {way}, {shape}: the {len(r['top'])} longest kernels of a step", ""]
            lines += ["| ms | count | part | kernel |", "|---|---|---|---|"]
            lines += [f"| {k['ms']:.3f} | {k['count']:g} | {k['part']} | `{k['kernel'][:110]}` |" for k in r["top"]]
            lines += [""]
    return "\n".join(lines) + "\n"


def _overview(good: dict[str, dict]) -> list[str]:
    head = (
        *("way", "step ms (least to most)", "tokens/s", "of dense", "GPU ms", "GPU busy"),
        *("host ms under the profiler", "launches", "forward ms", "peak GB", "loss"),
    )
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for way, r in good.items():
        base = good.get("dense")
        ratio = f"{r['tokens_per_s'] / base['tokens_per_s']:.2f}" if base else ""
        peak = "" if r["peak_gb"] is None else f"{r['peak_gb']:.1f}"
        lines.append(
            f"| {way} | {r['step_ms']:.1f} ({r['step_ms_least']:.1f} to {r['step_ms_most']:.1f}) | "
            f"{r['tokens_per_s']:,.0f} | {ratio} | {r['gpu_ms']:.1f} | {100 * r['gpu_busy']:.0f} % | "
            f"{r['host_ms_profiled']:.1f} | {r['launches']:,.0f} | {r['forward_ms']:.1f} | {peak} | {r['loss']:.4f} |"
        )
    return lines


def _parts(good: dict[str, dict]) -> list[str]:
    names = list(dict.fromkeys(name for r in good.values() for name in r["parts"]))
    if not names:
        return ["No kernels: nothing ran on a GPU."]
    lines = ["Forward + backward, ms of GPU time in a step (launches).", "", "| part | " + " | ".join(good) + " |"]
    lines += ["|---" * (1 + len(good)) + "|"]
    for name in names:
        cells = []
        for r in good.values():
            part = r["parts"].get(name)
            forward, backward = (0, 0) if part is None else (part.get("forward_ms", 0), part.get("backward_ms", 0))
            cells.append("" if part is None else f"{forward:.2f} + {backward:.2f} ({part['launches']:.0f})")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    kinds = list(dict.fromkeys([*KIND_BY_NAME.values(), "kernels of ours"]))
    lines += ["", "| kind | " + " | ".join(good) + " |", "|---" * (1 + len(good)) + "|"]
    for kind in kinds:
        sums = [sum(part.get(kind, 0.0) for part in r["parts"].values()) for r in good.values()]
        lines.append(f"| {kind} | " + " | ".join(f"{ms:.2f}" for ms in sums) + " |")
    return lines


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
    parser.add_argument("out", type=Path, help="folder for profile.json and profile.md")
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
    sys.exit(run(args))


if __name__ == "__main__":
    main()
