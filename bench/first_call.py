"""Two stages of a pipeline on two GPUs, of which one comes to a first collective that the other is not in, or not yet.

    python bench/first_call.py --json first.json      (two GPUs; four minutes)

NCCL makes a group's communicator in its first call, which no flight recorder shows, and a rank that makes one answers
no recorder. Healthy ones: the card of that rank is still at work on what the other waits for, by products of matrices
or by a kernel that counts its clock for ten seconds
(harness/reading/gpus.py: one that does no more for twelve is called endless). Hung ones: one rank alone calls a
barrier. Either rank may be the one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path

PROGRAM = """
import os, sys
import torch, torch.distributed as dist
how, who = sys.argv[1], int(sys.argv[2])
rank = int(os.environ["RANK"])
device = torch.device("cuda", rank)
torch.cuda.set_device(device)
dist.init_process_group("nccl")
x, work = torch.randn(512, 512, device=device), torch.randn(8192, 8192, device=device)
for step in range(8):
    if step == 5 and rank == who:
        if how == "products":
            for _ in range(800):
                work = (work @ work).clamp(-1, 1)
        if how == "counts":
            torch.cuda._sleep(int(10 * 1.98e9))
        if how == "alone":
            dist.barrier()
    if rank == who:
        dist.send(x, 1 - rank)
    else:
        dist.recv(x, 1 - rank)
        torch.cuda.synchronize()
    if step == 5 and how != "alone":
        dist.barrier()
    if step < 5:
        torch.cuda.synchronize()
    print("step", step, flush=True)
torch.cuda.synchronize()
dist.destroy_process_group()
print("done", flush=True)
"""

TRUTH = {"products": "PASS", "counts": "PASS", "alone": "HANG"}


def run(how: str, who: int, folder: Path) -> dict[str, object]:
    """One program to its end: what is true, and what is said after how long, and why."""
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    harness = str(Path(sys.executable).with_name("nsa-harness"))
    command = [harness, "run", "--json", "--", sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", "train.py", how, str(who)]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=150, check=False)
    trial = json.loads(done.stdout)["trials"][0]
    verdict = trial["verdict"]
    return {
        "how": how,
        "who": who,
        "true": TRUTH[how],
        "kind": verdict["kind"],
        "cause": verdict.get("cause"),
        "because": verdict["because"],
        "duration_s": trial["outcome"]["duration_s"],
    }


def main() -> int:
    """Run all, print a line for each, and fail if one of them is called what it is not."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as top:
        for how, who in product(TRUTH, (1, 0)):
            rows.append(run(how, who, Path(top) / f"{how}-{who}"))
            print(rows[-1], flush=True)
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n")
    return any(row["kind"] != row["true"] for row in rows)


if __name__ == "__main__":
    sys.exit(main())
