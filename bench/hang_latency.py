"""How long a hang takes to be told, and what is told: the same stuck job under what people use and under nsa-harness.

    python bench/hang_latency.py --repeats 3 --json results.json --md results.md

The job (``stuck_gloo.py``, two ranks, torchrun, gloo, CPU) makes ten short steps; then rank 1 silently waits for ever
in its data set. Each row starts it afresh, rows interleaved. Seconds count from the moment at which rank 1 gets stuck,
which it writes down itself. *Left* counts processes of the job that are alive two seconds after the tool has ended.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
JOB = HERE / "stuck_gloo.py"
BIN = Path(sys.executable).parent
LIMIT_S = 60.0
"""The limit that a careful user would give this job: it takes 10 to 20 s to start, and has steps of 0.03 s."""

MARK = "NSA_BENCH_LATENCY"

TEST = """
import subprocess
def test_it_trains():
    subprocess.run({argv!r}, check=True)
"""


@dataclass
class Row:
    """One way to find out, and what came of each repeat."""

    name: str
    seconds: list[float] = field(default_factory=list)
    rank: list[bool] = field(default_factory=list)
    place: list[bool] = field(default_factory=list)
    called: list[str] = field(default_factory=list)
    left: list[int] = field(default_factory=list)


def torchrun(*more: str) -> list[str]:
    return [str(BIN / "torchrun"), "--nproc-per-node", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0",
            str(JOB), *more]  # fmt: skip


def own(mark: str) -> list[int]:
    """The live processes that carry ``mark``."""
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it ended, or belongs to somebody else
            if f"{MARK}={mark}".encode() in environ.read_bytes().split(b"\0"):
                state = (environ.parent / "stat").read_text().rpartition(")")[2].split()[0]
                found += [int(environ.parent.name)] if state not in "ZX" else []
    return found


def run(argv: list[str], *, folder: Path, row: Row, number: int, limit_s: float = 240.0) -> None:
    """One repeat of one row: until the tool ends by itself."""
    mark, stuck = f"{os.getpid()}-{row.name}-{number}", folder / "stuck"
    stuck.unlink(missing_ok=True)
    env = {**os.environ, MARK: mark, "STUCK_AT": str(stuck), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(argv, env=env, cwd=folder, capture_output=True, text=True, timeout=limit_s, check=False)
    took(row, time.monotonic() - float(stuck.read_text()), done.stdout + done.stderr, mark=mark)


def watch(*, folder: Path, row: Row, number: int) -> None:
    """Start the job alone, and look at it from outside as soon as it is stuck."""
    mark, stuck = f"{os.getpid()}-{row.name}-{number}", folder / "stuck"
    stuck.unlink(missing_ok=True)
    env = {**os.environ, MARK: mark, "STUCK_AT": str(stuck), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(torchrun(), env=env, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as job:
        while not stuck.exists():
            time.sleep(0.02)
        command = [str(BIN / "nsa-harness"), "watch", str(job.pid), "--runs", str(folder / "runs")]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
        took(row, time.monotonic() - float(stuck.read_text()), done.stdout, mark="")
        end(mark)


def took(row: Row, seconds: float, text: str, *, mark: str) -> None:
    first = next((line for line in text.splitlines() if line.startswith("HANG")), "")
    row.seconds.append(round(seconds, 2))
    row.rank.append(bool(re.search(r"rank 1\b", first or text)))
    row.place.append("read_shard" in text)
    row.called.append(first.partition("  (")[0] or said(text))
    time.sleep(2.0)
    row.left.append(len(own(mark)) if mark else 0)
    if mark:
        end(mark)


def said(text: str) -> str:
    """What a tool that does not judge says: the line that people would search for."""
    for wanted in (
        r"Timed out waiting \d+ms for recv operation",
        r"Timeout \(>[\d.]+s\)",
        r"Connection (closed|reset) by peer",
    ):
        if found := re.search(wanted, text):
            return found[0]
    return "nothing"


def end(mark: str) -> None:
    for pid in own(mark):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def measure(repeats: int) -> list[Row]:
    names = ("torch-timeout-30", "torch-timeout-60", "timeout", "pytest-timeout", "run", "watch")
    rows = {name: Row(name) for name in names}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "test_it.py").write_text(TEST.format(argv=torchrun()))
        commands = {
            "torch-timeout-30": torchrun("--timeout", "30"),
            "torch-timeout-60": torchrun("--timeout", "60"),
            "timeout": ["timeout", "-k", "10", f"{LIMIT_S:g}", *torchrun()],
            "pytest-timeout": [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--timeout={LIMIT_S:g}",
                               "test_it.py"],
            "run": [str(BIN / "nsa-harness"), "run", "--runs", str(folder / "runs"), "--", *torchrun()],
        }  # fmt: skip
        for number in range(repeats):
            for name in names:
                if name in commands:
                    run(commands[name], folder=folder, row=rows[name], number=number)
                else:
                    watch(folder=folder, row=rows[name], number=number)
                print(name, number, rows[name].seconds[-1], rows[name].called[-1], flush=True)
    return list(rows.values())


WORDS = {
    "torch-timeout-30": "`init_process_group(timeout=30 s)` (default: 30 min)",
    "torch-timeout-60": "`init_process_group(timeout=60 s)`",
    "timeout": f"`timeout -k 10 {LIMIT_S:g} torchrun ...`",
    "pytest-timeout": f"`pytest --timeout={LIMIT_S:g}`, torchrun in the test",
    "run": "`nsa-harness run -- torchrun ...` (no limit given)",
    "watch": "`nsa-harness watch PID`, begun when it is stuck",
}


def markdown(rows: list[Row], *, about: dict[str, object]) -> str:
    lines = [
        "# Seconds from a stuck rank to being told",
        "",
        f"Two ranks, gloo, rank 1 waits in its data set; steps of 0.03 s. {about['cpu']} cores, load {about['load']} "
        f"when begun, torch {about['torch']}. Median (least to most) of {len(rows[0].seconds)}. Made by "
        f"`python bench/hang_latency.py`. {about['note']}".rstrip(),
        "",
        "| under | seconds | what it says | names rank 1 | names the line | processes left |",
        "|:--|--:|:--|:--|:--|--:|",
    ]
    for row in rows:
        spread = f"{statistics.median(row.seconds):.1f} ({min(row.seconds):.1f} to {max(row.seconds):.1f})"
        yes = [f"{sum(column)} of {len(column)}" for column in (row.rank, row.place)]
        told = ", ".join(dict.fromkeys(row.called))
        lines.append(f"| {WORDS[row.name]} | {spread} | {told} | {yes[0]} | {yes[1]} | {max(row.left)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--note", default="", help="what else a reader must know of the machine")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--md", type=Path)
    asked = parser.parse_args()
    from importlib.metadata import version

    about: dict[str, object] = {
        "cpu": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "torch": version("torch"),
        "python": platform.python_version(),
        "note": asked.note,
    }
    rows = measure(asked.repeats)
    about["load_end"] = round(os.getloadavg()[0], 1)
    if asked.json:
        asked.json.write_text(json.dumps({"about": about, "rows": [vars(row) for row in rows]}, indent=1) + "\n")
    text = markdown(rows, about=about)
    if asked.md:
        asked.md.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
