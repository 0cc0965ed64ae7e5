"""Two ranks train by the command line, one is killed, and the run is continued on two and on one: does all that hold?

    python bench/train_nccl.py OUT                 # two GPUs, NCCL, under two minutes
    python bench/train_nccl.py OUT --backend gloo  # two CPU processes and a tiny model, the same steps

One after another: (whole) ``torchrun --nproc_per_node=2 -m nsa.train`` without a break; (killed) the same, and SIGKILL
for rank 1 after a checkpoint; (two) the killed run continued on two ranks, with the whole run's losses to the last bit;
(one) continued in one process, with nearly the same losses, because sums over a batch are cut elsewhere; (alone) the
ranks without torchrun, which would end a job by itself, so that rank 0 has to find out that rank 1 is gone.
``OUT/train.json`` and ``OUT/train.md`` say what held, every command's output lies beside them. Exit status 1: not all
held.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from training_rows import ROOT
from training_worker import end_tree

STEPS, SAVE_EVERY, KILL_AFTER = 30, 10, 14
TIMEOUT_S = 15.0
"""``parallel.timeout_s``: how long a rank waits for another."""
GRACE_S = 15.0
"""What rank 0 may take beyond it: for a roll call, and for its interpreter to end."""
CLOSE = {"nccl": 5e-3, "gloo": 1e-4}
"""Largest relative difference of a loss between one process and two: bf16 throughout on GPUs, fp32 on CPUs."""
TINY = (
    "train.device=cpu train.precision=fp32 train.precision_mode=autocast train.seq_len=64 model.n_layers=2 "
    "model.dim=32 model.n_heads=4 model.d_k=8 model.d_v=8 model.l=8 model.d=4 model.l_slc=8 model.n=4 model.w=16"
)


@dataclass
class Check:
    """One thing that must hold, and what was seen."""

    what: str
    held: bool
    seen: str


@dataclass
class Trainings:
    """The runs, their folder, and what came out."""

    out: Path
    backend: str
    limit_s: float
    checks: list[Check] = field(default_factory=list)

    def __post_init__(self):
        self.began = time.monotonic()
        self.out.mkdir(parents=True, exist_ok=True)

    def command(self, name: str, *settings: str) -> list[str]:
        """``-m nsa.train`` with the production configuration, short, in a folder of its own."""
        small = TINY if self.backend == "gloo" else ""
        given = (
            f"{small} train.out_dir={self.folder(name)} train.save_every={SAVE_EVERY} train.eval_every=0 "
            f"train.schedule=constant train.warmup_steps=0 train.log_every=1 train.checkpointing=none "
            f"parallel.backend={self.backend} parallel.timeout_s={TIMEOUT_S} {' '.join(settings)}"
        )
        return ["-m", "nsa.train", "m7c_125m_2xa100_production", "--override", given]

    def folder(self, name: str) -> Path:
        """Where a run writes."""
        return self.out / name

    def start(self, name: str, command: list[str], **environment: str) -> subprocess.Popen:
        """Start a Python command that leads a session of its own; what it prints is kept."""
        with (self.out / f"{name}.txt").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, *command], stdout=log, stderr=subprocess.STDOUT, cwd=ROOT, start_new_session=True,
                env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **environment},
            )  # fmt: skip

    def torchrun(self, name: str, *settings: str) -> subprocess.Popen:
        """Start two ranks as a user would."""
        two = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
        return self.start(name, [*two, *self.command(name, *settings)])

    def wait(self, process: subprocess.Popen, limit_s: float | None = None) -> int | str:
        """The exit status, or what is said of a process that did not end."""
        left_s = self.limit_s - (time.monotonic() - self.began)
        try:
            return process.wait(max(1.0, min(left_s, limit_s or left_s)))
        except subprocess.TimeoutExpired:
            end_tree(process)
            return "did not end in time"

    def check(self, what: str, held: object, seen: object) -> bool:
        """Note whether something holds, and say so at once."""
        self.checks.append(Check(what, bool(held), str(seen)))
        text = f"[{time.monotonic() - self.began:4.0f} s] {'held ' if held else 'BROKE'} {what}: {seen}"
        print(text, file=sys.stderr, flush=True)
        (self.out / "train.json").write_text(json.dumps([vars(c) for c in self.checks], indent=1))
        (self.out / "train.md").write_text(self.report())
        return bool(held)

    def report(self) -> str:
        """A table of what held."""
        rows = [f"| {c.what} | {'yes' if c.held else '**no**'} | {c.seen} |" for c in self.checks]
        head = f"Two ranks over {self.backend}, `python -m nsa.train m7c_125m_2xa100_production`, {STEPS} steps."
        return "\n".join([head, "", "| what must hold | held | seen |", "|---|---|---|", *rows]) + "\n"

    def losses(self, name: str) -> dict[int, float]:
        """Loss by step, exactly as rank 0 noted it; of a step that was run again the later one."""
        found: dict[int, float] = {}
        file = self.folder(name) / "heartbeat_rank0.jsonl"
        for line in file.read_text().splitlines() if file.exists() else []:
            if '"loss"' in line and line.endswith("}"):
                record = json.loads(line)
                found[record["step"]] = record["loss"]
        return found

    def until_step(self, name: str, step: int, process: subprocess.Popen) -> bool:
        """Wait until rank 0 has noted a step; False if the run ended before."""
        while process.poll() is None and time.monotonic() - self.began < self.limit_s:
            if max(self.losses(name), default=-1) >= step:
                return True
            time.sleep(0.05)
        return False

    def pid_of(self, name: str, rank: int) -> int:
        """The process number that a rank noted in its heartbeats."""
        first = (self.folder(name) / f"heartbeat_rank{rank}.jsonl").read_text().partition("\n")[0]
        return json.loads(first)["pid"]


def whole(runs: Trainings) -> None:
    """Without a break."""
    status = runs.wait(runs.torchrun("whole", f"train.steps={STEPS}"))
    runs.check("two ranks train to the end", status == 0, f"status {status}, {len(runs.losses('whole'))} steps")


def killed(runs: Trainings) -> None:
    """One rank is killed under torchrun."""
    process = runs.torchrun("killed", "train.steps=100000")
    if not runs.check("two ranks train until one is killed", runs.until_step("killed", KILL_AFTER, process), "yes"):
        end_tree(process)
        return
    os.kill(runs.pid_of("killed", 1), signal.SIGKILL)
    _ends(runs, "killed", process, "torchrun ends the job")


def alone(runs: Trainings) -> None:
    """One rank is killed, and nobody but the other can tell."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    ranks = [
        runs.start(
            f"alone{rank}", runs.command("alone", "train.steps=100000"),
            RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
        )
        for rank in range(2)
    ]  # fmt: skip
    if not runs.check("two ranks train without torchrun", runs.until_step("alone", KILL_AFTER, ranks[0]), "yes"):
        for process in ranks:
            end_tree(process)
        return
    ranks[1].kill()
    _ends(runs, "alone0", ranks[0], "rank 0 ends by itself")
    end_tree(ranks[1])


