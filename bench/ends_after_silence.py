"""Healthy programs of two ranks over NCCL that end just after a silence: does asking for flight records harm them?

    python bench/ends_after_silence.py --jobs 6 --json ends.json --md ends.md      (two GPUs; three minutes)
    python bench/ends_after_silence.py --gloo --jobs 2                             (a CPU: does all of this run?)

Rank 1 sleeps for some seconds and rank 0 waits for it in an all-reduce; then both end, in one of four ways. After five
seconds without a mark the watch asks torch for the flight records of both ranks, which a thread of torch writes while
the ranks end. Every third program is also run by itself. One that fails beside the instrument alone was harmed by it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

PROGRAM = """
import os, sys, time
import torch, torch.distributed as dist
backend, seconds, way = sys.argv[1], float(sys.argv[2]), sys.argv[3]
dist.init_process_group(backend)
rank = dist.get_rank()
where = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
if backend == "nccl":
    torch.cuda.set_device(where)
x = torch.ones(1 << 16, device=where)
for step in range(6):
    dist.all_reduce(x)
    x = x / 2
    print("step", step, x[0].item(), flush=True)
if rank == 1:
    time.sleep(seconds)
dist.all_reduce(x)
print("last", x[0].item(), flush=True)
if way in ("destroy", "exit"):
    dist.destroy_process_group()
if way == "exit":
    sys.exit(0)
if way == "at once":
    sys.stdout.flush()
    os._exit(0)
"""

WAYS = ("destroy", "leave", "exit", "at once")
SECONDS = tuple(4.0 + 0.5 * i for i in range(13))


def run(case: tuple[float, str], *, top: Path, backend: str, bare: bool) -> dict[str, object]:
    """One program to its end: its exit status, the verdict, and how many flight records were written."""
    seconds, way = case
    folder = top / f"{'bare' if bare else 'beside'}-{seconds}-{way.replace(' ', '-')}"
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["train.py", backend, str(seconds), way]
    if not bare:
        harness = str(Path(sys.executable).with_name("nsa-harness"))
        command = [harness, "run", "--json", "--runs", "runs", "--", *command]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=150, check=False)
    (folder / "out.txt").write_text(done.stdout + done.stderr)
    verdict = "" if bare else json.loads(done.stdout)["trials"][0]["verdict"]
    records = [one for one in folder.rglob("recorder_rank*") if one.is_file() and one.stat().st_size]
    return {
        "seconds": seconds,
        "way": way,
        "bare": bare,
        "status": done.returncode,
        "kind": verdict and verdict["kind"],
        "cause": verdict and verdict.get("cause"),
        "records": len(records),
    }


def table(rows: list[dict[str, object]]) -> str:
    """A line for each way to end."""
    lines = ["| the ranks end by | bare: ended well | beside the instrument: PASS | with flight records |"]
    lines.append("|---|---|---|---|")
    for way in WAYS:
        alone = [one for one in rows if one["way"] == way and one["bare"]]
        beside = [one for one in rows if one["way"] == way and not one["bare"]]
        well = sum(one["status"] == 0 and one["kind"] == "PASS" for one in beside)
        records = sum(bool(one["records"]) for one in beside)
        alone_well = sum(one["status"] == 0 for one in alone)
        lines.append(f"| {way} | {alone_well} of {len(alone)} | {well} of {len(beside)} | {records} |")
    return "\n".join(lines)


def main() -> int:
    """Run all, print a table, and fail if one ended otherwise beside the instrument."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gloo", action="store_true", help="over gloo, on a CPU")
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--every", type=int, default=1, help="only every such length of the silence")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--md", type=Path)
    asked = parser.parse_args()
    cases = list(itertools.product(SECONDS[:: asked.every], WAYS))
    with tempfile.TemporaryDirectory() as top, ThreadPoolExecutor(asked.jobs) as pool:
        backend = "gloo" if asked.gloo else "nccl"
        beside = partial(run, top=Path(top), backend=backend, bare=False)
        bare = partial(run, top=Path(top), backend=backend, bare=True)
        rows = [*pool.map(beside, cases), *pool.map(bare, cases[::3])]
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n")
    if asked.md:
        asked.md.write_text(table(rows) + "\n")
    print(table(rows))
    for row in rows:
        if row["status"] != 0 or row["kind"] not in ("", "PASS"):
            print(row)
    return any(row["status"] != 0 or row["kind"] not in ("", "PASS") for row in rows if not row["bare"])


if __name__ == "__main__":
    sys.exit(main())
