"""Trains the production configuration of 125 million parameters in many ways on one and two GPUs, and tabulates it.

    python bench/training.py OUT            # two GPUs, under nine minutes
    python bench/training.py OUT --smoke    # two CPU processes and a tiny model: does every row run?
    python bench/training.py OUT --parts compare alone     # some of the rows; --list names them
    python bench/training.py OUT --tabulate A.jsonl B.jsonl    # one table of several runs' rows, nothing is run

The production configuration has one sequence of 2,048 tokens per GPU: its steps wait for the host, so its rows show
that every way completes, and the rows with 16 sequences what the GPUs can do. Every row is
``nsa.train.trainer.train`` with the shipped configuration m7c_125m_2xa100_production (or the 1xa100 one), changed
only in what the row says. Rows on two GPUs run under torchrun, one after another, but ddp's beside fsdp's where only
that they complete is of interest; rows on one GPU run two at a time, one on each; last, where 45 s are left, the
command line itself trains, saves and continues. A row that takes too long ends early and says after how many steps;
one that fails says why, and the next ones run in fresh processes.
``OUT/training.jsonl`` gets a line when a row ends, and ``OUT/training.md`` is written again: a kill at a limit loses
the row in progress only.

Tokens/s is the number of tokens of a step over the median of the steps after the warm-up (a tenth of them, 20 at
most). MFU counts what the model's mathematics needs, nothing that is computed again: 6 operations per token and
weight of a matrix, and 12 per token, head, head width, layer and key that is attended to, over the peak of all GPUs
(``--peak-tflops`` each, 989 for bf16 on an H100 or H200).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from training_rows import PARTS, ROOT, Row
from training_table import best_of, describe, report
from training_worker import Worker, end_tree

COMMAND = "command"
"""The part that trains by the command line; the last one, where time is left."""


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
        needs_gpu = [row.name for rows, _ in lists for row in rows if self.smoke and row.cuda_graphs != "off"]
        if needs_gpu:
            self.say(f"CUDA graphs need a GPU, so a smoke test leaves out: {', '.join(needs_gpu)}")
        waiting = {i: [row for row in rows if row.name not in needs_gpu] for i, (rows, _) in enumerate(lists)}
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder for the results")
    parser.add_argument("--smoke", action="store_true", help="tiny, on two CPU processes")
    parser.add_argument("--budget-s", type=float, default=530.0, help="end before this many seconds")
    parser.add_argument("--peak-tflops", type=float, default=989.0, help="of one GPU, for MFU")
    parts = ["production", "compare", "alone", "more", COMMAND]
    parser.add_argument("--parts", nargs="+", choices=[*PARTS, COMMAND], default=parts)
    parser.add_argument("--list", action="store_true", help="print the rows of every part and stop")
    parser.add_argument(
        "--tabulate", nargs="+", type=Path, metavar="JSONL", help="make the table of these rows and stop"
    )
    parser.add_argument("--commit", default="", help="of the tree that is measured, for the record")
    args = parser.parse_args()
    if args.list:
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
        if part != COMMAND:
            bench.run(PARTS[part]())
    if COMMAND in args.parts and bench.left_s > 45:
        bench.command_line()
        with (args.out / "training.md").open("a") as file:
            file.write("\nThe command line, `torchrun --nproc_per_node=2 -m nsa.train m7c_125m_2xa100_production`:\n\n")
            file.writelines(f"- {line}\n" for line in bench.commands)
    failed = [r["row"] for r in bench.results if not r["ok"]]
    bench.say(f"{len(bench.results) - len(failed)} of {len(bench.results)} rows done; failed: {failed or 'none'}")
    print((args.out / "training.md").read_text())
    return 1 if failed or any(": status 0," not in line for line in bench.commands) else 0


if __name__ == "__main__":
    main()
