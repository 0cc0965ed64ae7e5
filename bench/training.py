"""Trains the production configuration of 125 million parameters in many ways on one and two GPUs, and tabulates it.

    python bench/training.py OUT            # two GPUs, under nine minutes
    python bench/training.py OUT --smoke    # two CPU processes and a tiny model: does every row run?
    python bench/training.py OUT --parts compare alone     # some of the rows; --list names them
    python bench/training.py OUT --tabulate A.jsonl B.jsonl    # one table of several runs' rows, nothing is run

The production configuration has one sequence of 2,048 tokens per GPU: its steps wait for the host, so its rows show
that every way completes, and the rows with 16 sequences what the GPUs can do. Every row is
``nsa.train.trainer.train`` with the shipped configuration m7c_125m_2xa100_production (or the 1xa100 one), changed
only in what the row says. Rows on two GPUs run under torchrun, one after another; rows on one GPU run two at a time,
one on each; last, where time is left, the command line itself trains, saves and continues. A row that takes too long
ends early and says after how many steps; one that fails says why, and the next ones run in fresh processes.
``OUT/training.jsonl`` gets a line when a row ends, and ``OUT/training.md`` is written again: a kill at a limit loses
the row in progress only.

Tokens/s is the number of tokens of a step over the median of the steps after the warm-up (a tenth of them, 20 at
most). MFU counts what the model's mathematics needs, nothing that is computed again: 6 operations per token and
weight of a matrix, and 12 per token, head, head width, layer and key that is attended to, over the peak of all GPUs
(``--peak-tflops`` each, 989 for bf16 on an H100 or H200).
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

STALL_S = {"first": 150.0, "later": 60.0}
"""Silence after which a row is ended: before the first step (kernels are compiled there), and later."""
SAY_EVERY_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Row:
    """One run: where, how, what."""

    gpus: int
    mode: str
    attention: str = "nsa"
    checkpointing: str = "none"
    seq_len: int = 2048
    batch_per_gpu: int = 1
    steps: int = 500
    sdpa: str = ""
    """For dense attention: the backend of torch's attention; torch chooses if empty."""
    compile: str = "off"
    """``train.compile``; blocks are compiled in the first step, which no median counts."""
    routes: str = ""
    """Kernels by name, as ``window=triton selected=tiles``; the others as ``auto`` chooses."""
    limit_s: float = 60.0
    """The longest its steps may take."""
    beside: str = ""
    """What runs at the same time on the same GPUs: then only that it completes is of interest."""

    @property
    def name(self) -> str:
        """What identifies the row in messages and tables."""
        attention = f"{self.attention} {self.sdpa}".strip()
        attention += "" if self.compile == "off" else f" compiled ({self.compile})"
        attention += f" {self.routes}" if self.routes else ""
        beside = f" (beside {self.beside})" if self.beside else ""
        return (
            f"{self.gpus}x {self.mode} {attention} {self.checkpointing} S={self.seq_len} B={self.batch_per_gpu}{beside}"
        )


def production() -> list[Row]:
    """The production configuration in every way, on two GPUs."""
    modes, kinds = ("ddp", "fsdp"), ("none", "nonreentrant", "reentrant")
    return [Row(gpus=2, mode=mode, checkpointing=kind, limit_s=150.0) for mode in modes for kind in kinds]


def compare() -> list[Row]:
    """Sparse beside dense on two GPUs, at two lengths, with batches that fill them."""
    wide = Row(gpus=2, mode="ddp", steps=50, batch_per_gpu=16)
    long = replace(wide, batch_per_gpu=2, seq_len=16384)
    return [wide, replace(wide, attention="dense"), long, replace(long, attention="dense")]


def alone(attention: str) -> list[Row]:
    """The same on one GPU."""
    row = Row(gpus=1, mode="single", attention=attention, steps=40)
    return [replace(row, batch_per_gpu=16), replace(row, batch_per_gpu=2, seq_len=16384), row]


