"""What the native stacks of a PyTorch process cost by py-spy and by pystack: seconds, CPU, the pause of the process.

    python bench/native_stacks.py --device cuda --repeats 6 --json native.json --md native.md

Two processes in a hook of their second backward: one looks at the clock without rest, and so sees how long it is
stopped; one waits for a lock. The ways take turns. --rivals starts as many processes that compute.
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
from pathlib import Path

from monitoring_cost import CLOCK, longest_gap

from harness.observe.stacks.dumper import find_tool
from harness.observe.stacks.pystack import KEEPS_MEMORY

PYSPY, PYSTACK = (find_tool(name) or name for name in ("py-spy", "pystack"))

TARGET = f"""
import sys, threading, time, torch
{CLOCK}
kind, device, log = sys.argv[1:]
def hook(gradient):
    if kind == "waits":
        open(log, "w").close()
        print("up", flush=True)
        lock = threading.Lock()
        lock.acquire(), lock.acquire()
    look_at_the_clock(log)
net = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(4)]).to(device)
net(torch.randn(64, 1024, device=device)).sum().backward()
out = net(torch.randn(64, 1024, device=device))
out.register_hook(hook)
out.sum().backward()
"""
RIVAL = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(100_000))"

WAYS = {
    "py-spy dump --native": [PYSPY, "dump", "--native", "--json", "--pid"],
    "pystack remote --native": ["env", KEEPS_MEMORY, PYSTACK, "remote", "--native"],
    "pystack remote --native-all": ["env", KEEPS_MEMORY, PYSTACK, "remote", "--native-all"],
    "py-spy dump --nonblocking (no native frames)": [PYSPY, "dump", "--nonblocking", "--json", "--pid"],
}


def dump(way: str, pid: int, *, log: Path) -> dict:
    """One dump of ``pid``; its pause is the longest gap that ``log`` has within it."""
    began, before = time.monotonic(), os.times()
    done = subprocess.run([*WAYS[way], str(pid)], capture_output=True, check=False)
    ended, after = time.monotonic(), os.times()
    time.sleep(0.2)
    return {
        "way": way,
        "code": done.returncode,
        "seconds": ended - began,
        "cpu_s": after.children_user + after.children_system - before.children_user - before.children_system,
        "pause_s": longest_gap(log, began=began, ended=ended),
    }


def measure(kind: str, device: str, *, repeats: int, folder: Path) -> list[dict]:
    """Every dump of one process, in the order in which they were taken."""
    log, rows = folder / kind, []
    target = subprocess.Popen([sys.executable, "-c", TARGET, kind, device, str(log)], stdout=subprocess.PIPE, text=True)
    try:
        target.stdout.readline()
        time.sleep(1.0)
        for number in range(repeats):
            rows += [dump(way, target.pid, log=log) | {"process": kind, "number": number} for way in WAYS]
    finally:
        target.kill()
        target.communicate()
    return rows


def table(rows: list[dict], *, about: str) -> str:
    """Median (least to most) of each way and process."""

    def cell(found: list[dict], key: str) -> str:
        values = [row[key] for row in found]
        return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"

    lines = ["# What native stacks cost", "", about, ""]
    lines += ["| process | by | seconds | CPU seconds | stopped, s |", "|:--|:--|--:|--:|--:|"]
    for kind in dict.fromkeys(row["process"] for row in rows):
        for way in WAYS:
            found = [row for row in rows if (row["process"], row["way"]) == (kind, way) and row["code"] == 0]
            if found:
                pause = cell(found, "pause_s") if kind == "computes" else "-"
                lines.append(f"| {kind} | {way} | {cell(found, 'seconds')} | {cell(found, 'cpu_s')} | {pause} |")
    failed = sum(row["code"] != 0 for row in rows)
    return "\n".join([*lines, "", f"{len(rows)} dumps, {failed} without an answer."]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--repeats", type=int, default=6)
    parser.add_argument("--rivals", type=int, default=0)
    parser.add_argument("--json", type=Path, help="every dump")
    parser.add_argument("--md", type=Path)
    asked = parser.parse_args()
    rivals = [subprocess.Popen([sys.executable, "-c", RIVAL]) for _ in range(asked.rivals)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            rows = [
                row
                for kind in ("computes", "waits")
                for row in measure(kind, asked.device, repeats=asked.repeats, folder=Path(folder))
            ]
    finally:
        for rival in rivals:
            rival.kill()
            rival.wait()
    beside = f", {asked.rivals} others computing" if asked.rivals else ""
    made = "Made by `python bench/native_stacks.py`. Median (least to most)."
    about = f"{os.cpu_count()} cores{beside}, on {asked.device}. {made}"
    text = table(rows, about=about)
    if asked.json:
        asked.json.write_text(json.dumps(rows))
    if asked.md:
        asked.md.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
