"""What watching a run costs: every telemetry switch off and on, side by side, in one process.

    python bench/telemetry.py --json results.json --md results.md

A run of a 12-layer byte model is trained again and again, one way at a time, the ways in a new random order in every
round, so that drift of the machine falls on all alike. *Off* is what a run pays for a switch that is not set: the
same steps written as a bare loop without the trainer, beside the trainer with nothing switched on; and the cost of
announcing a mark to nobody, times the marks of a step. *On* is the trainer with that switch alone, measured in two
ways: the CPU time that its observers take, by a clock around each of their calls; and the CPU time of the whole
process per step, as its ratio to the same round's run without the switch. The first sees differences of a
thousandth, but not what a hook costs before it calls; the second sees everything, through the noise of the machine.
Of a run the tenth percentile of its steps counts, of the rounds the median; in brackets the lowest and highest.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from nsa.config import RunConfig
from nsa.model.build import build_model
from nsa.train.attention_files import AttentionFiles
from nsa.train.board import Board, is_installed
from nsa.train.data import batches
from nsa.train.liveness import liveness
from nsa.train.memory_files import MemoryFiles
from nsa.train.optim import decayed_names, make_optimizer
from nsa.train.precision import next_token_loss
from nsa.train.probe import NullProbe, Phase
from nsa.train.progress import Announcer
from nsa.train.telemetry import Heartbeat, Here, Lines, RunFiles
from nsa.train.trainer import train

MODEL = {"model.n_layers": 12, "train.seq_len": 256, "train.batch_size": 1, "train.data": "bytes"}
WARM = 3


class Steps(NullProbe):
    """CPU and wall seconds of every step behind the first few."""

    def __init__(self):
        self.cpu_s, self.wall_s, self.n_marks = [], [], 0
        self._cpu = self._wall = 0.0
        self.inside_s = []

    def mark(self, **_):
        """Count."""
        self.n_marks += 1

    def step_done(self, *, step, facts):
        """Note what this step took."""
        cpu, wall = time.process_time(), time.perf_counter()
        if step >= WARM:
            self.cpu_s.append(cpu - self._cpu)
            self.wall_s.append(wall - self._wall)
        self._cpu, self._wall = time.process_time(), time.perf_counter()


class Timed(NullProbe):
    """Another probe, and the CPU time that its calls take, step by step."""

    def __init__(self, probe):
        self.probe, self.spent_s, self.steps_s = probe, 0.0, []

    def _call(self, name, *args, **kwargs):
        began = time.thread_time()
        getattr(self.probe, name)(*args, **kwargs)
        self.spent_s += time.thread_time() - began

    def built(self, state):
        """Pass on."""
        self._call("built", state)

    def resolved(self, table):
        """Pass on."""
        self._call("resolved", table)

    def mark(self, **where):
        """Pass on."""
        self._call("mark", **where)

    def step_done(self, **what):
        """Pass on, and begin to count again."""
        self._call("step_done", **what)
        self.steps_s.append(self.spent_s)
        self.spent_s = 0.0


def bare(config: RunConfig) -> Steps:
    """The same steps as the trainer's, without the trainer."""
    torch.manual_seed(config.train.seed)
    model, _ = build_model(config)
    optimizer = make_optimizer(model, config.train, decayed_names(model))
    fetch, steps = batches(config), Steps()
    for step in range(config.train.steps):
        (ids_BT,) = fetch(step)
        loss = next_token_loss(model, config.train, ids_BT)
        loss.item()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), config.train.grad_clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        norm.item()
        steps.step_done(step=step, facts={})
    return steps


@contextmanager
def probes_of(way: str, folder: Path, config: RunConfig):
    """The observers that one switch adds."""
    with ExitStack() as files:

        def opened(name):
            return files.enter_context((folder / name).open("ab", buffering=0))

        match way:
            case "heartbeats":
                yield [Heartbeat(opened("heartbeat_rank0.jsonl"), rank=0)]
            case "liveness lines, page and ticks":
                yield [Here(files.enter_context(liveness(folder, rank=0, every_s=2.0, speaks=False)))]
            case "printed lines, one per step":
                yield [Lines(every=1, last=config.train.steps - 1)]
            case "training, val and fallback rows":
                yield [RunFiles(folder, files, config=config, sources={})]
            case "k_stats and gate_stats, every step" | "k_stats and gate_stats, every 10th":
                every = 1 if way.endswith("step") else 10
                yield [AttentionFiles(opened("k_stats.csv"), opened("gate_stats.csv"), every=every)]
            case "mem_* every step" | "mem_* every 10th":
                yield [MemoryFiles(folder, rank=0, every=1 if way.endswith("step") else 10)]
            case "TensorBoard, every step":
                board = Board(folder, every=1)
                files.callback(board.close)
                yield [board]
            case "trace_grads" | "trace_modules" | "trace_buckets (ddp)":
                # What is announced is written: that is what the switches are for.
                yield [Heartbeat(opened("heartbeat_rank0.jsonl"), rank=0)]
            case _:
                yield []


