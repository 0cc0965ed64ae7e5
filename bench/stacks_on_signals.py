"""How often a look at its stacks ends a program that runs Python: by faulthandler from C, and by Python's own handler.

    python bench/stacks_on_signals.py --seconds 30 python3.11 python3.13

Each interpreter computes in Python and is sent the signal every millisecond, started again whenever it ends.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from nsa_harness_shim import show_stacks
show_stacks(open("/dev/null", "w"))
def leaf(value, *rest, **named):
    return [str(value), *rest, *named]
def step(depth):
    return leaf(depth, depth, name=depth) if depth == 0 else [*step(depth - 1), *map(leaf, range(3))]
print("ready", flush=True)
while True:
    step(8)
"""


def crashes(python: str, number: signal.Signals, *, seconds: float) -> tuple[int, int]:
    """Signals sent, and how many of them ended the program."""
    from harness import shim

    until, sent, ended = time.monotonic() + seconds, 0, 0
    while time.monotonic() < until:
        argv = [python, "-c", PROGRAM, shim.__path__[0]]
        with subprocess.Popen(argv, stdout=subprocess.PIPE) as program:
            program.stdout.readline()
            while program.poll() is None and time.monotonic() < until:
                program.send_signal(number)
                sent += 1
                time.sleep(0.001)
            ended += program.poll() == -signal.SIGSEGV
            program.kill()
    return sent, ended


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="*", default=[sys.executable], help="interpreters; this one if none is named")
    parser.add_argument("--seconds", type=float, default=30.0)
    args = parser.parse_args()
    print("| Python | asked by | signals | crashed |\n|:--|:--|--:|--:|")
    for python in args.pythons:
        version = subprocess.check_output([python, "-V"], text=True).split()[1]
        for number, what in ((signal.SIGUSR2, "SIGUSR2, from C"), (signal.SIGUSR1, "SIGUSR1, by Python")):
            sent, ended = crashes(python, number, seconds=args.seconds)
            print(f"| {version} | {what} | {sent:,} | {ended} |", flush=True)


if __name__ == "__main__":
    main()