def _ends(runs: Trainings, log: str, process: subprocess.Popen, what: str) -> None:
    began = time.monotonic()
    status = runs.wait(process, TIMEOUT_S + GRACE_S + 60.0)
    seconds = time.monotonic() - began
    in_time = isinstance(status, int) and status != 0 and seconds <= TIMEOUT_S + GRACE_S
    runs.check(f"{what} within {TIMEOUT_S:g} + {GRACE_S:g} s of the kill", in_time, f"status {status}, {seconds:.1f} s")
    text = (runs.out / f"{log}.txt").read_text(errors="replace")
    named = re.search(r"rank 1 does not answer a roll call|rank\s*: 1 \(local_rank: 1\)", text)
    runs.check("its last words name rank 1", named, named.group() if named else text[-200:].replace("\n", " "))


def continued(runs: Trainings, name: str, n_ranks: int) -> None:
    """The killed run, from its checkpoint to the whole run's last step."""
    shutil.copytree(runs.folder("killed"), runs.folder(name))
    for file in runs.folder(name).glob("heartbeat_rank*.jsonl"):
        file.unlink()
    settings = (f"train.steps={STEPS}", "train.resume=true")
    if n_ranks == 2:
        process = runs.torchrun(name, *settings)
    else:
        process = runs.start(name, runs.command(name, *settings, "parallel.mode=single"))
    status, want, got = runs.wait(process), runs.losses("whole"), runs.losses(name)
    begins = min(got, default=None)
    is_late = status == 0 and begins is not None and begins >= SAVE_EVERY and max(got) == STEPS - 1
    where = f"{n_ranks} rank{'s' if n_ranks > 1 else ''}"
    runs.check(f"it goes on from its checkpoint on {where}", is_late, f"status {status}, from step {begins}")
    apart = max((abs(got[s] - want[s]) / abs(want[s]) for s in got if s in want), default=float("inf"))
    limit = 0.0 if n_ranks == 2 else CLOSE[runs.backend]
    runs.check(
        f"with the whole run's losses on {where}", apart <= limit, f"at most {apart:.2g} apart, {limit:g} allowed"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder for the results; must not exist or be empty")
    parser.add_argument("--backend", choices=("nccl", "gloo"), default="nccl")
    parser.add_argument("--budget-s", type=float, default=115.0, help="give up after this long (default 115)")
    args = parser.parse_args()
    if args.out.exists() and any(args.out.iterdir()):
        parser.error(f"{args.out} is not empty; name a new folder")
    runs = Trainings(args.out.resolve(), args.backend, args.budget_s)
    whole(runs)
    killed(runs)
    if (runs.folder("killed") / "checkpoints").exists():
        continued(runs, "two", 2)
        continued(runs, "one", 1)
    alone(runs)
    for folder in ("whole", "killed", "two", "one", "alone"):
        shutil.rmtree(runs.folder(folder) / "checkpoints", ignore_errors=True)
    print(runs.report())
    return 0 if all(check.held for check in runs.checks) else 1


if __name__ == "__main__":
    sys.exit(main())