def tiles(*, compiled: str = "off") -> list[Row]:
    """Sparse attention over tiles, where ``compare`` has the kernels that ``auto`` takes."""
    wide, _, long, _ = compare()
    routes = "compressed=tiles window=tiles"
    rows = [replace(wide, routes=f"{routes} selected=tiles"), replace(wide, routes=routes)]
    return [replace(row, compile=compiled) for row in (*rows, replace(long, routes=routes))]


def more() -> list[Row]:
    """What else can be asked of two GPUs."""
    wide = Row(gpus=2, mode="ddp", steps=50, batch_per_gpu=16)
    return [
        replace(wide, mode="fsdp"),
        *(replace(wide, checkpointing=kind) for kind in ("nonreentrant", "selective")),
        replace(wide, batch_per_gpu=1, attention="dense"),
        replace(wide, attention="dense", sdpa="cudnn"),
        replace(wide, attention="dense", sdpa="cudnn", batch_per_gpu=2, seq_len=16384),
    ]


def long() -> list[Row]:
    """The two slowest rows of the production configuration, to be run at the same time."""
    kinds = {"nonreentrant": "reentrant", "reentrant": "nonreentrant"}
    return [
        Row(gpus=2, mode="fsdp", checkpointing=kind, limit_s=1e6, beside=f"fsdp {other}")
        for kind, other in kinds.items()
    ]


PARTS = {
    "production": lambda: [(production(), None)],
    "compare": lambda: [(compare(), None)],
    "alone": lambda: [(alone("nsa"), 0), (alone("dense"), 1)],
    "more": lambda: [(more(), None)],
    "compiled": lambda: [([replace(row, compile="inductor") for row in compare()], None)],
    "tiles": lambda: [(tiles(), None)],
    "tiles-compiled": lambda: [(tiles(compiled="inductor"), None)],
    "long": lambda: [([row], None) for row in long()],
}
"""Lists of rows that run at the same time, each with the number of its GPU; None for both."""


# The rank that trains -------------------------------------------------------------------------------------------------


