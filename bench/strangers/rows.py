"""Eleven programs, each tried in three ways: ``run``, ``run --limit 60s``, and ``watch`` while it is in its trouble.

    python -m bench.strangers.rows --jobs 2 --md rows.md

They are the kinds of program on which the instrument once failed: children and second interpreters, C code that keeps
the interpreter's lock, busy loops, long steps, long evaluations, locks of other programs, a PID namespace
of their own, a lock before the first word. None imports anything of ours.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

STEPS = """
import os, subprocess, sys, threading, time
def steps(n, seconds=0.05):
    for i in range(n):
        time.sleep(seconds)
        print("step", i, flush=True)
def now():
    open("in-trouble", "w").close()
"""

OTHERS_LOCK = """
import fcntl
code = "import fcntl, time, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, 2); print('x', flush=True); time.sleep(30)"
other = subprocess.Popen(["setsid", "env", "-i", sys.executable, "-c", code, "lock"], stdout=subprocess.PIPE)
other.stdout.readline()
"""

RANKS = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
for i in range(5):
    dist.all_reduce(torch.ones(4))
    print("step", i, flush=True)
def refill(n=0):
    now()
    while n >= 0:
        n = n
if dist.get_rank() == 1:
    refill()
dist.all_reduce(torch.ones(4))
"""

HUNG, FINE = ("HANG",), ("PASS", "SLOW")
WATCHED_HUNG, WATCHED_OPEN, WATCHED_FINE = (1,), (1, 3), (0, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One program: its text, what is true of it, further options, how it is started."""

    name: str
    text: str
    hangs: bool
    options: tuple[str, ...] = ()
    launcher: tuple[str, ...] = ()
    within_s: float = 20.0
    may_be_open: bool = False
    """Whether ``watch`` may leave it open: what only the process itself can say is not seen from outside."""


WALL_S = 100.0
"""A run that takes longer is interrupted."""

LOCK = "lock = threading.Lock(); lock.acquire(); lock.acquire()"
ROWS = (
    Row(name="child-deadlock", hangs=True, text=f"""
steps(10); now()
child = os.fork()
if child == 0:
    {LOCK}
os.waitpid(child, 0)
"""),
    Row(name="second-interpreter", hangs=True, text=f"""
steps(10); now()
subprocess.run([sys.executable, "-c", "import threading; {LOCK}"])
"""),
    Row(name="c-keeps-the-lock", hangs=True, text="""
import ctypes
steps(10); now()
ctypes.PyDLL(None).pause()
"""),
    Row(name="rank-in-a-busy-loop", hangs=True, text=RANKS,
        launcher=("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")),
    Row(name="loop-at-a-scripts-own-level", hangs=True, may_be_open=True, text="""
steps(10); now()
n = 0
while n >= 0:
    n = n
"""),
    Row(name="lock-before-the-first-word", hangs=True, text=f"now()\n{LOCK}"),
    Row(name="steps-of-three-seconds", hangs=False, options=("--limit", "40s"), text="now(); steps(20, 3.0)"),
    Row(name="one-long-evaluation", hangs=False, options=("--stall", "6s"), text="""
steps(20); now()
t = time.time(); hits = 0
while time.time() - t < 28:
    hits += sum(i * i for i in range(1000))
steps(5)
"""),
    Row(name="lock-of-another-program", hangs=False, options=("--stall", "10s"), text=OTHERS_LOCK + """
steps(20); now()
fcntl.flock(open("lock", "w"), 2)
steps(5); other.wait()
"""),
    Row(name="worker-waits-for-such-a-lock", hangs=False, text=OTHERS_LOCK + """
import torch.utils.data
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, i):
        if i == 24:
            now(); fcntl.flock(open("lock", "w"), 2)
        return float(i)
if __name__ == "__main__":
    for x in torch.utils.data.DataLoader(Rows(), batch_size=4, num_workers=1):
        print(x.sum().item(), flush=True)
    other.wait()
