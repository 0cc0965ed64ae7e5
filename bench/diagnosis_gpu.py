"""The diagnosis on real GPUs: known faults on one and two of them, and the slow loop that was once called a hang.

    python bench/diagnosis_gpu.py OUT --budget-s 280               # two GPUs: doctor, then all specimens
    python bench/diagnosis_gpu.py OUT --part bullet --budget-s 170 # two GPUs: the nine faults of NCCL jobs
    python bench/diagnosis_gpu.py OUT --part one --budget-s 140    # one GPU: its five faults
    python bench/diagnosis_gpu.py OUT --part law --budget-s 235    # one GPU: the slow loop
    python bench/diagnosis_gpu.py OUT --smoke                      # no GPU: all of it on a CPU, gloo, tiny sizes

The exit status is 0 when everything was judged as declared, 1 when not, or when the budget did not suffice.

``CUDA_VISIBLE_DEVICES`` says which GPUs of a shared machine are ours; specimens on one GPU use the first of them.

Parts: ``doctor`` (what this machine allows), ``two`` (specimens on both GPUs with NCCL, several at a time), ``one``
(on one GPU, alone: a GPU that somebody else uses is evidence of its own), ``law``. ``bullet`` is ``doctor`` and
``two``. When the budget runs out, what is running is ended and what was judged so far is printed.

``law``: the loop over tokens of the original reports, at growing sizes, then the very case: see diagnosis_law.py.

``OUT`` gets ``doctor.txt``, a score card for each group, ``law.json``, and ``evidence.tgz``: everything that was seen.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

from diagnosis_law import law

ROOT = Path(__file__).resolve().parents[1]

TWO = [
    "nccl-skip",
    "nccl-spin",
    "nccl-straggler",
    "nccl-shape",
    "nccl-unused",
    "nccl-lock",
    "nccl-stopped",
    "nccl-slow",
    "nccl-killed",
]  # the long ones among the first, so that three at a time end together
ONE = ["gpu-spin", "gpu-oom", "gpu-host-bound", "gpu-thrash", "gpu-compile"]

MAX_FILE_BYTES = 4_000_000


def say(text: str) -> None:
    print(f"[{time.monotonic() - STARTED_S:5.0f} s] {text}", flush=True)


STARTED_S = time.monotonic()


def left_s(budget_s: float) -> float:
    return budget_s - (time.monotonic() - STARTED_S)


def visible() -> list[str]:
    """The GPUs that are ours, as CUDA counts them on this machine."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES", "0,1")
    return [name.strip() for name in given.split(",") if name.strip()]


def harness(out: Path, name: str, *argv: str, env: dict[str, str] | None = None, limit_s: float = 420) -> int:
    """Run one command of the harness; what it prints goes to ``OUT/name.txt`` and, when it has ended, to the screen."""
    path = out / f"{name}.txt"
    with path.open("w") as file:
        process = subprocess.Popen(
            # Once it died of a segmentation fault, and nothing said where.
            [sys.executable, "-X", "faulthandler", "-m", "harness", *argv],
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={**os.environ, **(env or {})},
        )
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            process.terminate()  # a clean end: it ends its trials and prints what was judged so far
            try:
                code = process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
    say(f"{name}: exit {code}\n{path.read_text()}")
    return code


def pack(out: Path, keep: Path) -> None:
    """The evidence, without what is too large to be looked at."""
    with tarfile.open(out / "evidence.tgz", "w:gz") as archive:
        for path in sorted(keep.rglob("*")):
            if path.is_file() and not path.is_symlink() and path.stat().st_size <= MAX_FILE_BYTES:
                archive.add(path, arcname=str(path.relative_to(keep)))
            elif path.is_file():
                say(f"left out of evidence.tgz: {path.relative_to(keep)}, {path.stat().st_size} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder for the results")
    choices = ("doctor", "two", "one", "law", "bullet")
    parser.add_argument("--part", choices=choices, action="append", help="only this part; more than one adds up")
    parser.add_argument("--names", nargs="*", default=(), help="only these specimens, in part one or two")
    parser.add_argument("--budget-s", type=float, help="end everything cleanly after this time (280; law alone 235)")
    parser.add_argument("--jobs", type=int, default=3, help="specimens on two GPUs at a time")
    parser.add_argument("--smoke", action="store_true", help="on a CPU, tiny")
    args = parser.parse_args()
    parts = set(args.part or (("doctor", "two", "one", "law") if args.smoke else ("doctor", "two", "one")))
    parts |= {"doctor", "two"} if "bullet" in parts else set()
    right: list[bool] = []
    args.out.mkdir(parents=True, exist_ok=True)
    keep = args.out / "kept"
    if keep.exists():
        parser.error(f"{keep} is there: what an earlier run left would be read as this one's")
    keep.mkdir()
    os.chdir(ROOT)
    budget_s = (args.budget_s or (235.0 if parts == {"law"} else 280.0)) - 8  # for ending and packing
    if "doctor" in parts:
        harness(args.out, "doctor", "doctor", limit_s=30)
    common = ("--keep", str(keep), "--executor", "local")
    if "two" in parts:
        chosen = ("gloo-skip",) if args.smoke else args.names or TWO
        jobs = ("--jobs", str(args.jobs))
        right.append(harness(args.out, "two", "selftest", *chosen, *common, *jobs, limit_s=left_s(budget_s)) == 0)
    if "one" in parts:
        chosen = ("lock-deadlock",) if args.smoke else args.names or ONE
        first = {"CUDA_VISIBLE_DEVICES": visible()[0]}
        enough = left_s(budget_s) > 30
        right.append(
            enough and harness(args.out, "one", "selftest", *chosen, *common, env=first, limit_s=left_s(budget_s)) == 0
        )
    if "law" in parts:
        gpu = "" if args.smoke else visible()[-1]
        right.append(law(args.out, keep, say=say, left_s=lambda: left_s(budget_s), gpu=gpu))
    pack(args.out, keep)
    say(f"done: {'everything as declared' if all(right) else 'NOT everything as declared'}")
    raise SystemExit(0 if all(right) else 1)


if __name__ == "__main__":
    main()