def configuration(row: Row, *, smoke: bool):
    """The shipped configuration with what the row changes."""
    from nsa.train.effective import effective

    changes = {
        "model.attention": row.attention,
        "train.checkpointing": row.checkpointing,
        "train.compile": row.compile,
        "train.seq_len": row.seq_len,
        "train.batch_size": row.batch_per_gpu * row.gpus,
        "train.steps": row.steps,
        "train.warmup_steps": row.steps // 10,
        "train.save_every": 0,
        "train.eval_every": 0,
        "train.out_dir": "",
        "parallel.mode": row.mode,
        "parallel.timeout_s": 120.0,
    }
    changes |= {f"kernels.{op}": name for op, name in (part.split("=") for part in row.routes.split())}
    if smoke:
        changes |= {"kernels.policy": "auto"}
        small = {"dim": 32, "n_layers": 2, "n_heads": 4, "n_kv_groups": 2, "d_k": 8, "d_v": 8, "l": 8, "d": 4,
                 "l_slc": 8, "n": 4, "w": 16}  # fmt: skip
        changes |= {f"model.{name}": value for name, value in small.items()}
        changes |= {"train.device": "cpu", "train.batch_size": row.gpus}
        changes |= {"train.compile": "off" if row.compile == "off" else "aot_eager"}
        changes |= {"train.seq_len": row.seq_len // 32, "train.steps": 4, "train.warmup_steps": 1}
    base = f"m7c_125m_{row.gpus}xa100_production"
    return effective(base, environ={}).config.with_values(changes)


class Clock:
    """Notes when each step ends, what its loss was, and says so every few seconds."""

    def __init__(self, say):
        self.say, self.ends, self.losses = say, [], []
        self.began = self.said = time.perf_counter()

    def built(self, state):
        """Note how long building took."""
        self.built_s = time.perf_counter() - self.began

    def mark(self, **_):
        """Ignore phases."""

    def resolved(self, table):
        """Keep the kernels."""
        self.kernels = {row["op"]: row["kernel"] for row in table}

    def step_done(self, *, step, facts):
        """Note the time and the loss."""
        now = time.perf_counter()
        self.ends.append(now)
        self.losses.append(facts["loss"])
        if step == 0 or now - self.said >= SAY_EVERY_S:
            self.said = now
            self.say({"step": step, "loss": round(facts["loss"], 4), "step_s": round(facts["step_s"], 4)})


def measure(row: Row, *, smoke: bool, say) -> dict:
    """Train the row; what came out of it."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from nsa.train.trainer import train

    config, clock = configuration(row, smoke=smoke), Clock(say)
    on_gpu = config.train.device == "cuda"
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()

    def stop_asked():
        return bool(clock.ends) and time.perf_counter() - clock.ends[0] > row.limit_s

    backends = {"": None, "cudnn": SDPBackend.CUDNN_ATTENTION}[row.sdpa]
    if backends is None or not on_gpu:
        result = train(config, [clock], stop_asked=stop_asked)
    else:
        with sdpa_kernel(backends):
            result = train(config, [clock], stop_asked=stop_asked)
    n_warm = min(20, max(1, len(clock.ends) // 10))
    steps_s = [b - a for a, b in zip(clock.ends[n_warm:], clock.ends[n_warm + 1 :], strict=False)]
    tenth = statistics.quantiles(steps_s, n=10, method="inclusive") if len(steps_s) > 1 else steps_s * 9
    tokens = config.train.batch_size * config.train.seq_len
    median_s = statistics.median(steps_s)
    return {
        "row": row.name, **asdict(row), "ok": True, "ended": result.ended, "n_steps": len(result.losses),
        "tokens_per_s": tokens / median_s, "step_ms": 1e3 * median_s, "step_ms_p10": 1e3 * tenth[0],
        "step_ms_p90": 1e3 * tenth[8], "first_step_s": clock.ends[0] - clock.began - clock.built_s,
        "total_s": clock.ends[-1] - clock.began, "flops_per_token": flops_per_token(config),
        "loss_first": clock.losses[0], "loss_last": statistics.fmean(clock.losses[-10:]),
        "losses": [round(loss, 4) for loss in clock.losses[:: max(1, len(clock.losses) // 50)]],
        "peak_allocated_gb": torch.cuda.max_memory_allocated() / 1e9 if on_gpu else None,
        "peak_reserved_gb": torch.cuda.max_memory_reserved() / 1e9 if on_gpu else None,
        "n_parameters": result.n_parameters, "kernels": clock.kernels,
    }  # fmt: skip


def flops_per_token(config) -> float:
    """Operations that the mathematics of forward and backward need per token, on average over the sequence."""
    from nsa.model.estimate import n_parameters

    model, seq_len = config.model, config.train.seq_len
    in_products = n_parameters(model) - model.vocab * model.dim - model.dim * (2 * model.n_layers + 1)
    if model.attention == "dense":
        keys = (seq_len + 1) / 2
    else:
        keys = statistics.fmean(model.layout.tokens_read(position) for position in range(seq_len))
    return 6 * in_products + 6 * model.n_layers * model.n_heads * (model.d_k + model.d_v) * keys


def work(rows: list[Row], *, smoke: bool) -> None:
    """Train the rows one after another in this process, one JSON line on standard output for each."""
    import torch
    import torch.distributed as dist

    rank, n_ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))

    def say(record):
        if rank == 0:
            print(json.dumps(record), flush=True)

    if not smoke:
        torch.cuda.set_device(rank)
    if n_ranks > 1:
        where = {} if smoke else {"device_id": torch.device("cuda", rank)}
        dist.init_process_group("gloo" if smoke else "nccl", timeout=timedelta(seconds=120), **where)
    for row in rows:
        say({"begin": row.name})
        try:
            say(measure(row, smoke=smoke, say=say))
        except Exception as error:
            say({"row": row.name, **asdict(row), "ok": False, "why": f"{type(error).__name__}: {error}"[:500]})
            raise
        gc.collect()
    if n_ranks > 1:
        dist.destroy_process_group()


# The process that starts them -----------------------------------------------------------------------------------------


class Worker:
    """A process, or torchrun with two, that trains rows; what it prints is read as it comes."""

    def __init__(self, rows: list[Row], *, gpu: int | None, smoke: bool, log: Path):
        self.running, self.has_reported = None, False
        self.last, self.is_first = time.monotonic(), True
        program = [str(Path(__file__).resolve()), "unused", "--work", json.dumps([asdict(r) for r in rows])]
        program += ["--smoke"] if smoke else []
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={rows[0].gpus}"]
        command = [sys.executable, *(torchrun if rows[0].gpus > 1 else []), *program]
        environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONUNBUFFERED="1")
        if gpu is not None and not smoke:
            environment["CUDA_VISIBLE_DEVICES"] = str(gpu)
        self.log = log.open("ab")
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self.log, env=environment, start_new_session=True, cwd=ROOT
        )
        os.set_blocking(self.process.stdout.fileno(), False)
        self.unread = b""

    def read(self):
        """The records that have come since the last call."""
        self.unread += self.process.stdout.read() or b""
        *lines, self.unread = self.unread.split(b"\n")
        for line in lines:
            if not line.startswith(b"{"):
                self.log.write(line + b"\n")
                continue
            self.last = time.monotonic()
            record = json.loads(line)
            self.is_first = "begin" in record or (self.is_first and "step" not in record)
            yield record

    @property
    def is_stalled(self) -> bool:
        """Whether it has been silent for too long."""
        return time.monotonic() - self.last > STALL_S["first" if self.is_first else "later"]

    def end(self) -> None:
        """End the whole tree."""
        end_tree(self.process)
        self.log.close()


def end_tree(process: subprocess.Popen) -> None:
    """End a process that leads its own session, and all that it started; by SIGKILL what SIGTERM did not end."""
    for number, wait_s in ((signal.SIGTERM, 40.0), (signal.SIGKILL, 5.0)):  # torchrun gives its ranks 30 s
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, number)
            process.wait(wait_s)
    process.wait()


class Bench:
    """All rows, their results, and the time that is left."""

    def __init__(self, out: Path, *, smoke: bool, budget_s: float, peak_tflops: float):
        self.out, self.smoke, self.peak = out, smoke, peak_tflops
        self.began, self.budget_s = time.monotonic(), budget_s
        self.results: list[dict] = []
        self.commands: list[str] = []
        out.mkdir(parents=True, exist_ok=True)

    @property
    def left_s(self) -> float:
        """Seconds of the budget that are left."""
        return self.budget_s - (time.monotonic() - self.began)

    def say(self, text: str) -> None:
        """Progress, with the seconds since the start."""
        print(f"[{time.monotonic() - self.began:5.0f} s] {text}", file=sys.stderr, flush=True)

    def run(self, lists: list[tuple[list[Row], int | None]]) -> None:
        """Train the lists at the same time, each on its own GPU (None: on all), until they are done or time is out."""
        waiting = {i: list(rows) for i, (rows, _) in enumerate(lists)}
        workers: dict[int, Worker] = {}
        while any(waiting.values()) or workers:
            for i, rows in waiting.items():
                if rows and i not in workers and self.left_s > 20:
                    workers[i] = Worker(rows, gpu=lists[i][1], smoke=self.smoke, log=self.out / f"log{i}.txt")
            if not workers:
                break
            for i, worker in list(workers.items()):
                self._follow(worker, waiting[i])
                if worker.process.poll() is not None or worker.is_stalled or self.left_s <= 0:
                    self._finish(worker, waiting[i])
                    del workers[i]
            time.sleep(0.1)
        for row in [row for rows in waiting.values() for row in rows]:
            self._add({"row": row.name, **asdict(row), "ok": False, "why": "not run: no time left"})

    def command_line(self) -> None:
        """Train by ``python -m nsa.train`` under torchrun, with files and checkpoints, and continue what it saved."""
        folder = Path(tempfile.mkdtemp()) / "run"
        small = "train.device=cpu train.seq_len=64 model.n_layers=2 model.dim=32 model.n_heads=4 " if self.smoke else ""
        steps, every = (4, 2) if self.smoke else (60, 30)
        for wanted in (f"train.steps={steps}", f"train.steps={steps + every} train.resume=true"):
            command = [
                sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m", "nsa.train",
                "m7c_125m_2xa100_production", "--override",
                f"{small}train.out_dir={folder} train.save_every={every} {wanted}",
            ]  # fmt: skip
            began = time.monotonic()
            with (self.out / "command.txt").open("ab") as log:
                log.write((" ".join(command[1:]) + "\n").encode())
                log.flush()
                process = subprocess.Popen(
                    command, stdout=log, stderr=log, cwd=ROOT, start_new_session=True,
                    env=dict(os.environ, OMP_NUM_THREADS="1"),
                )  # fmt: skip
                try:
                    ended = process.wait(max(5.0, min(90.0, self.left_s)))
                except subprocess.TimeoutExpired:
                    ended = "no end in time"
                    end_tree(process)
            saved = sorted(p.name for p in (folder / "checkpoints").glob("step_*"))
            seconds = time.monotonic() - began
            self.commands.append(f"{wanted}: status {ended}, {seconds:.0f} s, saved {', '.join(saved)}")
            self.say(self.commands[-1])

    def _follow(self, worker: Worker, waiting: list[Row]) -> None:
        for record in worker.read():
            if "begin" in record:
                worker.running = record["begin"]
                self.say(f"{worker.running}: begins")
            elif "step" in record:
                self.say(f"{worker.running}: {json.dumps(record)}")
            else:
                waiting[:] = [row for row in waiting if row.name != record["row"]]
                worker.running, worker.has_reported = None, True
                self._add(record)

    def _finish(self, worker: Worker, waiting: list[Row]) -> None:
        is_stalled, is_late = worker.is_stalled, self.left_s <= 0
        code = worker.process.poll()
        worker.end()
        if not waiting or (worker.running is None and worker.has_reported):
            return
        row = next((r for r in waiting if r.name == worker.running), None if is_late else waiting[0])
        if row is None:
            return
        why = "silent for too long" if is_stalled else f"its process ended with status {code}"
        waiting.remove(row)
        self._add({"row": row.name, **asdict(row), "ok": False, "why": "no time left" if is_late else why})

    def _add(self, record: dict) -> None:
        if record["ok"]:
            peak = self.peak * 1e12 * record["gpus"]
            record["mfu"] = record["tokens_per_s"] * record["flops_per_token"] / peak
            text = f"{record['tokens_per_s']:,.0f} tokens/s"
        else:
            text = record["why"]
        self.say(f"{record['row']}: {text}")
        self.results.append(record)
        with (self.out / "training.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")
        (self.out / "training.md").write_text(report(self.results, self.out))


def report(results: list[dict], out: Path) -> str:
    """The tables as Markdown."""
    machine = json.loads((out / "machine.json").read_text())
    head = (
        "| run | steps | tokens/s | step ms (p10 to p90) | MFU | peak GB per GPU | loss, first and last |",
        "|---" * 7 + "|",
    )
    lines = [", ".join(f"{key} {value}" for key, value in machine.items()) + ".", "", *head]
    for r in results:
        if r["ok"]:
            memory = "" if r["peak_allocated_gb"] is None else f"{r['peak_allocated_gb']:.1f}"
            lines.append(
                f"| {r['row']} | {r['n_steps']}, {r['ended']} | {r['tokens_per_s']:,.0f} | {r['step_ms']:.1f} "
                f"({r['step_ms_p10']:.1f} to {r['step_ms_p90']:.1f}) | {100 * r['mfu']:.1f} % | {memory} | "
                f"{r['loss_first']:.3f}, {r['loss_last']:.3f} |"
            )
        else:
            lines.append(f"| {r['row']} | did not complete: {r['why'].splitlines()[0]} | | | | | |")

    def key(r, **other):
        r = {"compile": "off", "routes": "", **r, **other}
        return (*(r[name] for name in ("gpus", "mode", "checkpointing", "seq_len", "batch_per_gpu")),
                r["attention"] + r["sdpa"], r["routes"], r["compile"])  # fmt: skip

    good = {key(r): r for r in results if r["ok"]}
    lines += ["", "| comparison | ratio |", "|---|---|"]
    for r in good.values():
        for sdpa in ("", "cudnn"):
            dense = good.get(key(r, attention="dense", sdpa=sdpa, routes=""))
            if r["attention"] == "nsa" and dense:
                name = f"{r['row']}: tokens/s of dense {sdpa}".rstrip()
                lines.append(f"| {name} | {r['tokens_per_s'] / dense['tokens_per_s']:.2f} |")
        one = good.get(key(r, gpus=1, mode="single"))
        if r["gpus"] == 2 and one:
            lines.append(f"| {r['row']}: scaling from one GPU to two | {r['tokens_per_s'] / one['tokens_per_s']:.2f} |")
    return "\n".join(lines) + "\n"


def describe(*, smoke: bool, commit: str) -> dict:
    """The machine, in a few words."""
    import torch

    gpu = "none (smoke test on CPUs)" if smoke else f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}"
    return {
        "GPU": gpu, "torch": torch.__version__, "Python": platform.python_version(),
        "commit": commit or "unknown", "configuration": "m7c_125m production (bf16 weights)",
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder for the results")
    parser.add_argument("--smoke", action="store_true", help="tiny, on two CPU processes")
    parser.add_argument("--budget-s", type=float, default=530.0, help="end before this many seconds")
    parser.add_argument("--peak-tflops", type=float, default=989.0, help="of one GPU, for MFU")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=["production", "compare", "alone", "more"])
    parser.add_argument("--list", action="store_true", help="print the rows of every part and stop")
    parser.add_argument(
        "--tabulate", nargs="+", type=Path, metavar="JSONL", help="make the table of these rows and stop"
    )
    parser.add_argument("--commit", default="", help="of the tree that is measured, for the record")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        work([Row(**row) for row in json.loads(args.work)], smoke=args.smoke)
    elif args.list:
        for part, lists in PARTS.items():
            print(part, *(f"  {row.name}, {row.steps} steps" for rows, _ in lists() for row in rows), sep="\n")
    elif args.tabulate:
        rows = [json.loads(line) for file in args.tabulate for line in file.read_text().splitlines()]
        (args.out / "training.md").write_text(report(best_of(rows), args.out))
    else:
        sys.exit(run(args))


def run(args: argparse.Namespace) -> int:
    """Train the parts that are asked for; 1 when a row did not complete."""
    bench = Bench(args.out, smoke=args.smoke, budget_s=args.budget_s, peak_tflops=args.peak_tflops)
    (args.out / "machine.json").write_text(json.dumps(describe(smoke=args.smoke, commit=args.commit)))
    for part in args.parts:
        bench.run(PARTS[part]())
    if bench.left_s > 45:
        bench.command_line()
        with (args.out / "training.md").open("a") as file:
            file.write("\nThe command line, `torchrun --nproc_per_node=2 -m nsa.train m7c_125m_2xa100_production`:\n\n")
            file.writelines(f"- {line}\n" for line in bench.commands)
    failed = [r["row"] for r in bench.results if not r["ok"]]
    bench.say(f"{len(bench.results) - len(failed)} of {len(bench.results)} rows done; failed: {failed or 'none'}")
    print((args.out / "training.md").read_text())
    return 1 if failed or any(": status 0," not in line for line in bench.commands) else 0


def best_of(rows: list[dict]) -> list[dict]:
    """One row of each name: the last that completed all its steps, else the last that completed some."""
    kept: dict[str, dict] = {}
    for row in rows:
        name, ended = row["row"], (row["ok"], row.get("n_steps", 0))
        before = kept.get(name)
        if before is None or ended >= (before["ok"], before.get("n_steps", 0)):
            kept[name] = row
    return list(kept.values())


if __name__ == "__main__":
    main()