SETTINGS = {
    "trace_grads": {"train.trace_grads": True},
    "trace_modules": {"train.trace_modules": True},
    "trace_buckets (ddp)": {"parallel.mode": "ddp", "parallel.allow_single": True, "train.trace_buckets": True},
    "ddp alone": {"parallel.mode": "ddp", "parallel.allow_single": True},
}
BASE = {"trace_grads": "heartbeats", "trace_modules": "heartbeats", "trace_buckets (ddp)": "ddp alone"}
"""What a way is compared with, where it is not the plain trainer: the same without the switch."""
WAYS = (
    "bare loop", "trainer, all off", "heartbeats", "liveness lines, page and ticks", "printed lines, one per step",
    "training, val and fallback rows", "k_stats and gate_stats, every 10th", "k_stats and gate_stats, every step",
    "mem_* every 10th", "mem_* every step", "TensorBoard, every step", "trace_grads", "trace_modules", "ddp alone",
    "trace_buckets (ddp)",
)  # fmt: skip
PLAIN = "trainer, all off"


def one_run(way: str, config: RunConfig) -> Steps:
    """Train one way."""
    if way == "bare loop":
        return bare(config)
    config = config.with_values(SETTINGS.get(way, {}))
    steps = Steps()
    with (
        tempfile.TemporaryDirectory() as folder,
        probes_of(way, Path(folder), config) as probes,
        Path(os.devnull).open("w") as nowhere,
        redirect_stdout(nowhere),
    ):
        timed = [Timed(probe) for probe in probes]
        train(config, [*timed, steps])
    steps.inside_s = [sum(parts) for parts in zip(*(probe.steps_s[WARM:] for probe in timed), strict=True)]
    return steps


def low(values: list[float]) -> float:
    """The tenth percentile: a step that nobody disturbed."""
    return sorted(values)[len(values) // 10]


def mark_us() -> float:
    """What one mark costs when nobody listens, in microseconds."""
    announcer, n = Announcer(()), 200_000
    announcer.begin(Phase.BACKWARD, 0)
    began = time.process_time()
    for _ in range(n):
        announcer.progress("blocks.0")
    return 1e6 * (time.process_time() - began) / n


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=25, help="steps of a run, the first 3 not counted")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--md", type=Path)
    args = parser.parse_args()
    config = RunConfig().with_values({**MODEL, "train.steps": args.steps})
    order = [way for way in WAYS if is_installed() or "TensorBoard" not in way]
    rng = random.Random(0)
    rounds: list[dict[str, dict[str, float]]] = []
    one_run(PLAIN, config)
    for number in range(args.rounds):
        rng.shuffle(order)
        found = {}
        for way in order:
            steps = one_run(way, config)
            found[way] = {
                "cpu_ms": 1e3 * low(steps.cpu_s), "wall_ms": 1e3 * low(steps.wall_s),
                "inside_ms": 1e3 * statistics.fmean(steps.inside_s or [0.0]), "marks": steps.n_marks / args.steps,
            }  # fmt: skip
            print(f"round {number + 1}: {way}: {found[way]['cpu_ms']:.1f} ms", file=sys.stderr, flush=True)
        rounds.append(found)
    text = report(rounds, config, mark_us())
    print(text)
    if args.md:
        args.md.write_text(text)
    if args.json:
        args.json.write_text(json.dumps({"torch": torch.__version__, "rounds": rounds}, indent=1))


def report(rounds: list[dict[str, dict[str, float]]], config: RunConfig, us_per_mark: float) -> str:
    """The table as Markdown."""
    model = config.model
    marks = rounds[0][PLAIN]["marks"]
    plain_ms = statistics.median(found[PLAIN]["cpu_ms"] for found in rounds)
    lines = [
        f"{model.n_layers} layers, width {model.dim}, {config.train.seq_len} tokens, fp32, one CPU thread; torch "
        f"{torch.__version__}, Python {platform.python_version()}; {len(rounds)} rounds of {config.train.steps} steps.",
        "",
        f"A mark that nobody listens to costs {us_per_mark:.2f} us; a step has {marks:.0f} of them: "
        f"{us_per_mark * marks / 1e3:.3f} ms, {us_per_mark * marks / 10 / plain_ms:.3f} % of a step.",
        "",
        "| way | inside its observers, ms per step | of a step | CPU ms per step (wall) | against | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for way in (way for way in WAYS if way in rounds[0]):
        base = BASE.get(way, "bare loop" if way == PLAIN else PLAIN)
        ratios = [found[way]["cpu_ms"] / found[base]["cpu_ms"] for found in rounds]
        cpu, wall = (statistics.median(found[way][unit] for found in rounds) for unit in ("cpu_ms", "wall_ms"))
        ratio = f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
        inside = [found[way]["inside_ms"] - found.get(BASE.get(way, ""), {}).get("inside_ms", 0.0) for found in rounds]
        added = statistics.median(inside)
        share = f"{added:.3f} ({min(inside):.3f} to {max(inside):.3f}) | {100 * added / plain_ms:.2f} %"
        share = share if any(found[way]["inside_ms"] for found in rounds) else " | "
        compared = f"{base} | {ratio}" if way != "bare loop" else " | "
        lines.append(f"| {way} | {share} | {cpu:.1f} ({wall:.1f}) | {compared} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
