"""What being watched costs a program: pauses by each way to take stacks, CPU time of the shim, CPU time of the watch.

    python bench/monitoring_cost.py --json results.json --md results.md

*Pauses*: a program with torch loaded looks at the clock without rest; the longest gap that it sees while a sample is
taken, beside the longest in an equally long window without one, interleaved. *Shim*: one training loop, its hooks put
in and taken out in turns; CPU time of the thread per step, as paired differences. *Watch*: CPU time of the controller
and the supervisor while a healthy job trains, per second.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

BIN = Path(sys.executable).parent
SHIM = Path(__file__).resolve().parents[1] / "harness" / "shim"

CLOCK = """
def look_at_the_clock(path):
    gaps, last = open(path, "w", buffering=1), time.monotonic()
    print("up", flush=True)
    while True:
        now = time.monotonic()
        if now - last > 0.001:
            gaps.write(f"{last} {now}\\n")
            now = time.monotonic()
        last = now
"""
"""Writes down every gap of more than a millisecond in which it did not run."""

LOOKS_AT_THE_CLOCK = f"""
import sys, time, torch
{CLOCK}
m = torch.nn.Linear(8, 8); torch.optim.SGD(m.parameters(), lr=0.1); m(torch.randn(2, 8)).sum().backward()
look_at_the_clock(sys.argv[1])
"""

TRAINS = """
import sys, time, torch
import nsa_harness_shim as shim
width, batch, blocks, steps = map(int, sys.argv[1:5])
torch.set_num_threads(1)
import torch.autograd as autograd, torch.optim.optimizer as optim, torch.utils.data.dataloader as loader
speaker = shim.Speaker(sys.argv[5])
shim.QUICK_STEPS = shim.FULL_STEPS = 10**9 if sys.argv[6] == "lines" else 0
plain = autograd.backward, loader._BaseDataLoaderIter.__next__, loader.DataLoader.__iter__
def put_in():
    shim.watch_backward(speaker, autograd), shim.watch_loaders(speaker, loader), shim.watch_optimizers(speaker, optim)
def take_out():
    autograd.backward, loader._BaseDataLoaderIter.__next__, loader.DataLoader.__iter__ = plain
    optim._global_optimizer_post_hooks.clear()
model = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(4)])
sgd = torch.optim.SGD(model.parameters(), lr=1e-4)
rows = torch.utils.data.TensorDataset(torch.randn(batch * steps, width))
batches = torch.utils.data.DataLoader(rows, batch_size=batch)
def block():
    began = time.thread_time()
    for (x,) in batches:
        sgd.zero_grad()
        model(x).square().mean().backward()
        sgd.step()
    return (time.thread_time() - began) / steps
block()
for number in range(blocks):
    pair = {}
    for hooked in (False, True) if number % 2 else (True, False):
        put_in() if hooked else take_out()
        pair[hooked] = block()
    print(pair[False], pair[True], flush=True)
"""

HEALTHY = """
import time, torch
m = torch.nn.Linear(64, 64); sgd = torch.optim.SGD(m.parameters(), lr=0.1)
end = time.monotonic() + 40
while time.monotonic() < end:
    sgd.zero_grad(); m(torch.randn(8, 64)).sum().backward(); sgd.step(); time.sleep(0.02)
