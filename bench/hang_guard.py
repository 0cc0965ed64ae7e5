"""What the pytest plugin costs healthy tests, and that it fails none of them: the same tests with it and without.

    python bench/hang_guard.py                         # 2,000 tests, three rounds of both, eight minutes
    python bench/hang_guard.py --tests 200 --rounds 5 --xdist 2
    python bench/hang_guard.py --tests 40 --each 0.05 2        # every test takes so many seconds, asleep or computing

Of a hundred tests, ninety-four end at once, and each of the others takes 0.1 to 7 s at what looks like a hang: asleep,
in a lock that a thread will release, in a queue, in a child process, in a loop. Seven seconds are longer than the guard
waits before its first look. Both ways take turns, and what the guard takes is the median of the differences within a
round, so that what else the machine does meets both alike; by pytest's own clock, and in CPU time of all processes.
Exit status 1 where a test failed, or the guard took more than 30 ms a test or 2 % of the time by the clock.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PAUSES = {
    "sleeps": "time.sleep(SECONDS)",
    "waits_for_a_thread": "event = threading.Event(); threading.Timer(SECONDS, event.set).start(); event.wait()",
    "waits_in_a_lock": "lock = threading.Lock(); lock.acquire(); threading.Timer(SECONDS, lock.release).start(); "
    "lock.acquire()",
    "waits_in_a_queue": "q = queue.Queue(); threading.Timer(SECONDS, q.put, [1]).start(); q.get()",
    "waits_for_a_child": "subprocess.run([sys.executable, '-c', 'import time; time.sleep(SECONDS)'], check=True)",
    "computes": "end = time.monotonic() + SECONDS\n    while time.monotonic() < end: sum(range(1000))",
}
HEAD = "import queue, subprocess, sys, threading, time\nimport pytest\n"
MOST_MS, MOST_SHARE = 30.0, 0.02


def write_tests(folder: Path, *, n_tests: int, seed: int, each: tuple[float, float] | None) -> None:
    """Files of a hundred tests each; with ``each`` one, of which every test takes between so many seconds."""
    drawn = random.Random(seed)
    if each is not None:
        ways = [PAUSES["sleeps"], PAUSES["computes"]]
        bodies = [ways[i % 2].replace("SECONDS", f"{drawn.uniform(*each):.3f}") for i in range(n_tests)]
        tests = (f"def test_{i}():\n    {body}\n" for i, body in enumerate(bodies))
        (folder / "test_each.py").write_text(HEAD + "".join(tests))
        return
    for start in range(0, n_tests, 100):
        n_here = min(100, n_tests - start)
        slow = dict(zip(drawn.sample(range(n_here), min(len(PAUSES), n_here)), PAUSES, strict=False))
        text = HEAD
        for i in range(n_here):
            name = slow.get(i, "ends_at_once")
            seconds = drawn.choice([0.1, 0.3, 1.0]) if start or i % 2 else 7.0
            text += f"def test_{start + i}_{name}():\n    {PAUSES.get(name, 'pass').replace('SECONDS', str(seconds))}\n"
        (folder / f"test_{start}.py").write_text(text)


def seconds(folder: Path, options: list[str]) -> tuple[float, float, str]:
    """Pytest's own time for all tests, the CPU time of all its processes, and what it says of the tests."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(folder)]
    used_s = cpu_s()
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr[-300:]
    took = re.search(r" in ([0-9.]+)s", last)
    return float(took[1]) if took else float("nan"), cpu_s() - used_s, last.strip("= ")


def cpu_s() -> float:
    """CPU seconds of all processes that this one has started and waited for, and of theirs."""
    used = os.times()
    return used.children_user + used.children_system


def main() -> None:
    """Both ways in turns, and one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--xdist", type=int, default=0, help="workers; 0 without pytest-xdist")
    parser.add_argument("--each", nargs=2, type=float, metavar=("LEAST", "MOST"), help="seconds of every test")
    given = parser.parse_args()
    ways = {"without": [], "with": ["--hang-guard"]}
    workers = ["-n", str(given.xdist)] if given.xdist else ["-p", "no:xdist"]
    clock: dict[str, list[float]] = {way: [] for way in ways}
    cpu: dict[str, list[float]] = {way: [] for way in ways}
    said: dict[str, set[str]] = {way: set() for way in ways}
    with tempfile.TemporaryDirectory() as name:
        write_tests(Path(name), n_tests=given.tests, seed=given.seed, each=given.each)
        for turn in range(given.rounds):
            for way in list(ways)[:: 1 if turn % 2 else -1]:
                took, used_s, last = seconds(Path(name), [*workers, *ways[way]])
                clock[way].append(took)
                cpu[way].append(used_s)
                said[way].add(re.sub(r" in .*", "", last))
                print(f"{way}: {last}, {used_s:.2f} s of CPU", file=sys.stderr, flush=True)
    asked = f"{given.tests} healthy tests, {given.rounds} rounds in turns"
    print(f"| {asked} | seconds, median | least, most | CPU | said |")
    print("|:--|--:|--:|--:|:--|")
    for way, values in clock.items():
        least_most = f"{min(values):.2f}, {max(values):.2f}"
        middle, used_s = statistics.median(values), statistics.median(cpu[way])
        print(f"| {way} --hang-guard | {middle:.2f} | {least_most} | {used_s:.2f} | {said[way]} |")
    more_s, more_cpu_s = (statistics.median(map(float.__sub__, of["with"], of["without"])) for of in (clock, cpu))
    more_ms, share = 1e3 * more_s / given.tests, more_s / statistics.median(clock["without"])
    more_cpu_ms = 1e3 * more_cpu_s / given.tests
    print(f"\n{more_ms:.2f} ms a test more, {100 * share:.1f} % of the time; {more_cpu_ms:.2f} ms of CPU")
    failed = said["with"] != {f"{given.tests} passed"}
    sys.exit(1 if failed or more_ms > MOST_MS or share > MOST_SHARE else 0)


if __name__ == "__main__":
    main()
