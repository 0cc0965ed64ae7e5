"""Thousands of short healthy trials: not one of them may be called a hang.

    python -m bench.strangers.soak --trials 2000 --seed 9001 --jobs 12
    python -m bench.strangers.soak --trials 500 --seed 9101 --jobs 8 --stalling-disk      as root

Each trial is a program without torch that makes some steps, is silent in one of many healthy ways for up to eight
seconds, and ends well. A tenth of the commands is stopped as a whole for some seconds while it runs, as a laptop does.
Machines that are busy with something else are welcome: patience is what is tried. With ``--stalling-disk`` programs and
runs lie on a file system of their own that lets nobody write for 5 to 20 s, again and again, as one of a cluster does.
"""

from __future__ import annotations

import argparse
import collections
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from bench.strangers.__main__ import put_to_sleep

if TYPE_CHECKING:
    from collections.abc import Iterator

A_COMMAND = 10
"""Trials that one command makes one after the other."""

TEXTS = r"""
## sleeps
time.sleep(pause)
## computes
until = time.time() + pause
while time.time() < until: sum(i * i for i in range(1000))
## computes in steps
for i in range(int(pause * 300)): sum(j * j for j in range(2000))
## waits for a child that sleeps
subprocess.run(['sleep', str(pause)])
## waits for a child that computes
code = f"import time; end = time.time() + {pause}\nwhile time.time() < end: pass"
subprocess.run([sys.executable, "-c", code])
## waits for a thread
one = threading.Thread(target=time.sleep, args=(pause,)); one.start(); one.join()
## waits for an event with a limit
threading.Event().wait(pause)
## waits for an event that a timer sets
event = threading.Event()
threading.Timer(pause, event.set).start()
event.wait()
## spins until a timer's signal
import signal
done = []
signal.signal(signal.SIGALRM, lambda *_: done.append(1))
signal.setitimer(signal.ITIMER_REAL, pause)
while not done: pass
## spins until a thread has set a flag
flag = []
threading.Timer(pause, lambda: flag.append(1)).start()
while not flag: pass
## polls a file
subprocess.Popen(['sh', '-c', f'sleep {pause}; : > ready'])
while not os.path.exists('ready'): time.sleep(0.2)
## reads a pipe of a child
p = subprocess.Popen(["sh", "-c", f"sleep {pause}; echo x"], stdout=subprocess.PIPE)
p.stdout.read()
p.wait()
## waits for a lock of another program
import fcntl
code = "import fcntl, sys, time; f = open('lock', 'w'); fcntl.flock(f, 2); print(1, flush=True); time.sleep(8)"
p = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
p.stdout.readline()
threading.Timer(pause, p.kill).start()
fcntl.flock(open("lock", "w"), 2)
p.wait()
## waits for a socket
import socket
a, b = socket.socketpair()
threading.Timer(pause, lambda: a.send(b'x')).start(); b.recv(1)
## waits for a queue
import queue
q = queue.Queue()
threading.Timer(pause, lambda: q.put(1)).start(); q.get()
## counts down in one loop
n = int(pause * 6e6)
while n > 0: n = n - 1
## writes a lot
with open("big", "wb") as f:
    until = time.time() + pause
    while time.time() < until:
        f.write(bytes(1 << 16)); f.seek(0); time.sleep(0.001)
## collects garbage
import gc
rings = [[i] for i in range(10**5)]
for ring in rings: ring.append(ring)
until = time.time() + pause
while time.time() < until: gc.collect()
## allocates
held = []
until = time.time() + pause
while time.time() < until:
    held.append(bytes(1 << 16)); held = held[-100:]
## multiplies great numbers
x = 3 ** (1 << 18)
until = time.time() + pause
while time.time() < until: x * x
## has a pool of processes
import multiprocessing
with multiprocessing.get_context("fork").Pool(2) as pool:
    pool.map(time.sleep, [pause] * 2)
## is in an event loop
import asyncio; asyncio.run(asyncio.sleep(pause))
## waits for a process that it signals
p = subprocess.Popen(["sleep", "100"])
threading.Timer(pause, p.terminate).start()
p.wait()
## is stopped and continued by its child
me = os.getpid()
subprocess.Popen(["sh", "-c", f"kill -STOP {me}; sleep {min(pause, 4.0)}; kill -CONT {me}"]).wait()
"""
"""Healthy ways to be silent for ``pause`` seconds, each below its name."""

PAUSES = dict(part.split("\n", 1) for part in TEXTS.split("## ")[1:])

