"""How long the command line takes to start, as multiples of a bare Python's start.

    python bench/startup.py --rounds 25

Every round starts each of them once, one after the other, so that what else the machine does meets all alike. Given
are medians of the CPU time of the process (user and system), and of the time on the clock. Bytecode is kept, as an
installation has it; a first round that makes it does not count.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

CLICK = "import click\nclick.Group('g', commands=[click.Command('c')])(['--help'])"


def main() -> None:
    """Measure, and print one table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=25)
    options.add_argument("--command", default=str(Path(sys.executable).with_name("nsa-harness")))
    options.add_argument("--python", default=sys.executable, help="The interpreter of that command.")
    options.add_argument("--runs", help="A folder of runs to list, beside an empty one.")
    given = options.parse_args()
    own = [given.python, given.command]
    commands = {
        "python -c pass": [given.python, "-c", "pass"],
        "import re, as every console script does": [given.python, "-c", "import re"],
        "click, an empty group's --help": [given.python, "-c", CLICK],
        "nsa-harness --help": [*own, "--help"],
        "nsa-harness report --list, no run": [*own, "report", "--list", "--runs", "/nonexistent"],
    }
    if given.runs:
        number = len(list(Path(given.runs).glob("*/journal.jsonl")))
        commands[f"nsa-harness report --list, {number} runs"] = [*own, "report", "--list", "--runs", given.runs]
    cpu: dict[str, list[float]] = {name: [] for name in commands}
    wall: dict[str, list[float]] = {name: [] for name in commands}
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    for number in range(given.rounds + 1):
        for name, command in commands.items():
            began = time.perf_counter()
            started = subprocess.Popen(command, stdout=-3, stderr=-3, cwd="/", env=environ)
            _, _, used = os.wait4(started.pid, 0)
            if number == 0:
                continue
            wall[name].append(time.perf_counter() - began)
            cpu[name].append(used.ru_utime + used.ru_stime)
    bare = [statistics.median(of["python -c pass"]) for of in (cpu, wall)]
    print("| | CPU | | clock | |\n|---|--:|--:|--:|--:|")
    for name in commands:
        cells = [
            f"{statistics.median(of[name]) * 1e3:.0f} ms | {statistics.median(of[name]) / one:.1f}"
            for of, one in zip((cpu, wall), bare, strict=True)
        ]
        print(f"| `{name}` | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