"""),
    Row(name="in-a-pid-namespace", hangs=False, launcher=("unshare",), text="""
steps(20); now(); time.sleep(25); steps(5)
"""),
)  # fmt: skip


def command(row: Row) -> list[str]:
    """How the program is started."""
    if row.launcher == ("unshare",):
        return ["unshare", "-p", "-f", "--mount-proc", sys.executable, "train.py"]
    return [sys.executable, *row.launcher, "train.py"]


def tried(row: Row, way: str, folder: Path) -> tuple[bool, str]:
    """Whether ``row`` is told right in this way, and what was said of it."""
    folder.mkdir()
    (folder / "train.py").write_text(STEPS + row.text)
    return watched(row, folder) if way == "watch" else ran(row, way, folder)


def ran(row: Row, way: str, folder: Path) -> tuple[bool, str]:
    """Under ``run``, with the row's own options or a limit of a minute."""
    harness = str(Path(sys.executable).with_name("nsa-harness"))
    options = ("--limit", "60s") if way == "limit" else row.options
    argv = [harness, "run", "--json", "--runs", "runs", *options, "--", *command(row)]
    with (folder / "errors").open("w") as errors:
        process = subprocess.Popen(argv, cwd=folder, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            said = process.communicate(timeout=WALL_S)[0]
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # as a user would: it is examined, and ended
            said = process.communicate(timeout=60)[0]
    (trial,) = json.loads(said)["trials"]
    kind, seconds = trial["verdict"]["kind"], trial["outcome"]["duration_s"]
    right = kind in (HUNG if row.hangs else FINE) and (not row.hangs or seconds <= row.within_s)
    return right, f"{kind} {trial['verdict'].get('cause') or ''} after {seconds:.1f} s"


def watched(row: Row, folder: Path) -> tuple[bool, str]:
    """Started by itself, and watched once it is in its trouble."""
    out = (folder / "out").open("w")
    program = subprocess.Popen(command(row), cwd=folder, stdout=out, stderr=out, start_new_session=True)
    try:
        while not (folder / "in-trouble").exists() and program.poll() is None:
            time.sleep(0.1)
        time.sleep(4.0)
        harness = str(Path(sys.executable).with_name("nsa-harness"))
        began_s = time.monotonic()
        argv = [harness, "watch", str(program.pid), "--runs", str(folder / "runs")]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
        said = f"{done.stdout.splitlines()[0][:60] if done.stdout else ''} in {time.monotonic() - began_s:.1f} s"
        if row.hangs:
            return done.returncode in (WATCHED_OPEN if row.may_be_open else WATCHED_HUNG), said
        ended_well = program.wait(timeout=120) == 0
        return done.returncode in WATCHED_FINE and ended_well, said
    finally:
        # A launcher ends its ranks, which are in sessions of their own, when it is asked to end.
        program.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.wait()


def main() -> int:
    """Try all, or those whose name has ``--only``, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.strangers.rows", description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--md", type=Path, help="write the table here, too")
    asked = parser.parse_args()
    rows = [row for row in ROWS if asked.only in row.name]
    lines = ["| program | truth | run | run --limit 60s | watch |", "|---|---|---|---|---|"]
    wrong = 0
    with tempfile.TemporaryDirectory() as top, ThreadPoolExecutor(asked.jobs) as pool:
        ways = ("run", "limit", "watch")
        told = {
            (row.name, way): pool.submit(tried, row, way, Path(top) / f"{row.name}-{way}")
            for row in rows
            for way in ways
        }
        for row in rows:
            cells = []
            for way in ways:
                right, said = told[row.name, way].result()
                wrong += not right
                cells.append(said if right else f"**WRONG** {said}")
            lines.append(f"| {row.name} | {'hangs' if row.hangs else 'healthy'} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    if asked.md:
        asked.md.write_text("\n".join(lines) + "\n")
    print(f"{3 * len(rows) - wrong} of {3 * len(rows)} right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