PROGRAM = """
import os, random, subprocess, sys, threading, time
for name in ("ready", "lock", "big"):
    if os.path.exists(name):
        os.remove(name)
draw = random.Random()
pause = min(8.0, draw.lognormvariate(0.6, 0.9))
def steps():
    for i in range(draw.randrange(1, 12)):
        time.sleep(0.03)
        began = time.monotonic()
        with open("log", "a") as log:
            print("step", i, file=log)
        stalled = time.monotonic() - began
        if stalled > 3:
            with open("stalls", "a") as stalls:
                print(stalled, file=stalls)
        print("step", i, flush=True)
steps()
{strike}
steps()
"""


@contextmanager
def stalling_disk(top: Path, seed: int) -> Iterator[Path]:
    """A folder on a file system of its own that is frozen for 5 to 20 s twice a minute. Needs root."""
    image, folder = top / "disk", top / "stalling"
    folder.mkdir()
    with image.open("wb") as file:
        file.truncate(4 << 30)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(folder)], check=True)
    over, draw = threading.Event(), random.Random(seed)

    def stall() -> None:
        while not over.wait(draw.uniform(10.0, 25.0)):
            # One shell does both, in a session of its own: what ends this process leaves nothing frozen.
            both = f"fsfreeze -f {folder} && sleep {draw.uniform(5.0, 20.0):.1f}; fsfreeze -u {folder}"
            subprocess.run(["sh", "-c", both], start_new_session=True, check=True)

    stalling = threading.Thread(target=stall)
    stalling.start()
    try:
        yield folder
    finally:
        over.set()
        stalling.join()
        subprocess.run(["umount", str(folder)], check=True)


def command(number: int, seed: int, top: Path) -> list[tuple[str, str, str]]:
    """One command's trials: the way of being silent, what was said, and why."""
    draw = random.Random(f"{seed}:{number}")
    name = draw.choice(sorted(PAUSES))
    folder = top / str(number)
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM.format(strike=PAUSES[name]))
    harness = str(Path(sys.executable).with_name("nsa-harness"))
    argv = [harness, "run", "--json", "--repeat", str(A_COMMAND), "--runs", "runs", "--", sys.executable, "train.py"]
    with (folder / "said").open("w") as said, (folder / "errors").open("w") as errors:
        process = subprocess.Popen(argv, cwd=folder, stdout=said, stderr=errors, text=True)
        if draw.random() < 0.1:
            put_to_sleep(process, after_s=draw.uniform(0.5, 30.0), for_s=draw.uniform(3.0, 20.0))
        process.wait()
    text = (folder / "said").read_text()
    trials = json.loads(text)["trials"] if text else []
    rows = [(name, trial["verdict"]["kind"], trial["verdict"]["because"]) for trial in trials]
    missing = A_COMMAND - len(rows)
    return rows + [(name, "NONE", (folder / "errors").read_text()[-300:])] * missing


def main() -> int:
    """Run the trials, print what was said of each way."""
    parser = argparse.ArgumentParser(prog="python -m bench.strangers.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument(
        "--stalling-disk", action="store_true", help="programs and runs lie on a disk that stalls; as root"
    )
    parser.add_argument("--md", type=Path, help="write the table here, too")
    asked = parser.parse_args()
    began = time.monotonic()
    said: collections.Counter[tuple[str, str]] = collections.Counter()
    with (
        tempfile.TemporaryDirectory() as own,
        stalling_disk(Path(own), asked.seed) if asked.stalling_disk else nullcontext(Path(own)) as top,
        ThreadPoolExecutor(asked.jobs) as pool,
    ):
        numbers = range(-(-asked.trials // A_COMMAND))
        running = [pool.submit(command, number, asked.seed, top) for number in numbers]
        for done, one in enumerate(as_completed(running), 1):
            for name, kind, because in one.result():
                said[name, kind] += 1
                if kind != "PASS":
                    print(f"{kind}: {name}: {because[:400]}", flush=True)
            if done % 10 == 0:
                print(f"{sum(said.values())} trials after {time.monotonic() - began:.0f} s", flush=True)
        stalled_s = [float(line) for path in top.glob("*/stalls") for line in path.read_text().splitlines()]
    kinds = sorted({kind for _, kind in said})
    lines = [f"| silent because it | {' | '.join(kinds)} |", "|---|" + "---|" * len(kinds)]
    names = sorted({name for name, _ in said})
    lines += [f"| {name} | {' | '.join(str(said[name, kind]) for kind in kinds)} |" for name in names]
    totals = [sum(said[name, kind] for name in names) for kind in kinds]
    lines.append(f"| all | {' | '.join(map(str, totals))} |")
    if stalled_s:
        lines += [
            "",
            f"{len(stalled_s)} writes of programs stalled for 3 s or more, the longest for {max(stalled_s):.1f} s.",
        ]
    print("\n".join(lines))
    if asked.md:
        asked.md.write_text("\n".join(lines) + "\n")
    return 1 if any(kind == "HANG" for _, kind in said) else 0


if __name__ == "__main__":
    sys.exit(main())