"""

WAYS = {
    "py-spy --nonblocking (used on whatever moves)": ["py-spy", "dump", "--nonblocking", "--json", "--pid"],
    "py-spy --native (where pystack cannot)": ["py-spy", "dump", "--native", "--json", "--pid"],
    "pystack --no-block": ["pystack", "remote", "--no-block"],
    "pystack --native (used on what stands still)": ["pystack", "remote", "--native"],
}


def longest_gap(log: Path, *, began: float, ended: float) -> float:
    """The longest gap that ``look_at_the_clock`` wrote into ``log`` of this time, seconds."""
    gaps = [tuple(map(float, line.split())) for line in log.read_text().splitlines() if " " in line]
    return max((b - a for a, b in gaps if b > began and a < ended), default=0.0)


def pauses(repeats: int, folder: Path) -> dict[str, list[float]]:
    """Longest gap in the target, seconds, for each way and for no sample at all."""
    log = folder / "gaps"
    found: dict[str, list[float]] = {name: [] for name in ("nothing", *WAYS)}
    with subprocess.Popen(
        [sys.executable, "-c", LOOKS_AT_THE_CLOCK, str(log)], stdout=subprocess.PIPE, text=True
    ) as target:
        target.stdout.readline()
        for _ in range(repeats):
            for name in found:
                began = time.monotonic()
                if name == "nothing":
                    time.sleep(0.5)
                else:
                    command = [str(BIN / WAYS[name][0]), *WAYS[name][1:], str(target.pid)]
                    subprocess.run(command, capture_output=True, check=False)
                ended = time.monotonic()
                time.sleep(0.2)
                found[name].append(longest_gap(log, began=began, ended=ended))
        target.kill()
    return found


def shim(blocks: int, folder: Path, *, width: int, batch: int, steps: int, how: str) -> dict[str, float]:
    """CPU seconds per step without the shim, and what it adds, from paired blocks."""
    argv = [sys.executable, "-c", TRAINS, *map(str, (width, batch, blocks, steps)), str(folder), how]
    env = {**os.environ, "PYTHONPATH": str(SHIM), "NSA_HARNESS_TRIAL_DIR": "", "OMP_NUM_THREADS": "1"}
    text = subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout
    pairs = [tuple(map(float, line.split())) for line in text.splitlines()]
    added = sorted(b - a for a, b in pairs)
    step_s = statistics.median(a for a, _ in pairs)
    quarter = len(added) // 4
    return {
        "step_ms": 1e3 * step_s,
        "added_us": 1e6 * statistics.median(added),
        "low_us": 1e6 * added[quarter],
        "high_us": 1e6 * added[-quarter - 1],
        "pairs": len(added),
        "when": {
            "lines": "10 ms and longer (the first 1,000), and the first 10: five lines each",
            "place": "shorter, and all later ones: shared memory, one line a second",
        }[how],
    }


def watch(folder: Path) -> dict[str, float]:
    """CPU seconds per second that the controller and the supervisor use beside a healthy job of 20 ms steps."""
    program = folder / "healthy.py"
    program.write_text(HEALTHY)
    argv = [str(BIN / "nsa-harness"), "run", "--runs", str(folder / "runs"), "--", sys.executable, str(program)]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as controller:
        time.sleep(15.0)
        ours = [controller.pid, *(pid for pid in children(controller.pid))]
        before, began = sum(map(cpu_s, ours)), time.monotonic()
        time.sleep(15.0)
        used, seconds = sum(map(cpu_s, ours)) - before, time.monotonic() - began
        controller.wait()
    return {"cpu_share": used / seconds, "seconds": seconds}


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def cpu_s(pid: int) -> float:
    with suppress(OSError):
        return sum(int(p.read_text().split()[0]) for p in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9
    return 0.0


def spread(values: list[float]) -> str:
    return f"{1e3 * statistics.median(values):.0f} ({1e3 * min(values):.0f} to {1e3 * max(values):.0f})"


def markdown(found: dict) -> str:
    about = found["about"]
    lines = [
        "# What being watched costs",
        "",
        f"{about['cpu']} cores, load {about['load']} when begun. Made by `python bench/monitoring_cost.py`. "
        f"{about['note']}".rstrip(),
        "",
        f"| stacks by | longest gap in the target, ms: median (least to most) of {about['repeats']} |",
        "|:--|--:|",
        *(f"| {name} | {spread(values)} |" for name, values in found["pauses"].items()),
        "",
        "| steps that are | without the shim, CPU | the shim adds: median (quartiles) | less than 1 % of steps over |",
        "|:--|--:|--:|--:|",
        *(
            f"| {row['when']} | {row['step_ms']:.2f} ms | {row['added_us']:.0f} us ({row['low_us']:.0f} to "
            f"{row['high_us']:.0f}), {row['pairs']} pairs | {row['added_us'] / 10:.1f} ms |"
            for row in found["shim"]
        ),
        "",
        f"Controller and supervisor beside a job of 20 ms steps: {100 * found['watch']['cpu_share']:.2f} % of one core "
        f"over {found['watch']['seconds']:.0f} s, in processes of their own.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--blocks", type=int, default=40)
    parser.add_argument("--note", default="", help="what else a reader must know of the machine")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--md", type=Path)
    asked = parser.parse_args()
    about = {"cpu": os.cpu_count(), "load": round(os.getloadavg()[0], 1), "repeats": asked.repeats}
    about["note"] = asked.note
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        found = {
            "about": about,
            "pauses": pauses(asked.repeats, folder),
            "shim": [
                shim(asked.blocks, folder, width=64, batch=8, steps=100, how="lines"),
                shim(asked.blocks, folder, width=64, batch=8, steps=100, how="place"),
            ],
            "watch": watch(folder),
        }
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1) + "\n")
    if asked.md:
        asked.md.write_text(markdown(found))
    print(markdown(found))


if __name__ == "__main__":
    main()
